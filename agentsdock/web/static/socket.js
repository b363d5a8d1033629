// Following a chat: every event once and in order, over broken connections and restarts.

import { html } from "./api.js";

const LONGEST_WAIT = 8000;
const GONE = 4404;

export class Link {
  // `handlers`: event(event), state(name), gap(), gone().
  constructor(chat, after, handlers) {
    this.chat = chat;
    this.seq = after;
    this.handlers = handlers;
    this.wait = 250;
    this.timer = 0;
    addEventListener("online", () => this.hurry());
    document.addEventListener("visibilitychange", () => {
      if (document.visibilityState === "visible") this.hurry();
    });
    this.connect();
  }

  connect() {
    clearTimeout(this.timer);
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    const path = `/api/sessions/${this.chat}/events?sync=1&visible=1&after=${this.seq}`;
    const socket = new WebSocket(`${scheme}//${location.host}${path}`);
    this.socket = socket;
    socket.addEventListener("message", (message) => this.heard(JSON.parse(message.data)));
    socket.addEventListener("close", (closed) => { if (this.socket === socket) this.lost(closed.code); });
  }

  heard(told) {
    if (told.type === "sync") {
      if (told.verdict === "gap" && this.seq > 0) this.handlers.gap();
      this.handlers.state("catching up");
    } else if (told.type === "caught_up") {
      this.wait = 250;
      this.handlers.state("live");
    } else if (told.seq > this.seq) {
      this.seq = told.seq;
      this.handlers.event(told);
    }
  }

  lost(code) {
    this.socket = null;
    if (code === GONE) {
      this.handlers.state("gone");
      return this.handlers.gone();
    }
    this.handlers.state("reconnecting");
    this.timer = setTimeout(() => this.again(), this.wait * (0.75 + Math.random() / 2));
    this.wait = Math.min(this.wait * 2, LONGEST_WAIT);
  }

  // A handshake that is refused says nothing of why; a plain request does (401 asks for the token).
  async again() {
    await html("/page/session").catch(() => {});
    if (!this.socket) this.connect();
  }

  hurry() {
    if (this.socket || !this.timer) return;
    this.wait = 250;
    clearTimeout(this.timer);
    this.again();
  }
}
