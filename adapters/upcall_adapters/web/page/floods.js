// A session that asks too much is one line, with a way to make it stop.

import { byId, el, newKey, setText } from "./dom.js";
import { appeared } from "./guard.js";
import { post } from "./net.js";
import { nameNode } from "./words.js";

const RULES = { mute: "Mute", unmute: "Unmute", stop: "Stop asking", hold: "Hold all" };
const OFFERED = { shown: ["mute", "stop"], muted: ["unmute", "stop"], stopped: ["unmute"] };
const SAID = { shown: "", muted: " Muted: new questions are not shown.", stopped: " It was told to stop asking." };

export class Floods {
  constructor({ isReady, onShow }) {
    Object.assign(this, { isReady, onShow });
    this.box = byId("ask-floods");
    this.lines = new Map();
    this.shown = new Set();
  }

  // Tells whether the page draws a question that channels do not show yet.
  draws(ask) {
    return !ask.waiting || this.shown.has(ask.session.session_id);
  }

  update(state) {
    const bursts = new Map(state.asks.filter((ask) => ask.burst).map((ask) => [ask.session.session_id, ask.burst]));
    const known = new Map(state.sessions.map((one) => [one.session_id, one]));
    const wanted = [...known.values()].filter((one) => one.waiting || one.asks !== "shown" || bursts.has(one.session_id));
    const ids = new Set(wanted.map((one) => one.session_id));
    for (const [id, line] of this.lines) {
      if (ids.has(id)) continue;
      line.node.remove();
      this.lines.delete(id);
    }
    for (const session of wanted) {
      let line = this.lines.get(session.session_id);
      if (!line) {
        line = this.line(session);
        this.lines.set(session.session_id, line);
        this.box.append(line.node);
      }
      this.say(line, session, bursts.has(session.session_id));
    }
  }

  line(session) {
    const words = el("span", {});
    const buttons = el("div", { class: "confirm-row" });
    const state = el("p", { class: "state", tabindex: "-1" });
    const node = el("article", { class: "row", "data-flood": session.session_id }, el("p", { class: "who" }, nameNode(session), words), buttons, state);
    return { node, words, buttons, state, drawn: "" };
  }

  say(line, session, burst) {
    const more = session.waiting ? `${session.waiting} more from this session.` : "";
    setText(line.words, `${more}${SAID[session.asks] || ""}`);
    const rules = [...(OFFERED[session.asks] || []), ...(burst && session.asks === "shown" ? ["hold"] : [])];
    const showable = session.waiting && !this.shown.has(session.session_id);
    const drawn = [...rules, showable].join();
    if (line.drawn === drawn) return;
    line.drawn = drawn;
    line.buttons.replaceChildren(
      ...rules.map((rule) => el("button", { type: "button", class: "plain", "data-rule": rule, on: { click: () => this.rule(line, session, rule) } }, RULES[rule])),
      ...(showable ? [el("button", { type: "button", class: "plain", "data-rule": "show", on: { click: () => this.show(session) } }, "Show them here")] : []),
    );
    for (const button of line.buttons.children) appeared(button);
  }

  show(session) {
    this.shown.add(session.session_id);
    this.onShow();
  }

  async rule(line, session, rule) {
    if (!this.isReady()) return setText(line.state, "not sent, no connection");
    setText(line.state, "sending…");
    try {
      const done = await post("/api/session", { session: session.session_id, rule, key: newKey() });
      setText(line.state, done.msg || "");
    } catch (problem) {
      setText(line.state, problem.message);
    }
  }
}
