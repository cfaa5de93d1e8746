// One question: what it shows, what can be pressed, and what really became of an answer.

import { Drafts } from "./drafts.js";
import { Facts, agoTime, announce, el, exactTime, leftTime, newKey, sayIn, scrolls, theirs, unquoted } from "./dom.js";
import { appeared } from "./guard.js";
import { NotSent, Refused, Unsure, get, post } from "./net.js";
import { again, buttons, checks, labelsOf, quotedWords, undo } from "./options.js";
import { byWords, claimNodes, endWords, nameNode, quoteLabels } from "./words.js";

const NOT_SENT = "not sent, no connection";
const BACK_AGAIN = "not sent; the connection is back. Press again.";
const CHANGED = "The program changed its question. Nothing was sent.";
const READING = "not sent; the questions are being read again. Look, and press again.";

export class Card {
  constructor(ask, { isReady, isOff, about, remove }) {
    Object.assign(this, { ask, isReady, isOff, about, remove });
    this.busy = false;
    this.mine = false;
    this.closed = false;
    this.waiting = null; // what is sent when its time to be taken back is over
    this.state = el("p", { class: "state", tabindex: "-1" });
    this.body = el("div", { class: "card-body" });
    this.node = el("article", { class: "card", "data-ask": ask.id, "data-class": ask.class, tabindex: "-1", "aria-labelledby": `question-${ask.id}` });
    this.who = el("div", { class: "who" });
    this.facts = new Facts();
    this.deadline = el("p", { class: "deadline" });
    // Of a permission what will run comes first; whatever the program says of it comes after.
    this.runs = ask.class === "permission" ? el("div", { class: "runs" }) : "";
    this.node.append(this.runs, el("div", { class: "card-head" }, this.who, this.facts.node, this.deadline), this.body, this.state);
    this.build();
  }

  // -- drawing

  build() {
    const ask = this.ask;
    this.stopWaiting();
    this.drafts = new Drafts(ask.id, ask.revision, ask.options.length, !ask.secret);
    this.confirm = null;
    this.wholeShown = ask.detail_hidden === 0;
    this.drawFacts();
    this.controls = el("div", { class: "controls" });
    const set = el("fieldset", {}, ...this.asked(), this.warnings(), this.controls);
    this.form = el("form", { novalidate: true, on: { submit: (event) => event.preventDefault() } }, set);
    this.body.replaceChildren(this.form);
    this.drawControls();
    this.drawState();
    if (this.drafts.left) this.say(this.drafts.left, "bad");
    this.onLink(this.isReady());
  }

  // What is asked. Of a permission only what the program says of it; what will run is above.
  asked() {
    const { ask } = this;
    const id = `question-${ask.id}`;
    const question = (tag, props) => scrolls(theirs(ask.question, tag, { class: "quote question", ...props }));
    if (ask.class !== "permission") return [el("legend", { id }, question("span")), this.detail()];
    if (ask.detail === null) {
      this.runs.replaceChildren(question("pre", { id, role: "group", "aria-label": "What will run" }));
      return [el("legend", { class: "caption" }, "Is it permitted?")];
    }
    this.runs.replaceChildren(this.detail());
    return [el("legend", { id }, el("span", { class: "caption" }, "the agent says"), question("span"))];
  }

  drawFacts() {
    const { ask } = this;
    const { session } = ask;
    const facts = JSON.stringify([ask.held, ask.deadline_ms, ask.default, session]);
    if (facts === this.factsDrawn) return;
    this.factsDrawn = facts;
    const known = [session.machine, session.program].filter(Boolean);
    this.who.replaceChildren(...[
      ask.class === "permission" && el("span", { class: "badge" }, "permission"),
      session.redaction && el("span", { class: "badge" }, `redaction ${session.redaction}`),
      nameNode(session),
      ...claimNodes(session),
    ].filter(Boolean));
    this.facts.set(
      ["asked ", agoTime(ask.raised_ms), ...known.flatMap((text) => [" · ", theirs(text)]), " · ", el("span", { class: "id" }, ask.id)],
      [["asked", exactTime(ask.raised_ms)], ask.deadline_ms !== null && ["ends", exactTime(ask.deadline_ms)],
        ["folder", session.cwd && theirs(session.cwd)], ["program", session.program && theirs(session.program)],
        ["process", session.pid && String(session.pid)], ["machine", session.machine && theirs(session.machine)]],
    );
    this.deadline.hidden = !ask.held && ask.deadline_ms === null;
    if (ask.held) this.deadline.replaceChildren("on hold: the clock stands still");
    else if (ask.deadline_ms !== null) {
      const then = ask.default === null ? [", then without an answer"] : [", then the program uses “", theirs(ask.default, "bdi", { class: "in-words" }), "”"];
      this.deadline.replaceChildren(leftTime(ask.deadline_ms), ...then);
    }
  }

  detail() {
    const { ask } = this;
    if (ask.detail === null) return null;
    const block = scrolls(theirs(ask.detail, "pre", { class: "quote detail", role: "group", "aria-label": "Detail" }));
    if (ask.detail_hidden === 0) return block;
    const more = el("button", { type: "button", class: "plain" }, `Show the other ${ask.detail_hidden.toLocaleString()} characters`);
    this.openRest = async () => {
      const whole = (await get(`/api/ask/${encodeURIComponent(ask.id)}`)).detail;
      if (this.ask.revision !== ask.revision) return;
      block.textContent = whole;
      block.setAttribute("tabindex", "0");
      this.wholeShown = true;
      const had = document.activeElement === more;
      more.remove();
      if (had) block.focus({ preventScroll: true });
    };
    more.addEventListener("click", () => this.openRest().catch((problem) => this.say(problem.message, "bad")));
    return el("div", { class: "more" }, block, more);
  }

  warnings() {
    const { warnings } = this.ask;
    return warnings.length ? el("ul", { class: "warnings" }, ...warnings.map((text) => el("li", {}, text))) : null;
  }

  drawControls() {
    const { ask } = this;
    this.confirm = null;
    const parts = [];
    const choose = (indices) => this.choose({ indices }, labelsOf(ask, indices), ask.revision);
    const hidden = ask.hidden_chars + (this.wholeShown ? 0 : ask.detail_hidden);
    if (ask.options.length) parts.push(ask.multi ? checks(ask, this.drafts, { send: choose, say: (text) => this.say(text, "bad") }) : buttons(ask, choose, hidden));
    if (ask.free_text) parts.push(ask.secret ? this.secret() : this.words());
    const own = this.own();
    if (own) parts.push(own);
    this.controls.replaceChildren(...parts);
  }

  words() {
    const { ask } = this;
    const name = `words-${ask.id}`;
    const area = el("textarea", { id: name, rows: "2", dir: "auto", enterkeyhint: "enter", autocapitalize: "none", autocomplete: "off", maxlength: "60000" });
    area.value = this.drafts.text;
    area.addEventListener("input", () => this.drafts.write(area.value));
    const send = el("button", { type: "button", class: "go" }, "Send words");
    send.addEventListener("click", () => {
      if (area.value.trim() === "") this.say("there are no words yet", "bad");
      else this.choose({ text: area.value }, quotedWords(area.value), ask.revision);
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

  // Words that are not shown, nor kept by the browser.
  secret() {
    const { ask } = this;
    const name = `words-${ask.id}`;
    const field = el("input", { id: name, type: "password", autocomplete: "new-password", autocapitalize: "none", spellcheck: "false", maxlength: "60000", class: "secret" });
    field.value = this.drafts.text;
    field.addEventListener("input", () => this.drafts.write(field.value));
    const show = el("button", { type: "button", class: "plain", "aria-pressed": "false", "aria-controls": name }, "Show");
    show.addEventListener("click", () => {
      const shown = field.type === "password";
      field.type = shown ? "text" : "password";
      show.setAttribute("aria-pressed", String(shown));
      show.textContent = shown ? "Hide" : "Show";
    });
    const send = el("button", { type: "button", class: "go" }, "Send secret");
    send.addEventListener("click", () => {
      if (field.value === "") this.say("nothing is typed yet", "bad");
      else this.choose({ text: field.value }, "your secret", ask.revision);
    });
    field.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.isComposing) send.click();
    });
    return el("div", { class: "words" },
      el("label", { for: name }, "Your answer, a secret: the program gets it once, and it is kept nowhere"), field, show, send);
  }

  own() {
    const { ask } = this;
    const parts = [];
    if (ask.can_hold) {
      parts.push(el("button", { type: "button", class: "plain", on: { click: () => this.send({ hold: !ask.held }, "", ask.revision) } },
        ask.held ? "Let the clock run" : "Hold"));
    }
    if (ask.can_withdraw) {
      parts.push(el("button", { type: "button", class: "plain", on: { click: () => this.send({ withdraw: true }, "", ask.revision) } }, "Take my vote back"));
    }
    if (ask.can_decline) {
      parts.push(el("button", { type: "button", class: "plain", on: { click: () => this.sendLater({ decline: true }, "a decline", ask.revision) } }, "Decline"));
    }
    return parts.length ? el("div", { class: "own" }, ...parts) : null;
  }

  // -- what is going on, in words

  say(text, kind = "") {
    sayIn(this.state, text);
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
    const me = this.about();
    return this.mine && (!by || (me && by.name === me.me && by.channel === me.channel));
  }

  onLink(ready) {
    const dead = !ready || this.busy || this.ask.state !== "open";
    this.node.classList.toggle("dead", dead);
    for (const control of this.form.querySelectorAll("button, input")) {
      if (dead) control.setAttribute("aria-disabled", "true");
      else control.removeAttribute("aria-disabled");
    }
    if (!ready && this.waiting) this.takeBack(this.isOff() ? NOT_SENT : READING, "bad");
    if (ready && this.wasDead) appeared(this.controls);
    this.wasDead = !ready;
    if (ready && this.state.textContent === NOT_SENT) this.say(BACK_AGAIN, "bad");
  }

  update(ask) {
    const old = this.ask;
    this.ask = ask;
    if (old.revision !== ask.revision) {
      const had = this.body.contains(document.activeElement);
      this.drafts.leave("");
      this.build();
      appeared(this.body);
      this.say(CHANGED, "bad");
      if (had) this.state.focus({ preventScroll: true });
      else announce(this.state.textContent);
      return;
    }
    if (old.state === "claimed" && ask.state === "open") this.busy = false;
    this.drawFacts();
    if (ask.state !== "open" && this.waiting) this.takeBack("", "");
    if (!this.confirm && (old.held !== ask.held || old.can_hold !== ask.can_hold || old.can_withdraw !== ask.can_withdraw || old.can_decline !== ask.can_decline)) {
      const [shown, own] = [this.controls.querySelector(".own"), this.own()];
      if (shown) shown.replaceWith(own || "");
      else if (own) this.controls.append(appeared(own));
    }
    this.drawState();
    this.onLink(this.isReady());
  }

  // -- answering

  // A permission takes a second press; what reads as if it destroys something can be taken
  // back for a while, or takes a second press where no such while is wanted. Each press is
  // bound to the revision that was drawn around it.
  choose(payload, words, revision) {
    const { ask } = this;
    const allows = (payload.indices || []).some((index) => ask.options[index].allows);
    if (ask.class === "permission" && allows) this.askAgain(payload, words, revision);
    else if (ask.class === "permission") this.send(payload, words, revision);
    else if (this.ask.destructive) this.sendLater(payload, words, revision);
    else this.send(payload, words, revision);
  }

  // Where something of what will run is not on the card, it is shown before there is
  // anything to confirm.
  async askAgain(payload, words, revision) {
    if (!this.canSend(revision)) return;
    const { ask } = this;
    const cut = this.wholeShown ? 0 : ask.detail_hidden;
    if (cut) {
      try {
        await this.openRest();
      } catch (problem) {
        this.say(problem.message, "bad");
        return;
      }
      if (!this.wholeShown || !this.canSend(revision)) return;
    }
    this.step(again(words, { cut, masked: ask.hidden_chars }, {
      back: () => this.endConfirm(),
      go: () => this.send(payload, words, revision),
    }));
  }

  sendLater(payload, words, revision) {
    const seconds = this.about()?.undo_s ?? 5;
    if (seconds <= 0) {
      this.askAgain(payload, words, revision);
      return;
    }
    if (!this.canSend(revision)) return;
    const step = undo(words, seconds, {
      back: () => this.takeBack(`${words} taken back; nothing was sent`, ""),
      go: () => this.sendWaiting(),
    });
    const ends = performance.now() + seconds * 1000;
    const tick = () => {
      const left = ends - performance.now();
      step.left.textContent = `${Math.max(0, Math.ceil(left / 1000))} s left`;
      if (left <= 0) this.sendWaiting();
    };
    this.waiting = { payload, words, revision, timer: setInterval(tick, 200) };
    tick();
    this.step(step);
  }

  step({ node, title }) {
    this.say("", "");
    this.confirm = appeared(node);
    this.controls.replaceChildren(node);
    title.focus({ preventScroll: true });
    node.scrollIntoView({ block: "nearest" });
  }

  stopWaiting() {
    if (this.waiting) clearInterval(this.waiting.timer);
    const had = this.waiting;
    this.waiting = null;
    return had;
  }

  sendWaiting() {
    const { payload, words, revision } = this.stopWaiting();
    if (!this.send(payload, words, revision, document.activeElement)) this.endConfirm();
  }

  takeBack(text, kind) {
    this.stopWaiting();
    this.endConfirm();
    this.say(text, kind);
  }

  // Whoever leaves the page has not seen the end of the time to take it back.
  leave() {
    if (!this.waiting) return;
    const words = `${this.waiting.words} was not sent: the page was left before its time to be taken back was over`;
    this.drafts.leave(words);
    this.takeBack(words, "bad");
  }

  endConfirm() {
    const had = this.body.contains(document.activeElement);
    this.drawControls();
    appeared(this.controls);
    this.onLink(this.isReady());
    if (had) this.node.focus({ preventScroll: true });
  }

  canSend(revision) {
    if (this.busy || this.ask.state !== "open" || this.closed) return false;
    if (revision !== this.ask.revision) {
      this.say(CHANGED, "bad");
      return false;
    }
    if (this.isReady()) return true;
    this.say(this.isOff() ? NOT_SENT : READING, "bad");
    announce(this.state.textContent);
    return false;
  }

  // Sends at once; false if that could not even be begun. What sends by itself takes the
  // focus along only if it is here.
  send(payload, words, revision, focus = this.node) {
    if (!this.canSend(revision)) return false;
    this.busy = true;
    this.say("sending…", "wait");
    this.onLink(this.isReady());
    if (this.node.contains(focus)) this.state.focus({ preventScroll: true });
    this.bring(payload, words, revision);
    return true;
  }

  async bring(payload, words, revision) {
    const isHold = payload.hold !== undefined || payload.withdraw === true;
    const before = this.ask.note;
    const key = isHold ? newKey() : this.drafts.keyFor(payload, newKey);
    try {
      const told = await post("/api/answer", { ask: this.ask.id, revision, key, ...payload });
      if (isHold) {
        this.busy = false;
        this.say("", "");
      } else if (told.code === "voted") {
        // It decides nothing yet; the line below lists it as soon as the hub shows it.
        this.busy = false;
        this.drafts.forget();
        if (this.confirm && !this.closed) this.drawControls();
        // The hub's own line may have come before its answer to this.
        if (!this.closed) this.say(this.ask.note !== before ? this.ask.note : told.msg, "wait");
        announce(this.state.textContent);
      } else {
        this.mine = true;
        this.drafts.forget();
        if (this.confirm && !this.closed) this.drawControls();
        if (!this.closed && this.ask.state === "open") this.say(`${words} was passed on; waiting for the program to take it…`, "wait");
      }
    } catch (problem) {
      this.failed(problem);
    }
    if (!this.closed) this.onLink(this.isReady());
  }

  failed(problem) {
    // What was sent may have arrived although no answer came back.
    if (!(problem instanceof Refused)) this.mine = true;
    if (this.closed) return;
    this.busy = false;
    if (this.confirm) this.drawControls();
    if (problem instanceof NotSent) this.say(NOT_SENT, "bad");
    else if (problem instanceof Unsure) this.say(`${problem.message}. Pressing again is no second answer.`, "bad");
    else if (problem instanceof Refused) {
      const result = problem.body && problem.body.result;
      const who = result && result.answered_by ? ` ${endWords(result, null)}` : "";
      this.say(`${problem.message || "not taken"}.${who}`.replace(/\.\.(?= |$)/, "."), "bad");
    } else throw problem;
    announce(this.state.textContent);
  }

  // -- the end

  closing() {
    this.stopWaiting();
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
    const words = ask ? endWords(ask, this.byMe() ? "me" : null) : "this question has ended";
    this.say(words, ask && ask.outcome === "answered" ? "good" : "over");
    const unsent = !this.byMe() && !this.ask.secret && this.drafts.text.trim() ? this.drafts.text : "";
    this.drafts.forget();
    const had = this.form.contains(document.activeElement);
    this.deadline.hidden = true;
    this.controls.replaceChildren(...(unsent ? [
      el("p", { class: "hint" }, "Your words were not used:"),
      scrolls(el("p", { class: "said unsent", dir: "auto", role: "group", "aria-label": "Your words" }, unsent)),
    ] : []));
    const done = el("button", { type: "button", class: "plain done" }, "Put away");
    done.addEventListener("click", () => this.remove(this));
    this.node.append(appeared(done));
    if (had) this.state.focus({ preventScroll: true });
    else announce(unquoted(words));
  }
}
