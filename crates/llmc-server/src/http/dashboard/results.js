// Stored results: the list, and one of them page by page.

import { ask } from "/api.js";
import { $, bytes, clock, el, foreign, span, whole } from "/dom.js";

const PAGE = 32_768;

let opened = null;
// Where each page seen so far begins: pages end between characters, so their lengths differ.
let starts = [];
let next = null;

export function start() {
  $("#reload").addEventListener("click", list);
  $("#earlier").addEventListener("click", () => {
    starts.pop();
    turn(starts.pop() ?? 0);
  });
  $("#later").addEventListener("click", () => turn(next));
}

export function clear() {
  opened = null;
  $("#handles").replaceChildren();
  describe("Nothing opened", "Select a result to read what an answer left out, byte for byte.");
}

// Shows the list, and the result that the address names.
export async function enter(handle) {
  const listed = list();
  if (handle && handle !== opened) {
    opened = handle;
    starts = [];
    await turn(0);
    $("#opened").focus();
  }
  await listed;
}

async function list() {
  try {
    const { handles, total } = await ask("/api/handles");
    $("#handles").replaceChildren(...handles.map(item));
    $("#no-handles").hidden = handles.length > 0 && handles.length === total;
    $("#no-handles").textContent = handles.length
      ? `The newest ${whole(handles.length)} of ${whole(total)}.`
      : "Nothing is stored. Answers that leave something out store it here until it expires.";
    mark();
  } catch (error) {
    $("#no-handles").hidden = false;
    $("#no-handles").textContent = error.message;
  }
}

function item({ handle, kind, total_bytes, created, expires, meta }) {
  const left = span((Date.parse(expires) - Date.now()) / 1000);
  const about = meta?.path ?? meta?.root ?? meta?.command ?? "";
  return el("li", {}, el("a", { href: `#results/${encodeURIComponent(handle)}`, "data-handle": handle },
    el("span", { class: "kind" }, foreign(kind), " ", foreign(String(about), "dim")),
    el("span", { class: "n" }, bytes(total_bytes)),
    foreign(handle, "id dim"),
    el("span", { class: "dim n", title: `until ${expires}` }, `${clock(created)}, ${left} left`)));
}

function mark() {
  for (const link of document.querySelectorAll("#handles a")) {
    if (link.dataset.handle === opened) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
}

async function turn(offset) {
  const handle = opened;
  mark();
  try {
    const page = await ask(`/api/handles/${encodeURIComponent(handle)}?offset=${offset}&limit=${PAGE}`);
    if (handle !== opened) return;
    starts.push(offset);
    next = page.offset + page.length;
    const binary = page.encoding === "base64";
    const notes = [page.meta?.kind, page.meta?.path ?? page.meta?.root, binary && "binary, shown as hex", page.stale && "the file has changed since"];
    describe(handle, notes.filter(Boolean).join(" · "));
    $("#page").textContent = binary ? hex(page.data, page.offset) : page.data;
    $("#page").hidden = false;
    $("#page").scrollTop = 0;
    const first = page.offset + Math.min(1, page.length);
    $("#place").textContent = `${whole(first)}–${whole(next)} of ${whole(page.total_bytes)} bytes`;
    $("#pager").hidden = false;
    $("#earlier").disabled = offset === 0;
    $("#later").disabled = page.eof || page.length === 0;
  } catch (error) {
    if (handle === opened) describe(handle, [error.message, error.hint].filter(Boolean).join(" · "));
  }
}

function describe(title, about) {
  $("#opened").textContent = title;
  $("#about").textContent = about;
  $("#page").hidden = true;
  $("#pager").hidden = true;
}

function hex(base64, offset) {
  const all = Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));
  const lines = [];
  for (let at = 0; at < all.length; at += 16) {
    const row = [...all.subarray(at, at + 16)];
    const digits = row.map((byte) => byte.toString(16).padStart(2, "0")).join(" ").padEnd(48);
    const text = row.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${(offset + at).toString(16).padStart(8, "0")}  ${digits} ${text}`);
  }
  return lines.join("\n");
}
