// A notification and a sound for new questions, where somebody has asked for them by a
// button. Nothing is asked of the browser before that press.

import { byId, setText } from "./dom.js";

const NOTIFY = "upcall_notify";
const SOUND = "upcall_sound";
const MAX_CHARS = 80;

export class Alerts {
  constructor() {
    this.notifyButton = byId("alert-notify");
    this.soundButton = byId("alert-sound");
    this.audio = null;
    this.notifyButton.addEventListener("click", () => this.pressNotify());
    this.soundButton.addEventListener("click", () => this.pressSound());
    // A page may make no sound before it was touched; one that may is woken by any press.
    for (const kind of ["pointerup", "keydown"]) addEventListener(kind, () => this.wake(), { passive: true });
    this.draw();
  }

  get notifies() {
    return localStorage.getItem(NOTIFY) === "yes" && "Notification" in window && Notification.permission === "granted";
  }

  get sounds() {
    return localStorage.getItem(SOUND) === "yes";
  }

  say(words) {
    setText(byId("alert-words"), words);
  }

  draw() {
    setText(this.notifyButton, this.notifies ? "Turn notifications off" : "Turn notifications on");
    setText(this.soundButton, this.sounds ? "Turn the sound off" : "Turn the sound on");
  }

  async pressNotify() {
    if (this.notifies) localStorage.removeItem(NOTIFY);
    else if (!("Notification" in window)) this.say("This browser shows no notifications for this page.");
    else {
      const answer = await Notification.requestPermission();
      if (answer === "granted") {
        localStorage.setItem(NOTIFY, "yes");
        this.say("A new question shows a notification while this page is open but not in sight.");
      } else this.say("The browser does not allow notifications for this page; its settings for this address do.");
    }
    this.draw();
  }

  pressSound() {
    if (this.sounds) localStorage.removeItem(SOUND);
    else {
      localStorage.setItem(SOUND, "yes");
      this.wake();
      this.beep();
    }
    this.draw();
  }

  wake() {
    if (!this.sounds) return;
    this.audio ??= new AudioContext();
    if (this.audio.state === "suspended") this.audio.resume();
  }

  beep() {
    if (!this.audio) return;
    const [start, tone, loud] = [this.audio.currentTime, this.audio.createOscillator(), this.audio.createGain()];
    tone.frequency.value = 660;
    loud.gain.setValueAtTime(0.15, start);
    loud.gain.exponentialRampToValueAtTime(0.001, start + 0.35);
    tone.connect(loud).connect(this.audio.destination);
    tone.start(start);
    tone.stop(start + 0.35);
  }

  ring(asks) {
    if (this.sounds) this.beep();
    if (!this.notifies || !document.hidden) return;
    const [first] = asks;
    const place = [first.session.machine, first.session.repo].filter(Boolean).join(" · ");
    const words = asks.length === 1 ? `${place ? `${place}: ` : ""}“${first.question}”` : `${asks.length} new questions`;
    try {
      const shown = new Notification("upcall", { body: words.length > MAX_CHARS ? `${words.slice(0, MAX_CHARS - 1)}…` : words, tag: first.id });
      shown.addEventListener("click", () => {
        focus();
        shown.close();
      });
    } catch (problem) {
      // Some phones take notifications from installed programs only.
      localStorage.removeItem(NOTIFY);
      this.say("This browser shows no notifications for this page.");
      this.draw();
    }
  }
}
