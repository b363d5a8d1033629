// A new chat: its first message and what it shall run with.

import { json } from "./api.js";
import { folder, offer, permissions } from "./choices.js";
import { Composer } from "./composer.js";
import * as list from "./list.js";
import * as ui from "./ui.js";

ui.begin();
list.begin();
const options = document.getElementById("options");
if (options) begin();

function begin() {
  const backend = () => options.elements.backend.value;
  options.addEventListener("change", (event) => { if (event.target.name === "backend") offer(options, backend()); });
  options.addEventListener("submit", (event) => event.preventDefault());
  offer(options, backend());
  // A chat that was made for a message that was refused takes it at the next attempt.
  let made = null;
  new Composer(document.getElementById("composer"), async (text, files, key) => {
    const { model, effort, permission, cwd } = options.elements;
    const wanted = {
      backend: backend(), cwd: await folder(cwd.value.trim()), model: model.value || null, effort: effort.value || null,
      ...permissions(backend(), permission.value),
    };
    if (made) await json("PATCH", `/api/sessions/${made}`, wanted);
    else made = (await json("POST", "/api/sessions", wanted)).session.id;
    await json("POST", `/api/sessions/${made}/turns`, { prompt: text }, { "idempotency-key": key });
    ui.stored.set("draft:new", "");
    location.href = `/chats/${made}`;
  });
  if (matchMedia("(hover: hover)").matches) document.getElementById("message").focus();
}
