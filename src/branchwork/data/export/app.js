// Puts the page together: header, keys, address.

function usageTable(totals) {
  const head = ["Model", "Requests", "Input", "Cache read", "Cache write", "Output", "Cost", "Price from"];
  const row = (tag, cells) => el("tr", null, ...cells.map((cell, index) => el(index === 0 ? "th" : tag, { scope: index === 0 ? "row" : null }, cell)));
  const line = (name, item) => [
    name, grouped.format(item.requests), grouped.format(item.input), grouped.format(item.cacheRead), grouped.format(item.cacheWrite),
    grouped.format(item.output), item.priced === 0 ? "unknown" : dollars(item.cost), item.priced === 0 ? "—" : visible(item.source),
  ];
  const body = totals.models.map((item) => row("td", line(visible(item.name), item)));
  if (totals.models.length > 1) body.push(row("td", line("All", totals.all)));
  const table = el("table", null, el("thead", null, el("tr", null, ...head.map((name) => el("th", { scope: "col" }, name)))), el("tbody", null, body));
  const missing = totals.all.requests - totals.all.priced;
  const note = missing > 0 && totals.all.priced > 0 ? `The cost leaves out ${count(missing, "request")} without a price. ` : "";
  return el("div", { class: "scroll", tabindex: "0" }, table, el("p", { class: "caption" }, `${note}Sums of what each request recorded when it was made, over every branch in this file.`));
}

function problemList(problems) {
  const items = problems.map((problem) =>
    el("li", null, el("strong", null, problem.line > 0 ? `Line ${problem.line}: ` : ""), `${visible(problem.kind)}${problem.lost ? " (something was lost)" : ""}. ${visible(problem.detail)}`),
  );
  return el("ul", { class: "problems" }, items);
}

function drawHead(meta) {
  const { session, totals } = meta;
  byId("name").textContent = visible(session.name) || "Unnamed session";
  const facts = [moment(session.started, true), count(totals.messages, "message"), count(totals.branches, "branch", "branches"), `${tokens(totals.all.total)} tokens`];
  if (totals.all.priced > 0) facts.push(dollars(totals.all.cost));
  byId("facts").append(...facts.filter(Boolean).flatMap((fact, index) => (index > 0 ? [" · ", fact] : [fact])));
  byId("place").append(el("span", { class: "id" }, visible(session.id)), " in ", el("span", { class: "cwd" }, visible(session.cwd)));
  const drawers = [];
  if (totals.models.length > 0) {
    const priced = totals.all.priced > 0 ? `, priced from ${visible(totals.all.source)}` : ", no prices recorded";
    drawers.push(drawer(`Usage and cost${priced}`, () => usageTable(totals)));
  }
  if (meta.problems.length > 0) {
    drawers.push(drawer([el("span", { "aria-hidden": "true" }, "⚠ "), count(meta.problems.length, "problem"), " in the file"], () => problemList(meta.problems), { class: "damaged" }));
  }
  const more = Object.entries(meta.about).filter(([, value]) => value);
  drawers.push(drawer("About", () => el("dl", { class: "about" }, ...more.flatMap(([key, value]) => [el("dt", null, key), el("dd", null, visible(String(value)))]))));
  byId("drawers").append(...drawers);
}

class App {
  constructor(store) {
    this.store = store;
    this.branch = new BranchView(store, (node) => this.select(node));
    this.tree = new TreeView(store, (node, change) => this.show(node, change));
    drawHead(store.meta);
    this.wire();
    this.tree.rebuild();
    this.open();
  }

  open() {
    if (this.store.size === 0) {
      byId("messages").append(el("p", { class: "empty" }, "This session has no entries yet."));
      byId("where").textContent = "Empty session";
      for (const button of document.querySelectorAll(".buttons button")) button.hidden = true;
      return;
    }
    const leaf = this.store.meta.leaf >= 0 ? this.store.meta.leaf : this.store.size - 1;
    const wanted = this.fromAddress();
    this.branch.show(wanted === null ? leaf : this.leafFor(wanted, leaf), wanted ?? undefined);
    this.tree.mark(this.branch.path);
    this.tree.activate(wanted ?? this.tree.rows[0]?.node ?? -1);
  }

  fromAddress() {
    if (location.hash.length < 2) return null;
    let id;
    try {
      id = decodeURIComponent(location.hash.slice(1));
    } catch {
      return null;
    }
    const text = JSON.stringify(id);
    for (let node = 0; node < this.store.size; node += 1) {
      if (this.store.lines[node].includes(text.slice(1, -1)) && this.store.id(node) === id) return node;
    }
    return null;
  }

  // The current branch when the node lies on it, else the newest one through it.
  leafFor(node, current) {
    for (let up = current; up >= 0; up = this.store.parents[up]) {
      if (up === node) return current;
    }
    return this.store.newest[node];
  }

  show(node, change) {
    if (this.branch.has(node)) {
      this.branch.goTo(node);
    } else if (change) {
      this.branch.show(this.leafFor(node, this.store.meta.leaf), node);
      this.tree.mark(this.branch.path);
    }
  }

  select(node) {
    this.tree.unfoldTo(node);
    this.tree.activate(node);
    this.show(node, true);
  }

  wire() {
    const search = byId("search");
    search.addEventListener("input", () => this.tree.search(search.value));
    search.addEventListener("keydown", (event) => this.searchKey(event, search));
    byId("filter").addEventListener("change", (event) => this.tree.setFilter(event.target.value));
    byId("to-start").addEventListener("click", () => this.select(this.branch.path[0]));
    byId("to-end").addEventListener("click", () => this.select(this.branch.path[this.branch.path.length - 1]));
    byId("to-leaf").addEventListener("click", () => this.select(this.store.meta.leaf));
    const keys = byId("keys-button");
    keys.addEventListener("click", () => {
      byId("keys").hidden = !byId("keys").hidden;
      keys.setAttribute("aria-expanded", String(!byId("keys").hidden));
    });
    window.addEventListener("hashchange", () => {
      const node = this.fromAddress();
      if (node !== null) this.select(node);
    });
    document.addEventListener("keydown", (event) => this.key(event));
  }

  searchKey(event, search) {
    if (event.key === "Escape") {
      search.value = "";
      this.tree.search("");
      byId("tree").focus();
    } else if (event.key === "Enter" || event.key === "ArrowDown") {
      byId("tree").focus();
      if (this.tree.at.get(this.tree.active) === undefined) this.tree.step(0);
      if (event.key === "Enter" && this.tree.active >= 0) this.show(this.tree.active, true);
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) return;
    const inTree = event.target.closest("#tree") !== null;
    const free = { j: () => this.tree.step(1), k: () => this.tree.step(-1), "/": () => byId("search").focus() };
    const held = {
      ArrowDown: free.j, ArrowUp: free.k,
      ArrowLeft: () => this.tree.left(), ArrowRight: () => this.tree.right(),
      Home: () => this.tree.step(-this.tree.rows.length), End: () => this.tree.step(this.tree.rows.length),
      PageDown: () => this.tree.step(15), PageUp: () => this.tree.step(-15),
      Enter: () => this.tree.active >= 0 && this.show(this.tree.active, true),
    };
    const action = free[event.key] || (inTree ? held[event.key] : undefined);
    if (!action) return;
    event.preventDefault();
    action();
  }
}

new App(Store.load());
