// Requests to the server. The token is kept for this tab and sent in a header only.

const KEY = "llmc-token";
// The server sends something every two seconds; a stream that is silent for longer is broken.
const SILENCE_MS = 12_000;

let header = (token) => ({ "X-LLMC-Token": token });
let skew = 0;

export class Refused extends Error {
  constructor(status, body, wait) {
    super(body.message || `the server answered ${status}`);
    this.status = status;
    this.hint = body.hint || "";
    this.wait = Number(wait) * 1000 || 0;
  }
}

export const token = {
  get: () => sessionStorage.getItem(KEY),
  set: (text) => sessionStorage.setItem(KEY, text),
  forget: () => sessionStorage.removeItem(KEY),
};

// Now, in the server's seconds.
export const now = () => Date.now() / 1000 + skew;

export async function ask(path, { body, signal } = {}) {
  return (await request(path, { body, signal })).json();
}

async function request(path, { body, signal }) {
  const sent = token.get();
  const headers = sent ? header(sent) : {};
  if (body) headers["Content-Type"] = "application/json";
  const method = body ? "POST" : "GET";
  const response = await fetch(path, { method, headers, signal, body: body && JSON.stringify(body), cache: "no-store" });
  const date = Date.parse(response.headers.get("Date"));
  if (date) skew = Math.round((date - Date.now()) / 1000);
  if (response.ok) return response;
  const refusal = await response.json().catch(() => ({}));
  // The header's name can be configured; Authorization is always accepted.
  if (response.status === 401 && sent && !headers.Authorization && !/X-LLMC-Token/i.test(refusal.hint || "X-LLMC-Token")) {
    header = (token) => ({ Authorization: `Bearer ${token}` });
    return request(path, { body, signal });
  }
  throw new Refused(response.status, refusal, response.headers.get("Retry-After"));
}

// Server-sent events, read by hand because EventSource cannot send a token. Ends when the server ends the stream.
export async function* events(signal) {
  const silent = new AbortController();
  const either = AbortSignal.any([signal, silent.signal]);
  const response = await request("/api/events?of=workspace", { signal: either });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const alarm = setTimeout(() => silent.abort(), SILENCE_MS);
    const { done, value } = await reader.read().finally(() => clearTimeout(alarm));
    if (done) return;
    const blocks = (text + value).split("\n\n");
    text = blocks.pop();
    for (const block of blocks) {
      const event = parsed(block);
      if (event) yield event;
    }
  }
}

function parsed(block) {
  let kind = "";
  const data = [];
  for (const line of block.split("\n")) {
    if (line.startsWith("event:")) kind = line.slice(6).trim();
    else if (line.startsWith("data:")) data.push(line.slice(5));
  }
  return data.length ? { kind, data: JSON.parse(data.join("\n")) } : null;
}
