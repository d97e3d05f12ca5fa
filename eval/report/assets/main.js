// One view at a time, named by the address.

const VIEWS = { tables: null, figures: null, questions: questionsView, compare: compareView, memory: memoryView };

const started = new Map();
const addresses = new Map();
let index = null;

const show = guarded(async () => {
  const [asked, query] = location.hash.slice(1).split("?");
  const name = asked in VIEWS ? asked : "tables";
  for (const view of Object.keys(VIEWS)) {
    byId(`view-${view}`).hidden = view !== name;
    const link = document.querySelector(`nav a[href="#${view}"]`);
    if (view === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (!VIEWS[name]) return;
  // The bare name of a view that is open already keeps what was chosen there.
  if (query || !started.has(name)) {
    const section = byId(`view-${name}`);
    section.setAttribute("aria-busy", "true");
    index ??= await chunk("index");
    started.set(name, true);
    await VIEWS[name](index);
    section.removeAttribute("aria-busy");
    if (query && moved) byId(`h-${name}`).focus();
  } else if (addresses.has(name)) history.replaceState(null, "", addresses.get(name));
});

let moved = false;
document.addEventListener("click", (event) => {
  const link = event.target.closest && event.target.closest("a[href^='#']");
  if (!link) return;
  const here = location.hash.slice(1).split("?")[0] || "tables";
  addresses.set(here, location.hash);
});
window.addEventListener("hashchange", () => {
  moved = true;
  if (location.hash === "#main") return;
  show();
});
document.documentElement.classList.add("scripted");
show();
