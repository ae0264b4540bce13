// A small Markdown reader that builds elements. Every scan is bounded, so that no text can freeze the page.

const MARKDOWN_LIMIT = 100000; // characters; longer text is shown as it is
const DEEPEST = 6; // nested quotes, lists and emphasis
const LINK_TEXT = 500;
const LINK_TARGET = 2000;

const FENCE = /^ {0,3}(`{3,}|~{3,})(.*)$/;
const RULE = /^ {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$/;
const ITEM = /^( {0,12})([-*+]|\d{1,9}[.)])( +|$)/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]|$)/;

function markdown(text) {
  const shown = visible(text);
  if (shown.length > MARKDOWN_LIMIT) return [el("div", { class: "plain" }, shown)];
  return blocks(shown.replace(/\t/g, "    ").split("\n"), 0);
}

function blocks(lines, depth) {
  const out = [];
  let at = 0;
  while (at < lines.length) {
    if (lines[at].trim() === "") {
      at += 1;
      continue;
    }
    const [node, next] = block(lines, at, depth);
    out.push(node);
    at = next;
  }
  return out;
}

function block(lines, at, depth) {
  const line = lines[at];
  if (fenceOf(line)) return codeBlock(lines, at);
  if (HEADING.test(line)) return [heading(line), at + 1];
  if (RULE.test(line)) return [el("hr"), at + 1];
  if (depth < DEEPEST && /^ {0,3}>/.test(line)) return quote(lines, at, depth);
  if (depth < DEEPEST && ITEM.test(line)) return bullets(lines, at, depth);
  if (isTable(lines, at)) return table(lines, at);
  return paragraph(lines, at);
}

function fenceOf(line) {
  const match = FENCE.exec(line);
  return match && !(match[1][0] === "`" && match[2].includes("`")) ? match : null;
}

function codeBlock(lines, at) {
  const [, fence, info] = fenceOf(lines[at]);
  const close = new RegExp(`^ {0,3}${fence[0] === "~" ? "~" : "`"}{${fence.length},} *$`);
  let end = at + 1;
  while (end < lines.length && !close.test(lines[end])) end += 1;
  const name = info.trim().split(/\s/, 1)[0];
  const code = el("pre", { class: "code", tabindex: "0" }, el("code", null, lines.slice(at + 1, end).join("\n")));
  return [name ? el("div", { class: "fenced" }, el("span", { class: "lang" }, name), code) : code, end + 1];
}

function heading(line) {
  const [mark] = HEADING.exec(line);
  const level = mark.trim().length;
  return el(`h${Math.min(6, level + 2)}`, { class: `h${level}` }, inline(trimHashes(line.slice(mark.length)), 0));
}

function trimHashes(text) {
  const bare = text.trim();
  let end = bare.length;
  while (end > 0 && bare[end - 1] === "#") end -= 1;
  return end === 0 || bare[end - 1] === " " ? bare.slice(0, end).trim() : bare;
}

function quote(lines, at, depth) {
  const inner = [];
  let end = at;
  for (; end < lines.length && /^ {0,3}>/.test(lines[end]); end += 1) inner.push(lines[end].replace(/^ {0,3}> ?/, ""));
  return [el("blockquote", null, blocks(inner, depth + 1)), end];
}

function bullets(lines, at, depth) {
  const first = ITEM.exec(lines[at]);
  const ordered = /\d/.test(first[2]);
  const items = [];
  let end = at;
  while (end < lines.length) {
    const match = ITEM.exec(lines[end]);
    if (!match || /\d/.test(match[2]) !== ordered || match[1].length > first[1].length + 1) break;
    const [item, next] = listItem(lines, end, match);
    items.push(el("li", null, itemContent(item, depth + 1)));
    end = next;
  }
  const start = ordered ? parseInt(first[2], 10) : 1;
  return [el(ordered ? "ol" : "ul", { start: ordered && start !== 1 ? start : null }, items), end];
}

function listItem(lines, at, match) {
  const width = match[0].length;
  const item = [lines[at].slice(width)];
  let next = at + 1;
  let blank = false;
  for (; next < lines.length; next += 1) {
    const line = lines[next];
    const indent = line.length - line.trimStart().length;
    if (line.trim() === "") {
      blank = true;
      item.push("");
    } else if (indent >= Math.min(width, match[1].length + 2)) {
      blank = false;
      item.push(line.slice(Math.min(width, indent)));
    } else if (!blank && !startsBlock(line)) {
      item.push(line);
    } else {
      break;
    }
  }
  return [item, next];
}

function itemContent(lines, depth) {
  const box = /^\[([ xX])\] /.exec(lines[0]);
  const body = box ? [lines[0].slice(4), ...lines.slice(1)] : lines;
  const nodes = blocks(body, depth);
  const lead = box ? [box[1] === " " ? "☐ " : "☑ "] : [];
  const tight = nodes.length > 0 && nodes[0].tagName === "P" ? [...nodes.shift().childNodes] : [];
  return [...lead, ...tight, ...nodes];
}

function startsBlock(line) {
  return fenceOf(line) !== null || HEADING.test(line) || RULE.test(line) || /^ {0,3}>/.test(line) || ITEM.test(line);
}

function cells(line) {
  const bare = line.trim().replace(/^\|/, "").replace(/\|$/, "");
  return bare.split("|").map((cell) => cell.trim());
}

function isTable(lines, at) {
  if (at + 1 >= lines.length || !lines[at].includes("|") || !lines[at + 1].includes("-")) return false;
  const rule = cells(lines[at + 1]);
  return rule.length === cells(lines[at]).length && rule.every((cell) => /^:?-+:?$/.test(cell));
}

function table(lines, at) {
  const head = cells(lines[at]);
  const align = cells(lines[at + 1]).map((cell) => (cell.endsWith(":") ? (cell[0] === ":" ? "centre" : "right") : null));
  const row = (tag, values) =>
    el("tr", null, head.map((_, column) => el(tag, { class: align[column] }, inline(values[column] || "", 0))));
  const body = [];
  let end = at + 2;
  for (; end < lines.length && lines[end].includes("|"); end += 1) body.push(row("td", cells(lines[end])));
  const grid = el("table", null, el("thead", null, row("th", head)), el("tbody", null, body));
  return [el("div", { class: "scroll", tabindex: "0" }, grid), end];
}

function paragraph(lines, at) {
  let end = at + 1;
  while (end < lines.length && lines[end].trim() !== "" && !startsBlock(lines[end]) && !isTable(lines, end)) end += 1;
  const out = [];
  lines.slice(at, end).forEach((line, index) => {
    if (index > 0) out.push("\n");
    out.push(line.trim());
  });
  return [el("p", null, inline(out.join(""), 0)), end];
}

// ---- inside a paragraph ----

function inline(text, depth) {
  const out = [];
  const missing = new Set(); // closers that do not occur any more
  let plain = "";
  let at = 0;
  const flush = () => {
    if (plain) out.push(plain);
    plain = "";
  };
  while (at < text.length) {
    const found = span(text, at, depth, missing);
    if (found && typeof found[0] === "string") {
      plain += found[0];
      at = found[1];
    } else if (found) {
      flush();
      out.push(found[0]);
      at = found[1];
    } else {
      plain += text[at];
      at += 1;
      if (text[at - 1] === "\\" && /[!-/:-@[-`{-~]/.test(text[at] || "")) {
        plain = plain.slice(0, -1) + text[at];
        at += 1;
      } else {
        while (at < text.length && !/[`*_~[!h\\]/.test(text[at])) plain += text[at++];
      }
    }
  }
  flush();
  return out;
}

function span(text, at, depth, missing) {
  switch (text[at]) {
    case "`":
      return codeSpan(text, at, missing);
    case "*":
    case "_":
    case "~":
      return depth < DEEPEST ? emphasis(text, at, depth, missing) : null;
    case "!":
      return text[at + 1] === "[" ? link(text, at + 1, depth) : null;
    case "[":
      return link(text, at, depth);
    case "h":
      return bareLink(text, at);
    default:
      return null;
  }
}

function closing(text, mark, from, missing) {
  if (missing.has(mark)) return -1;
  const end = text.indexOf(mark, from);
  if (end < 0) missing.add(mark);
  return end;
}

function codeSpan(text, at, missing) {
  let width = 1;
  while (text[at + width] === "`") width += 1;
  const mark = "`".repeat(width);
  const end = closing(text, mark, at + width, missing);
  if (end < 0) return [mark, at + width];
  return [el("code", null, text.slice(at + width, end)), end + width];
}

function emphasis(text, at, depth, missing) {
  const char = text[at];
  const double = text[at + 1] === char;
  if (char === "~" && !double) return null;
  const mark = double ? char + char : char;
  const from = at + mark.length;
  if (/^\s|^$/.test(text[from] || "")) return [mark, from];
  if (char === "_" && /\w/.test(text[at - 1] || "")) return [mark, from];
  const end = closing(text, mark, from + 1, missing);
  if (end < 0 || /\s/.test(text[end - 1]) || (char === "_" && /\w/.test(text[end + mark.length] || ""))) return [mark, from];
  const tag = char === "~" ? "del" : double ? "strong" : "em";
  return [el(tag, null, inline(text.slice(from, end), depth + 1)), end + mark.length];
}

function link(text, at, depth) {
  const close = text.slice(at, at + LINK_TEXT).indexOf("](");
  if (close < 0 || depth >= DEEPEST) return null;
  const start = at + close + 2;
  const length = closingParen(text.slice(start, start + LINK_TARGET));
  if (length < 0) return null;
  const label = text.slice(at + 1, at + close);
  return [anchor(label, text.slice(start, start + length).split(/\s/, 1)[0], depth), start + length + 1];
}

// Parentheses inside the target count when they are balanced.
function closingParen(text) {
  let open = 0;
  for (let at = 0; at < text.length; at += 1) {
    if (text[at] === "(") open += 1;
    else if (text[at] === ")" && open-- === 0) return at;
  }
  return -1;
}

function bareLink(text, at) {
  if (!/^https?:\/\/[^\s]/.test(text.slice(at, at + 9)) || /\w/.test(text[at - 1] || "")) return null;
  const target = text.slice(at, at + LINK_TARGET).split(/[\s<>"`*|]/, 1)[0].replace(/[.,;:!?)\]}']{1,20}$/, "");
  return [anchor(target, target, 0), at + target.length];
}

// The target's host stands beside a link whose text does not show it.
function anchor(label, target, depth) {
  const url = safeHref(target);
  if (!url) return el("span", { class: "dead", title: "not a web address" }, labelled(label, target, depth));
  const href = url.href;
  const shows = label === target;
  const props = { href, title: href, rel: "noopener noreferrer nofollow", target: "_blank" };
  const node = el("a", props, shows ? label : inline(label, DEEPEST));
  return shows ? node : el("span", null, node, el("span", { class: "host" }, ` (${url.host || url.pathname})`));
}

function labelled(label, target, depth) {
  return [...inline(label, depth + 1), el("span", { class: "host" }, ` (${target})`)];
}
