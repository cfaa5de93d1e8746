// The open questions: which cards stand where, and when anything may move.

import { Card } from "./card.js";
import { sweepDrafts } from "./drafts.js";
import { announce, byId, el, sayIn, setText, theirs, unquoted } from "./dom.js";
import { appeared, interacting, uncover } from "./guard.js";
import { get } from "./net.js";
import { shortEnd } from "./words.js";

const SETTLED_MS = 6000;
const MAX_SETTLED = 5;

export class Board {
  constructor({ isReady, isOff, onCount, onClosed, onNew }) {
    Object.assign(this, { isReady, isOff, onCount, onClosed, onNew });
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

  // The page is about to be out of sight: nothing may be sent unseen.
  leave() {
    for (const card of this.cards.values()) card.leave();
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
    this.about = { me: state.me, channel: state.channel, undo_s: state.undo_s };
    if (arrived.length && !this.fresh) {
      announce(arrived.length === 1 ? `New question: ${arrived[0].question.slice(0, 200)}` : `${arrived.length} new questions`);
      this.onNew(arrived);
    }
    if (this.fresh || !interacting()) this.insertQueued();
    if (this.fresh && !state.more_asks) sweepDrafts([...state.asks.map((ask) => ask.id), ...state.sessions.map((one) => `to ${one.session_id}`)]);
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
      const card = new Card(ask, { isReady: this.isReady, isOff: this.isOff, about: () => this.about, remove: (one) => this.remove(one) });
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
    if (count) this.bar.hidden = false;
    else uncover(this.bar);
    if (count) setText(this.bar, `${count} new ${count === 1 ? "question" : "questions"} - show`);
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
      if (this.isLookedAt(card)) continue;
      if (card.closed && card.endedAt !== null && performance.now() - card.endedAt >= SETTLED_MS) this.collapse(card);
    }
  }

  // A card that keys have reached, or under which the mouse rests on something open.
  isLookedAt(card) {
    const focus = document.activeElement;
    if (card.node.contains(focus) && focus.matches(":focus-visible")) return true;
    if (!matchMedia("(hover: hover)").matches) return false;
    const cards = [...this.cards.values()];
    return cards.slice(cards.indexOf(card) + 1).some((one) => !one.closed && one.node.matches(":hover"));
  }

  collapse(card) {
    const [what, by] = card.ask.outcome ? shortEnd(card.ask, card.byMe()) : ["ended", ""];
    const { question } = card.ask;
    this.settled.prepend(el("li", { class: "settled-line", "data-settled": card.ask.id, title: unquoted([question, what, by].filter(Boolean).join(" - ")) },
      theirs(question, "span", { class: "settled-question" }), said(what, "settled-answer"), by && said(by, "settled-by")));
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

  // Puts a card away; the focus goes on only if a person has just pressed in it.
  remove(card) {
    const had = card.node.contains(document.activeElement) && interacting();
    card.node.remove();
    this.cards.delete(card.ask.id);
    this.showNone();
    if (!had) return;
    const next = [...this.cards.values()].find((one) => !one.closed);
    (next ? next.node : byId("asks")).focus({ preventScroll: true });
  }
}

function said(text, kind) {
  const node = el("span", { class: kind });
  sayIn(node, text);
  return node;
}
