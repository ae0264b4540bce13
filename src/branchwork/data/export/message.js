// One entry of the branch as an element.

const SHORT_LINES = 12; // lines of output shown before "Show all"
const SHORT_CHARS = 2000;
const PICTURES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "image/bmp"]);

const ROLES = { user: "You", assistant: "Assistant", toolResult: "Tool result", bashExecution: "Your shell", system: "System prompt" };

// Long text is cut until asked for; the rest reaches the page only then.
function output(text, props) {
  const shown = visible(text).replace(/\n+$/, "");
  const lines = shown.split("\n");
  const head = lines.slice(0, SHORT_LINES).join("\n").slice(0, SHORT_CHARS);
  const pre = el("pre", { class: "output", tabindex: "0", ...props }, head.length < shown.length ? head : shown);
  if (head.length >= shown.length) return [pre];
  const what = lines.length > SHORT_LINES ? count(lines.length, "line") : count(shown.length, "character");
  const button = el("button", { type: "button", class: "more" }, `Show all ${what}`);
  button.addEventListener("click", () => {
    const open = button.dataset.open !== "yes";
    button.dataset.open = open ? "yes" : "no";
    pre.textContent = open ? shown : head;
    button.textContent = open ? "Show less" : `Show all ${what}`;
  });
  return [pre, button];
}

function picture(part) {
  const mime = str(part.mimeType).toLowerCase();
  const data = str(part.data);
  if (!PICTURES.has(mime) || !/^[A-Za-z0-9+/]+={0,2}$/.test(data)) {
    return el("p", { class: "missing" }, `[image of type ${visible(mime) || "unknown"} not shown]`);
  }
  const image = el("img", { alt: `Image, ${mime}` });
  image.src = `data:${mime};base64,${data}`;
  return image;
}

function userParts(content) {
  if (typeof content === "string") return [el("div", { class: "plain" }, visible(content))];
  return list(content).map((part) => {
    if (!isObject(part)) return rawJson(part);
    if (part.type === "text") return el("div", { class: "plain" }, visible(part.text));
    return part.type === "image" ? picture(part) : rawJson(part);
  });
}

function assistantParts(message, results) {
  return list(message.content).flatMap((part) => {
    if (!isObject(part)) return [rawJson(part)];
    if (part.type === "text") return str(part.text).trim() ? [el("div", { class: "prose" }, markdown(part.text))] : [];
    if (part.type === "thinking") return thinking(part);
    return [part.type === "toolCall" ? toolCall(part, results.get(str(part.id))) : rawJson(part)];
  });
}

function thinking(part) {
  const text = str(part.thinking);
  if (part.redacted) return [el("p", { class: "missing" }, "Thinking, withheld by the provider")];
  if (!text.trim()) return [];
  const size = count(text.trim().split(/\s+/).length, "word");
  return [drawer(["Thinking ", el("span", { class: "dim" }, size)], () => el("div", { class: "plain" }, visible(text)), { class: "thinking" })];
}

function toolCall(call, found) {
  const result = found ? found.message : null;
  const state = result ? (result.isError ? "✗ failed" : "✓ done") : "… no result";
  const spent = result && num(result.durationMs) ? ` · ${duration(num(result.durationMs))}` : "";
  const summary = [
    el("span", { class: "tool" }, firstLine(str(call.name), 80) || "tool"), " ",
    el("span", { class: "brief" }, firstLine(mainArgument(call), 160)),
    el("span", { class: result && result.isError ? "state bad" : "state" }, state + spent),
  ];
  const box = drawer(summary, () => [...callArguments(call), ...resultParts(result)], { class: "call" });
  if (found) box.dataset.node = found.node;
  return box;
}

function callArguments(call) {
  if (typeof call.argumentsText === "string") return [caption("Arguments (not valid JSON)"), ...output(call.argumentsText)];
  const entries = Object.entries(isObject(call.arguments) ? call.arguments : {});
  if (entries.length === 0) return [caption("No arguments")];
  const rows = entries.flatMap(([key, value]) => {
    const text = typeof value === "string" ? value : (JSON.stringify(value, null, 2) ?? "");
    return [el("dt", null, visible(key)), el("dd", null, ...output(text))];
  });
  return [el("dl", { class: "arguments" }, rows)];
}

const caption = (text) => el("p", { class: "caption" }, text);

function resultParts(result) {
  if (!result) return [caption("The session holds no result for this call.")];
  const parts = typeof result.content === "string" ? [{ type: "text", text: result.content }] : list(result.content);
  const shown = parts.filter(isObject).flatMap((part) => (part.type === "image" ? [picture(part)] : output(str(part.text))));
  const details = result.details === undefined || result.details === null ? [] : [drawer("Details", () => rawJson(result.details))];
  return [caption(result.isError ? "Error" : "Result"), ...(shown.length ? shown : [caption("(empty)")]), ...details];
}

function usageLine(usage) {
  if (!isObject(usage) || !(num(usage.totalTokens) || num(usage.output))) return null;
  const cost = isObject(usage.cost) ? usage.cost : {};
  const sent = num(usage.input) + num(usage.cacheRead) + num(usage.cacheWrite);
  const cached = num(usage.cacheRead) ? ` (${tokens(num(usage.cacheRead))} cached)` : "";
  const money = num(cost.total) ? ` · ${dollars(num(cost.total))}` : "";
  const source = num(cost.total) ? `Price: ${visible(str(cost.source)) || "source not recorded"}` : "Price unknown";
  return el("span", { class: "usage", title: source }, `${tokens(sent)} in${cached} · ${tokens(num(usage.output))} out${money}`);
}

function headOf(store, node, role, extras) {
  const entry = store.entry(node);
  const label = store.labels[node];
  return el(
    "header", null, el("span", { class: "role" }, role), moment(entry.timestamp), extras,
    label === undefined ? null : el("span", { class: "chip" }, visible(label)),
    node === store.meta.leaf ? el("span", { class: "mark" }, "current leaf") : null,
    el("a", { class: "anchor", href: `#${encodeURIComponent(str(entry.id))}`, "aria-label": "Link to this entry" }, "#"),
  );
}

function article(store, node, kind, role, extras, body) {
  return el("article", { class: `entry ${kind}`, id: `n${node}`, "data-node": node, tabindex: "-1" }, headOf(store, node, role, extras), body);
}

function assistantArticle(store, node, message, results) {
  const model = firstLine(`${str(message.provider)}/${str(message.model)}`, 80);
  const level = str(message.thinkingLevel) && message.thinkingLevel !== "off" ? ` · ${visible(message.thinkingLevel)}` : "";
  const spent = num(message.durationMs) ? el("span", { class: "usage" }, duration(num(message.durationMs))) : null;
  const ended = str(message.stopReason);
  const odd = !["stop", "toolUse", ""].includes(ended) ? [el("p", { class: "ended" }, `Ended: ${visible(ended)}. ${visible(str(message.errorMessage))}`)] : [];
  const extras = [el("span", { class: "model" }, model + level), usageLine(message.usage), spent];
  return article(store, node, "assistant", "Assistant", extras, [...assistantParts(message, results), ...odd]);
}

function systemBody(message) {
  const sections = isObject(message.sections) ? Object.entries(message.sections) : [];
  const tools = list(message.toolsAdded).map((tool) => (isObject(tool) ? str(tool.name) : "")).filter(Boolean);
  const removed = list(message.toolsRemoved).map((tool) => str(isObject(tool) ? tool.name : tool)).filter(Boolean);
  const text = textOf(message.content);
  const shown = [
    ...(text ? output(text) : []),
    ...sections.flatMap(([name, value]) => [caption(visible(name)), ...(value === null ? [caption("removed")] : output(str(value)))]),
    tools.length ? caption(`Tools added: ${visible(tools.join(", "))}`) : null,
    removed.length ? caption(`Tools removed: ${visible(removed.join(", "))}`) : null,
  ].filter(Boolean);
  return shown.length ? shown : [caption("(empty)")];
}

function messageArticle(store, node, message, results) {
  switch (message.role) {
    case "user":
      return article(store, node, "user", ROLES.user, [], userParts(message.content));
    case "assistant":
      return assistantArticle(store, node, message, results);
    case "toolResult": {
      const name = el("span", { class: "model" }, firstLine(str(message.toolName), 80));
      return article(store, node, "tool", ROLES.toolResult, [name], resultParts(message));
    }
    case "bashExecution": {
      const code = message.cancelled ? "cancelled" : `exit ${message.exitCode ?? "unknown"}`;
      const extras = [el("span", { class: "model" }, message.excludeFromContext ? `${code} · not sent to the model` : code)];
      const body = [el("pre", { class: "command" }, `$ ${visible(message.command)}`), ...output(str(message.output))];
      return article(store, node, "shell", ROLES.bashExecution, extras, body);
    }
    case "system":
      return article(store, node, "quiet", ROLES.system, [], [drawer("Text, sections and tools", () => systemBody(message))]);
    case "branchSummary":
    case "compactionSummary":
      return article(store, node, "summary", "Summary", [], [el("div", { class: "prose" }, markdown(str(message.summary)))]);
    default: {
      const role = visible(str(message.role)) || "Unknown role";
      return article(store, node, "unknown", role, [], [...userParts(message.content), drawer("Raw entry", () => rawJson(store.entry(node)))]);
    }
  }
}

function summaryArticle(store, node, entry) {
  const compacted = entry.type === "compaction";
  const before = compacted && num(entry.tokensBefore) ? `${tokens(num(entry.tokensBefore))} tokens before` : "";
  const from = compacted ? "" : `of the branch left at ${firstLine(str(entry.fromId), 40)}`;
  const note = el("span", { class: "model" }, before || from);
  const extras = [note, usageLine(entry.usage), entry.fromHook ? el("span", { class: "model" }, "written by an extension") : null];
  const body = drawer("Summary", () => el("div", { class: "prose" }, markdown(str(entry.summary))), { open: str(entry.summary).length < 1500 });
  return article(store, node, "summary", compacted ? "Compaction" : "Branch summary", extras, [body]);
}

function quietLine(store, node, text, value) {
  const body = value === undefined || value === null ? [] : [drawer("Data", () => rawJson(value))];
  return article(store, node, "quiet", text, [], body);
}

function entryArticle(store, node, results) {
  const entry = store.entry(node);
  const brief = store.snippet(node);
  switch (store.kind(node) === "unknown" ? "unknown" : entry.type) {
    case "message":
      return messageArticle(store, node, store.message(node), results);
    case "compaction":
    case "branch_summary":
      return summaryArticle(store, node, entry);
    case "custom_message": {
      const extras = [el("span", { class: "model" }, firstLine(str(entry.customType), 80) + (entry.display ? "" : " · hidden from the screen"))];
      return article(store, node, entry.display ? "note" : "quiet", "Extension", extras, userParts(entry.content));
    }
    case "custom":
      return quietLine(store, node, store.kind(node) === "leaf" ? "Moved to another branch" : `State: ${brief}`, entry.data);
    case "model_change":
      return quietLine(store, node, `Model: ${brief}`);
    case "thinking_level_change":
      return quietLine(store, node, `Thinking level: ${brief}`);
    case "usage":
      return quietLine(store, node, `Usage: ${brief}`, entry.usage);
    case "context_edit":
      return quietLine(store, node, `Context edit of ${firstLine(str(entry.targetId), 40)}`, entry.replacement ?? "hidden from the model");
    case "label":
      return quietLine(store, node, `Label: ${brief}`);
    case "session_info":
      return quietLine(store, node, `Name: ${brief}`);
    default:
      return article(store, node, "unknown", `Unknown entry: ${firstLine(str(entry.type), 60)}`, [], [rawJson(entry)]);
  }
}
