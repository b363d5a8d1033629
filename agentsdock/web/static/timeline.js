// A window on a chat's timeline: rows come rendered from the server, and only so many stay.

import { fragment, html } from "./api.js";

const MOST_ROWS = 500;
const AHEAD = 900;
const FAR_BEHIND = 300;
const NEAR_END = 48;
const MOST_VERBS = 4;

const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const calendar = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const today = new Date().toDateString();
const day = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });

export class Timeline {
  constructor(scroll, root, jump, chat) {
    Object.assign(this, { scroll, root, jump, path: `/page/chats/${chat}/rows` });
    this.busy = false;
    this.running = false;
    this.pinned = true;
    this.placed = 0;
    this.start(this.unwrap(root));
    root.addEventListener("toggle", (event) => this.toggled(event), true);
    root.addEventListener("click", (event) => {
      const button = event.target.closest("[data-all]");
      if (button) this.showAll(button);
    });
    scroll.addEventListener("scroll", () => this.scrolled(), { passive: true });
    jump.addEventListener("click", () => this.toEnd());
    new ResizeObserver(() => { if (this.pinned) this.down(); }).observe(root);
    new ResizeObserver(() => { if (this.pinned) this.down(); }).observe(scroll);
  }

  // What one answer holds; its rows are moved out of the wrapper.
  unwrap(holder) {
    const section = holder.querySelector("section.rows");
    const data = Object.fromEntries(Object.entries(section.dataset).map(([name, value]) => [name, Number(value)]));
    section.remove();
    this.dress(section);
    return { ...data, items: [...section.children] };
  }

  dress(section) {
    for (const time of section.querySelectorAll("time")) {
      const at = new Date(time.dateTime);
      time.textContent = at.toDateString() === today ? clock.format(at) : `${day.format(at)}, ${clock.format(at)}`;
      time.title = calendar.format(at);
    }
  }

  async fetch(query) {
    const { text } = await html(`${this.path}?${query}`);
    return this.unwrap(fragment(text));
  }

  start(page) {
    this.first = page.first;
    this.last = page.last;
    this.latest = Math.max(this.latest ?? 0, page.latest);
    this.older = page.before > 0;
    this.newer = page.after > 0;
    this.root.replaceChildren();
    this.put(page.items);
    this.empty();
  }

  empty() {
    if (this.root.children.length) return;
    const words = document.createElement("p");
    words.className = "empty";
    words.textContent = "Nothing has been said yet.";
    this.root.append(words);
  }

  put(items) {
    this.root.querySelector(":scope > .empty")?.remove();
    for (const item of items) {
      if (item.classList.contains("steps")) this.putSteps(item);
      else if (!this.replace(item)) {
        this.foldLast();
        this.root.append(item);
      }
    }
  }

  putSteps(item) {
    const rows = [...item.querySelectorAll(".row")].filter((row) => !this.replace(row));
    if (!rows.length) return this.count(null);
    const last = this.root.lastElementChild;
    if (last?.classList.contains("steps")) {
      last.querySelector(".steps-rows").append(...rows);
      this.count(last);
    } else {
      item.querySelector(".steps-rows").replaceChildren(...rows);
      this.root.append(item);
      this.unfoldLast();
      this.count(item);
    }
  }

  // The same row once more: the end of a tool, or what a second look brought.
  replace(row) {
    const old = document.getElementById(row.id);
    if (!old) return false;
    const was = old.querySelector(":scope > details");
    const is = row.querySelector(":scope > details");
    if (was?.open && is && !is.dataset.run) is.open = true;
    if (was?.open && is?.dataset.run) return true;
    row.dataset.seq = old.dataset.seq;
    old.replaceWith(row);
    this.count(row.closest(".steps"));
    return true;
  }

  works(running) {
    this.running = running;
    this.unfoldLast();
  }

  // What is happening is open.
  unfoldLast() {
    const last = this.root.lastElementChild;
    if (!this.running || !last?.classList.contains("steps") || last.open) return;
    last.open = true;
    last.dataset.auto = "yes";
  }

  // What was opened because it was happening is folded once it is over.
  foldLast() {
    const last = this.root.lastElementChild;
    if (last?.dataset.auto) { last.open = false; delete last.dataset.auto; }
  }

  count(steps) {
    if (!steps) return;
    const verbs = Array.from(steps.querySelectorAll(".row .verb"), (verb) => verb.textContent.toLowerCase());
    const kinds = [...new Set(verbs)];
    const named = kinds.slice(0, MOST_VERBS).join(", ") + (kinds.length > MOST_VERBS ? "…" : "");
    const failed = steps.querySelectorAll(".row.failed").length;
    const text = `${verbs.length} ${verbs.length === 1 ? "step" : "steps"}: ${named}${failed ? ` · ${failed} failed` : ""}`;
    steps.querySelector(".steps-text").textContent = text;
  }

  rows() { return this.root.getElementsByClassName("row"); }

  // Only so many rows stay; what is dropped is fetched again when it comes near.
  trim(fromTop) {
    const rows = this.rows();
    let left = rows.length - MOST_ROWS;
    if (left <= 0) return;
    while (left-- > 0) {
      const row = rows[fromTop ? 0 : rows.length - 1];
      const steps = row.closest(".steps");
      row.remove();
      if (steps && !steps.querySelector(".row")) steps.remove();
      else if (steps && left <= 0) this.count(steps);
    }
    const kept = rows[fromTop ? 0 : rows.length - 1];
    if (fromTop) { this.first = Number(kept.dataset.seq); this.older = true; }
    else { this.last = Number(kept.dataset.seq); this.newer = true; }
  }

  // Something has happened at the end of the chat.
  happened(seq) {
    this.latest = Math.max(this.latest, seq);
    this.pump();
  }

  async pump() {
    if (this.busy || this.latest <= this.last) return;
    if (this.newer || (!this.pinned && this.rows().length >= MOST_ROWS)) {
      this.newer = true;
      return this.more();
    }
    this.busy = true;
    try {
      while (this.latest > this.last && !this.newer) {
        if (this.pinned && this.latest - this.last > FAR_BEHIND) {
          this.start(await this.fetch("limit=120"));
        } else {
          const page = await this.fetch(`after=${this.last}&limit=200`);
          this.put(page.items);
          if (page.last <= this.last) break;
          this.last = page.last;
          this.latest = Math.max(this.latest, page.latest);
          if (this.pinned) this.trim(true);
          else if (this.rows().length > MOST_ROWS) break;
        }
        if (this.pinned) this.down();
      }
    } catch { /* the link says when the server is back, and the next event brings us here again */
    } finally {
      this.busy = false;
      this.more();
    }
  }

  async loadOlder() {
    if (this.busy || !this.older) return;
    this.busy = true;
    try {
      const page = await this.fetch(`before=${this.first}&limit=120`);
      const height = this.scroll.scrollHeight;
      this.prepend(page.items);
      this.first = page.first;
      this.older = page.before > 0;
      this.scroll.scrollTop += this.scroll.scrollHeight - height;
      this.placed = this.scroll.scrollTop;
      if (!this.pinned) this.trim(false);
    } catch { /* scrolling on tries again */
    } finally {
      this.busy = false;
      this.pump();
    }
  }

  prepend(items) {
    const fresh = items.filter((item) => !item.id || !document.getElementById(item.id));
    const top = this.root.firstElementChild;
    const last = fresh.at(-1);
    if (last?.classList.contains("steps") && top?.classList.contains("steps")) {
      const rows = [...last.querySelectorAll(".row")].filter((row) => !document.getElementById(row.id));
      top.querySelector(".steps-rows").prepend(...rows);
      this.count(top);
      fresh.pop();
    }
    this.root.prepend(...fresh);
  }

  async loadNewer() {
    if (this.busy || !this.newer) return;
    this.busy = true;
    try {
      const page = await this.fetch(`after=${this.last}&limit=120`);
      this.put(page.items);
      this.last = Math.max(this.last, page.last);
      this.newer = page.after > 0;
      const height = this.scroll.scrollHeight;
      this.trim(true);
      this.scroll.scrollTop -= height - this.scroll.scrollHeight;
    } catch { /* scrolling on tries again */
    } finally {
      this.busy = false;
      this.pump();
      this.more();
    }
  }

  async toEnd() {
    this.pinned = true;
    if (this.newer) this.start(await this.fetch("limit=120"));
    this.down();
    this.more();
  }

  // To one event, which a search has found.
  show(seq) {
    this.pinned = false;
    const rows = [...this.rows()];
    let row = rows.find((one) => Number(one.dataset.seq) >= seq) ?? rows.at(-1);
    if (!row) return;
    if (row.classList.contains("end") && !row.querySelector(".prose")) {
      // The words that a turn ended with stand where it said them.
      row = rows.findLast((one) => one.classList.contains("answer") && one.dataset.run === row.dataset.run) ?? row;
    }
    const steps = row.closest(".steps");
    if (steps) steps.open = true;
    const inner = row.querySelector(":scope > details");
    if (inner) inner.open = true;
    row.classList.add("hit");
    row.scrollIntoView({ block: "center" });
  }

  down() {
    this.scroll.scrollTop = this.scroll.scrollHeight;
    this.placed = this.scroll.scrollTop;
  }

  scrolled() {
    const below = this.scroll.scrollHeight - this.scroll.scrollTop - this.scroll.clientHeight;
    // Where we have put it ourselves, rows may have come below before anybody could see it.
    const ours = this.pinned && Math.abs(this.scroll.scrollTop - this.placed) < 2;
    if (!ours) this.pinned = below < NEAR_END && !this.newer;
    // Rows of folded steps have no height: at the end there may be many and nothing to scroll.
    const full = this.pinned && this.rows().length >= MOST_ROWS;
    if (this.scroll.scrollTop < AHEAD && !full) this.loadOlder();
    if (below < AHEAD) this.loadNewer();
    this.more();
  }

  more() {
    const below = this.scroll.scrollHeight - this.scroll.scrollTop - this.scroll.clientHeight;
    if (this.pinned) this.seen = this.latest;
    this.jump.hidden = !this.newer && below < 240;
    this.jump.lastElementChild.textContent = this.latest > this.seen ? "New below" : "To the end";
  }

  async toggled(event) {
    const details = event.target;
    if (details.classList.contains("steps") && !details.open) delete details.dataset.auto;
    const run = details.dataset?.run;
    if (!run || !details.open || details.dataset.loaded) return;
    details.dataset.loaded = "yes";
    const inside = details.querySelector(".inside");
    try {
      const { text } = await html(this.path.replace(/rows$/, `diffs/${encodeURIComponent(run)}`));
      inside.replaceChildren(fragment(text));
    } catch (error) {
      inside.textContent = error.message;
      delete details.dataset.loaded;
    }
    inside.removeAttribute("aria-busy");
  }

  async showAll(button) {
    button.disabled = true;
    try {
      const { text } = await html(`${this.path}/${button.dataset.all}`);
      button.replaceWith(fragment(text));
    } catch {
      button.disabled = false;
    }
  }
}
