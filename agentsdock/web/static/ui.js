// Small things that every view has: theme, drawer, notes, copying, menus.

const byId = (id) => document.getElementById(id);

export function note(text, kind = "") {
  const box = document.createElement("p");
  box.className = `toast ${kind}`;
  box.textContent = text;
  byId("toasts").append(box);
  setTimeout(() => box.remove(), kind === "bad" ? 9000 : 5000);
}

export const stored = {
  get(key) {
    try { return localStorage.getItem(key); } catch { return null; }
  },
  set(key, value) {
    try {
      if (value) localStorage.setItem(key, value);
      else localStorage.removeItem(key);
    } catch { /* storage is full or switched off: the page works without */ }
  },
};

// Enter that ends a word of an input method is not Enter; Safari tells it by the key code only.
export const isComposing = (event) => event.isComposing || event.keyCode === 229;

export function every(milliseconds, work) {
  const tick = async () => {
    if (document.visibilityState === "visible") await work().catch(() => {});
    setTimeout(tick, milliseconds);
  };
  setTimeout(tick, milliseconds);
}

export function once(milliseconds, work) {
  let timer = 0;
  return (...args) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...args), milliseconds);
  };
}

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function switchTheme() {
  const theme = isDark() ? "light" : "dark";
  document.documentElement.dataset.theme = theme;
  stored.set("theme", theme);
}

export function drawer(open) {
  const side = byId("side");
  side.classList.toggle("open", open);
  byId("scrim").hidden = !open;
  for (const button of document.querySelectorAll(".drawer")) button.setAttribute("aria-expanded", open);
  byId("main").inert = open;
  if (open) byId("search").focus({ preventScroll: true });
}

export async function copy(text, holder) {
  try {
    if (window.isSecureContext && navigator.clipboard) await navigator.clipboard.writeText(text);
    else if (!copyByHand(text)) throw new Error("refused");
    return true;
  } catch {
    if (holder) getSelection().selectAllChildren(holder);
    note("This browser does not let the page copy. The text is selected: copy it by hand.", "bad");
    return false;
  }
}

// The clipboard interface is there in secure contexts only, and a LAN address is none.
function copyByHand(text) {
  const box = document.createElement("textarea");
  box.value = text;
  box.className = "sr";
  box.setAttribute("aria-hidden", "true");
  document.body.append(box);
  const focused = document.activeElement;
  box.select();
  const done = document.execCommand("copy");
  box.remove();
  focused?.focus?.();
  return done;
}

async function copyCode(button) {
  const code = button.closest(".code").querySelector("code");
  if (!(await copy(code.textContent, code))) return;
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
}

export function confirmed(question, verb) {
  const dialog = byId("confirm");
  byId("confirm-text").textContent = question;
  byId("confirm-yes").textContent = verb;
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}

export function begin() {
  byId("theme")?.addEventListener("click", switchTheme);
  byId("leave")?.addEventListener("click", async () => {
    await fetch("/logout", { method: "POST" });
    location.href = "/";
  });
  byId("scrim")?.addEventListener("click", () => drawer(false));
  for (const button of document.querySelectorAll(".drawer")) {
    button.addEventListener("click", () => drawer(!byId("side").classList.contains("open")));
  }
  document.addEventListener("click", (event) => {
    const button = event.target.closest?.(".copy");
    if (button) copyCode(button);
    for (const menu of document.querySelectorAll("details.menu[open]")) {
      if (!menu.contains(event.target)) menu.open = false;
    }
  });
  document.addEventListener("keydown", shortcuts);
}

function shortcuts(event) {
  if (isComposing(event)) return;
  const typing = event.target.closest?.("input, textarea, select, dialog");
  if (event.key === "Escape") {
    for (const menu of document.querySelectorAll("details.menu[open]")) {
      menu.open = false;
      menu.querySelector("summary").focus();
    }
    if (byId("side").classList.contains("open")) {
      drawer(false);
      document.querySelector(".drawer")?.focus();
    }
  } else if (event.altKey && event.key.toLowerCase() === "n") {
    event.preventDefault();
    location.href = "/";
  } else if (!typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
    if (event.key === "/") {
      event.preventDefault();
      if (getComputedStyle(byId("side")).position === "fixed") drawer(true);
      byId("search").focus();
    } else if (event.key === "i" && byId("message")) {
      event.preventDefault();
      byId("message").focus();
    }
  }
}
