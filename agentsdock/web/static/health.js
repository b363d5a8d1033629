// Figures of the server, drawn while one looks.

import { fragment, html, json } from "./api.js";
import * as list from "./list.js";
import * as ui from "./ui.js";

const SAMPLES = 90;
const FEWEST = 8;
const EVERY = 2000;
const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 240, HEIGHT = 48;
const charts = document.getElementById("charts");
const bytes = (value) => (value >= 1e9 ? `${(value / 1e9).toFixed(1)} GB` : `${(value / 1e6).toFixed(1)} MB`);
const kinds = [
  { name: "Turns", read: (now) => now.turns, say: (value) => String(value), least: 4 },
  { name: "CPU of the server", read: busy, say: (value) => `${value.toFixed(0)} %`, least: 100 },
  { name: "Memory of the server", read: (now) => now.memory, say: bytes, least: 64e6 },
  { name: "Load of the host", read: (now) => now.load, say: (value) => value.toFixed(2), least: 2 },
  { name: "Database", read: (now) => now.database, say: bytes, least: 1e6 },
];

function busy(now, before) {
  if (!before || now.uptime <= before.uptime) return 0;
  return (100 * (now.cpu - before.cpu)) / (now.uptime - before.uptime);
}

function element(name, attributes, ...inside) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...inside);
  return made;
}

for (const kind of kinds) {
  kind.values = [];
  kind.area = element("path", { class: "chart-area" });
  kind.line = element("path", { class: "chart-line" });
  kind.value = document.createElement("b");
  const figure = document.createElement("figure");
  const caption = document.createElement("figcaption");
  caption.append(kind.name, kind.value);
  figure.append(caption, element("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none" }, kind.area, kind.line));
  charts.append(figure);
}

let before = null;
function sample() {
  const data = document.getElementById("samples").dataset;
  const now = Object.fromEntries(Object.entries(data).map(([key, value]) => [key, Number(value)]));
  for (const kind of kinds) {
    const value = kind.read(now, before);
    kind.values.push(value);
    if (kind.values.length > SAMPLES) kind.values.shift();
    kind.value.textContent = kind.say(value);
    draw(kind);
  }
  before = now;
}

function draw({ values, area, line, least }) {
  const top = Math.max(least, ...values) * 1.1;
  const x = (at) => WIDTH - (values.length - 1 - at) * (WIDTH / Math.max(values.length - 1, FEWEST));
  const points = values.map((value, at) => `${x(at).toFixed(1)},${(HEIGHT - (value / top) * HEIGHT).toFixed(1)}`);
  line.setAttribute("d", `M${points.join("L")}`);
  area.setAttribute("d", `M${points.join("L")}L${WIDTH},${HEIGHT}L${x(0).toFixed(1)},${HEIGHT}Z`);
}

async function refresh() {
  const answer = await html("/page/health");
  const figures = document.getElementById("figures");
  if (!figures.contains(document.activeElement) && getSelection().isCollapsed) {
    figures.replaceChildren(fragment(answer.text));
  } else {
    const fresh = fragment(answer.text).getElementById("samples");
    document.getElementById("samples").replaceWith(fresh);
  }
  sample();
}

ui.begin();
list.begin();
sample();
ui.every(EVERY, refresh);
document.getElementById("probe").addEventListener("click", async (event) => {
  const button = event.currentTarget;
  button.disabled = true;
  await json("GET", "/api/runtime/catalog?refresh=true").then(refresh).catch((error) => ui.note(error.message, "bad"));
  button.disabled = false;
});
