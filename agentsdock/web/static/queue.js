// What waits: edited, moved, deleted, or run in place of what runs.

import { fragment, html, json } from "./api.js";
import { isComposing, note, once } from "./ui.js";

export class Queue {
  constructor(root, chat) {
    this.root = root;
    this.chat = chat;
    this.refresh = once(60, () => this.load());
    root.addEventListener("click", (event) => this.clicked(event));
    root.addEventListener("submit", (event) => { event.preventDefault(); this.save(event.target); });
    root.addEventListener("keydown", (event) => {
      const form = event.target.closest?.("form");
      if (!form || isComposing(event)) return;
      if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); this.save(form); }
      if (event.key === "Escape") { event.stopPropagation(); form.hidden = true; this.load(); }
    });
  }

  async load() {
    if (this.root.querySelector("form:not([hidden])")) return;
    const answer = await html(`/page/chats/${this.chat}/queue`).catch(() => null);
    if (answer) this.root.replaceChildren(fragment(answer.text));
  }

  path(row, rest = "") { return `/api/sessions/${this.chat}/queue/${row.dataset.queued}${rest}`; }

  async clicked(event) {
    const button = event.target.closest("[data-queue]");
    if (!button) return;
    const row = button.closest("[data-queued]");
    const what = button.dataset.queue;
    const form = row.querySelector("form");
    if (what === "edit" || what === "cancel") {
      form.hidden = what === "cancel";
      if (!form.hidden) form.querySelector("textarea").focus();
      else this.load();
      return;
    }
    button.disabled = true;
    try {
      if (what === "delete") await json("DELETE", this.path(row));
      else if (what === "run-now") await this.runNow(row);
      else await json("POST", this.path(row, "/move"), { direction: what });
    } catch (error) {
      note(error.message, "bad");
    }
    this.refresh();
  }

  async runNow(row) {
    const answer = await json("POST", this.path(row, "/run-now"), { accept_deferred_queue_response: true });
    if (answer.deferred) note(answer.message ?? "This cannot run just now; it stays where it is.");
  }

  async save(form) {
    const row = form.closest("[data-queued]");
    try {
      await json("PATCH", this.path(row), { prompt: form.querySelector("textarea").value });
      form.hidden = true;
    } catch (error) {
      note(error.message, "bad");
    }
    this.refresh();
  }
}
