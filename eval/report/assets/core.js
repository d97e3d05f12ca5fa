// Parts every view uses. Text from data reaches the page through textContent alone.

const SVG = "http://www.w3.org/2000/svg";

// el("td", {class: "number", onclick: f}, "text", child): attributes, listeners, then text and elements.
function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}
const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
// As replaceChildren, leaving out what is null or false.
const refill = (node, ...children) => {
  node.replaceChildren();
  return fill(node, null, children);
};
const many = (n, word) => `${whole(n)} ${word}${n === 1 ? "" : "s"}`;
const byId = (id) => document.getElementById(id);

// Data chunks, unpacked when first asked for.
const opened = new Map();
function chunk(name) {
  if (!opened.has(name)) opened.set(name, unpack(name));
  return opened.get(name);
}
async function unpack(name) {
  const bytes = Uint8Array.from(atob(byId(`chunk-${name}`).textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

const number = (value, digits = 2) =>
  value === null || value === undefined ? "" : value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
const percent = (value) => (value === null || value === undefined ? "" : number(100 * value));
const whole = (value) => number(value, 0);
const clip = (text, most) => (text.length > most ? text.slice(0, most - 1) + "…" : text);
const day = (iso) => (iso ? iso.slice(0, 16).replace("T", " ") : "");

// A shape beside each word, so that no outcome is told by colour alone.
const OUTCOMES = {
  full: ["●", "F1 is 1"],
  partial: ["◐", "F1 between 0 and 1"],
  none: ["○", "F1 is 0"],
  abstained: ["∅", "abstained"],
  trap: ["▲", "fell for the trap"],
  error: ["✕", "error"],
};
const FOUND = {
  complete: ["●", "all gold turns found"],
  partial: ["◐", "some gold turns found"],
  missed: ["○", "no gold turn found"],
  unknown: ["–", "not known"],
};
const chip = (kinds, name) => el("span", { class: `chip chip-${name}` }, el("span", { "aria-hidden": "true" }, kinds[name][0]), ` ${kinds[name][1]}`);

// A labelled select or search field of a filter form. options: [value, words, group or nothing].
function field(form, name, label, options, value, changed) {
  const id = `${form.id}-${name}`;
  const groups = new Map();
  for (const [key, words, group] of options || []) {
    if (!groups.has(group)) groups.set(group, []);
    groups.get(group).push(el("option", { value: key }, words));
  }
  const control = options
    ? el("select", { id, name }, ...[...groups].map(([group, nodes]) => (group ? el("optgroup", { label: group }, nodes) : nodes)))
    : el("input", { id, name, type: "search", autocomplete: "off", spellcheck: "false" });
  control.value = value;
  if (options && control.selectedIndex < 0) control.selectedIndex = 0;
  control.addEventListener(options ? "change" : "input", () => changed(name, control.value));
  form.append(el("div", { class: "field" }, el("label", { for: id }, label), control));
  return control;
}

// A view's filters live in the address (#questions?category=3), so that what is seen can be cited.
function readState(view, initial) {
  const [name, query] = location.hash.slice(1).split("?");
  const state = { ...initial };
  if (name === view) for (const [key, value] of new URLSearchParams(query || "")) if (key in state) state[key] = value;
  return state;
}
function writeState(view, state, initial) {
  const kept = Object.entries(state).filter(([key, value]) => String(value) !== String(initial[key]));
  const query = new URLSearchParams(kept).toString();
  history.replaceState(null, "", `#${view}${query ? "?" + query : ""}`);
}

function trouble(error) {
  const line = byId("trouble");
  line.textContent = `This part of the report could not be shown: ${error && error.message ? error.message : error}`;
  line.hidden = false;
  console.error(error);
}
const guarded = (work) => async (...given) => {
  try {
    return await work(...given);
  } catch (error) {
    trouble(error);
  }
};
