// The open questions: which cards stand where, and when anything may move.

import { announce, appeared, byId, interacting, setText } from "./dom.js";
import { Card } from "./card.js";
import { get } from "./net.js";

const MAX_SETTLED = 4;

export class Board {
  constructor({ isReady, onCount, onClosed }) {
    Object.assign(this, { isReady, onCount, onClosed });
    this.cards = new Map();
    this.queued = new Map();
    this.fresh = true;
    this.list = byId("ask-list");
    this.bar = byId("new-bar");
    this.bar.addEventListener("click", () => this.showQueued());
  }

  clear() {
    this.cards.clear();
    this.queued.clear();
    this.list.replaceChildren();
    this.fresh = true;
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
    byId("ask-none").hidden = this.cards.size + this.queued.size > 0;
  }

  // Oldest first, so what is new goes to the end and moves nothing.
  insertQueued() {
    const added = [];
    for (const [id, ask] of this.queued) {
      const card = new Card(ask, { isReady: this.isReady, me: () => this.me, remove: (one) => this.remove(one) });
      this.cards.set(id, card);
      this.list.append(appeared(card.node));
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

  // At a quiet moment: queued cards come in, and old settled ones go.
  settle() {
    if (interacting()) return;
    if (this.queued.size) this.insertQueued();
    this.showBar();
    const settled = [...this.cards.values()].filter((card) => card.closed);
    for (const card of settled) card.shrink();
    for (const card of settled.slice(0, -MAX_SETTLED)) this.remove(card);
  }

  remove(card) {
    card.node.remove();
    this.cards.delete(card.ask.id);
    byId("ask-none").hidden = this.cards.size + this.queued.size > 0;
  }
}

