// What a person has typed or ticked but not sent; survives a reload, not the tab.

export class Drafts {
  constructor(ask) {
    this.name = `draft:${ask.id}:${ask.revision}`;
    this.text = "";
    this.checked = [];
    try {
      const kept = JSON.parse(sessionStorage.getItem(this.name) || "{}");
      if (typeof kept.text === "string") this.text = kept.text;
      if (Array.isArray(kept.checked)) this.checked = kept.checked.filter((index) => index < ask.options.length);
    } catch (problem) {
      sessionStorage.removeItem(this.name);
    }
  }

  keep() {
    try {
      if (this.text || this.checked.length) sessionStorage.setItem(this.name, JSON.stringify({ text: this.text, checked: this.checked }));
      else this.forget();
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

  forget() {
    sessionStorage.removeItem(this.name);
  }
}
