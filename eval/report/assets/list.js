// A long list as pages of rows that open: only the rows in sight are in the document.

const PAGE = 50;

// columns: {title, class, sort}; row(entry) -> cells (text or elements; the first is the opener's label);
// open(entry) -> an element, or a promise of one; sorted(key) is called when a header is pressed.
function makeList(root, { caption, columns, row, open, sorted }) {
  let entries = [];
  let page = 0;
  let order = null;
  const count = el("p", { class: "count", role: "status" });
  const head = el("tr");
  const body = el("tbody");
  const table = el("table", { class: "list" }, el("caption", { class: "hidden" }, caption), el("thead", null, head), body);
  const pagers = [el("nav", { class: "pager", "aria-label": `Pages, above` }), el("nav", { class: "pager", "aria-label": `Pages, below` })];
  root.replaceChildren(count, pagers[0], el("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": caption }, table), pagers[1]);

  function drawHead() {
    head.replaceChildren(
      ...columns.map((column) => {
        if (!column.sort) return el("th", { scope: "col", class: column.class }, column.title);
        const here = order && order.key === column.sort;
        const state = here ? (order.down ? "descending" : "ascending") : "none";
        const mark = here ? (order.down ? " ▼" : " ▲") : "";
        const press = () => {
          order = { key: column.sort, down: here ? !order.down : true };
          drawHead();
          sorted(order);
          head.querySelector(`[data-sort="${column.sort}"]`).focus();
        };
        return el("th", { scope: "col", class: column.class, "aria-sort": state }, el("button", { type: "button", class: "sort", "data-sort": column.sort, onclick: press }, column.title + mark));
      }),
    );
  }

  function drawPagers() {
    const last = Math.max(0, Math.ceil(entries.length / PAGE) - 1);
    const go = (to, which) => () => {
      page = Math.min(Math.max(to, 0), last);
      draw();
      count.scrollIntoView({ block: "nearest" });
      const next = pagers[which].querySelector("button:not(:disabled)");
      if (next) next.focus();
    };
    pagers.forEach((pager, which) => {
      pager.hidden = last === 0;
      pager.replaceChildren(
        el("button", { type: "button", disabled: page === 0, onclick: go(0, which) }, "First"),
        el("button", { type: "button", disabled: page === 0, onclick: go(page - 1, which) }, "Previous"),
        el("span", null, `page ${page + 1} of ${last + 1}`),
        el("button", { type: "button", disabled: page === last, onclick: go(page + 1, which) }, "Next"),
        el("button", { type: "button", disabled: page === last, onclick: go(last, which) }, "Last"),
      );
    });
  }

  function drawRow(entry, place) {
    const [label, ...cells] = row(entry);
    const id = `${root.id}-open-${place}`;
    const opener = el("button", { type: "button", class: "opener", "aria-expanded": "false", "aria-controls": id }, label);
    const line = el("tr", null, el("th", { scope: "row", class: columns[0].class }, opener), ...cells.map((cell, at) => el("td", { class: columns[at + 1].class, "data-label": columns[at + 1].title }, cell)));
    let below = null;
    opener.addEventListener("click", guarded(async () => {
      if (below) {
        below.remove();
        below = null;
        opener.setAttribute("aria-expanded", "false");
        return;
      }
      const cell = el("td", { colspan: columns.length }, el("p", { class: "note" }, "Reading …"));
      below = el("tr", { class: "below", id }, cell);
      line.after(below);
      opener.setAttribute("aria-expanded", "true");
      cell.replaceChildren(await open(entry));
    }));
    return line;
  }

  function draw() {
    body.replaceChildren(...entries.slice(page * PAGE, (page + 1) * PAGE).map(drawRow));
    drawPagers();
  }

  drawHead();
  return {
    show(found, words) {
      entries = found;
      page = 0;
      count.textContent = words;
      draw();
    },
  };
}
