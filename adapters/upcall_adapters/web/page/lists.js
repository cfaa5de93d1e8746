// Sessions, notices and history.

import { Drafts } from "./drafts.js";
import { Facts, agoTime, byId, el, exactTime, forTime, newKey, sayIn, scrolls, setText, theirs } from "./dom.js";
import { appeared } from "./guard.js";
import { get, getFile, post } from "./net.js";
import { claimNodes, endWords, nameNode } from "./words.js";

const STATES = { attached: "connected", away: "away", gone: "ended" };

export class Sessions {
  constructor({ isReady }) {
    this.isReady = isReady;
    this.rows = new Map();
    this.box = byId("session-list");
  }

  update(sessions) {
    const seen = new Set();
    for (const session of sessions) {
      seen.add(session.session_id);
      let row = this.rows.get(session.session_id);
      if (!row) {
        row = new SessionRow(session.session_id, this.isReady);
        this.rows.set(session.session_id, row);
        this.box.append(row.node);
      }
      row.update(session);
    }
    for (const [id, row] of this.rows) {
      if (!seen.has(id)) {
        row.node.remove();
        this.rows.delete(id);
      }
    }
    showNone(this.box, this.rows.size === 0, "No program is connected.");
  }
}

function showNone(box, none, words) {
  let node = box.querySelector(":scope > .quiet");
  if (none && !node) box.append(el("p", { class: "quiet" }, words));
  else if (!none && node) node.remove();
}

class SessionRow {
  constructor(id, isReady) {
    this.id = id;
    this.isReady = isReady;
    this.head = el("div", {});
    this.facts = new Facts();
    this.rest = el("div", { class: "rest" });
    this.node = el("article", { class: "row" }, this.head, this.facts.node, this.rest);
    this.form = null;
    this.shown = "";
  }

  update(session) {
    const shown = JSON.stringify(session);
    if (shown === this.shown) return;
    this.shown = shown;
    const known = [session.machine, session.program].filter(Boolean);
    this.head.replaceChildren(...[
      el("p", { class: "who" },
        nameNode(session),
        ...claimNodes(session),
        el("span", { class: "chip", "data-state": session.state }, STATES[session.state] || session.state))].filter(Boolean));
    this.facts.set(
      [...known.flatMap((text) => [theirs(text), " · "]), "for ", forTime(session.since_ms)],
      [["since", exactTime(session.since_ms)], ["folder", session.cwd && theirs(session.cwd)], ["process", session.pid && String(session.pid)]],
    );
    this.rest.replaceChildren(...[
      session.task && el("p", { class: "known" }, "task: ", theirs(session.task)),
      (session.model || session.usage) && el("p", { class: "known" }, ...[session.model, session.usage].filter(Boolean).flatMap((text, at) => [at ? " · " : "", theirs(text)])),
      session.activity && el("p", { class: "known" }, "doing: ", theirs(session.activity)),
      session.last_text && saidBlock(session.last_text),
    ].filter(Boolean));
    if (session.takes_text && !this.form) this.node.append(this.form = this.messageForm());
    if (!session.takes_text && this.form) {
      this.form.remove();
      this.form = null;
    }
  }

  messageForm() {
    const name = `message-${this.id}`;
    const drafts = new Drafts(`to ${this.id}`);
    const area = el("textarea", { id: name, rows: "1", dir: "auto", enterkeyhint: "enter", autocomplete: "off", maxlength: "60000" });
    area.value = drafts.text;
    const send = el("button", { type: "button", class: "go" }, "Send");
    const state = el("p", { class: "state", tabindex: "-1" });
    const say = (text, kind) => {
      setText(state, text);
      state.dataset.kind = kind;
    };
    area.addEventListener("input", () => drafts.write(area.value));
    send.addEventListener("click", async () => {
      if (area.value.trim() === "") return say("there are no words yet", "bad");
      if (!this.isReady()) return say("not sent, no connection", "bad");
      say("sending…", "wait");
      state.focus({ preventScroll: true });
      send.setAttribute("aria-disabled", "true");
      try {
        const text = area.value;
        await post("/api/message", { session: this.id, text, key: drafts.keyFor(text, newKey) });
        if (area.value === text) area.value = "";
        drafts.forget();
        drafts.write(area.value);
        say("passed to the session", "good");
      } catch (problem) {
        say(problem.message, "bad");
      }
      send.removeAttribute("aria-disabled");
    });
    return el("form", { class: "words", on: { submit: (event) => event.preventDefault() } },
      el("label", { for: name }, "Message to this session"), area, send, state);
  }
}

export class Notices {
  constructor() {
    this.box = byId("notice-list");
    this.rows = new Map();
  }

  update(notices, sessions) {
    const names = new Map(sessions.map((session) => [session.session_id, session]));
    const ids = new Set(notices.map((notice) => notice.id));
    for (const [id, row] of this.rows) {
      if (!ids.has(id)) {
        row.remove();
        this.rows.delete(id);
      }
    }
    for (const notice of [...notices].reverse()) {
      if (this.rows.has(notice.id)) continue;
      const row = noticeRow(notice, notice.title ? notice : names.get(notice.session_id) || notice);
      this.rows.set(notice.id, row);
      this.box.prepend(row);
    }
    showNone(this.box, this.rows.size === 0, "No notices yet.");
  }
}

// Words of a session below its name; long ones scroll in their own block.
const saidBlock = (text, label = "Words of the session") => scrolls(theirs(text, "p", { class: "quote said", role: "group", "aria-label": label }));

function factsOf(line, rows) {
  const facts = new Facts();
  facts.set(line, rows);
  return facts.node;
}

function noticeRow(notice, session) {
  return el("article", { class: "row", "data-kind": notice.kind },
    factsOf([nameNode(session), ` · ${notice.kind} · `, agoTime(notice.at_ms)], [["at", exactTime(notice.at_ms)]]),
    notice.text && saidBlock(notice.text),
    notice.hidden > 0 && el("p", { class: "known" }, `${notice.hidden.toLocaleString()} more characters are not shown here`),
    notice.file_id && attachment(notice));
}

// A file of a session is only ever an image proven by its first bytes, or a download.
function attachment(notice) {
  const name = notice.file_name || "file";
  const box = el("div", { class: "attachment" });
  const state = el("p", { class: "state" });
  const open = el("button", { type: "button", class: "plain" }, "Get ", theirs(name));
  open.addEventListener("click", async () => {
    setText(state, "getting it…");
    try {
      const { blob, image } = await getFile(`/api/file/${encodeURIComponent(notice.file_id)}`);
      setText(state, "");
      if (image) await showImage(box, blob, image, name);
      save(blob, name, box, Boolean(image));
      open.remove();
    } catch (problem) {
      state.dataset.kind = "bad";
      setText(state, problem.message);
    }
  });
  box.append(open, state);
  return box;
}

async function showImage(box, blob, type, name) {
  const reader = new FileReader();
  const read = new Promise((done, failed) => {
    reader.onload = done;
    reader.onerror = failed;
  });
  reader.readAsDataURL(new Blob([blob], { type }));
  await read;
  box.append(el("img", { src: reader.result, alt: `Image ${name}` }));
}

function save(blob, name, box, later) {
  const address = URL.createObjectURL(new Blob([blob], { type: "application/octet-stream" }));
  const link = el("a", { href: address, download: name, class: "plain button" }, "Save ", theirs(name));
  box.append(link);
  if (!later) link.click();
}

export class History {
  constructor() {
    this.box = byId("history-list");
    this.more = byId("history-more");
    this.ids = new Set();
    this.last = null;
    this.timer = null;
    this.more.addEventListener("click", () => this.load(this.last));
  }

  refreshSoon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.load(null), 400);
  }

  async load(before) {
    const limit = 20;
    let asks;
    try {
      ({ asks } = await get(`/api/history?limit=${limit}${before === null ? "" : `&before=${before}`}`));
    } catch (problem) {
      if (before !== null) setText(this.more, `${problem.message} - try again`);
      return;
    }
    const unseen = asks.filter((ask) => !this.ids.has(ask.id));
    for (const ask of unseen) this.ids.add(ask.id);
    const rows = unseen.map(historyRow);
    if (before === null) this.box.prepend(...rows);
    else this.box.append(...rows.map(appeared));
    if (asks.length && (before !== null || this.last === null)) this.last = asks[asks.length - 1].closed_ms;
    if (before !== null || asks.length < limit || this.more.hidden) this.more.hidden = asks.length < limit;
    setText(this.more, "Load more");
    showNone(this.box, this.ids.size === 0, "Nothing has been answered yet.");
  }
}

function historyRow(ask) {
  const { session } = ask;
  const end = el("p", { class: "state", "data-kind": ask.outcome === "answered" ? "good" : "over" });
  sayIn(end, endWords(ask, null));
  return el("article", { class: "row" },
    factsOf([nameNode(session), session.repo && " · ", session.repo && theirs(session.repo), " · ", agoTime(ask.closed_ms || ask.raised_ms)],
      [["asked", exactTime(ask.raised_ms)], ask.closed_ms && ["ended", exactTime(ask.closed_ms)], ["ask", el("span", { class: "id" }, ask.id)]]),
    saidBlock(ask.question, "Question"),
    end);
}
