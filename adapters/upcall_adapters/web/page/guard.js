// What may be pressed when: a finger is aimed at what was there before, so a control that
// has just appeared, moved or been uncovered takes no press for half a second. Keys and
// screen readers name what they press and have no such aim: they work at once.

import { announce, byId } from "./dom.js";

const YOUNG_MS = 500;
const CONTROLS = "button, summary, label.option, a.button, input";
const born = new WeakMap(); // node -> when it came to be where it is
const shown = new WeakMap(); // node -> since when it looks as if it had just appeared
const moved = new WeakSet();
const places = new WeakMap(); // control -> where it was, in the page and in the window

export function appeared(node) {
  const since = performance.now();
  mark(node, false);
  shown.set(node, since);
  node.classList.add("young");
  setTimeout(() => { if (shown.get(node) === since) node.classList.remove("young"); }, YOUNG_MS);
  return node;
}

// Hides what lies over the page; what was under it is new to the finger.
export function uncover(node) {
  if (node.hidden) return;
  const over = node.getBoundingClientRect();
  node.hidden = true;
  for (const control of document.querySelectorAll(CONTROLS)) {
    const box = control.getBoundingClientRect();
    if (box.right > over.left && box.left < over.right && box.bottom > over.top && box.top < over.bottom) mark(control, true);
  }
}

function mark(control, isMoved) {
  born.set(control, performance.now());
  if (isMoved) moved.add(control);
  else moved.delete(control);
}

// -- noticing what moves

let dirty = false;

function look() {
  dirty = false;
  const [x, y] = [scrollX, scrollY];
  for (const control of document.querySelectorAll(CONTROLS)) {
    const box = control.getBoundingClientRect();
    if (box.width === 0) {
      places.delete(control);
      continue;
    }
    const was = places.get(control);
    const now = { left: box.left, top: box.top, x: box.left + x, y: box.top + y };
    places.set(control, now);
    if (!was) mark(control, false);
    // Scrolled: same place in the page. Held in place (sticky, anchored): same place in the window.
    else if (far(was.x, was.y, now.x, now.y) && far(was.left, was.top, now.left, now.top)) mark(control, true);
  }
}

const far = (x, y, otherX, otherY) => Math.abs(x - otherX) >= 1 || Math.abs(y - otherY) >= 1;

function lookSoon() {
  if (dirty) return;
  dirty = true;
  // After the frame, when the browser has anchored its scrolling; a press looks at once.
  requestAnimationFrame(() => setTimeout(() => { if (dirty) look(); }));
}

new MutationObserver(lookSoon).observe(document.body, {
  subtree: true, childList: true, characterData: true, attributes: true, attributeFilter: ["hidden", "class", "open", "data-tab", "data-kind"],
});
new ResizeObserver(lookSoon).observe(document.body);
addEventListener("resize", lookSoon);

// -- presses

let pressed = null; // when the finger came down, and when it left
let down = false;
addEventListener("pointerdown", () => {
  down = true;
  pressed = { at: performance.now(), up: Infinity };
}, { capture: true, passive: true });
addEventListener("pointerup", () => {
  down = false;
  if (pressed) pressed.up = performance.now();
}, { capture: true, passive: true });
addEventListener("pointercancel", () => {
  down = false;
  pressed = null;
}, { capture: true, passive: true });

function pressedAt() {
  const now = performance.now();
  const at = pressed && now - pressed.up < 400 ? pressed.at : now;
  pressed = null;
  return at;
}

document.addEventListener("click", (event) => {
  if (event.detail === 0) return;
  if (dirty) look();
  const at = pressedAt();
  for (let node = event.target; node; node = node.parentElement) {
    if (born.has(node) && at - born.get(node) < YOUNG_MS) {
      const control = event.target.closest(CONTROLS);
      if (!control) return;
      event.preventDefault();
      event.stopImmediatePropagation();
      hintAt(event.clientX, event.clientY, moved.has(node) ? "just moved - press again" : "just appeared - press again");
      return;
    }
  }
}, true);

// Lies over the page next to the finger, since a line in the page would move what is pressed next.
let hintTimer = null;
function hintAt(x, y, words) {
  const hint = byId("early");
  hint.textContent = words;
  hint.hidden = false;
  const [wide, high] = [hint.offsetWidth, hint.offsetHeight];
  hint.style.left = `${Math.max(8, Math.min(x - wide / 2, innerWidth - wide - 8))}px`;
  hint.style.top = `${y - high - 32 > 0 ? y - high - 32 : y + 32}px`;
  announce(words);
  clearTimeout(hintTimer);
  hintTimer = setTimeout(() => { hint.hidden = true; }, 2500);
}

// Whether the person is at something that must not move.
let lastTouch = -Infinity;
for (const kind of ["pointerdown", "pointerup", "keydown", "wheel", "touchmove"]) {
  addEventListener(kind, () => { lastTouch = performance.now(); }, { passive: true, capture: true });
}
export function interacting() {
  if (down || performance.now() - lastTouch < 3000) return true;
  const focus = document.activeElement;
  return Boolean(focus && focus.closest("#ask-list") && focus.matches("input, textarea, button, summary, .confirm, .confirm *"));
}
