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
const left = (at) => (at <= now() ? "ending now" : `ends in ${span(at - now())}`);
const exact = (ms) => new Date(ms).toLocaleString();

function timed(kind, ms, words) {
  const node = el("time", { datetime: new Date(ms).toISOString(), title: exact(ms), "data-kind": kind, "data-at": ms });
  node.textContent = words(ms);
  return node;
}
export const agoTime = (ms) => timed("ago", ms, ago);
export const leftTime = (ms) => timed("left", ms, left);

export function renewTimes() {
  for (const node of document.querySelectorAll("time[data-at]")) {
    setText(node, (node.dataset.kind === "ago" ? ago : left)(Number(node.dataset.at)));
  }
}

export function announce(text) {
  const node = byId("announce");
  node.textContent = "";
  requestAnimationFrame(() => { node.textContent = text; });
}

export const newKey = () => crypto.randomUUID ? crypto.randomUUID()
  : [...crypto.getRandomValues(new Uint8Array(16))].map((b) => b.toString(16).padStart(2, "0")).join("");

// A control that has just appeared takes no press for half a second: the finger was aimed
// at what was there before. Keys have no such aim and work at once.
const born = new WeakMap();
const YOUNG_MS = 500;
const controlsOf = (node) => [...(node.matches("button") ? [node] : []), ...node.querySelectorAll("button, input")];
const isYoung = (node) => performance.now() - born.get(node) < YOUNG_MS;

export function appeared(node) {
  born.set(node, performance.now());
  node.classList.add("young");
  for (const control of controlsOf(node)) control.setAttribute("aria-disabled", "true");
  setTimeout(() => ripen(node), YOUNG_MS);
  return node;
}

function ripen(node) {
  if (isYoung(node)) return;
  node.classList.remove("young");
  for (const control of controlsOf(node)) {
    if (!control.closest(".young, .dead")) control.removeAttribute("aria-disabled");
  }
}

document.addEventListener("click", (event) => {
  if (event.detail === 0) return;
  for (let node = event.target; node; node = node.parentElement) {
    if (born.has(node) && isYoung(node)) {
      event.preventDefault();
      event.stopImmediatePropagation();
      if (event.target.closest("button, input, label, a")) hintAt(event.clientX, event.clientY);
      return;
    }
  }
}, true);

// Lies over the page next to the finger, since a line in the page would move what is pressed next.
let hintTimer = null;
function hintAt(x, y) {
  const hint = byId("early");
  hint.hidden = false;
  const [wide, high] = [hint.offsetWidth, hint.offsetHeight];
  hint.style.left = `${Math.max(8, Math.min(x - wide / 2, innerWidth - wide - 8))}px`;
  hint.style.top = `${y - high - 32 > 0 ? y - high - 32 : y + 32}px`;
  announce(hint.textContent);
  clearTimeout(hintTimer);
  hintTimer = setTimeout(() => { hint.hidden = true; }, 2500);
}

// Whether the person is at something that must not move.
let lastTouch = -Infinity;
for (const kind of ["pointerdown", "keydown", "wheel", "touchmove"]) {
  addEventListener(kind, () => { lastTouch = performance.now(); }, { passive: true, capture: true });
}
export function interacting() {
  if (performance.now() - lastTouch < 3000) return true;
  const focus = document.activeElement;
  return Boolean(focus && focus.closest("#ask-list") && focus.matches("input, textarea, button, .confirm, .confirm *"));
}
