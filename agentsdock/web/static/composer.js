// Where a message is written: its draft survives everything and is never sent by itself.

import { randomKey, upload } from "./api.js";
import { isComposing, note, stored } from "./ui.js";

export class Composer {
  // `send(text, fileIds, key)` gives a promise; `chat` gives the id of the chat that takes files.
  constructor(form, send, chat = null) {
    this.form = form;
    this.box = form.querySelector("textarea");
    this.problem = form.querySelector(".problem");
    this.button = form.querySelector("#send");
    this.send = send;
    this.chat = chat;
    this.draft = `draft:${form.dataset.draft}`;
    this.files = new Map();
    this.attempt = null;
    this.uploading = 0;
    this.box.value = stored.get(this.draft) ?? "";
    this.box.addEventListener("input", () => this.changed());
    this.box.addEventListener("keydown", (event) => this.key(event));
    form.addEventListener("submit", (event) => { event.preventDefault(); this.submit(); });
    if (chat) this.takeFiles();
    this.changed();
  }

  changed() {
    stored.set(this.draft, this.box.value);
    this.box.style.height = "auto";
    this.box.style.height = `${Math.min(this.box.scrollHeight + 2, innerHeight * 0.4)}px`;
    this.button.disabled = this.box.disabled || this.uploading > 0 || !this.box.value.trim();
  }

  key(event) {
    if (event.key !== "Enter" || event.shiftKey || isComposing(event)) return;
    if (event.altKey) return;
    event.preventDefault();
    this.submit();
  }

  async submit() {
    const text = this.box.value;
    if (!text.trim() || this.button.disabled) return;
    const ids = [...this.files.keys()];
    const content = JSON.stringify([text, ids]);
    // A message whose answer was lost is sent again under the same key, and so taken once.
    if (this.attempt?.content !== content) this.attempt = { content, key: randomKey() };
    this.problem.textContent = "";
    this.button.disabled = true;
    this.form.setAttribute("aria-busy", "true");
    try {
      await this.send(text, ids, this.attempt.key);
      this.attempt = null;
      if (this.box.value === text) this.box.value = "";
      this.files.clear();
      this.form.querySelector(".attached")?.replaceChildren();
    } catch (error) {
      this.problem.textContent = error.message;
    } finally {
      this.form.removeAttribute("aria-busy");
      this.changed();
    }
  }

  takeFiles() {
    const pick = this.form.querySelector("#pick");
    const drop = document.getElementById("drop");
    this.form.querySelector("#attach").addEventListener("click", () => pick.click());
    pick.addEventListener("change", () => { this.attach([...pick.files]); pick.value = ""; });
    this.box.addEventListener("paste", (event) => {
      if (event.clipboardData.files.length) { event.preventDefault(); this.attach([...event.clipboardData.files]); }
    });
    const carriesFiles = (event) => event.dataTransfer?.types.includes("Files");
    addEventListener("dragover", (event) => {
      if (!carriesFiles(event)) return;
      event.preventDefault();
      drop.hidden = false;
    });
    addEventListener("dragleave", (event) => { if (!event.relatedTarget) drop.hidden = true; });
    addEventListener("drop", (event) => {
      if (!carriesFiles(event)) return;
      event.preventDefault();
      drop.hidden = true;
      this.attach([...event.dataTransfer.files]);
    });
  }

  async attach(files) {
    for (const file of files) {
      const chip = document.createElement("li");
      chip.textContent = `${file.name} …`;
      this.form.querySelector(".attached").append(chip);
      this.uploading += 1;
      this.changed();
      try {
        const { file: record } = await upload(`/api/sessions/${this.chat}/files`, file);
        this.files.set(record.id, record);
        this.show(chip, record);
      } catch (error) {
        chip.remove();
        note(`${file.name}: ${error.message}`, "bad");
      } finally {
        this.uploading -= 1;
        this.changed();
      }
    }
  }

  show(chip, record) {
    const name = document.createElement("bdi");
    name.textContent = record.filename;
    const away = document.createElement("button");
    away.type = "button";
    away.textContent = "×";
    away.setAttribute("aria-label", `Remove ${record.filename}`);
    away.addEventListener("click", () => { this.files.delete(record.id); chip.remove(); });
    chip.replaceChildren(name, away);
  }
}
