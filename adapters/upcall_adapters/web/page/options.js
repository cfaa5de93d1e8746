// The choices of a question: drawn from what the program offers, placed where they always are.

import { el, quoted, sayIn, theirs } from "./dom.js";
import { quoteLabels } from "./words.js";

const labelOf = (option) => option.shown ?? option.label;
export const labelsOf = (ask, indices) => quoteLabels(indices.map((index) => labelOf(ask.options[index])));

// Allow and deny never swap places: where both are plain to see, allow is first and deny
// last, in whatever order the program named them. Numbers that people see keep their order.
const ALLOW = /^(allow|yes|approve|accept|ok(ay)?|permit|grant|agree|proceed|continue|run|confirm|go)\b/i;
const DENY = /^(deny|no|reject|refuse|cancel|abort|block|decline|don.?t|do not|never|stop|skip|disallow|disagree)\b/i;

function rank(option) {
  const label = (option.label ?? labelOf(option)).trim();
  return DENY.test(label) ? 2 : ALLOW.test(label) ? 0 : 1;
}

export function order(ask) {
  const indices = ask.options.map((_, index) => index);
  const numbered = ask.options.some((option) => option.number);
  if (ask.class !== "permission" || ask.multi || numbered) return indices;
  return indices.sort((a, b) => rank(ask.options[a]) - rank(ask.options[b]) || a - b);
}

function optionText(ask, index, hidden = 0) {
  const option = ask.options[index];
  const note = hidden && option.allows ? ` … ${hidden.toLocaleString()} characters not shown` : "";
  return el("span", { class: "option-text" },
    el("span", { class: "label-line" },
      option.number && el("span", { class: "number" }, `${option.number}.`),
      note ? el("span", {}, theirs(labelOf(option), "span", { class: "label" }), note) : theirs(labelOf(option), "span", { class: "label" })),
    option.note && el("span", { class: "option-note" }, option.note),
    option.detail && theirs(option.detail, "span", { class: "option-detail" }),
    ask.recommended === index && ask.class !== "permission" && el("span", { class: "suggested" }, "suggested by the program"));
}

export function buttons(ask, choose, hidden) {
  return el("div", { class: "options" }, ...order(ask).map((index) => el("button", {
    type: "button", class: "option", "data-index": index,
    on: { click: () => choose([index]) },
  }, optionText(ask, index, hidden))));
}

export function checks(ask, drafts, { send, say }) {
  const go = el("button", { type: "button", class: "go" });
  const hint = el("p", { class: "hint" }, rangeWords(ask));
  const rows = ask.options.map((_, index) => {
    const box = el("input", { type: "checkbox", "data-index": index });
    box.checked = drafts.checked.includes(index);
    box.addEventListener("change", () => {
      drafts.check(index, box.checked);
      count();
    });
    return el("label", { class: "option check" }, box, optionText(ask, index));
  });
  const count = () => sayIn(go, drafts.checked.length ? `Send ${drafts.checked.length} chosen` : "Send");
  go.addEventListener("click", () => {
    const chosen = [...drafts.checked].sort((a, b) => a - b);
    const wrong = rangeProblem(ask, chosen.length);
    if (wrong) say(wrong);
    else send(chosen);
  });
  count();
  return el("div", { class: "options" }, hint, ...rows, go);
}

const range = (ask) => [Math.max(1, ask.min_selected ?? 1), ask.max_selected ?? ask.options.length];

function rangeWords(ask) {
  const [low, high] = range(ask);
  if (low === high) return `Choose ${low}.`;
  if (high >= ask.options.length) return low === 1 ? "Choose one or more." : `Choose at least ${low}.`;
  return low === 1 ? `Choose up to ${high}.` : `Choose ${low} to ${high}.`;
}

function rangeProblem(ask, count) {
  const [low, high] = range(ask);
  if (count < low) return count === 0 ? `nothing is chosen yet; choose at least ${low}` : `choose at least ${low}; ${count} chosen so far`;
  if (count > high) return `choose at most ${high}; ${count} are chosen`;
  return null;
}

// The step between a press and its sending. `again` waits for a second press; `undo` sends
// by itself when its time is over, unless it is taken back or the page is left.
export function again(words, { cut, masked }, { back, go }) {
  const more = (cut ? ` ${cut.toLocaleString()} characters of it are not shown on the card at first; all of it is above now.` : "")
    + (masked ? ` ${masked.toLocaleString()} characters of it are masked and not shown.` : "");
  const title = el("p", { tabindex: "-1", class: "confirm-words" });
  sayIn(title, `Send ${words}?${more} It can't be taken back.`);
  const yes = button("go", `Send ${words}`, go);
  return { title, node: el("div", { class: "confirm" }, title, el("div", { class: "confirm-row" }, button("plain", "Back", back), yes)) };
}

export function undo(words, seconds, { back, go }) {
  const title = el("p", { tabindex: "-1", class: "confirm-words" });
  sayIn(title, `Sending ${words} in ${seconds} s. Nothing is sent yet.`);
  const left = el("p", { class: "undo-left", "aria-hidden": "true" });
  const row = el("div", { class: "confirm-row" }, button("plain", "Undo", back), button("go", "Send now", go));
  return { title, left, node: el("div", { class: "confirm undo" }, title, left, row) };
}

function button(kind, words, press) {
  const node = el("button", { type: "button", class: kind, on: { click: press } });
  sayIn(node, words);
  return node;
}

export const quotedWords = (text) => `the words “${quoted(text.length > 60 ? `${text.slice(0, 59)}…` : text)}”`;
