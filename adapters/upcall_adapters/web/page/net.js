// Talking to the hub: requests with the login's key, and the live connection.

const KEY = "upcall_key";
export const key = () => localStorage.getItem(KEY);
export const setKey = (value) => (value === null ? localStorage.removeItem(KEY) : localStorage.setItem(KEY, value));

export class NotSent extends Error {}
export class Unsure extends Error {}
export class Refused extends Error {
  constructor(status, body) {
    const error = (body && body.error) || {};
    super(error.msg || (body && body.msg) || `the inbox refused (${status})`);
    this.status = status;
    this.body = body;
    this.code = error.code || (body && body.code) || "refused";
    this.recover = error.recover || null;
  }
}

async function request(path, options, timeoutMs = 20000) {
  const headers = { ...(options.headers || {}) };
  if (key() !== null) headers["X-Upcall-Key"] = key();
  let response;
  try {
    response = await fetch(path, {
      ...options, headers, credentials: "same-origin", cache: "no-store", redirect: "error",
      signal: AbortSignal.timeout(timeoutMs),
    });
  } catch (problem) {
    // Who has waited in vain does not know what arrived.
    if (problem.name === "TimeoutError") throw new Unsure("no word from the hub whether it arrived");
    throw new NotSent("not sent, no connection");
  }
  if (!response.ok) throw new Refused(response.status, await response.json().catch(() => null));
  return response;
}

export const get = async (path, timeoutMs) => (await request(path, {}, timeoutMs)).json();
export const getFile = async (path) => {
  const response = await request(path, {}, 60000);
  return { blob: await response.blob(), image: response.headers.get("X-Upcall-Image") };
};
export const post = async (path, body, timeoutMs) => (await request(path, {
  method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
}, timeoutMs)).json();

const RETRY_MS = [300, 1000, 2000, 4000, 5000];
const READ_MS = 4000;
const POLL_MS = 5000;
const TICK_MS = 1000;
const JUMP_MS = 5000;
const QUIET_MS = 25000;
export const NO_CONNECTION = "no connection";
const AGAIN = "reading again…";

// The live connection. `ready` is true only while what the page shows is as the hub said
// it since the last time that anything could have been missed. Where no WebSocket gets
// through, the state is read every few seconds instead; the hub refuses outdated answers.
export class Live {
  constructor({ onState, onLink, onLeave, onSignedOut }) {
    Object.assign(this, { onState, onLink, onLeave, onSignedOut });
    this.ready = false;
    this.socket = null;
    this.tries = 0;
    this.reads = 0;
    this.polls = 0; // how many in a row have worked
    this.turn = 0; // counts what makes a poll under way outdated
    this.stopped = true;
    this.ticked = Date.now();
    this.heard = Date.now();
    document.addEventListener("visibilitychange", () => (document.hidden ? this.leave() : this.readAgain()));
    document.addEventListener("freeze", () => this.leave());
    document.addEventListener("resume", () => this.reconnect());
    addEventListener("pagehide", () => this.leave());
    addEventListener("pageshow", (event) => { if (event.persisted) this.reconnect(); });
    setInterval(() => this.tick(), TICK_MS);
    addEventListener("online", () => this.reconnect());
    addEventListener("offline", () => this.drop());
  }

  start() {
    this.stopped = false;
    this.tries = 0;
    this.connect();
    this.poll();
  }

  stop() {
    this.stopped = true;
    clearTimeout(this.timer);
    this.drop();
    this.endPolling();
  }

  // Whether what is shown can be answered. A computer that has slept tells nobody: its
  // clock has jumped.
  isReady() {
    if (this.ready && this.jumped()) this.readAgain();
    return this.ready;
  }

  jumped() {
    return Math.abs(Date.now() - this.ticked) > JUMP_MS;
  }

  // What is shown may be old when somebody sees it next.
  leave() {
    this.onLeave();
    if (!this.stopped && this.ready) this.mark(false, AGAIN);
  }

  tick() {
    const jumped = this.jumped();
    this.ticked = Date.now();
    if (this.stopped || document.hidden || !this.ready) return;
    if (jumped) this.readAgain();
    else if (this.socket && Math.abs(Date.now() - this.heard) > QUIET_MS) this.ask();
  }

  mark(ready, words) {
    this.ready = ready;
    this.onLink(ready, words);
  }

  drop(words = NO_CONNECTION) {
    const socket = this.socket;
    this.socket = null;
    clearTimeout(this.readTimer);
    if (socket) {
      socket.onclose = socket.onmessage = socket.onopen = null;
      socket.close();
    }
    if (!this.stopped) {
      this.mark(false, words);
      this.again();
      this.endPolling();
      this.poll();
    }
  }

  endPolling() {
    clearTimeout(this.pollTimer);
    this.turn += 1;
    this.polls = 0;
  }

  // Reads the state now and every few seconds, until the live connection brings it.
  async poll() {
    clearTimeout(this.pollTimer);
    this.turn += 1;
    const { turn } = this;
    let state = null;
    let problem = null;
    try {
      state = await get("/api/state", POLL_MS);
    } catch (caught) {
      problem = caught;
    }
    if (turn !== this.turn || this.stopped) return;
    if (problem instanceof Refused && problem.status === 401) {
      this.stop();
      this.onSignedOut();
      return;
    }
    if (state) {
      this.polls += 1;
      this.onState(state);
      if (this.tries > 0 || this.polls > 1) this.mark(true, "reading every 5 s");
      else this.mark(false, "connecting…");
    } else {
      this.polls = 0;
      this.mark(false, NO_CONNECTION);
    }
    this.pollTimer = setTimeout(() => this.poll(), POLL_MS);
  }

  again() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.connect(), RETRY_MS[Math.min(this.tries, RETRY_MS.length - 1)]);
    this.tries += 1;
  }

  reconnect() {
    if (this.stopped) return;
    this.tries = 0;
    this.drop("connecting…");
  }

  readAgain() {
    if (this.stopped) return;
    if (!this.socket || this.socket.readyState !== WebSocket.OPEN) {
      this.reconnect();
      return;
    }
    this.mark(false, AGAIN);
    this.ticked = Date.now();
    this.ask();
  }

  // A connection that has died in silence gives no answer.
  ask() {
    this.heard = Date.now();
    this.reads += 1;
    this.socket.send(JSON.stringify({ read: this.reads }));
    clearTimeout(this.readTimer);
    this.readTimer = setTimeout(() => this.reconnect(), READ_MS);
  }

  connect() {
    clearTimeout(this.timer);
    if (this.stopped || this.socket) return;
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(`${scheme}//${location.host}/api/live`);
    let first = true;
    this.socket = socket;
    socket.onopen = () => {
      socket.send(JSON.stringify({ key: key() || "" }));
    };
    socket.onmessage = (event) => {
      const message = JSON.parse(event.data);
      this.heard = Date.now();
      if (message.asks !== undefined) {
        this.endPolling();
        this.onState(message);
        if (first) {
          first = false;
          this.tries = 0;
          this.mark(true, "live");
        }
      } else if (message.read === this.reads) {
        clearTimeout(this.readTimer);
        this.mark(true, "live");
      }
    };
    socket.onclose = (event) => {
      if (this.socket !== socket) return;
      this.socket = null;
      clearTimeout(this.readTimer);
      if (event.code === 4401) {
        this.stop();
        this.onSignedOut();
        return;
      }
      this.again();
      // Polling goes on until a connection has been live, so it only starts anew after one.
      // A refused handshake looks like a lost network to a page; these requests tell.
      if (!first) {
        this.mark(false, NO_CONNECTION);
        this.poll();
      }
    };
  }
}
