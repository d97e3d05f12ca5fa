// Every answer of every run, filtered and sorted.

const QUESTION_STATE = { run: "", category: "", outcome: "", found: "", sample: "", scorer: "f1_amem", text: "", sort: "", down: "" };

async function questionsView(index) {
  const rows = await Promise.all(index.runs.map((_, run) => chunk(`rows-${run}`)));
  const questions = index.questions;
  const entries = [];
  rows.forEach((columns, run) => columns.question.forEach((q, at) => entries.push({ run, at, q, hay: null })));
  entries.sort((a, b) => a.q - b.q || a.run - b.run || a.at - b.at);

  const state = readState("questions", QUESTION_STATE);
  const scores = (entry, metric) => (rows[entry.run].scores[metric] || [])[entry.at];
  const outcome = (entry) => index.outcomes[rows[entry.run].outcome[state.scorer][entry.at]];
  const found = (entry) => index.found[rows[entry.run].found[entry.at]];
  const hay = (entry) => (entry.hay ??= [questions.question[entry.q], questions.gold[entry.q], rows[entry.run].answer[entry.at] || "", questions.evidence[entry.q].join(" ")].join("\n").toLowerCase());

  const list = makeList(byId("q-list"), {
    caption: "Answers",
    columns: [
      { title: "Question", class: "wide" },
      { title: "System", class: "system" },
      { title: "Reference", class: "wide" },
      { title: "Answer", class: "wide" },
      { title: "Outcome" },
      { title: index.metrics.f1_amem, class: "number", sort: "f1_amem" },
      { title: index.metrics.f1_locomo, class: "number", sort: "f1_locomo" },
      { title: "Evidence" },
      { title: "Recall", class: "number", sort: "recall" },
      { title: "Tokens", class: "number", sort: "tokens" },
    ],
    row: (entry) => [
      el("span", null, questions.question[entry.q], el("small", null, `${questions.sample[entry.q]} / ${questions.qa[entry.q]} · ${questions.category[entry.q]} ${index.categories[questions.category[entry.q]] || ""}${rows[entry.run].trial[entry.at] ? ` · trial ${rows[entry.run].trial[entry.at]}` : ""}`)),
      index.runs[entry.run].name,
      clip(questions.gold[entry.q], 160),
      clip(rows[entry.run].answer[entry.at] || "", 160),
      chip(OUTCOMES, outcome(entry)),
      percent(scores(entry, "f1_amem")),
      percent(scores(entry, "f1_locomo")),
      chip(FOUND, found(entry)),
      percent(scores(entry, "recall")),
      whole(rows[entry.run].tokens[entry.at]),
    ],
    open: (entry) => showDetail(index, entry.run, entry.at),
    sorted: (order) => {
      state.sort = order.key;
      state.down = order.down ? "1" : "0";
      refresh();
    },
  });

  function refresh() {
    writeState("questions", state, QUESTION_STATE);
    const words = state.text.toLowerCase().split(/\s+/).filter(Boolean);
    const shown = entries.filter(
      (entry) =>
        (state.run === "" || entry.run === Number(state.run)) &&
        (state.category === "" || questions.category[entry.q] === Number(state.category)) &&
        (state.sample === "" || questions.sample[entry.q] === state.sample) &&
        (state.outcome === "" || outcome(entry) === state.outcome) &&
        (state.found === "" || found(entry) === state.found) &&
        words.every((word) => hay(entry).includes(word)),
    );
    if (state.sort) {
      const sign = state.down === "0" ? 1 : -1;
      const value = (entry) => (state.sort === "tokens" ? rows[entry.run].tokens[entry.at] : scores(entry, state.sort));
      // What has no value comes last either way.
      shown.sort((a, b) => {
        const [x, y] = [value(a) ?? null, value(b) ?? null];
        if (x === null || y === null) return (x === null) - (y === null);
        return sign * (x - y);
      });
    }
    const distinct = new Set(shown.map((entry) => entry.q)).size;
    list.show(shown, `${whole(shown.length)} of ${whole(entries.length)} answers, ${whole(distinct)} distinct questions`);
  }

  const form = byId("q-filters");
  form.replaceChildren();
  form.addEventListener("submit", (event) => event.preventDefault());
  const changed = (name, value) => {
    state[name] = value;
    refresh();
  };
  const any = (pairs, words) => [["", words], ...pairs];
  field(form, "run", "System", any(runOptions(index), "all systems"), state.run, changed);
  field(form, "category", "Category", any(categoryOptions(index), "all categories"), state.category, changed);
  field(form, "outcome", "Answer", any(index.outcomes.map((name) => [name, OUTCOMES[name][1]]), "any answer"), state.outcome, changed);
  field(form, "found", "Evidence", any(index.found.map((name) => [name, FOUND[name][1]]), "any evidence"), state.found, changed);
  field(form, "sample", "Conversation", any([...new Set(questions.sample)].sort().map((name) => [name, name]), "all conversations"), state.sample, changed);
  field(form, "scorer", "Answers judged by", index.scorers.map((name) => [name, index.metrics[name]]), state.scorer, changed);
  field(form, "text", "Words in question, reference, answer, turn ids", null, state.text, changed);
  if (!index.scorers.includes(state.scorer)) state.scorer = index.scorers[0];
  refresh();
}

const runOptions = (index) => {
  const several = new Set(index.runs.map((run) => run.group)).size > 1;
  return index.runs.map((run, place) => [String(place), run.name, several ? run.group : null]);
};
const categoryOptions = (index) => [...new Set(index.questions.category)].sort((a, b) => a - b).map((key) => [String(key), `${key} ${index.categories[key] || ""}`]);
