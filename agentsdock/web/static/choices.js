// Model, effort, permissions and folder of a chat: what a backend offers, and what was chosen.

import { json } from "./api.js";
import { isComposing, once } from "./ui.js";

const PERMISSIONS = {
  cursor: [["default", "Default"], ["full_access", "Full access"], ["plan", "Plan only"]],
  claude: [
    ["default", "Default"], ["acceptEdits", "Accept edits"], ["plan", "Plan only"],
    ["dontAsk", "Do not ask"], ["auto", "Auto"], ["bypassPermissions", "Full access"],
  ],
  codex: [
    ["danger-full-access never", "Full access"], ["workspace-write never", "Write in the folder"],
    ["read-only never", "Read only"],
  ],
};

let asked = null;
const catalogue = () => (asked ??= json("GET", "/api/runtime/catalog").catch(() => ({ backends: {} })));

function fill(select, pairs, chosen) {
  select.replaceChildren(...pairs.map(([value, label]) => new Option(label, value, false, value === chosen)));
  if (chosen && select.value !== chosen) select.add(new Option(chosen, chosen, false, true));
}

export async function offer(form, backend, chosen = {}) {
  const { model, effort, permission, cwd } = form.elements;
  fill(permission, PERMISSIONS[backend] ?? [["", "Default"]], chosen.permission ?? "");
  if (!chosen.permission) permission.selectedIndex = 0;
  fill(model, [["", "Default model"]], chosen.model ?? "");
  fill(effort, [["", "Default"]], chosen.effort ?? "");
  if (!cwd.dataset.completes) complete(cwd, form.querySelector(".listbox"));
  const found = (await catalogue()).backends[backend] ?? {};
  const models = (found.models ?? []).map((one) => [one.value, one.label ?? one.value]);
  fill(model, models.length ? models : [["", "Default model"]], model.value);
  const efforts = () => {
    const own = found.model_efforts?.[model.value] ?? found.efforts ?? [];
    const pairs = own.map((one) => (typeof one === "string" ? [one, one] : [one.value, one.label ?? one.value]));
    fill(effort, [["", "Default"], ...pairs.filter(([value]) => value)], effort.value);
    effort.closest("label").hidden = effort.options.length < 2;
  };
  model.onchange = efforts;
  efforts();
}

export function permissions(backend, value) {
  if (!value) return {};
  if (backend === "codex") {
    const [codex_sandbox_mode, codex_approval_policy] = value.split(" ");
    return { codex_sandbox_mode, codex_approval_policy };
  }
  return { [`${backend}_permission_mode`]: value };
}

// The folder as the server knows it: ~ and relative paths are for people.
export async function folder(path) {
  if (!path) return path;
  const found = await json("GET", `/api/working-directories/complete?limit=1&path=${encodeURIComponent(path)}`);
  if (!found.exists) throw new Error(`There is no folder ${path} on the server.`);
  return found.resolved_path;
}

function complete(input, box) {
  input.dataset.completes = "yes";
  let marked = -1;
  const close = () => {
    box.hidden = true;
    marked = -1;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  };
  const take = (path) => {
    input.value = path;
    input.focus();
    ask();
  };
  const show = (answer) => {
    const options = answer.suggestions.map((one, at) => {
      const item = document.createElement("li");
      item.role = "option";
      item.id = `folder-${at}`;
      item.textContent = one.path;
      item.addEventListener("mousedown", (event) => { event.preventDefault(); take(one.path); });
      return item;
    });
    box.replaceChildren(...options);
    marked = -1;
    box.hidden = !options.length || document.activeElement !== input;
    input.setAttribute("aria-expanded", String(!box.hidden));
  };
  const ask = once(120, async () => {
    const value = input.value;
    const answer = await json("GET", `/api/working-directories/complete?limit=12&path=${encodeURIComponent(value)}`).catch(() => null);
    if (answer && input.value === value) show(answer);
  });
  input.addEventListener("input", ask);
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    if (isComposing(event) || box.hidden) return;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      const items = [...box.children];
      marked = (marked + (event.key === "ArrowDown" ? 1 : -1) + items.length) % items.length;
      items.forEach((item, at) => item.setAttribute("aria-selected", String(at === marked)));
      input.setAttribute("aria-activedescendant", items[marked].id);
      items[marked].scrollIntoView({ block: "nearest" });
    } else if (event.key === "Enter" && marked >= 0) {
      event.preventDefault();
      take(box.children[marked].textContent);
    } else if (event.key === "Escape") {
      event.stopPropagation();
      close();
    }
  });
}
