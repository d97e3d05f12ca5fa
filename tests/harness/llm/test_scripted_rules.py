import json

import pytest
from llm_fakes import user

from harness.llm.scripted import reply_for
from harness.llm.words import content_list, names_and_words, sentences


def by_rule(rule, text, schema_type="string"):
    schema = {"type": "object", "properties": {"x": {"type": schema_type, "x-scripted": rule}}}
    return json.loads(reply_for(user(text), schema))["x"]


TURN = "<turn>Hey Mel! Caroline's mother moved to New York in May 2019. [image: a brown Dog on the beach]</turn>"


@pytest.mark.parametrize(
    ("rule", "text", "value"),
    [
        ({"rule": "const", "value": [1, "a"]}, "", [1, "a"]),
        ({"rule": "copy", "tag": "a"}, "<a> one\ntwo </a>", "one\ntwo"),
        ({"rule": "copy", "tag": "a"}, '<a n="1">one</a> two </a> three', "one</a> two"),
        ({"rule": "copy", "tag": "a"}, "<ab>no</ab>", ""),
        ({"rule": "copy", "tag": "a"}, "<a>never closed", "never closed"),
        (
            {"rule": "keywords", "tag": "turn", "max": 12},
            TURN,
            ["Mel", "Caroline", "New York", "May", "Dog", "mother", "moved", "2019", "brown", "beach"],
        ),
        ({"rule": "keywords", "tag": "turn", "max": 3}, TURN, ["Mel", "Caroline", "New York"]),
        (
            {"rule": "lead", "tag": "a", "words": 5},
            "<a>Ann sang. Bob sat down. Eve ran.</a>",
            "Ann sang. Bob sat down.",
        ),
        ({"rule": "lead", "tag": "a", "words": 4}, "<a>Ann sang. Bob sat down. Eve.</a>", "Ann sang."),
        ({"rule": "lead", "tag": "a", "words": 2}, "<a>Bob sat down. Eve ran.</a>", "Bob sat"),
        ({"rule": "lead", "tag": "b", "words": 2}, "<a>Bob sat down.</a>", ""),
        (
            {"rule": "keywords", "tag": "a", "max": 9},
            "<a>I read it. Read READ books, Books!</a>",
            ["Read READ", "Books"],
        ),
        ({"rule": "keywords", "tag": "none", "max": 9}, TURN, []),
        (
            {"rule": "entities", "tag": "q", "max": 5},
            "<q>When did Caroline visit the Grand Canyon with Mel?</q>",
            ["Caroline", "Grand Canyon", "Mel", "visit"],
        ),
        ({"rule": "entities", "tag": "q", "max": 5}, "<q>Would it help?</q>", ["help"]),
        # {ann, likes, pottery, classes} and {ann, likes, oslo}: 2 of 5; 2/3 x (1 - 2/5)
        ({"rule": "overlap", "tags": ["a", "b"]}, "<a>Ann likes pottery classes.</a><b>ann likes Oslo</b>", 0.4),
        ({"rule": "complement", "tags": ["a", "b"]}, "<a>Ann likes pottery classes.</a><b>ann likes Oslo</b>", 0.4),
        ({"rule": "complement", "tags": ["a", "b"]}, "<a>Ann likes pottery</a><b>Ann likes</b>", 0.33),
        ({"rule": "overlap", "tags": ["a", "b"]}, "<a>Same words</a><b>words same same</b>", 1.0),
        ({"rule": "complement", "tags": ["a", "b"]}, "<a>Same words</a><b>words same same</b>", 0.0),
        ({"rule": "overlap", "tags": ["a", "b"]}, "<a>it is</a><b></b>", 0.0),
        (
            {"rule": "join", "tags": ["a", "b"]},
            "<a>Ann moved. She met Dr. Ray!</a><b>She  MET Dr. Ray!\nIt rained.</b>",
            "Ann moved. She met Dr. Ray! It rained.",
        ),
        ({"rule": "covers", "question": "q", "context": "c"}, "<q>Where did Ann move?</q><c>Ann will move</c>", True),
        ({"rule": "covers", "question": "q", "context": "c"}, "<q>Where did Ann move?</q><c>Ann moved</c>", False),
        ({"rule": "covers", "question": "q", "context": "c"}, "<q>Is it?</q><c></c>", True),
        (
            {"rule": "missing", "question": "q", "context": "c"},
            "<q>Which painting did Ann sell in Oslo?</q><c>Ann went to Oslo</c>",
            "painting sell",
        ),
        (
            {"rule": "answer", "question": "q", "context": "c"},
            "<q>When did Caroline visit Oslo?</q><c>Mel sang.\nCaroline went to Oslo on 7 May 2019. Oslo is wet.</c>",
            "went 7 May 2019",
        ),
        ({"rule": "answer", "question": "q", "context": "c"}, "<q>Where is Bob?</q><c>Ann sang.</c>", "unknown"),
        (
            {"rule": "answer", "question": "q", "context": "c"},
            "<q>Zed?</q><c>Zed one1 two2 three3 four4 five5 six6 seven7 eight8 nine9</c>",
            "one1 two2 three3 four4 five5 six6 seven7 eight8",
        ),
    ],
)
def test_rule(rule, text, value):
    assert by_rule(rule, text) == value


OPTIONS = "<options><option>Not mentioned</option><option>a red car</option><option>blue car</option></options>"


@pytest.mark.parametrize(
    ("context", "option"),
    [
        ("Ann bought a blue car.", "blue car"),  # car and blue, against car
        ("Bob has a blue car.\nAnn has a car, red.", "a red car"),  # only Ann's line counts
        ("Nothing of it.", "Not mentioned"),  # a tie at none: the first
        ("Ann has a car.", "a red car"),  # a tie at one: the first of them
    ],
)
def test_the_option_best_borne_out_by_the_lines_near_the_question_is_taken(context, option):
    rule = {"rule": "answer", "question": "q", "context": "c"}
    assert by_rule(rule, f"<q>What did Ann want?</q><c>{context}</c>{OPTIONS}") == option


def test_each_repeated_tag_gives_an_item():
    schema = {
        "type": "object",
        "properties": {
            "scores": {
                "type": "array",
                "x-scripted": {
                    "rule": "each",
                    "tag": "note",
                    "item": {
                        "id": {"rule": "attribute", "name": "id"},
                        "s": {"rule": "overlap", "tags": ["new", "."]},
                    },
                },
            }
        },
    }
    text = '<new>Ann likes tea</new>\n<note id="4">Ann likes tea</note>\n<note id="b-7">Bob sleeps</note>'
    assert json.loads(reply_for(user(text), schema)) == {"scores": [{"id": 4, "s": 1.0}, {"id": "b-7", "s": 0.0}]}


def test_similar_names_the_items_that_overlap_enough():
    # {ann, likes, tea} against {ann, likes, oslo}: 2 of 4; against {bob, sleeps}: none; against itself: all
    text = '<new>Ann likes tea</new><old id="3">Ann likes Oslo</old><old id="5">Bob sleeps</old><old id="8">Ann likes tea</old>'
    rule = {"rule": "similar", "tag": "old", "to": "new", "least": 0.5, "name": "id"}
    assert by_rule(rule, text) == [3, 8]
    assert by_rule({**rule, "least": 0.51}, text) == [8]
    assert by_rule({"rule": "any", "of": rule}, text) is True
    assert by_rule({"rule": "any", "of": {**rule, "tag": "none"}}, text) is False


def test_rules_on_the_whole():
    assert json.loads(reply_for(user(""), {"x-scripted": {"rule": "const", "value": {"a": 1}}})) == {"a": 1}
    ruled = {"x-scripted": {"a": {"rule": "copy", "tag": "t"}}, "type": "object"}
    assert json.loads(reply_for(user("<t>x</t>"), ruled)) == {"a": "x"}


def test_a_property_without_a_rule_gets_its_types_empty_value():
    properties = {
        "text": {"type": "string"},
        "whole": {"type": "integer", "minimum": 2},
        "part": {"type": "number"},
        "flag": {"type": "boolean"},
        "many": {"type": "array", "items": {"type": "string"}},
        "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "word": {"enum": ["low", "high"]},
        "fixed": {"const": "f"},
        "inner": {"$ref": "#/$defs/Inner"},
    }
    schema = {
        "type": "object",
        "properties": properties,
        "$defs": {"Inner": {"type": "object", "properties": {"n": {"type": "number"}}}},
    }
    assert json.loads(reply_for(user(""), schema)) == {
        "text": "", "whole": 2, "part": 0, "flag": False, "many": [], "maybe": None, "word": "low", "fixed": "f",
        "inner": {"n": 0},
    }  # fmt: skip


def test_a_plain_reply_answers_the_question():
    assert reply_for(user("<question>Where is Ann?</question><context>Ann is in Oslo.</context>"), None) == "Oslo"


def test_only_the_users_part_is_read():
    messages = [{"role": "system", "content": "<a>static example</a>"}, *user("<a>the turn</a>")]
    schema = {"properties": {"x": {"x-scripted": {"rule": "copy", "tag": "a"}}}}
    assert json.loads(reply_for(messages, schema)) == {"x": "the turn"}


@pytest.mark.parametrize("rule", [{"rule": "guess"}, {"rule": "copy"}])
def test_a_wrong_rule_is_an_error(rule):
    with pytest.raises(ValueError, match="unknown or missing"):
        by_rule(rule, "<a>x</a>")


def test_words():
    assert content_list("I've seen Ann's two cats; they're COLD, aren't they? Cats!") == (
        "seen",
        "ann",
        "two",
        "cats",
        "cold",
    )
    assert names_and_words("The Great Gatsby is mine") == ("Great Gatsby",)
    assert sentences('Dr. Ray came at 3.5. "Really?" Yes!\n\n- done') == (
        "Dr. Ray came at 3.5.",
        '"Really?',
        "Yes!",
        "- done",
    )


def test_last_is_the_last_of_a_repeated_tag():
    assert by_rule({"rule": "last", "tag": "cut"}, "<cut>3</cut> text <cut> 17 </cut> <cat>4</cat>") == 17
    assert by_rule({"rule": "last", "tag": "cut"}, "<cut>3</cut><cut>end</cut>") == "end"
    assert by_rule({"rule": "last", "tag": "cut"}, "none") == ""


def test_closest_ranks_items_by_the_words_they_share_with_the_question():
    text = (
        "<q>Which kiln did Ann buy in Lisbon?</q>"
        '<p id="1">Bob sleeps</p><p id="2">Ann has a kiln</p><p id="3">Ann in Lisbon: a kiln</p><p id="4">a kiln, Ann</p>'
    )
    rule = {"rule": "closest", "question": "q", "tag": "p"}
    assert by_rule({**rule, "max": 9}, text) == [3, 2, 4]  # 3 shared words, then two with 2 in order; Bob shares none
    assert by_rule({**rule, "max": 1}, text) == [3]
    assert by_rule(rule, text) == 3
    assert by_rule(rule, "<q>Zed?</q><p id='1'>Bob</p>") is None


def test_if_takes_a_rule_or_a_value():
    rule = {"rule": "if", "of": {"rule": "copy", "tag": "q"}, "then": {"rule": "copy", "tag": "q"}, "else": "none"}
    assert by_rule(rule, "<q>what</q>") == "what"
    assert by_rule(rule, "<a>what</a>") == "none"


def test_inside_an_item_only_its_own_tags_are_seen():
    text = '<fact id="1"><new>tea</new><old id="4">milk</old></fact><fact id="2"><new>rum</new></fact>'
    item = {"new": {"rule": "copy", "tag": "new"}, "old": {"rule": "copy", "tag": "old"}}
    rule = {"rule": "each", "tag": "fact", "inside": True, "item": item}
    assert by_rule(rule, text, "array") == [{"new": "tea", "old": "milk"}, {"new": "rum", "old": ""}]
