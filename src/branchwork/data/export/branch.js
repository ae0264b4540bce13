// The right-hand side: one path from root to leaf, drawn in chunks around what is being read.

const CHUNK = 30; // entries drawn at a time
const PRINTED = 2000; // entries drawn for the printer at most

class BranchView {
  constructor(store, onSelect) {
    this.store = store;
    this.box = byId("messages");
    this.path = [];
    this.position = new Map();
    this.from = 0;
    this.to = 0;
    this.above = el("div", { class: "edge" });
    this.below = el("div", { class: "edge" });
    this.observer = null;
    this.box.addEventListener("click", (event) => {
      const anchor = event.target.closest("a.anchor");
      if (anchor) onSelect(Number(anchor.closest("article").dataset.node));
    });
    matchMedia("(max-width: 760px)").addEventListener("change", () => this.watch());
    window.addEventListener("beforeprint", () => {
      this.grow(0, Math.min(this.path.length, PRINTED));
    });
  }

  has(node) {
    return this.position.has(node);
  }

  show(leaf, target) {
    this.path = this.store.path(leaf);
    this.position = new Map(this.path.map((node, index) => [node, index]));
    this.leaf = leaf;
    this.fresh = false;
    if (target === undefined) this.redraw(0);
    else this.goTo(target);
    this.say();
  }

  say() {
    const at = this.leaf === this.store.meta.leaf ? "the current leaf" : firstLine(this.store.id(this.leaf), 40);
    byId("where").textContent = `Branch to ${at} · ${count(this.path.length, "entry", "entries")}`;
    byId("to-leaf").hidden = this.leaf === this.store.meta.leaf || this.store.meta.leaf < 0;
  }

  // Brings a node of this branch into view, drawing around it first when it is not on the page yet.
  goTo(node) {
    const at = this.position.get(node);
    if (at === undefined) return;
    if (at < this.from || at >= this.to || !this.fresh) this.redraw(at);
    this.fresh = true;
    const target = this.elementOf(node);
    for (const old of this.box.querySelectorAll(".selected")) old.classList.remove("selected");
    if (!target) return;
    target.classList.add("selected");
    if (at === 0) this.toTop();
    else target.scrollIntoView({ block: "start" });
  }

  toTop() {
    byId("branch").scrollTop = 0;
    if (!this.ownScroll()) byId("branch").scrollIntoView({ block: "start" });
  }

  ownScroll() {
    return getComputedStyle(byId("branch")).overflowY === "auto";
  }

  elementOf(node) {
    const own = byId(`n${node}`);
    if (own) return own;
    const call = this.box.querySelector(`details[data-node="${node}"]`);
    if (call) call.open = true;
    return call || null;
  }

  redraw(at) {
    this.from = Math.max(0, at - 5);
    this.to = Math.min(this.path.length, at + CHUNK);
    this.box.replaceChildren(this.above, ...this.articles(this.from, this.to), this.below);
    this.watch();
  }

  articles(from, to) {
    const out = [];
    for (let at = from; at < to; at += 1) {
      const drawn = this.draw(at);
      if (drawn) out.push(drawn);
    }
    return out;
  }

  // A tool result is drawn inside its call; on its own only when the call is not on the branch.
  draw(at) {
    const node = this.path[at];
    const kind = this.store.kind(node);
    if (kind === "result" && this.callOf(at) !== null) return null;
    const results = kind === "calls" || kind === "assistant" || kind === "failed" ? this.resultsAfter(at) : new Map();
    try {
      return entryArticle(this.store, node, results);
    } catch (error) {
      return this.undrawn(node, error);
    }
  }

  // One entry that this page cannot draw must not hide the others.
  undrawn(node, error) {
    const head = el("header", null, el("span", { class: "role" }, "Entry that cannot be drawn"));
    const line = el("pre", { class: "raw" }, visible(this.store.lines[node]));
    return el("article", { class: "entry unknown", id: `n${node}`, "data-node": node, tabindex: "-1" }, head, caption(String(error)), line);
  }

  callOf(at) {
    const wanted = str(this.store.message(this.path[at]).toolCallId);
    for (let back = at - 1; back >= 0; back -= 1) {
      const kind = this.store.kind(this.path[back]);
      if (kind === "user") return null;
      if (kind !== "calls" && kind !== "assistant" && kind !== "failed") continue;
      const found = callsOf(this.store.message(this.path[back])).some((call) => str(call.id) === wanted);
      return found ? back : null;
    }
    return null;
  }

  resultsAfter(at) {
    const results = new Map();
    for (let next = at + 1; next < this.path.length; next += 1) {
      const kind = this.store.kind(this.path[next]);
      if (kind === "user" || kind === "calls" || kind === "assistant" || kind === "failed") break;
      if (kind !== "result") continue;
      const message = this.store.message(this.path[next]);
      if (!results.has(str(message.toolCallId))) results.set(str(message.toolCallId), { message, node: this.path[next] });
    }
    return results;
  }

  // A margin reaches beyond the root only, so the root is whatever scrolls: the pane, or on narrow screens the page.
  watch() {
    if (this.observer) this.observer.disconnect();
    const root = this.ownScroll() ? byId("branch") : null;
    this.observer = new IntersectionObserver((seen) => this.reached(seen), { root, rootMargin: "1200px" });
    if (this.from > 0) this.observer.observe(this.above);
    if (this.to < this.path.length) this.observer.observe(this.below);
  }

  reached(seen) {
    const hit = seen.filter((item) => item.isIntersecting).map((item) => item.target);
    if (hit.length === 0) return;
    this.grow(hit.includes(this.above) ? this.from - CHUNK : this.from, hit.includes(this.below) ? this.to + CHUNK : this.to);
  }

  grow(from, to) {
    const start = Math.max(0, Math.min(from, this.from));
    const end = Math.min(this.path.length, Math.max(to, this.to));
    if (start < this.from) {
      const scroller = this.ownScroll() ? byId("branch") : document.scrollingElement;
      const height = scroller.scrollHeight;
      this.above.after(...this.articles(start, this.from));
      scroller.scrollTop += scroller.scrollHeight - height;
    }
    if (end > this.to) this.below.before(...this.articles(this.to, end));
    this.from = start;
    this.to = end;
    this.watch();
  }
}
