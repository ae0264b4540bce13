// Building blocks. Content reaches the page as text nodes and checked attributes only.

const byId = (id) => document.getElementById(id);
const str = (value) => (typeof value === "string" ? value : "");
const list = (value) => (Array.isArray(value) ? value : []);
const num = (value) => (typeof value === "number" && Number.isFinite(value) ? value : 0);
const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

// Children may come in arrays: a spread call with a hundred thousand of them would overflow the stack.
function el(tag, props, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(props || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? "" : String(value));
  }
  for (const child of children.flat()) if (child !== null && child !== undefined && child !== "") node.append(child);
  return node;
}

// Terminal escape sequences: CSI, OSC, string sequences, two-character ones (ECMA-48).
const ESCAPES =
  /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[PX^_][^\u001b]*(?:\u001b\\)?|[ -/]*[0-~])/g;
// Controls that a browser would swallow or that reorder what is read.
const HIDDEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g;

function mark(char) {
  const code = char.charCodeAt(0);
  if (code < 0x20) return String.fromCharCode(0x2400 + code);
  return `[U+${code.toString(16).toUpperCase().padStart(4, "0")}]`;
}

// What a person should see of `text`: no colour codes, one kind of line break, hidden controls spelled out.
function visible(text) {
  return str(text).replace(ESCAPES, "").replace(/\r\n?|\u2028|\u2029/g, "\n").replace(HIDDEN, mark);
}

function firstLine(text, limit) {
  const head = visible(text.slice(0, limit * 4)).trim().replace(/\s+/g, " ");
  return head.length > limit || text.length > limit * 4 ? head.slice(0, limit).trimEnd() + "…" : head;
}

function safeHref(text) {
  let url;
  try {
    url = new URL(text.trim());
  } catch {
    return null;
  }
  return ["http:", "https:", "mailto:"].includes(url.protocol) ? url : null;
}

const grouped = new Intl.NumberFormat("en-US");
const count = (value, one, many) => `${grouped.format(value)} ${value === 1 ? one : many || one + "s"}`;

function tokens(value) {
  if (value < 1000) return String(value);
  if (value < 1e6) return `${(value / 1000).toFixed(value < 1e4 ? 1 : 0)}k`;
  return `${(value / 1e6).toFixed(value < 1e7 ? 2 : 1)}M`;
}

function dollars(value) {
  if (value === 0) return "$0";
  return value < 0.01 ? `$${value.toPrecision(2)}` : `$${value.toFixed(value < 1 ? 3 : 2)}`;
}

function duration(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60000) return `${(ms / 1000).toFixed(1)} s`;
  return `${Math.floor(ms / 60000)} min ${Math.round((ms % 60000) / 1000)} s`;
}

const pad = (value) => String(value).padStart(2, "0");

// The reader's own time zone; the title gives UTC.
function moment(iso, withDate) {
  const date = new Date(str(iso));
  if (Number.isNaN(date.getTime())) return iso ? el("span", { class: "when" }, visible(str(iso))) : null;
  const day = `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())}`;
  const clock = `${pad(date.getHours())}:${pad(date.getMinutes())}`;
  const utc = date.toISOString();
  return el("time", { class: "when", datetime: utc, title: utc }, withDate ? `${day} ${clock}` : clock);
}

function rawJson(value) {
  return el("pre", { class: "raw" }, visible(JSON.stringify(value, null, 2) ?? ""));
}

function drawer(summary, build, props) {
  const details = el("details", props, el("summary", null, summary));
  let built = false;
  const fill = () => {
    if (built || !details.open) return;
    built = true;
    for (const each of [].concat(build())) details.append(each);
  };
  details.addEventListener("toggle", fill);
  fill();
  return details;
}
