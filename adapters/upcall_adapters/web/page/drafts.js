// What a person has typed, ticked or pressed but not brought to an end; survives a reload,
// not the tab. Words outlive a change of the question; ticks and the keys of acts do not.

const PREFIX = "draft:";

export class Drafts {
  // Of a secret nothing goes into the browser's storage, which is a file.
  constructor(name, revision = "", options = Infinity, stored = true) {
    this.name = PREFIX + name;
    this.stored = stored;
    this.revision = revision;
    this.text = "";
    this.checked = [];
    this.keys = {}; // what was to be sent -> the key under which it was tried
    this.left = ""; // what was not sent because the page was left
    if (!stored) return;
    try {
      const kept = JSON.parse(sessionStorage.getItem(this.name) || "{}");
      if (typeof kept.text === "string") this.text = kept.text;
      if (kept.revision !== revision) return;
      if (Array.isArray(kept.checked)) this.checked = kept.checked.filter((index) => index < options);
      if (kept.keys && typeof kept.keys === "object") this.keys = kept.keys;
      if (typeof kept.left === "string") this.left = kept.left;
    } catch (problem) {
      sessionStorage.removeItem(this.name);
    }
  }

  keep() {
    if (!this.stored) return;
    const { revision, text, checked, keys, left } = this;
    try {
      if (text || checked.length || left || Object.keys(keys).length) {
        sessionStorage.setItem(this.name, JSON.stringify({ revision, text, checked, keys, left }));
      } else sessionStorage.removeItem(this.name);
    } catch (problem) {
      // No room in the browser's storage: the draft still lives in the page.
    }
  }

  write(text) {
    this.text = text;
    this.keep();
  }

  check(index, on) {
    this.checked = this.checked.filter((one) => one !== index);
    if (on) this.checked.push(index);
    this.keep();
  }

  // The same act keeps its key, so that pressing again is not a second answer.
  keyFor(payload, make) {
    const name = JSON.stringify(payload);
    if (!Object.hasOwn(this.keys, name)) {
      this.keys[name] = make();
      this.keep();
    }
    return this.keys[name];
  }

  leave(words) {
    this.left = words;
    this.keep();
  }

  forget() {
    this.text = "";
    this.checked = [];
    this.keys = {};
    this.left = "";
    sessionStorage.removeItem(this.name);
  }
}

// Drafts of what has ended while nobody looked.
export function sweepDrafts(names) {
  const wanted = new Set(names.map((name) => PREFIX + name));
  for (const name of Object.keys(sessionStorage)) {
    if (name.startsWith(PREFIX) && !wanted.has(name)) sessionStorage.removeItem(name);
  }
}
