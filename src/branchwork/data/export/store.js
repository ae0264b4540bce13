// The session as the page reads it: a compact index of every entry, the entries themselves parsed on demand.
// Nodes are known by their position in the file's order; parents[i] is -1 for a root.

const KINDS = {
  u: "user", a: "assistant", c: "calls", r: "result", e: "failed", b: "bash", y: "system", k: "compaction",
  s: "summary", d: "note", h: "hidden", p: "custom", v: "leaf", m: "model", t: "thinking", $: "usage", x: "edit",
  l: "label", n: "name", "?": "unknown",
};
const TAGS = {
  user: "you", assistant: "reply", calls: "calls", result: "result", failed: "error", bash: "shell", system: "system",
  compaction: "compact", summary: "summary", note: "note", hidden: "note", custom: "state", leaf: "moved",
  model: "model", thinking: "thinking", usage: "usage", edit: "edit", label: "label", name: "name",
  unknown: "unknown",
};
const CONVERSATION = new Set(["user", "assistant", "failed", "bash", "compaction", "summary", "note"]);
const IN_MESSAGES = new Set([...CONVERSATION, "calls", "result", "unknown"]);
const FILTERS = {
  messages: (store, node) => IN_MESSAGES.has(store.kind(node)),
  "no-tools": (store, node) => CONVERSATION.has(store.kind(node)),
  user: (store, node) => store.kind(node) === "user" || store.kind(node) === "bash",
  labelled: (store, node) => store.labels[node] !== undefined,
  all: () => true,
};
const PARSED = 400; // entries kept parsed

class Store {
  constructor(lines, meta) {
    this.lines = lines;
    this.meta = meta;
    this.parents = meta.parents;
    this.labels = meta.labels;
    this.size = meta.parents.length;
    this.cache = new Map();
    this.snippets = new Array(this.size);
    this.children = [];
    for (let node = -1; node < this.size; node += 1) this.children[node + 1] = [];
    for (let node = 0; node < this.size; node += 1) this.children[this.parents[node] + 1].push(node);
    this.order = this.walk();
    this.newest = this.findNewest();
  }

  static load() {
    const meta = JSON.parse(byId("meta").textContent);
    // One entry a line between "[" and "]".
    const lines = byId("entries").textContent.split("\n").slice(1, -1);
    return new Store(lines, meta);
  }

  kind(node) {
    return KINDS[this.meta.kinds[node]] || "unknown";
  }

  parse(node) {
    const line = this.lines[node];
    return JSON.parse(line.endsWith(",") ? line.slice(0, -1) : line);
  }

  entry(node) {
    let entry = this.cache.get(node);
    if (entry === undefined) {
      entry = this.parse(node);
      if (this.cache.size >= PARSED) this.cache.delete(this.cache.keys().next().value);
      this.cache.set(node, entry);
    }
    return entry;
  }

  id(node) {
    return str(this.entry(node).id);
  }

  message(node) {
    const message = this.entry(node).message;
    return isObject(message) ? message : {};
  }

  // Parents before children, children in file order.
  walk() {
    const out = [];
    const stack = [...this.children[0]].reverse();
    while (stack.length > 0) {
      const node = stack.pop();
      out.push(node);
      const below = this.children[node + 1];
      for (let index = below.length - 1; index >= 0; index -= 1) stack.push(below[index]);
    }
    return out;
  }

  // For each node the leaf below it that was written last.
  findNewest() {
    const newest = new Int32Array(this.size);
    for (let index = this.order.length - 1; index >= 0; index -= 1) {
      const node = this.order[index];
      newest[node] = this.children[node + 1].reduce((best, child) => Math.max(best, newest[child]), -1);
      if (newest[node] < 0) newest[node] = node;
    }
    return newest;
  }

  path(leaf) {
    const out = [];
    for (let node = leaf; node >= 0; node = this.parents[node]) out.push(node);
    return out.reverse();
  }

  snippet(node) {
    if (this.snippets[node] === undefined) this.snippets[node] = snippetOf(this.entry(node));
    return this.snippets[node];
  }

  // Everything a search should find in an entry, in lower case.
  searchable(node) {
    const entry = this.parse(node);
    return [str(entry.id), this.labels[node] || "", ...searchTexts(entry)].join("\n").toLowerCase();
  }
}

function textOf(content) {
  if (typeof content === "string") return content;
  return list(content).map((part) => (isObject(part) && part.type === "text" ? str(part.text) : "")).join("");
}

function callsOf(message) {
  return list(message.content).filter((part) => isObject(part) && part.type === "toolCall");
}

// The argument that says most about a call.
function mainArgument(call) {
  const args = isObject(call.arguments) ? call.arguments : {};
  const key = ["command", "path", "file", "pattern", "query", "url", "task", "name"].find((name) => str(args[name]));
  return str(args[key] ?? Object.values(args).find((value) => str(value)));
}

const callLine = (call) => `${firstLine(str(call.name), 40)} ${firstLine(mainArgument(call), 80)}`.trim();

function messageSnippet(message) {
  const text = firstLine(textOf(message.content), 160);
  switch (message.role) {
    case "assistant":
      if (message.stopReason === "error") return firstLine(str(message.errorMessage), 120) || text || "failed";
      return text.replace(/^[#>*\s-]{1,12}/, "") || callsOf(message).map(callLine).join(" · ") || `(${str(message.stopReason) || "empty"})`;
    case "toolResult":
      return `${message.isError ? "✗" : "✓"} ${firstLine(str(message.toolName), 40)}: ${text}`;
    case "bashExecution":
      return `! ${firstLine(str(message.command), 120)}`;
    case "system":
      return text || `prompt: ${Object.keys(message.sections || {}).join(", ")}`;
    default:
      return text || (list(message.content).some((part) => isObject(part) && part.type === "image") ? "(image)" : "");
  }
}

function snippetOf(entry) {
  switch (entry.type) {
    case "message":
      return messageSnippet(isObject(entry.message) ? entry.message : {});
    case "compaction":
    case "branch_summary":
      return firstLine(str(entry.summary), 160);
    case "custom_message":
      return `${firstLine(str(entry.customType), 40)}: ${firstLine(textOf(entry.content), 120)}`;
    case "custom":
      return firstLine(str(entry.customType), 80);
    case "model_change":
      return firstLine(`${str(entry.provider)}/${str(entry.modelId)}`, 80);
    case "thinking_level_change":
      return firstLine(str(entry.thinkingLevel), 40);
    case "usage":
      return firstLine(`${str(entry.kind)} ${str(entry.model)}`, 80);
    case "label":
      return entry.label ? firstLine(str(entry.label), 80) : "(cleared)";
    case "session_info":
      return firstLine(str(entry.name), 80);
    default:
      return firstLine(str(entry.type), 80);
  }
}

function searchTexts(entry) {
  const message = isObject(entry.message) ? entry.message : {};
  const parts = [].concat(list(message.content), list(entry.content)).filter(isObject);
  return [
    str(message.content), str(entry.content), str(entry.summary), str(entry.customType), str(entry.name),
    str(entry.label), str(message.command), str(message.output), str(message.toolName), str(message.errorMessage),
    ...parts.map((part) => str(part.text) + str(part.thinking) + str(part.name)),
    ...parts.filter((part) => part.type === "toolCall").map((part) => JSON.stringify(part.arguments ?? "")),
  ];
}
