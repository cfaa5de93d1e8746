// How an ask ended, in words that claim no more than what happened.

import { el, quoted, theirs } from "./dom.js";

const inQuotes = (text) => `“${quoted(text)}”`;

export function quoteLabels(labels, text = null) {
  const shown = labels.map(inQuotes).join(", ");
  if (text === null || text === "") return shown;
  const words = text.length > 200 ? `${text.slice(0, 199)}…` : text;
  return shown ? `${shown} and the words ${inQuotes(words)}` : inQuotes(words);
}

// The channel of this page has a name for programs; people know it as the inbox.
export const channelName = (name) => (name === "web" ? "inbox" : name);

export function byWords(ask) {
  const by = ask.answered_by;
  if (!by) return "somebody";
  const channel = channelName(by.channel);
  if (by.name && by.detail) return `user ${quoted(by.name)} on this computer (${quoted(by.detail)})`;
  return by.name ? `${quoted(by.name)} on ${quoted(channel)}` : `another program on this computer, person unknown (${channel}),`;
}

// For one line beside the question: the answer, and by whom.
export function shortEnd(ask, mine) {
  if (ask.outcome !== "answered" || !ask.answer) return [endWords(ask, mine ? "me" : null), ""];
  const by = ask.answered_by;
  return [quoteLabels(ask.answer.labels, ask.answer.text), mine ? "by you" : by && by.name ? `by ${byWords(ask)}` : "person unknown"];
}

// Whose words these are: a name for eyes, never a bare id.
export const nameOf = (session) => session.title || session.program || session.repo || "a program";

// What a session calls itself stands in quotation marks, as all of its words do.
export const nameNode = (session, props = {}) => {
  const own = session.title || session.repo;
  return theirs(nameOf(session), "strong", { ...props, class: own ? "title claimed" : "title" });
};

// Where it says it works.
export const claimNodes = (session) => [
  session.repo && el("span", { class: "claim" }, theirs(session.repo, "bdi", { class: "claimed" })),
  session.branch && el("span", { class: "claim" }, "on ", theirs(session.branch, "bdi", { class: "claimed" })),
].filter(Boolean);

export function endWords(ask, who) {
  const answer = ask.answer ? quoteLabels(ask.answer.labels, ask.answer.text) : "";
  switch (ask.outcome) {
    case "answered":
      if (who === "me") return `the program took it: ${answer}`;
      return ask.answered_by && ask.answered_by.name
        ? `answered by ${byWords(ask)}: ${answer}`
        : `answered by another program on this computer, person unknown: ${answer}`;
    case "declined":
      return ask.answered_by ? `declined by ${byWords(ask)}` : "declined, not answered";
    case "timed_out":
      return answer
        ? `no answer in time; the program's own default ${answer} was used. Nobody chose it.`
        : "no answer in time (timed out; nobody said no)";
    case "cancelled":
      return "the program withdrew its question";
    case "unreachable":
      return "The program stopped before it took the answer. Nothing was run by this answer.";
    case "superseded":
      return "The program changed its question after this card was posted. Nothing was sent.";
    default:
      return answer ? `${byWords(ask)} answered ${answer}` : "";
  }
}
