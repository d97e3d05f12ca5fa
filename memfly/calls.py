"""The method's prompts and how long their replies may be."""

EXTRACT = "memfly/prompts/extract.j2"
SCORE = "memfly/prompts/score.j2"
SCORE_LIST = "memfly/prompts/score_list.j2"
MERGE = "memfly/prompts/merge.j2"
PARSE = "memfly/prompts/parse.j2"
JUDGE = "memfly/prompts/judge.j2"
PROMPT_FILES = (EXTRACT, SCORE, SCORE_LIST, MERGE, PARSE, JUDGE)

REPLY_TOKENS = {EXTRACT: 384, SCORE: 48, SCORE_LIST: 480, MERGE: 320, PARSE: 160, JUDGE: 96}
"""Longest reply of each prompt. Our choice: twice what a thorough reply takes, so that only runaway text is cut."""
