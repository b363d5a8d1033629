// The list of chats: kept up to date, searched as one types, walked by arrow keys.

import { html } from "./api.js";
import { every, isComposing, once } from "./ui.js";

const list = document.getElementById("chats");
const search = document.getElementById("search");
const current = document.getElementById("chat")?.dataset.chat;
let etag = list.dataset.etag;
let shown = list.innerHTML;
let asking = null;

function show(text) {
  const focused = document.activeElement?.closest?.("#chats a")?.dataset.chat;
  const open = list.querySelector("details")?.open;
  list.innerHTML = text;
  if (open) list.querySelector("details")?.setAttribute("open", "");
  mark();
  if (focused) list.querySelector(`a[data-chat="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
}

function mark() {
  for (const link of list.querySelectorAll("a[data-chat]")) {
    if (link.dataset.chat !== current) continue;
    link.setAttribute("aria-current", "page");
    link.classList.remove("unread");
  }
}

export async function refresh() {
  const answer = await html("/page/chats", { etag });
  if (!answer) return;
  etag = answer.etag;
  shown = answer.text;
  if (search.value.trim().length < 2) show(shown);
}

const find = once(180, async () => {
  const words = search.value.trim();
  asking?.abort();
  if (words.length < 2) return show(shown);
  asking = new AbortController();
  try {
    const answer = await html(`/page/search?q=${encodeURIComponent(words)}`, { signal: asking.signal });
    if (search.value.trim() === words) show(answer.text);
  } catch (error) {
    if (error.name !== "AbortError") show(`<p class="empty">Searching failed.</p>`);
  }
});

function walk(event) {
  if (isComposing(event)) return;
  const links = [...list.querySelectorAll("a")].filter((link) => link.offsetParent !== null);
  const at = links.indexOf(document.activeElement);
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    const next = links[at + (event.key === "ArrowDown" ? 1 : -1)];
    if (next) next.focus();
    else if (event.key === "ArrowUp") search.focus();
    event.preventDefault();
  } else if (event.key === "Enter" && event.target === search && search.value.trim().length >= 2) {
    links[0]?.click();
  } else if (event.key === "Escape" && event.target === search && search.value) {
    search.value = "";
    show(shown);
  }
}

export function begin() {
  mark();
  const kept = Number(sessionStorage.getItem("list-scroll"));
  if (kept) list.scrollTop = kept;
  list.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest" });
  addEventListener("pagehide", () => sessionStorage.setItem("list-scroll", list.scrollTop));
  search.addEventListener("input", find);
  search.addEventListener("keydown", walk);
  list.addEventListener("keydown", walk);
  every(4000, refresh);
  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState === "visible") refresh().catch(() => {});
  });
}
