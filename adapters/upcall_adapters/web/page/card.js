// One question: what it shows, what can be pressed, and what really became of an answer.

import { agoTime, announce, appeared, el, leftTime, newKey, setText, theirs } from "./dom.js";
import { NotSent, Refused, get, post } from "./net.js";
import { Drafts } from "./drafts.js";
import { byWords, endWords, nameOf, quoteLabels } from "./words.js";

const NOT_SENT = "not sent, no connection";

export class Card {
  constructor(ask, { isReady, me, remove }) {
    Object.assign(this, { ask, isReady, me, remove });
    this.busy = false;
    this.mine = false;
    this.closed = false;
    this.keys = new Map();
    this.state = el("p", { class: "state", tabindex: "-1" });
    this.body = el("div", { class: "card-body" });
    this.node = el("article", { class: "card", "data-ask": ask.id, "data-class": ask.class, tabindex: "-1", "aria-label": "Question" });
    this.facts = el("div", { class: "card-head" });
    this.node.append(this.facts, this.body, this.state);
    this.build();
  }

  // -- drawing

  build() {
    const ask = this.ask;
    this.drafts = new Drafts(ask);
    this.confirm = null;
    this.wholeShown = ask.detail_hidden === 0;
    this.drawFacts();
    this.controls = el("div", { class: "controls" });
    const legend = el("legend", {}, theirs(ask.question, "span", { class: "quote question" }));
    const set = el("fieldset", {}, legend, this.detail(), this.warnings(), this.controls);
    this.form = el("form", { novalidate: true, on: { submit: (event) => event.preventDefault() } }, set);
    this.body.replaceChildren(this.form);
    this.drawControls();
    this.drawState();
    this.onLink(this.isReady());
  }

  drawFacts() {
    const { ask } = this;
    const { session } = ask;
    const claims = [session.repo, session.branch && `on ${session.branch}`].filter(Boolean);
    const known = [session.machine, session.program].filter(Boolean);
    this.facts.replaceChildren(...[
      el("div", { class: "who" },
        ask.class === "permission" && el("span", { class: "badge" }, "permission"),
        theirs(nameOf(session), "strong", { class: "title" }),
        ...claims.map((text) => theirs(text, "span", { class: "claim" }))),
      el("p", { class: "known" },
        "asked ", agoTime(ask.raised_ms),
        ...known.flatMap((text) => [" · ", theirs(text)]),
        " · ", el("span", { class: "id", title: session.cwd || "" }, ask.id)),
      ask.held ? el("p", { class: "deadline" }, "on hold: the clock stands still")
        : ask.deadline_ms !== null && el("p", { class: "deadline" }, leftTime(ask.deadline_ms),
          ask.default !== null ? [", then the program uses “", ask.default, "”"].join("") : ", then without an answer"),
    ].filter(Boolean));
  }

  detail() {
    const { ask } = this;
    if (ask.detail === null) return null;
    const block = theirs(ask.detail, "pre", { class: "quote detail", tabindex: "0", "aria-label": "Detail" });
    if (ask.detail_hidden === 0) return block;
    const more = el("button", { type: "button", class: "plain" }, `Show the other ${ask.detail_hidden.toLocaleString()} characters`);
    more.addEventListener("click", async () => {
      try {
        block.textContent = (await get(`/api/ask/${encodeURIComponent(ask.id)}`)).detail;
        this.wholeShown = true;
        more.remove();
        block.focus();
      } catch (problem) {
        this.say(problem.message, "bad");
      }
    });
    return el("div", {}, block, more);
  }

  warnings() {
    const { warnings } = this.ask;
    return warnings.length ? el("ul", { class: "warnings" }, ...warnings.map((text) => el("li", {}, text))) : null;
  }

  drawControls() {
    const { ask } = this;
    this.confirm = null;
    const parts = [];
    if (ask.options.length) parts.push(ask.multi ? this.checks() : this.buttons());
    if (ask.free_text) parts.push(this.words());
    const own = this.own();
    if (own) parts.push(own);
    this.controls.replaceChildren(...parts);
  }

  optionText(option, index) {
    return el("span", { class: "option-text" },
      theirs(option.label_shown, "span", { class: "label" }),
      option.detail && theirs(option.detail, "span", { class: "option-detail" }),
      this.ask.recommended === index && el("span", { class: "suggested" }, "suggested by the program"));
  }

  buttons() {
    return el("div", { class: "options" }, ...this.ask.options.map((option, index) => el("button", {
      type: "button", class: "option", "data-index": index,
      on: { click: () => this.choose({ indices: [index] }, `“${option.label_shown}”`) },
    }, this.optionText(option, index))));
  }

  checks() {
    const { ask } = this;
    const send = el("button", { type: "button", class: "go" });
    const hint = el("p", { class: "hint" }, this.rangeWords());
    const rows = ask.options.map((option, index) => {
      const box = el("input", { type: "checkbox", "data-index": index });
      box.checked = this.drafts.checked.includes(index);
      box.addEventListener("change", () => {
        this.drafts.check(index, box.checked);
        count();
      });
      return el("label", { class: "option check" }, box, this.optionText(option, index));
    });
    const count = () => setText(send, this.drafts.checked.length ? `Send ${this.drafts.checked.length} chosen` : "Send");
    send.addEventListener("click", () => {
      const chosen = [...this.drafts.checked].sort((a, b) => a - b);
      const wrong = this.rangeProblem(chosen.length);
      if (wrong) this.say(wrong, "bad");
      else this.choose({ indices: chosen }, quoteLabels(chosen.map((index) => ask.options[index].label_shown)));
    });
    count();
    return el("div", { class: "options" }, hint, ...rows, send);
  }

  range() {
    const { ask } = this;
    return [Math.max(1, ask.min_selected ?? 1), ask.max_selected ?? ask.options.length];
  }

  rangeWords() {
    const [low, high] = this.range();
    if (low === high) return `Choose ${low}.`;
    if (high >= this.ask.options.length) return low === 1 ? "Choose one or more." : `Choose at least ${low}.`;
    return low === 1 ? `Choose up to ${high}.` : `Choose ${low} to ${high}.`;
  }

  rangeProblem(count) {
    const [low, high] = this.range();
    if (count < low) return count === 0 ? `nothing is chosen yet; choose at least ${low}` : `choose at least ${low}; ${count} chosen so far`;
    if (count > high) return `choose at most ${high}; ${count} are chosen`;
    return null;
  }

  words() {
    const { ask } = this;
    const name = `words-${ask.id}`;
    const area = el("textarea", { id: name, rows: "2", dir: "auto", enterkeyhint: "enter", autocomplete: "off", maxlength: "60000" });
    area.value = this.drafts.text;
    area.addEventListener("input", () => this.drafts.write(area.value));
    const send = el("button", { type: "button", class: "go" }, "Send words");
    send.addEventListener("click", () => {
      if (area.value.trim() === "") this.say("there are no words yet", "bad");
      else this.choose({ text: area.value }, "these words");
    });
    const box = el("div", { class: "words" }, el("label", { for: name }, ask.options.length ? "Answer in words" : "Your answer"), area, send);
    if (!ask.options.length || this.drafts.text) return box;
    const open = el("button", { type: "button", class: "plain", "aria-expanded": "false" }, "Answer in words");
    open.addEventListener("click", () => {
      open.replaceWith(appeared(box));
      area.focus();
    });
    return open;
  }

  own() {
    const { ask } = this;
    const parts = [];
    if (ask.can_hold) {
      parts.push(el("button", { type: "button", class: "plain", on: { click: () => this.send({ hold: !ask.held }, "") } },
        ask.held ? "Let the clock run" : "Hold"));
    }
    if (ask.can_decline) {
      parts.push(el("button", { type: "button", class: "plain", on: { click: () => this.send({ decline: true }, "a decline") } }, "Decline"));
    }
    return parts.length ? el("div", { class: "own" }, ...parts) : null;
  }

  // -- what is going on, in words

  say(text, kind = "") {
    setText(this.state, text);
    this.state.dataset.kind = kind;
  }

  drawState() {
    const { ask } = this;
    if (ask.state === "claimed") {
      const by = this.byMe() ? "your answer" : `${byWords(ask)} answered`;
      const what = ask.answer ? ` ${quoteLabels(ask.answer.labels, ask.answer.text)}` : "";
      this.say(`${by}${what}; waiting for the program to take it…`, "wait");
    } else if (!this.busy && this.state.dataset.kind !== "bad") {
      this.say(ask.note || "", "");
    }
    this.node.dataset.state = ask.state;
  }

  byMe() {
    const by = this.ask.answered_by;
    const me = this.me();
    return this.mine && (!by || (me && by.name === me.name && by.channel === me.channel));
  }

  onLink(ready) {
    const dead = !ready || this.busy || this.ask.state !== "open";
    this.node.classList.toggle("dead", dead);
    for (const control of this.form.querySelectorAll("button, input, textarea")) {
      if (dead && !control.matches("textarea, .detail")) control.setAttribute("aria-disabled", "true");
      else if (!control.closest(".young")) control.removeAttribute("aria-disabled");
    }
    if (ready && this.wasDead) appeared(this.controls);
    this.wasDead = !ready;
    if (ready && this.state.textContent === NOT_SENT) this.say("", "");
  }

  update(ask) {
    const old = this.ask;
    this.ask = ask;
    if (old.revision !== ask.revision) {
      this.build();
      appeared(this.body);
      this.say("The program changed its question. Nothing was sent.", "bad");
      return;
    }
    if (old.state === "claimed" && ask.state === "open") this.busy = false;
    const drawn = JSON.stringify([old.held, old.deadline_ms, old.session, old.can_decline, old.can_hold]);
    if (drawn !== JSON.stringify([ask.held, ask.deadline_ms, ask.session, ask.can_decline, ask.can_hold])) {
      this.drawFacts();
      if (old.held !== ask.held || old.can_hold !== ask.can_hold || old.can_decline !== ask.can_decline) {
        this.controls.querySelector(".own")?.replaceWith(this.own() || "");
      }
    }
    this.drawState();
    this.onLink(this.isReady());
  }

  // -- answering

  choose(payload, words) {
    if (this.ask.class === "permission") this.askAgain(payload, words);
    else this.send(payload, words);
  }

  askAgain(payload, words) {
    if (!this.canSend()) return;
    const hidden = this.wholeShown ? "" : ` ${this.ask.detail_hidden.toLocaleString()} characters of it are not shown.`;
    const title = el("p", { tabindex: "-1", class: "confirm-words" }, `Send ${words}?${hidden} It can't be taken back.`);
    const back = el("button", { type: "button", class: "plain" }, "Back");
    const yes = el("button", { type: "button", class: "go" }, `Send ${words}`);
    back.addEventListener("click", () => this.endConfirm());
    yes.addEventListener("click", () => this.send(payload, words));
    this.confirm = appeared(el("div", { class: "confirm" }, title, el("div", { class: "confirm-row" }, back, yes)));
    this.controls.replaceChildren(this.confirm);
    title.focus();
  }

  endConfirm() {
    this.drawControls();
    appeared(this.controls);
    this.node.focus({ preventScroll: true });
  }

  canSend() {
    if (this.busy || this.ask.state !== "open" || this.closed) return false;
    if (this.isReady()) return true;
    this.say(NOT_SENT, "bad");
    return false;
  }

  // The same act keeps its key, so that pressing again is not a second answer.
  keyFor(payload) {
    const name = JSON.stringify(payload);
    if (!this.keys.has(name)) this.keys.set(name, newKey());
    return this.keys.get(name);
  }

  async send(payload, words) {
    if (!this.canSend()) return;
    const { ask } = this;
    const isHold = payload.hold !== undefined;
    const body = { ask: ask.id, revision: ask.revision, key: isHold ? newKey() : this.keyFor(payload), ...payload };
    this.busy = true;
    this.say("sending…", "wait");
    this.onLink(this.isReady());
    this.state.focus({ preventScroll: true });
    try {
      await post("/api/answer", body);
      if (isHold) {
        this.busy = false;
        this.say("", "");
      } else {
        this.mine = true;
        this.drafts.forget();
        if (!this.closed && this.ask.state === "open") this.say(`${words} was passed on; waiting for the program to take it…`, "wait");
      }
    } catch (problem) {
      this.failed(problem);
    }
    if (!this.closed) this.onLink(this.isReady());
  }

  failed(problem) {
    if (this.closed) return;
    this.busy = false;
    if (this.confirm) this.drawControls();
    if (problem instanceof NotSent) this.say(NOT_SENT, "bad");
    else if (problem instanceof Refused) {
      const result = problem.body && problem.body.result;
      const who = result && result.answered_by ? ` ${endWords(result, null)}` : "";
      this.say(`${problem.message || "not taken"}.${who}`.replace(/\.\.(?= |$)/, "."), "bad");
    } else throw problem;
    announce(this.state.textContent);
  }

  // -- the end

  closing() {
    this.closed = true;
    this.endedAt = null;
    this.busy = true;
    this.node.dataset.state = "closed";
    this.node.style.minHeight = `${this.node.offsetHeight}px`;
    this.onLink(this.isReady());
  }

  settle(ask) {
    if (ask) this.ask = ask;
    this.endedAt = performance.now();
    this.drafts.forget();
    const words = ask ? endWords(ask, this.byMe() ? "me" : null) : "this question has ended";
    this.say(words, ask && ask.outcome === "answered" ? "good" : "over");
    announce(words);
    this.facts.querySelector(".deadline")?.remove();
    this.controls.replaceChildren();
    const done = el("button", { type: "button", class: "plain done" }, "Put away");
    done.addEventListener("click", () => this.remove(this));
    this.node.append(appeared(done));
  }
}
