// The open questions: which cards stand where, and when anything may move.

import { announce, appeared, byId, el, interacting, setText, theirs } from "./dom.js";
import { Card } from "./card.js";
import { get } from "./net.js";
import { shortEnd } from "./words.js";

const SETTLED_MS = 6000;
const MAX_SETTLED = 5;

export class Board {
  constructor({ isReady, onCount, onClosed }) {
    Object.assign(this, { isReady, onCount, onClosed });
    this.cards = new Map();
    this.queued = new Map();
    this.fresh = true;
    this.list = byId("ask-list");
    this.bar = byId("new-bar");
    this.bar.addEventListener("click", () => this.showQueued());
    this.settled = byId("settled-list");
    byId("settled-away").addEventListener("click", () => this.putAllAway());
  }

  clear() {
    this.cards.clear();
    this.queued.clear();
    this.list.replaceChildren();
    this.putAllAway();
    this.fresh = true;
    byId("ask-loading").hidden = false;
    byId("ask-none").hidden = true;
    this.showBar();
  }

  onLink(ready) {
    for (const card of this.cards.values()) card.onLink(ready);
  }

  update(state) {
    const open = new Map(state.asks.map((ask) => [ask.id, ask]));
    for (const [id, card] of this.cards) {
      const ask = open.get(id);
      if (ask) card.update(ask);
      else if (!card.closed) this.close(card);
    }
    for (const id of this.queued.keys()) if (!open.has(id)) this.queued.delete(id);
    const arrived = [...open.values()].filter((ask) => !this.cards.has(ask.id) && !this.queued.has(ask.id));
    for (const ask of arrived) this.queued.set(ask.id, ask);
    for (const id of this.queued.keys()) this.queued.set(id, open.get(id));
    this.me = { name: state.me, channel: state.channel };
    if (arrived.length && !this.fresh) {
      announce(arrived.length === 1 ? `New question: ${arrived[0].question.slice(0, 200)}` : `${arrived.length} new questions`);
    }
    if (this.fresh || !interacting()) this.insertQueued();
    this.fresh = false;
    this.showBar();
    const more = byId("ask-more");
    more.hidden = state.more_asks === 0;
    setText(more, state.more_asks ? `${state.more_asks} more wait behind these.` : "");
    this.onCount(state.asks.filter((ask) => ask.state === "open").length + state.more_asks);
    byId("ask-loading").hidden = true;
    this.showNone();
  }

  showNone() {
    byId("ask-none").hidden = this.cards.size + this.queued.size > 0;
  }

  // Oldest first, so what is new goes behind what is open and moves none of it.
  insertQueued() {
    const added = [];
    const cards = [...this.cards.values()];
    const lastOpen = cards.filter((card) => !card.closed).pop();
    const before = lastOpen ? lastOpen.node.nextSibling : this.list.firstChild;
    for (const [id, ask] of this.queued) {
      const card = new Card(ask, { isReady: this.isReady, me: () => this.me, remove: (one) => this.remove(one) });
      this.cards.set(id, card);
      this.list.insertBefore(appeared(card.node), before);
      added.push(card);
    }
    this.queued.clear();
    return added;
  }

  showQueued() {
    const added = this.insertQueued();
    this.showBar();
    if (added.length) {
      document.body.dataset.tab = "asks";
      added[0].node.scrollIntoView({ block: "start" });
      added[0].node.focus({ preventScroll: true });
    }
  }

  showBar() {
    const count = this.queued.size;
    if (this.bar.hidden && count) appeared(this.bar);
    this.bar.hidden = count === 0;
    setText(this.bar, count ? `${count} new ${count === 1 ? "question" : "questions"} - show` : "");
  }

  async close(card) {
    card.closing();
    this.onClosed();
    try {
      card.settle(await get(`/api/ask/${encodeURIComponent(card.ask.id)}`));
    } catch (problem) {
      card.settle(null);
    }
    this.settle();
  }

  // At a quiet moment: queued cards come in, and what ended a while ago becomes a line.
  settle() {
    if (interacting()) return;
    if (this.queued.size) this.insertQueued();
    this.showBar();
    for (const card of [...this.cards.values()]) {
      if (card.closed && card.endedAt !== null && performance.now() - card.endedAt >= SETTLED_MS) this.collapse(card);
    }
  }

  collapse(card) {
    const [what, by] = card.ask.outcome ? shortEnd(card.ask, card.byMe()) : ["ended", ""];
    const { question } = card.ask;
    this.settled.prepend(el("li", { class: "settled-line", "data-settled": card.ask.id, title: [question, what, by].filter(Boolean).join(" - ") },
      theirs(question, "span", { class: "settled-question" }), theirs(what, "span", { class: "settled-answer" }), by && theirs(by, "span", { class: "settled-by" })));
    while (this.settled.children.length > MAX_SETTLED) this.settled.lastChild.remove();
    if (byId("settled").hidden) appeared(byId("settled"));
    byId("settled").hidden = false;
    this.remove(card);
  }

  putAllAway() {
    const had = byId("settled").contains(document.activeElement);
    this.settled.replaceChildren();
    byId("settled").hidden = true;
    if (had) byId("asks").focus({ preventScroll: true });
  }

  remove(card) {
    const had = card.node.contains(document.activeElement);
    card.node.remove();
    this.cards.delete(card.ask.id);
    this.showNone();
    if (!had) return;
    const next = [...this.cards.values()].find((one) => !one.closed);
    (next ? next.node : byId("asks")).focus({ preventScroll: true });
  }
}

