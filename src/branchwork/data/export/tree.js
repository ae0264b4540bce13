// The left-hand side: the tree, one row an entry, only the rows in sight drawn.

const ROW = 28; // pixels, as in page.css
const SPARE = 8; // rows drawn above and below what is in sight
const DEEP = 10; // indents drawn at most
const SLICE = 12; // milliseconds of searching before the page may breathe

class TreeView {
  constructor(store, onShow) {
    this.store = store;
    this.onShow = onShow;
    this.box = byId("tree");
    this.sheet = byId("rows");
    this.filter = "messages";
    this.matches = null;
    this.folded = new Set();
    this.rows = [];
    this.active = -1;
    this.onBranch = new Set();
    this.searching = 0;
    this.made = new Map(); // rows on the page, by node
    this.queued = false;
    this.box.addEventListener("scroll", () => this.queue());
    this.box.addEventListener("click", (event) => this.clicked(event));
    new ResizeObserver(() => this.queue()).observe(this.box);
  }

  visible(node) {
    return FILTERS[this.filter](this.store, node) && (this.matches === null || this.matches.has(node));
  }

  rebuild() {
    const keep = this.active;
    const lifted = new Map();
    const below = new Map([[-1, []]]);
    for (const node of this.store.order) {
      const parent = this.store.parents[node];
      const above = parent < 0 ? -1 : lifted.get(parent);
      if (!this.visible(node)) {
        lifted.set(node, above);
        continue;
      }
      lifted.set(node, node);
      below.set(node, []);
      below.get(above).push(node);
    }
    this.lifted = lifted;
    this.place(below);
    this.at = new Map(this.rows.map((row, index) => [row.node, index]));
    this.active = keep < 0 ? keep : (this.nearest(keep) ?? -1);
    this.current = this.nearest(this.store.meta.leaf);
    this.sheet.style.height = `${this.rows.length * ROW}px`;
    this.box.setAttribute("aria-multiselectable", "false");
    this.tell();
    this.draw();
  }

  // Indent only where the tree parts; what can be folded is the head of a branch or a place where it parts.
  place(below) {
    this.rows = [];
    const tops = below.get(-1);
    const stack = tops.map((node, index) => ({ node, depth: 0, head: true, of: tops.length, nth: index + 1, above: -1 })).reverse();
    while (stack.length > 0) {
      const row = stack.pop();
      const under = below.get(row.node);
      const parts = under.length > 1;
      row.foldable = under.length > 0 && (parts || row.head);
      this.rows.push(row);
      if (row.foldable && this.folded.has(row.node)) continue;
      for (let index = under.length - 1; index >= 0; index -= 1) {
        const depth = row.depth + (parts ? 1 : 0);
        stack.push({ node: under[index], depth, head: parts, of: under.length, nth: index + 1, above: row.node });
      }
    }
  }

  // The row of a node, or of its nearest ancestor that has one.
  nearest(node) {
    for (let up = node; up >= 0; up = this.store.parents[up]) {
      if (this.at.has(up)) return up;
    }
    return undefined;
  }

  queue() {
    if (this.queued) return;
    this.queued = true;
    requestAnimationFrame(() => {
      this.queued = false;
      this.draw();
    });
  }

  draw() {
    const first = Math.max(0, Math.floor(this.box.scrollTop / ROW) - SPARE);
    const last = Math.min(this.rows.length, Math.ceil((this.box.scrollTop + this.box.clientHeight) / ROW) + SPARE);
    const drawn = [];
    for (let index = first; index < last; index += 1) drawn.push(this.row(this.rows[index], index));
    const at = this.at.get(this.active);
    if (at !== undefined && (at < first || at >= last)) drawn.push(this.row(this.rows[at], at));
    this.made = new Map(drawn.map((each) => [each.made.node, each]));
    const now = this.sheet.children;
    if (now.length !== drawn.length || drawn.some((each, index) => each !== now[index])) this.sheet.replaceChildren(...drawn);
    if (at === undefined) this.box.removeAttribute("aria-activedescendant");
    else this.box.setAttribute("aria-activedescendant", `row${this.active}`);
  }

  // The row that is there already, unless something about it changed: clicks and readers keep their target.
  row(row, index) {
    const { node } = row;
    const state = [index, row.depth, row.head, row.foldable, row.of, row.nth, this.folded.has(node), this.onBranch.has(node)];
    const key = [...state, node === this.active, node === this.current].join();
    const old = this.made.get(node);
    if (old && old.made.key === key) return old;
    const fresh = this.makeRow(row, index);
    fresh.made = { node, key };
    return fresh;
  }

  makeRow(row, index) {
    const { node } = row;
    const kind = this.store.kind(node);
    const folded = row.foldable && this.folded.has(node);
    const label = this.store.labels[node];
    const on = this.onBranch.has(node);
    const classes = ["row", kind, on ? "on" : "", node === this.active ? "active" : "", row.head && row.depth > 0 ? "head" : ""];
    const out = el(
      "div",
      {
        id: `row${node}`, class: classes.filter(Boolean).join(" "), role: "treeitem", "data-node": node,
        "aria-level": row.depth + 1, "aria-setsize": row.of, "aria-posinset": row.nth,
        "aria-selected": String(node === this.active), "aria-expanded": row.foldable ? String(!folded) : null,
      },
      el("span", { class: "rail", "aria-hidden": "true" }),
      indent(row),
      el("span", { class: "fold", "aria-hidden": "true" }, row.foldable ? (folded ? "▸" : "▾") : ""),
      el("span", { class: "tag" }, TAGS[kind]),
      node === this.current ? el("span", { class: "mark" }, "current") : null,
      label === undefined ? null : el("span", { class: "chip" }, firstLine(label, 40)),
      el("span", { class: "text" }, this.store.snippet(node)),
      on ? el("span", { class: "sr" }, ", on the branch shown") : null,
    );
    out.style.transform = `translateY(${index * ROW}px)`;
    return out;
  }

  tell() {
    const shown = count(this.rows.length, "entry", "entries");
    const all = grouped.format(this.store.size);
    if (this.matches !== null) byId("count").textContent = `${shown} found`;
    else byId("count").textContent = this.rows.length === this.store.size ? shown : `${grouped.format(this.rows.length)} of ${all} entries`;
  }

  mark(path) {
    this.onBranch = new Set(path);
    this.draw();
  }

  setFilter(name) {
    this.filter = name;
    this.rebuild();
    this.reveal();
  }

  // ---- moving ----

  activate(node) {
    const row = this.nearest(node);
    if (row === undefined) return;
    this.active = row;
    this.reveal();
    this.draw();
  }

  reveal() {
    const at = this.at.get(this.active);
    if (at === undefined) return;
    const top = at * ROW;
    if (top < this.box.scrollTop) this.box.scrollTop = top;
    else if (top + ROW > this.box.scrollTop + this.box.clientHeight) this.box.scrollTop = top + ROW - this.box.clientHeight;
  }

  // Makes a node's row exist: unfolds what hides it.
  unfoldTo(node) {
    let changed = false;
    for (let up = this.store.parents[node]; up >= 0; up = this.store.parents[up]) changed = this.folded.delete(up) || changed;
    if (changed) this.rebuild();
  }

  step(by) {
    if (this.rows.length === 0) return;
    const at = this.at.get(this.active);
    const next = at === undefined ? 0 : Math.max(0, Math.min(this.rows.length - 1, at + by));
    this.activate(this.rows[next].node);
    this.onShow(this.active, false);
  }

  fold(node, close) {
    if (close) this.folded.add(node);
    else this.folded.delete(node);
    this.rebuild();
    this.reveal();
  }

  left() {
    const at = this.at.get(this.active);
    if (at === undefined) return;
    const row = this.rows[at];
    if (row.foldable && !this.folded.has(row.node)) this.fold(row.node, true);
    else if (row.above >= 0) this.activate(row.above);
  }

  right() {
    const at = this.at.get(this.active);
    if (at === undefined) return;
    const row = this.rows[at];
    if (row.foldable && this.folded.has(row.node)) this.fold(row.node, false);
    else if (at + 1 < this.rows.length && this.rows[at + 1].above === row.node) this.activate(this.rows[at + 1].node);
  }

  clicked(event) {
    const target = event.target.closest("[data-node]");
    if (!target) return;
    const node = Number(target.dataset.node);
    const row = this.rows[this.at.get(node)];
    if (event.target.closest(".fold") && row.foldable) {
      this.fold(node, !this.folded.has(node));
      return;
    }
    this.activate(node);
    this.onShow(node, true);
  }

  // ---- searching ----

  search(query) {
    const words = query.toLowerCase().split(/\s+/).filter(Boolean);
    const run = ++this.searching;
    if (words.length === 0) {
      this.matches = null;
      this.rebuild();
      this.reveal();
      return;
    }
    const found = new Set();
    let node = 0;
    const slice = () => {
      if (run !== this.searching) return;
      const end = performance.now() + SLICE;
      for (; node < this.store.size && performance.now() < end; node += 1) {
        const text = this.store.searchable(node);
        if (words.every((word) => text.includes(word))) found.add(node);
      }
      if (node < this.store.size) {
        byId("count").textContent = `Searching… ${Math.round((100 * node) / this.store.size)}%`;
        setTimeout(slice, 0);
        return;
      }
      this.matches = found;
      this.rebuild();
      this.reveal();
    };
    slice();
  }
}

function indent(row) {
  const width = Math.min(row.depth, DEEP);
  const out = el("span", { class: "indent", "aria-hidden": "true" }, row.depth > DEEP && row.head ? String(row.depth) : "");
  out.style.width = `${width * 14}px`;
  return out;
}
