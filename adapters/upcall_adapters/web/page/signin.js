// The sign-in screen: a link's code from the fragment, or four characters to confirm.

import { byId, setText, setWords } from "./dom.js";
import { NotSent, Refused, post, setKey } from "./net.js";

const pause = (ms) => new Promise((done) => setTimeout(done, ms));

export function takeCode() {
  const match = /^#login=([0-9a-z]{10,64})$/i.exec(location.hash);
  if (match) history.replaceState(null, "", location.pathname);
  return match ? match[1] : null;
}

function show({ words, code = null, help = "", again = false }) {
  setWords(byId("sign-in-words"), words);
  setWords(byId("sign-in-help"), help);
  byId("sign-in-code").hidden = code === null;
  if (code !== null) setText(byId("sign-in-code"), code);
  byId("sign-in-again").hidden = !again;
}

export async function signInByCode(code) {
  show({ words: "Signing in…" });
  try {
    setKey((await post("/api/login", { code })).key);
    return true;
  } catch (problem) {
    show({ words: `${sentence(problem.message)}.`, help: problem.recover ? `${sentence(problem.recover)}.` : "", again: true });
    return false;
  }
}

const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1);

// Asks to be let in until somebody does; resolves once this browser is signed in.
export async function signInByWaiting(isWanted) {
  while (isWanted()) {
    let asked;
    try {
      asked = await post("/api/browser", {});
    } catch (problem) {
      if (problem instanceof NotSent) {
        show({ words: "No connection to the hub.", help: "Trying again… If nothing runs, `upcall inbox` starts it." });
        await pause(2000);
        continue;
      }
      show({ words: `${sentence(problem.message)}.`, help: problem.recover || "", again: true });
      return false;
    }
    show({
      words: "Run `upcall inbox` in a terminal: it asks whether to sign in the browser that shows these four characters.",
      code: asked.code,
    });
    const answer = await waitFor(asked.poll, isWanted);
    if (answer === "in") return true;
  }
  return false;
}

async function waitFor(poll, isWanted) {
  while (isWanted()) {
    try {
      const answer = await post("/api/browser/wait", { poll }, 40000);
      if (answer.state === "in") {
        setKey(answer.key);
        return "in";
      }
    } catch (problem) {
      if (problem instanceof Refused) return "over";
      await pause(2000);
    }
  }
  return "over";
}
