// One answer taken apart: reply, scores, evidence in rank order, gold turns found and missed, the trace.

async function showDetail(index, run, at) {
  const [rows, detail, pieces] = await Promise.all([chunk(`rows-${run}`), chunk(`detail-${run}`), chunk("pieces")]);
  const q = rows.question[at];
  const { sample, gold, evidence } = index.questions;
  const first = detail.starts[detail.list[at]];
  const items = [];
  for (let i = first; i < detail.starts[detail.list[at] + 1]; i++) {
    const piece = detail.items.piece[i];
    items.push({
      text: pieces.text[piece],
      dia_ids: pieces.dia_ids[piece],
      date: pieces.date[piece],
      paths: detail.paths[detail.items.paths[i]],
      rank: detail.items.rank[i],
      round: detail.items.round[i],
      score: detail.items.score[i],
    });
  }
  const exact = items.some((item) => item.dia_ids.length > 0);
  const usage = detail.usage[at];
  const facts = [
    ["reference" + (index.questions.category[q] === 5 ? " (the trap under amem)" : ""), gold[q]],
    ["answer", rows.answer[at] === null ? "none" : rows.answer[at]],
    ["raw reply", detail.reply[at]],
    ["options shown", detail.options[at] && detail.options[at].join("  |  ")],
    ["error", detail.error[at] && `${detail.error[at].kind}: ${detail.error[at].message}`],
    ["scores", Object.entries(rows.scores).map(([name, values]) => (values[at] === null ? null : `${index.metrics[name] || name} ${percent(values[at])}`)).filter(Boolean).join(" · ")],
    ["cost", usage && `${many(usage.calls, "call")} (${whole(usage.cached_calls)} cached), ${whole(usage.prompt_tokens)} prompt and ${whole(usage.completion_tokens)} completion tokens, ${number(detail.latency[at])} s`],
    ["context", detail.context_tokens[at] === null ? null : `${whole(detail.context_tokens[at])} tokens, ${many(items.length, "item")}`],
    ["fallbacks", detail.fallbacks[at] && Object.entries(detail.fallbacks[at]).map(([name, n]) => `${name} ${n}`).join(", ")],
  ];
  return el(
    "div",
    { class: "detail" },
    el("dl", null, ...facts.filter(([, value]) => value).flatMap(([name, value]) => [el("dt", null, name), el("dd", null, value)])),
    goldList(evidence[q], items, pieces.turns[sample[q]] || {}, exact),
    evidenceList(index, run, sample[q], items, new Set(evidence[q])),
    detail.trace[at] && el("details", null, el("summary", null, "How the evidence came about"), tree(detail.trace[at])),
  );
}

function goldList(ids, items, turns, exact) {
  if (!ids.length) return el("p", { class: "note" }, "No gold evidence of this question resolves.");
  const where = (id) => items.find((item) => item.dia_ids.includes(id));
  const found = ids.filter(where).length;
  const title = exact ? `Gold turns: ${found} of ${ids.length} reached the reader` : "Gold turns (this evidence names no turns)";
  return el(
    "div",
    { class: "gold" },
    el("h5", null, title),
    el(
      "ul",
      null,
      ...ids.map((id) => {
        const item = where(id);
        const state = !exact ? null : item ? `found, round ${item.round}, rank ${item.rank}${item.paths.length ? `, by ${item.paths.join(" + ")}` : ""}` : "missed";
        return el("li", { class: exact ? (item ? "is-found" : "is-missed") : null }, el("strong", null, `${exact ? (item ? "✓ " : "✗ ") : ""}${id}`), state && ` ${state}`, turns[id] !== undefined && el("span", { class: "said" }, turns[id]));
      }),
    ),
  );
}

function evidenceList(index, run, sample, items, gold) {
  if (!items.length) return el("p", { class: "note" }, "No evidence items.");
  const kept = index.runs[run].memories.includes(sample);
  const line = (item) => {
    const ids = item.dia_ids.slice(0, 12).flatMap((id) => [el("span", { class: gold.has(id) ? "dia is-gold" : "dia" }, gold.has(id) ? `★ ${id}` : id), " "]);
    const more = item.dia_ids.length > 12 ? `… ${item.dia_ids.length - 12} more ` : null;
    const link = kept && item.dia_ids.length > 0 && el("a", { class: "walk", href: `#memory?${new URLSearchParams({ run, sample, at: `turn:${item.dia_ids[0]}` })}`, "aria-label": `${item.dia_ids[0]} in memory` }, "in memory");
    return el(
      "li",
      { class: item.dia_ids.some((id) => gold.has(id)) ? "has-gold" : null },
      el("div", { class: "meta" }, el("div", null, el("strong", null, `${item.round}·${item.rank}`), " ", item.paths.join(" + "), item.score === null ? null : el("span", { class: "score" }, ` ${number(item.score, 4)}`)), el("div", null, ids, more, link)),
      el("div", { class: "text" }, item.text),
    );
  };
  return el("details", { open: true }, el("summary", null, `Evidence: ${many(items.length, "item")} as the reader sees them (round·rank, pathway, score, turns; ★ gold)`), el("ol", { class: "evidence" }, ...items.map(line)));
}

// Any JSON value as nested lists.
function tree(value) {
  if (Array.isArray(value)) {
    if (value.every((part) => part === null || typeof part !== "object")) return el("span", null, value.join(", "));
    return el("ol", { class: "tree" }, ...value.map((part) => el("li", null, tree(part))));
  }
  if (value && typeof value === "object") return el("dl", { class: "tree" }, ...Object.entries(value).flatMap(([key, part]) => [el("dt", null, key), el("dd", null, tree(part))]));
  return el("span", null, String(value));
}
