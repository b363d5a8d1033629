// One chat: its timeline, live; what one can do with it.

import { fragment, html, json } from "./api.js";
import { folder as resolved, offer, permissions } from "./choices.js";
import { Composer } from "./composer.js";
import * as list from "./list.js";
import { Queue } from "./queue.js";
import { Link } from "./socket.js";
import { Timeline } from "./timeline.js";
import * as ui from "./ui.js";

const byId = (id) => document.getElementById(id);
const body = byId("chat");
const chat = body.dataset.chat;
const path = `/api/sessions/${chat}`;
const state = JSON.parse(body.dataset.state);

ui.begin();
list.begin();
const timeline = new Timeline(byId("scroll"), byId("timeline"), byId("jump"), chat);
const queue = new Queue(byId("queue"), chat);

// What runs

let run = null;
function runs(found) {
  run = found;
  timeline.works(Boolean(run));
  byId("working").hidden = !run;
  byId("message").placeholder = byId("message").disabled
    ? byId("message").placeholder
    : run ? "Add a message to the queue…" : "Reply…";
  if (run) byId("working-text").textContent = "Working";
  tick();
}

function tick() {
  if (!run) return;
  const seconds = Math.max(0, Math.round((Date.now() - Date.parse(run.started_at)) / 1000));
  const minutes = Math.floor(seconds / 60);
  byId("elapsed").textContent = minutes ? `${minutes} m ${seconds % 60} s` : `${seconds} s`;
}
setInterval(tick, 1000);
runs(state.run);

async function stop() {
  const button = byId("stop");
  button.disabled = true;
  byId("working-text").textContent = "Stopping";
  try {
    const receipt = await json("POST", `${path}/stop`);
    if (receipt.outcome === "idle") ui.note("Nothing was running.");
    else if (receipt.outcome === "finished") ui.note("It had ended by itself.");
    else if (receipt.pending) ui.note("The turn is still being ended.");
    else {
      const left = receipt.tree_empty ? "none left" : "not all of them could be ended";
      ui.note(`Stopped in ${Math.round(receipt.elapsed_ms ?? 0)} ms · ${receipt.processes_ended ?? 0} processes ended, ${left}.`);
    }
  } catch (error) {
    ui.note(error.message, "bad");
  } finally {
    button.disabled = false;
    queue.refresh();
  }
}
byId("stop").addEventListener("click", stop);

let escaped = 0;
addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || ui.isComposing(event) || !run || document.querySelector("dialog[open]")) return;
  if (Date.now() - escaped < 700) stop();
  escaped = Date.now();
});

byId("extend").addEventListener("click", async () => {
  try {
    await json("POST", `${path}/runs/${run.run_id}/extend`, { seconds: 900 });
    ui.note("15 more minutes for this turn.");
  } catch (error) {
    ui.note(error.message, "bad");
  }
});

// What happens

const seen = ui.once(400, () => {
  if (document.visibilityState === "visible") json("POST", `${path}/read`, {}).then(list.refresh).catch(() => {});
});
const LINK = { live: "live", "catching up": "catching up", reconnecting: "reconnecting", gone: "deleted" };

const link = new Link(chat, state.latest_seq, {
  event(event) {
    if (event.type === "turn_started") runs({ run_id: event.run_id, started_at: event.ts });
    if (event.type === "turn_finished" || event.type === "turn_stopped") {
      if (!run || run.run_id === event.run_id) runs(null);
      list.refresh().catch(() => {});
    }
    if (/^turn_(queue|unqueued|started|deferred)/.test(event.type)) queue.refresh();
    if (event.type === "file_uploaded" || event.type === "artifact_created") filesChanged();
    timeline.happened(event.seq);
    seen();
  },
  state(name) {
    byId("link").dataset.state = name;
    byId("link-text").textContent = LINK[name];
    if (name === "live") { queue.refresh(); timeline.pump(); }
  },
  gap() { location.reload(); },
  gone() {
    byId("message").disabled = true;
    ui.note("This chat has been deleted.", "bad");
  },
});
document.addEventListener("visibilitychange", seen);
seen();

if (body.dataset.at) timeline.show(Number(body.dataset.at));
else timeline.toEnd();

// What one writes

const composer = new Composer(byId("composer"), async (text, file_ids, key) => {
  await json("POST", `${path}/turns`, { prompt: text, file_ids }, { "idempotency-key": key });
  timeline.toEnd();
  queue.refresh();
}, chat);
if (matchMedia("(hover: hover)").matches && !body.dataset.at) byId("message").focus();

byId("timeline").addEventListener("click", async (event) => {
  const button = event.target.closest("[data-retry]");
  if (!button) return;
  button.disabled = true;
  try {
    await retry(button.dataset.retry, Number(button.closest(".row").dataset.seq));
  } catch (error) {
    button.disabled = false;
    ui.note(error.message, "bad");
  }
});

// The prompt of a run stands in its first event, which may be far from the last.
async function retry(runId, end) {
  const page = await json("GET", `${path}?page_mode=semantic&limit=4&semantic_before=${end}`);
  const started = page.events.find((one) => one.type === "turn_started" && one.run_id === runId);
  if (!started) throw new Error("The message of this turn was not found. Write it again below.");
  await json("POST", `${path}/turns`, { prompt: started.prompt, file_ids: started.file_ids ?? [] });
  timeline.toEnd();
}

// Files

async function showFiles() {
  const answer = await html(`/page/chats/${chat}/files`);
  byId("files").replaceChildren(fragment(answer.text));
  byId("files-close").addEventListener("click", () => toggleFiles(false));
}
const filesChanged = ui.once(300, () => { if (!byId("files").hidden) showFiles().catch(() => {}); });

async function toggleFiles(open) {
  byId("files").hidden = !open;
  byId("files-button").setAttribute("aria-expanded", String(open));
  if (!open) return byId("files-button").focus();
  await showFiles().catch((error) => ui.note(error.message, "bad"));
  byId("files-close")?.focus();
}
byId("files-button").addEventListener("click", () => toggleFiles(byId("files").hidden));

// The chat itself

const settings = byId("settings");
const form = byId("settings-form");

async function saved() {
  if (settings.returnValue !== "save") return;
  const { title, folder, model, effort, permission, cwd } = form.elements;
  const change = { title: title.value, folder: folder.value, model: model.value || null, effort: effort.value || null };
  try {
    if (cwd.value !== cwd.defaultValue) change.cwd = await resolved(cwd.value.trim());
    await json("PATCH", path, { ...change, ...permissions(form.dataset.backend, permission.value) });
    location.reload();
  } catch (error) {
    form.querySelector(".problem").textContent = error.message;
    settings.showModal();
  }
}
settings.addEventListener("close", saved);
form.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && ui.isComposing(event)) event.preventDefault();
  else if (event.key === "Enter" && event.target.matches("input") && !event.defaultPrevented) {
    event.preventDefault();
    settings.close("save");
  }
});

const actions = {
  settings() {
    settings.returnValue = "";
    settings.showModal();
    form.elements.title.select();
    const { model, effort, permission } = form.dataset;
    offer(form, form.dataset.backend, { model, effort, permission });
  },
  async fork() {
    const { session } = await json("POST", `${path}/fork`, {});
    location.href = `/chats/${session.id}`;
  },
  async pin(button) {
    await json("PATCH", path, { pinned: button.textContent.trim() === "Pin" });
    location.reload();
  },
  async unread() {
    await json("POST", `${path}/unread`);
    location.href = "/";
  },
  async archive(button) {
    await json("PATCH", path, { archived: button.textContent.trim() === "Archive" });
    location.reload();
  },
  async delete() {
    if (!(await ui.confirmed("Delete this chat, its files and its whole history?", "Delete"))) return;
    await json("DELETE", path);
    ui.stored.set(composer.draft, "");
    location.href = "/";
  },
};
byId("actions").addEventListener("click", async (event) => {
  const button = event.target.closest("[data-do]");
  if (!button) return;
  byId("actions").open = false;
  await Promise.resolve(actions[button.dataset.do](button)).catch((error) => ui.note(error.message, "bad"));
});
window.addEventListener("pagehide", () => link.socket?.close());
