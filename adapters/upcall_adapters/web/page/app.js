// Puts the page together: sign-in, live state, sections.

import { Alerts } from "./alerts.js";
import { Board } from "./asks.js";
import { announce, byId, el, renewTimes, setClock, setText, setWords } from "./dom.js";
import { Floods } from "./floods.js";
import { uncover } from "./guard.js";
import { History, Notices, Sessions } from "./lists.js";
import { Live, NO_CONNECTION, key, post, setKey } from "./net.js";
import { signInByCode, signInByWaiting, takeCode } from "./signin.js";
import { channelName } from "./words.js";

const GONE_MS = 10000;

const alerts = new Alerts();
const board = new Board({
  isReady: () => live.isReady(),
  isOff: () => byId("link").dataset.state === "off",
  onCount: showCount,
  onClosed: () => past.refreshSoon(),
  onNew: (asks) => alerts.ring(asks),
});
const sessions = new Sessions({ isReady: () => live.isReady() });
const floods = new Floods({ isReady: () => live.isReady(), onShow: () => onState(lastState) });
const notices = new Notices();
const past = new History();
const live = new Live({ onState, onLink, onLeave: () => board.leave(), onSignedOut: () => signIn("You were signed out.") });
let lastState = null;
let round = 0;
let unused = null; // a link's code that an older login made needless so far

function onState(state) {
  setClock(state.now_ms);
  setText(byId("machine"), state.machine);
  setText(byId("version"), `upcall ${state.version}`);
  lastState = state;
  floods.update(state);
  board.update({ ...state, asks: state.asks.filter((ask) => floods.draws(ask)) });
  sessions.update(state.sessions);
  notices.update(state.notices, state.sessions);
  showProblems(state);
  renewTimes();
}

function showProblems(state) {
  const box = byId("problems");
  const wanted = JSON.stringify(state.degraded);
  if (box.dataset.shown !== wanted) {
    box.dataset.shown = wanted;
    box.replaceChildren(...state.degraded.map((one) => {
      const line = el("p", { class: "problem" });
      setWords(line, one.recover ? `${one.msg} - ${one.recover}` : one.msg);
      return line;
    }));
  }
  const words = state.channels.map((one) => {
    const pages = one.name === state.channel ? ` (${one.audience === 1 ? "1 page" : `${one.audience} pages`})` : "";
    return `${channelName(one.name)}: ${one.state === "down" ? `not hearing${one.reason ? `, ${one.reason}` : ""}` : "hearing"}${pages}`;
  });
  setText(byId("channels"), words.length ? `Channels: ${words.join("; ")}` : "");
}

// A hub that restarts is back within seconds; one that stays away has probably ended.
let lost = null;
let gone = false;
function found() {
  clearTimeout(lost);
  lost = null;
  gone = false;
}

function onLink(ready, words) {
  byId("link").dataset.state = ready ? "live" : words === NO_CONNECTION ? "off" : "wait";
  setText(byId("link-words"), words);
  document.body.dataset.live = ready ? "yes" : "no";
  if (ready) found();
  else if (words === NO_CONNECTION && lost === null) {
    lost = setTimeout(() => {
      gone = true;
      showBanner(true);
    }, GONE_MS);
  }
  showBanner(words === NO_CONNECTION || gone);
  board.onLink(ready);
}

function showBanner(off) {
  if (off) byId("offline").hidden = false;
  else uncover(byId("offline"));
  const words = gone ? "The hub is gone. If it was a demo, close this page." : "No connection to the hub. Nothing you press is sent; drafts are kept.";
  setText(byId("offline"), off ? words : "");
}

function showCount(open) {
  document.title = open ? `(${open}) upcall` : "upcall";
  const count = byId("tab-count");
  count.hidden = open === 0;
  setText(count, open ? String(open) : "");
  setText(byId("asks-title"), open ? `Questions (${open})` : "Questions");
}

function showView(view) {
  document.body.dataset.view = view;
  byId("sign-in").hidden = view !== "sign-in";
  byId("inbox").hidden = view !== "inbox";
  byId("tabs").hidden = view !== "inbox";
  byId("link").hidden = view !== "inbox";
}

async function signIn(words) {
  const mine = ++round;
  live.stop();
  setKey(null);
  if (unused) {
    const code = unused;
    unused = null;
    useCode(code);
    return;
  }
  board.clear();
  showCount(0);
  found();
  showBanner(false);
  showView("sign-in");
  if (words) announce(words);
  if (await signInByWaiting(() => mine === round)) enter();
}

function enter() {
  round += 1;
  showView("inbox");
  onLink(false, "loading…");
  live.start();
  past.refreshSoon();
}

function showTab(tab) {
  document.body.dataset.tab = tab;
  for (const button of document.querySelectorAll("#tabs button")) {
    if (button.dataset.tab === tab) button.setAttribute("aria-current", "page");
    else button.removeAttribute("aria-current");
  }
  scrollTo(0, 0);
}

async function useCode(code) {
  showView("sign-in");
  if (await signInByCode(code)) enter();
}

for (const button of document.querySelectorAll("#tabs button")) {
  button.addEventListener("click", () => showTab(button.dataset.tab));
}
byId("sign-in-again").addEventListener("click", () => signIn());
byId("sign-out").addEventListener("click", async () => {
  try {
    await post("/api/logout", {});
  } finally {
    signIn("This browser is signed out.");
  }
});
addEventListener("hashchange", () => {
  unused = takeCode();
  if (unused && byId("inbox").hidden) signIn();
});
setInterval(renewTimes, 5000);
setInterval(() => board.settle(), 1000);

unused = takeCode();
if (key()) enter();
else signIn();
