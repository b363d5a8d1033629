// Talking to the server: one way to ask, one way to be refused.

export class Refused extends Error {
  constructor(status, detail) {
    super(worded(detail) || `The server answered ${status}.`);
    this.status = status;
    this.code = detail?.code ?? null;
  }
}

function worded(detail) {
  if (typeof detail === "string") return detail;
  if (Array.isArray(detail)) return detail.map((one) => `${one.loc?.at(-1) ?? ""}: ${one.msg}`).join("; ");
  if (detail?.message) return [detail.message, detail.action].filter(Boolean).join(" ");
  return "";
}

async function ask(path, options = {}) {
  let answer;
  try {
    answer = await fetch(path, { credentials: "same-origin", redirect: "error", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "The server cannot be reached.");
  }
  if (answer.status === 401 && path !== "/login") location.reload();
  if (answer.ok || answer.status === 304) return answer;
  const told = await answer.json().catch(() => ({}));
  throw new Refused(answer.status, told.detail);
}

export async function json(method, path, body, headers = {}) {
  const options = { method, headers: { ...headers } };
  if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers["content-type"] = "application/json";
  }
  return (await ask(path, options)).json();
}

export async function html(path, { etag = null, signal } = {}) {
  const answer = await ask(path, { signal, headers: etag ? { "if-none-match": etag } : {} });
  if (answer.status === 304) return null;
  return { text: await answer.text(), etag: answer.headers.get("etag") };
}

export async function upload(path, file) {
  const form = new FormData();
  form.append("file", file, file.name);
  return (await ask(path, { method: "POST", body: form })).json();
}

// Fragments come escaped and sanitised from the server; the page's policy runs nothing in them.
export function fragment(text) {
  const template = document.createElement("template");
  template.innerHTML = text;
  return template.content;
}

export function randomKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
