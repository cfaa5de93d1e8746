// Building the page. Text only ever becomes text nodes; nothing here parses markup.

export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "on") for (const [event, handler] of Object.entries(value)) node.addEventListener(event, handler);
    else if (name === "class") node.className = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export const byId = (id) => document.getElementById(id);

// Words of a session: always isolated, in their own reading direction.
export const theirs = (text, tag = "bdi", props = {}) => el(tag, { dir: "auto", ...props }, text);

export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// Our own sentences about words of others; `quoted` marks where those begin and end.
const [OPEN, SHUT] = ["\u2068", "\u2069"];
export const quoted = (text) => `${OPEN}${text}${SHUT}`;
export const unquoted = (text) => text.replaceAll(OPEN, "").replaceAll(SHUT, "");
export function sayIn(node, text) {
  if (node.textContent === unquoted(text)) return;
  node.replaceChildren(...text.split(OPEN).flatMap((part, at) => {
    if (at === 0) return part ? [part] : [];
    const [inside, after = ""] = part.split(SHUT);
    return [theirs(inside, "bdi", { class: "in-words" }), after];
  }));
}

// Our own sentences may hold `commands`.
export function setWords(node, text) {
  node.replaceChildren(...text.split("`").map((part, at) => (at % 2 ? el("code", {}, part) : part)));
}

let skew = 0;
export const setClock = (now) => { skew = now - Date.now(); };
export const now = () => Date.now() + skew;

export function span(ms) {
  const s = Math.max(0, Math.round(ms / 1000));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 172800) return `${Math.floor(s / 3600)} h`;
  return `${Math.floor(s / 86400)} days`;
}

const ago = (at) => (now() - at < 5000 ? "just now" : `${span(now() - at)} ago`);
const lasting = (at) => span(now() - at);
const left = (at) => (at <= now() ? "ending now" : `ends in ${span(at - now())}`);
const TIMES = { ago, left, for: lasting };
const exact = (ms) => new Date(ms).toLocaleString(undefined, { dateStyle: "full", timeStyle: "long" });

function timed(kind, ms, words) {
  const node = el("time", { datetime: new Date(ms).toISOString(), "data-kind": kind, "data-at": ms });
  node.textContent = words(ms);
  return node;
}
export const agoTime = (ms) => timed("ago", ms, ago);
export const forTime = (ms) => timed("for", ms, lasting);
export const leftTime = (ms) => timed("left", ms, left);
export const exactTime = (ms) => el("time", { datetime: new Date(ms).toISOString() }, exact(ms));

export function renewTimes() {
  for (const node of document.querySelectorAll("time[data-at]")) {
    setText(node, TIMES[node.dataset.kind](Number(node.dataset.at)));
  }
}

// Said politely, each once; lines that follow each other closely are all said.
export function announce(text) {
  const line = el("p", {}, text);
  byId("announce").append(line);
  setTimeout(() => line.remove(), 10000);
}

export const newKey = () => crypto.randomUUID ? crypto.randomUUID()
  : [...crypto.getRandomValues(new Uint8Array(16))].map((b) => b.toString(16).padStart(2, "0")).join("");

// A line of facts that opens to the exact ones. It is made once, so that neither an open
// one closes nor a focused one loses the focus when the facts change.
export class Facts {
  constructor() {
    this.line = el("summary", {});
    this.rows = el("dl", {});
    this.node = el("details", { class: "facts" }, this.line, this.rows);
  }

  set(line, rows) {
    this.line.replaceChildren(el("span", {}, ...line.filter(Boolean)));
    this.rows.replaceChildren(...rows.filter((row) => row && row[1]).flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
  }
}

// A block that scrolls can be reached and scrolled by keys; one that does not is no stop.
const scrolling = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    const needs = target.scrollHeight > target.clientHeight + 1;
    if (needs) target.setAttribute("tabindex", "0");
    else if (target !== document.activeElement) target.removeAttribute("tabindex");
  }
});
export function scrolls(node) {
  scrolling.observe(node);
  return node;
}
