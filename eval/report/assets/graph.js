// A memory as a graph in the reader's hands, and the picture of one node with its neighbours.

const NEAR = 12;

function makeGraph(data, texts) {
  const notes = data.notes.text.map((text, at) => ({
    text: texts[text],
    turns: data.notes.turns[at].map(([id, turn]) => [id, texts[turn]]),
    id: data.notes.id[at],
    date: data.notes.date[at],
    dia_ids: data.notes.dia_ids[at],
    keywords: data.notes.keywords[at],
    edges: [],
  }));
  const keywords = data.keywords.map((form) => ({ form, notes: [], topics: [] }));
  notes.forEach((note, at) => note.keywords.forEach((k) => keywords[k].notes.push(at)));
  data.topics.forEach((members, topic) => members.forEach((k) => keywords[k].topics.push(topic)));
  data.edges.forEach(([a, b, weight]) => {
    notes[a].edges.push([b, weight]);
    notes[b].edges.push([a, weight]);
  });
  notes.forEach((note) => note.edges.sort((p, q) => (q[1] ?? 0) - (p[1] ?? 0) || p[0] - q[0]));
  return { kind: data.kind, notes, keywords, topics: data.topics, edges: data.edges, growth: data.growth };
}

const noteName = (graph, at) => `${graph.notes[at].dia_ids.slice(0, 3).join(" ")}${graph.notes[at].dia_ids.length > 3 ? " …" : ""}` || `note ${graph.notes[at].id}`;
const topicName = (graph, at) => `topic ${at}: ${graph.topics[at].slice(0, 4).map((k) => graph.keywords[k].form).join(", ")}`;

// The neighbours of a node as {kind, at, name, text, weight}, the strongest first within each relation.
function neighbours(graph, kind, at) {
  const word = (k) => ({ kind: "keyword", at: k, name: graph.keywords[k].form, text: many(graph.keywords[k].notes.length, "note") });
  const note = ([n, weight]) => ({ kind: "note", at: n, name: noteName(graph, n), text: graph.notes[n].text, weight });
  const topic = (t) => ({ kind: "topic", at: t, name: topicName(graph, t), text: many(graph.topics[t].length, "keyword") });
  const rarest = (a, b) => graph.keywords[a].notes.length - graph.keywords[b].notes.length || a - b;
  if (kind === "note") {
    const node = graph.notes[at];
    const topics = [...new Set(node.keywords.flatMap((k) => graph.keywords[k].topics))].sort((a, b) => a - b);
    return [
      ["Keywords, rarest first", [...node.keywords].sort(rarest).map(word)],
      ["Topics of its keywords", topics.map(topic)],
      ["RELATED notes", node.edges.map(note)],
    ];
  }
  if (kind === "keyword") {
    const node = graph.keywords[at];
    return [
      ["Topics", node.topics.map(topic)],
      ["Notes", node.notes.map((n) => note([n, null]))],
    ];
  }
  const members = graph.topics[at];
  const counts = new Map();
  members.forEach((k) => graph.keywords[k].notes.forEach((n) => counts.set(n, (counts.get(n) || 0) + 1)));
  const ranked = [...counts].sort((p, q) => q[1] - p[1] || p[0] - q[0]);
  return [
    ["Keywords, most notes first", [...members].sort((a, b) => -rarest(a, b)).map(word)],
    ["Notes, most of its keywords first", ranked.map(([n, many]) => ({ ...note([n, null]), text: `${many} of its keywords · ${graph.notes[n].text}` }))],
  ];
}

// Keywords and topics left, the node in the middle, notes right; arcs are edges between those notes.
// narrow: for a phone.
function egoPicture(graph, kind, at, name, walk, narrow) {
  const [width, from, centre, to, letters] = narrow ? [360, 120, 180, 240, 17] : [760, 220, 380, 530, 33];
  const groups = neighbours(graph, kind, at);
  const every = groups.flatMap(([, nodes]) => nodes);
  const left = [...every.filter((n) => n.kind === "topic").slice(0, 4), ...every.filter((n) => n.kind === "keyword")].slice(0, NEAR + 2);
  const right = every.filter((n) => n.kind === "note").slice(0, NEAR + 2);
  const row = 26;
  const height = Math.max(left.length, right.length, 3) * row + 24;
  const middle = height / 2;
  const top = (list) => middle - (list.length * row) / 2 + row / 2;
  const hidden = every.length - left.length - right.length;
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, class: "ego", role: "group", "aria-label": `${name} with ${left.length + right.length} of its ${every.length} neighbours` });
  const shapes = svg("g");
  const place = (list, x) => list.map((node, i) => ({ ...node, x, y: top(list) + i * row }));
  const placed = [...place(left, from), ...place(right, to)];
  for (const node of placed) {
    const strength = node.weight === null || node.weight === undefined ? 1 : 0.6 + 2.4 * node.weight;
    shapes.append(svg("path", { class: `tie tie-${node.kind}`, "stroke-width": strength.toFixed(2), d: `M${centre} ${middle}C${(centre + node.x) / 2} ${middle} ${(centre + node.x) / 2} ${node.y} ${node.x} ${node.y}` }));
  }
  const spot = new Map(placed.filter((n) => n.kind === "note").map((n) => [n.at, n.y]));
  for (const [n, y] of spot) for (const [other, weight] of graph.notes[n].edges) {
    const end = spot.get(other);
    if (end !== undefined && other > n) shapes.append(svg("path", { class: "arc", "stroke-width": (0.6 + (weight ?? 0.5)).toFixed(2), d: `M${to - 7} ${y}Q${to - 7 - Math.min(40, Math.abs(end - y) / 3)} ${(y + end) / 2} ${to - 7} ${end}` }));
  }
  for (const node of placed) {
    const onLeft = node.x < centre;
    const said = node.kind === "note" ? `${node.name}  ${node.text}` : node.name;
    const press = () => walk(node.kind, node.at);
    shapes.append(
      svg(
        "g",
        { class: `node node-${node.kind}`, role: "button", tabindex: "0", "aria-label": clip(`${node.kind} ${said}${node.weight ? `, weight ${number(node.weight)}` : ""}`, 200), onclick: press, onkeydown: (event) => (event.key === "Enter" || event.key === " ") && (event.preventDefault(), press()) },
        svg("rect", { class: "hit", x: onLeft ? 0 : node.x - 8, y: node.y - row / 2, width: onLeft ? node.x + 8 : width - node.x - 4, height: row }),
        node.kind === "note" ? svg("rect", { class: "mark", x: node.x - 5, y: node.y - 5, width: 10, height: 10 }) : node.kind === "topic" ? svg("path", { class: "mark", d: `M${node.x} ${node.y - 7}l7 7l-7 7l-7 -7z` }) : svg("circle", { class: "mark", cx: node.x, cy: node.y, r: 5 }),
        svg("text", { x: onLeft ? node.x - 12 : node.x + 11, y: node.y + 4, "text-anchor": onLeft ? "end" : "start" }, clip(said, letters)),
      ),
    );
  }
  shapes.append(svg("circle", { class: `centre centre-${kind}`, cx: centre, cy: middle, r: 9 }), svg("text", { class: "strong", x: centre, y: middle - 15, "text-anchor": "middle" }, clip(name, narrow ? 16 : 26)));
  picture.append(shapes);
  return [picture, hidden > 0 && el("p", { class: "note" }, `The picture shows ${left.length + right.length} of ${every.length} neighbours; the lists below hold all.`)];
}

// One small chart of a running total over the turns of a conversation.
function smallChart(name, values) {
  const [width, height, left, foot] = [230, 120, 40, 20];
  const most = Math.max(1, ...values);
  const x = (at) => left + ((width - left - 8) * at) / Math.max(1, values.length - 1);
  const y = (value) => height - foot - ((height - foot - 24) * value) / most;
  const step = Math.max(1, Math.floor(values.length / 160));
  const points = values.map((value, at) => [at, value]).filter(([at]) => at % step === 0 || at === values.length - 1);
  const last = values[values.length - 1];
  return svg(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": `${name}: ${whole(last)} after ${values.length} turns` },
    svg("text", { class: "strong", x: 0, y: 12 }, name),
    svg("text", { class: "number", x: width, y: 12, "text-anchor": "end" }, whole(last)),
    svg("line", { class: "rule", x1: left, x2: width - 8, y1: y(0), y2: y(0) }),
    svg("line", { class: "rule", x1: left, x2: width - 8, y1: y(most), y2: y(most) }),
    svg("text", { class: "faint", x: left - 5, y: y(0) + 4, "text-anchor": "end" }, "0"),
    svg("text", { class: "faint", x: left - 5, y: y(most) + 4, "text-anchor": "end" }, whole(most)),
    svg("text", { class: "faint", x: width - 8, y: height - 5, "text-anchor": "end" }, `${whole(values.length)} turns`),
    svg("path", { class: "line series-0", d: points.map(([at, value], i) => `${i ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join("") }),
  );
}
