// Two runs on the questions both were asked.

const COMPARE_STATE = { a: "0", b: "1", metric: "f1_amem", which: "differ", category: "", text: "", sort: "", down: "" };

async function compareView(index) {
  const body = byId("c-list");
  if (index.runs.length < 2) {
    body.replaceChildren(el("p", { class: "note" }, "There is one run in this collection: nothing to compare it with."));
    return;
  }
  const questions = index.questions;
  const state = readState("compare", COMPARE_STATE);
  let rows = [];
  let pairs = [];

  const list = makeList(body, {
    caption: "Questions both were asked",
    columns: [
      { title: "Question", class: "wide" },
      { title: "Reference", class: "wide" },
      { title: "A", class: "wide" },
      { title: "score A", class: "number", sort: "x" },
      { title: "B", class: "wide" },
      { title: "score B", class: "number", sort: "y" },
      { title: "A − B", class: "number", sort: "difference" },
    ],
    row: (pair) => [
      el("span", null, questions.question[pair.q], el("small", null, `${questions.sample[pair.q]} / ${questions.qa[pair.q]} · ${questions.category[pair.q]} ${index.categories[questions.category[pair.q]] || ""}`)),
      clip(questions.gold[pair.q], 160),
      answer(0, pair.a),
      percent(pair.x),
      answer(1, pair.b),
      percent(pair.y),
      signed(pair.difference),
    ],
    open: async (pair) => {
      const both = await Promise.all([showDetail(index, Number(state.a), pair.a), showDetail(index, Number(state.b), pair.b)]);
      const names = [state.a, state.b].map((run) => index.runs[run].name);
      return el("div", { class: "pair" }, ...both.map((node, side) => el("section", null, el("h4", null, `${"AB"[side]}: ${names[side]}`), node)));
    },
    sorted: (order) => {
      state.sort = order.key;
      state.down = order.down ? "1" : "0";
      refresh();
    },
  });
  const answer = (side, at) => clip(rows[side].answer[at] ?? "(error)", 160);
  const signed = (value) => (value === null ? "" : `${value > 0 ? "+" : ""}${percent(value)}`);

  async function pick() {
    rows = await Promise.all([chunk(`rows-${state.a}`), chunk(`rows-${state.b}`)]);
    const of = new Map(rows[1].question.map((q, at) => [`${q}/${rows[1].trial[at]}`, at]));
    pairs = [];
    rows[0].question.forEach((q, a) => {
      const b = of.get(`${q}/${rows[0].trial[a]}`);
      if (b !== undefined) pairs.push({ q, a, b });
    });
    refresh();
  }

  function refresh() {
    writeState("compare", state, COMPARE_STATE);
    const value = (side, at) => (rows[side].scores[state.metric] || [])[at] ?? null;
    const words = state.text.toLowerCase().split(/\s+/).filter(Boolean);
    const kept = pairs.filter((pair) => {
      pair.x = value(0, pair.a);
      pair.y = value(1, pair.b);
      pair.difference = pair.x === null || pair.y === null ? null : pair.x - pair.y;
      const text = () => [questions.question[pair.q], questions.gold[pair.q], answer(0, pair.a), answer(1, pair.b)].join("\n").toLowerCase();
      return (state.category === "" || questions.category[pair.q] === Number(state.category)) && words.every((word) => text().includes(word));
    });
    const known = kept.filter((pair) => pair.difference !== null);
    const better = known.filter((pair) => pair.difference > 0).length;
    const worse = known.filter((pair) => pair.difference < 0).length;
    const mean = known.length ? known.reduce((sum, pair) => sum + pair.difference, 0) / known.length : null;
    const tests = {
      differ: (pair) => pair.difference !== null && pair.difference !== 0,
      a: (pair) => pair.difference > 0,
      b: (pair) => pair.difference !== null && pair.difference < 0,
      equal: (pair) => pair.difference === 0,
      text: (pair) => answer(0, pair.a) !== answer(1, pair.b),
      all: () => true,
    };
    const shown = kept.filter(tests[state.which] || tests.differ);
    if (state.sort) {
      const sign = state.down === "0" ? 1 : -1;
      shown.sort((p, q) => sign * ((p[state.sort] ?? -9) - (q[state.sort] ?? -9)));
    }
    const counts = `A higher on ${whole(better)}, B higher on ${whole(worse)}, equal on ${whole(known.length - better - worse)}${mean === null ? "" : `; mean difference ${signed(mean)} points`}`;
    list.show(shown, pairs.length ? `${whole(shown.length)} of ${whole(pairs.length)} questions shown. ${whole(known.length)} scored in both: ${counts}.` : "These two runs share no question: they come from different data.");
  }

  const form = byId("c-filters");
  form.replaceChildren();
  form.addEventListener("submit", (event) => event.preventDefault());
  const changed = guarded(async (name, value) => {
    state[name] = value;
    if (name === "a" || name === "b") await pick();
    else refresh();
  });
  const metrics = Object.keys((await chunk("rows-0")).scores);
  field(form, "a", "A", runOptions(index), state.a, changed);
  field(form, "b", "B", runOptions(index), state.b, changed);
  field(form, "metric", "Score", metrics.map((name) => [name, index.metrics[name] || name]), state.metric, changed);
  field(form, "which", "Show", [["differ", "scores differ"], ["a", "A higher"], ["b", "B higher"], ["text", "answers differ"], ["equal", "scores equal"], ["all", "all"]], state.which, changed);
  field(form, "category", "Category", [["", "all categories"], ...categoryOptions(index)], state.category, changed);
  field(form, "text", "Words in question, reference, answers", null, state.text, changed);
  await pick();
}
