// The memory explorer: one run, one conversation, one node at a time.

const MEMORY_STATE = { run: "", sample: "", at: "", text: "" };
const HITS = 60;

async function memoryView(index) {
  const body = byId("m-body");
  const form = byId("m-filters");
  form.replaceChildren();
  form.addEventListener("submit", (event) => event.preventDefault());
  const runs = index.runs.map((run, place) => [String(place), run]).filter(([, run]) => run.memories.length);
  if (!runs.length) {
    body.replaceChildren(el("p", { class: "note" }, "No run of this collection has exported a memory that can be shown."));
    return;
  }
  const state = readState("memory", MEMORY_STATE);
  if (!runs.some(([place]) => place === state.run)) state.run = runs[0][0];
  let graph = null;
  let sampleControl = null;

  const results = el("div", { class: "results" });
  const panel = el("div", { class: "node-panel", tabindex: "-1", role: "region", "aria-label": "Selected node" });
  const counts = el("p", { class: "count", role: "status" });
  const grown = el("section", { class: "growth" });
  body.replaceChildren(counts, el("div", { class: "walker" }, results, panel), grown);

  const options = runOptions(index);
  field(form, "run", "System", runs.map(([place]) => options[Number(place)]), state.run, guarded(async (_, value) => {
    state.run = value;
    state.at = "";
    samples();
    await load();
  }));
  const samplePlace = el("div", { class: "field" });
  form.append(samplePlace);
  field(form, "text", "Find notes, keywords, topics", null, state.text, (_, value) => {
    state.text = value;
    keep();
    search();
  });

  function samples() {
    const known = index.runs[Number(state.run)].memories;
    if (!known.includes(state.sample)) state.sample = known[0];
    const control = el("select", { id: "m-sample" }, ...known.map((name) => el("option", { value: name }, name)));
    control.value = state.sample;
    control.addEventListener("change", guarded(async () => {
      state.sample = control.value;
      state.at = "";
      await load();
    }));
    sampleControl = control;
    samplePlace.replaceChildren(el("label", { for: "m-sample" }, "Conversation"), sampleControl);
  }

  const keep = () => writeState("memory", state, MEMORY_STATE);

  async function load() {
    const place = index.runs[Number(state.run)].memories.indexOf(state.sample);
    const [data, texts] = await Promise.all([chunk(`memory-${state.run}-${place}`), chunk(`texts-${index.samples.indexOf(state.sample)}`)]);
    graph = makeGraph(data, texts);
    counts.textContent = [[graph.notes, graph.kind], [graph.keywords, "keywords"], [graph.topics, "topics"], [graph.edges, "edges"]].filter(([all], place) => place === 0 || all.length).map(([all, what]) => `${whole(all.length)} ${what}`).join(", ");
    search();
    const [kind, ...rest] = state.at.split(":");
    const wanted = rest.join(":");
    if (kind === "turn") {
      const note = graph.notes.findIndex((one) => one.dia_ids.includes(wanted));
      show("note", Math.max(0, note));
    } else if (["note", "keyword", "topic"].includes(kind) && graph[`${kind}s`][Number(wanted)]) show(kind, Number(wanted));
    else show("note", 0);
    growth();
  }

  const button = (kind, at, name, text, extra) =>
    el("li", null, el("button", { type: "button", class: `walk-to walk-${kind}`, onclick: () => walk(kind, at) }, el("span", { class: "name" }, name), extra && el("span", { class: "number" }, ` ${extra}`), text && el("span", { class: "said" }, clip(text, 220))));

  function section(title, items, drawn) {
    if (!items.length) return null;
    const list = el("ul", { class: "nodes" }, ...items.slice(0, HITS).map(drawn));
    const parts = [el("h4", null, `${title} (${whole(items.length)})`), list];
    if (items.length > HITS) {
      const more = el("button", { type: "button", class: "more", onclick: () => {
        list.append(...items.slice(HITS).map(drawn));
        more.remove();
      } }, `Show ${whole(items.length - HITS)} more`);
      parts.push(more);
    }
    return el("section", null, ...parts);
  }

  function search() {
    const words = state.text.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = (text) => words.every((word) => text.toLowerCase().includes(word));
    const keywords = graph.keywords.map((k, at) => [k, at]).filter(([k]) => fits(k.form)).sort((p, q) => q[0].notes.length - p[0].notes.length || p[1] - q[1]);
    const topics = graph.topics.map((members, at) => [members, at]).filter(([members]) => fits(members.map((k) => graph.keywords[k].form).join(" ")));
    const notes = graph.notes.map((note, at) => [note, at]).filter(([note]) => fits([note.text, ...note.turns.map(([, text]) => text), ...note.dia_ids].join("\n")));
    const found = [
      section("Topics", topics, ([members, at]) => button("topic", at, topicName(graph, at), null, `${members.length}`)),
      section("Keywords", keywords, ([k, at]) => button("keyword", at, k.form, null, `${k.notes.length}`)),
      section(graph.kind[0].toUpperCase() + graph.kind.slice(1), notes, ([note, at]) => button("note", at, noteName(graph, at), note.text)),
    ].filter(Boolean);
    // With words to look for, notes are what one looks for; without, topics are the table of contents.
    if (words.length) found.reverse();
    results.replaceChildren(el("h3", null, words.length ? "Found" : "Contents"), ...(found.length ? found : [el("p", { class: "note" }, "Nothing holds these words.")]));
  }

  function walk(kind, at) {
    show(kind, at);
    panel.focus();
  }

  function show(kind, at) {
    state.at = `${kind}:${at}`;
    keep();
    if (!graph.notes.length) {
      panel.replaceChildren(el("p", { class: "note" }, "This memory is empty."));
      return;
    }
    const name = kind === "note" ? noteName(graph, at) : kind === "keyword" ? graph.keywords[at].form : topicName(graph, at);
    const note = kind === "note" ? graph.notes[at] : null;
    const narrow = panel.clientWidth < 700;
    const [picture, hidden] = egoPicture(graph, kind, at, name, walk, narrow);
    refill(
      panel,
      el("h3", null, el("span", { class: "kind" }, `${kind} `), name),
      note && el("p", { class: "facts" }, [day(note.date), many(note.dia_ids.length, "turn"), `id ${note.id}`].filter(Boolean).join(" · ")),
      note && el("p", { class: "context" }, note.text),
      note && note.turns.length > 0 && el("ul", { class: "turns" }, ...note.turns.map(([id, text]) => el("li", null, el("strong", null, id), " ", text))),
      el("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": "Neighbours as a picture" }, picture),
      hidden,
      ...neighbours(graph, kind, at).map(([title, nodes]) => section(title, nodes, (n) => button(n.kind, n.at, n.name, n.kind === "note" ? n.text : null, n.weight !== null && n.weight !== undefined ? number(n.weight) : n.kind === "note" ? null : n.text))),
    );
    panel.scrollTop = 0;
  }

  function growth() {
    grown.replaceChildren();
    if (!graph.growth) return;
    grown.append(
      el("h3", null, `Growth while ${state.sample} is replayed`),
      el("div", { class: "panels" }, ...Object.entries(graph.growth).map(([name, values]) => el("div", null, smallChart(name, values)))),
    );
  }

  samples();
  await load();
}
