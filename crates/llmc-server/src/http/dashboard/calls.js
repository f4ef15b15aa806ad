// Calls: every recorded call of every server, searched and filtered, and one of them with arguments, answer and changes.

import { ask } from "/api.js";
import { $, bytes, el, foreign, label, moment, plural, short, took, whole } from "/dom.js";
import * as undo from "/undo.js";

const PAGE = 50;
// Calls end in bursts; the list is asked for once for each.
const BURST_MS = 400;
const TYPING_MS = 250;
const SOURCES = { mcp: "MCP", http: "HTTP", cli: "command line", code: "script" };

let calls = [];
let next = null;
let opened = null;
let entry = null;
let timer = 0;
let typing = 0;
// Answers to an earlier question are not shown.
let asked = 0;

export function start() {
  $("#call-search").addEventListener("submit", (event) => { event.preventDefault(); list(); });
  $("#call-query").addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(list, TYPING_MS); });
  for (const field of ["#call-tool", "#call-client", "#call-server", "#call-failed"]) $(field).addEventListener("change", list);
  $("#more-calls").addEventListener("click", more);
  $("#call-list").addEventListener("keydown", arrows);
  $("#call-undo").addEventListener("click", () => undo.open(entry, undone));
}

export function clear() {
  [calls, next, opened, entry] = [[], null, null, null];
  asked += 1;
  $("#call-list").replaceChildren();
  for (const field of ["#call-tool", "#call-client", "#call-server"]) $(field).replaceChildren();
  $("#call-query").value = "";
  $("#call-failed").checked = false;
  blank("Nothing opened", "Select a call to see its arguments and what the model read.");
}

// Shows the list, and the call that the address names.
export async function enter(id) {
  const listed = Promise.all([list(), filters()]);
  if (id && id !== opened) {
    opened = id;
    mark();
    await load();
    $("#call-title").focus();
  }
  await listed;
}

// A call has ended somewhere.
export function fresh() {
  timer ||= setTimeout(async () => {
    timer = 0;
    if (!$("#view-calls").hidden) await Promise.all([list(true), filters()]);
  }, BURST_MS);
}

function query(more = {}) {
  const values = {
    query: $("#call-query").value.trim(), tool: $("#call-tool").value, client: $("#call-client").value,
    server: $("#call-server").value, failed: $("#call-failed").checked ? "true" : "", limit: PAGE, ...more,
  };
  const set = Object.entries(values).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return set.map(([name, value]) => `${name}=${encodeURIComponent(value)}`).join("&");
}

async function list(keep = false) {
  const mine = (asked += 1);
  try {
    const page = await ask(`/api/calls?${query()}`);
    if (mine !== asked) return;
    const known = new Set(page.calls.map(({ id }) => id));
    const rest = keep === true && page.next !== null ? calls.filter(({ id }) => !known.has(id) && id < page.next) : [];
    if (!rest.length) next = page.next;
    calls = [...page.calls, ...rest];
    draw();
    const filtered = query({ limit: "" });
    say(calls.length ? "" : filtered ? "No call matches." : "No calls yet. Calls of every server of this workspace appear here.");
  } catch (error) {
    if (mine === asked) say([error.message, error.hint].filter(Boolean).join(" · "));
  }
}

async function more() {
  const mine = asked;
  try {
    const page = await ask(`/api/calls?${query({ cursor: next })}`);
    if (mine !== asked) return;
    calls.push(...page.calls);
    next = page.next;
    draw();
  } catch (error) {
    say(error.message);
  }
}

// The tools, clients and servers that there are to choose from.
async function filters() {
  try {
    const [{ tools, clients }, { servers, sessions }] = await Promise.all([ask("/api/savings?days=365"), ask("/api/activity")]);
    const first = (all) => [...new Set(all.map(({ name }) => name.split(" ")[0]))].filter(Boolean).sort();
    options("#call-tool", "any tool", first(tools).map((name) => [name, name]));
    options("#call-client", "any client", clients.map(({ name }) => name).filter(Boolean).sort().map((name) => [name, name]));
    const running = new Map(servers.map((server) => [server.id, `${server.kind ?? "server"} ${server.pid ?? server.id}`]));
    for (const { server } of sessions) if (server && !running.has(server)) running.set(server, `ended ${/^\d+-[0-9a-f]+$/.test(server) ? server.split("-")[0] : server}`);
    options("#call-server", "any server", [...running]);
  } catch {
    // Without them the search still works.
  }
}

function options(field, none, values) {
  const chosen = $(field).value;
  $(field).replaceChildren(el("option", { value: "" }, none), ...values.map(([value, text]) => el("option", { value }, text)));
  $(field).value = values.some(([value]) => value === chosen) ? chosen : "";
}

function say(text) {
  $("#call-note").textContent = text;
  $("#call-note").hidden = !text;
}

function draw() {
  const at = document.activeElement?.dataset?.call;
  $("#call-list").replaceChildren(...calls.map(item));
  $("#more-calls").hidden = next === null;
  mark();
  if (at) [...document.querySelectorAll("#call-list a")].find(({ dataset }) => dataset.call === at)?.focus();
}

function item(call) {
  const [outcome, kind] = ended(call);
  return el("li", {}, el("a", { href: `#calls/${call.id}`, "data-call": String(call.id) },
    el("span", { class: "kind" }, foreign(call.tool), " ", foreign(call.path ?? brief(call.args), "dim")),
    el("time", { class: "dim n", datetime: call.ts }, moment(call.ts)),
    el("span", { class: "files dim" }, foreign(call.agent || "unknown"), call.session ? " · " : "", foreign(call.session)),
    el("span", { class: "dim n" }, `${took(call.duration_ms)} · ${short(call.tokens_served)} tok `, foreign(outcome, kind))));
}

// The values of recorded arguments, for a line.
function brief(args) {
  try {
    return Object.values(JSON.parse(args)).map((value) => (typeof value === "string" ? value : JSON.stringify(value))).join(" ").slice(0, 120);
  } catch {
    return args ?? "";
  }
}

// The outcome and its class.
function ended(call) {
  if (call.status === "error") return [call.error_code ?? "error", "bad"];
  if (call.truncated) return ["cut", "cut"];
  return [call.entry ? "changed files" : call.tokens_withheld ? "condensed" : "ok", ""];
}

function mark() {
  for (const link of document.querySelectorAll("#call-list a")) {
    if (link.dataset.call === opened) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
}

// Arrow keys go through the list, as Tab does.
function arrows(event) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const stops = [...document.querySelectorAll("#call-list a")];
  const at = stops.indexOf(document.activeElement);
  if (!step || at < 0) return;
  event.preventDefault();
  stops[Math.max(0, Math.min(stops.length - 1, at + step))].focus();
}

async function load(note = "") {
  const id = opened;
  blank(`Call ${id}`, "Loading…");
  try {
    const call = await ask(`/api/calls/${encodeURIComponent(id)}`);
    if (id !== opened) return;
    show(call, note);
    if (call.entry) await changed(call.entry, id);
  } catch (error) {
    if (id === opened) blank(`Call ${id}`, [error.message, error.hint].filter(Boolean).join(" · "));
  }
}

function show(call, note) {
  const [outcome, kind] = ended(call);
  blank("", note);
  $("#call-title").replaceChildren(foreign(call.tool), " ", foreign(call.path ?? "", "dim"));
  const withheld = call.tokens_withheld ? `, ${whole(call.tokens_withheld)} withheld` : "";
  const back = call.tokens_fetched_back ? `, ${whole(call.tokens_fetched_back)} fetched back` : "";
  const facts = [
    ["Outcome", foreign(outcome, kind)], ["Time", el("time", { datetime: call.ts }, call.ts)], ["Took", took(call.duration_ms)],
    ["Tokens", `${whole(call.tokens_in)} in, ${whole(call.tokens_served)} served${withheld}${back}`],
    ["Client", call.client && label(call.client)], ["Agent", call.agent && label(call.agent)],
    ["Model", call.model && call.model !== "unknown" && label(call.model)], ["Session", call.session && label(call.session, "id")],
    ["Server", call.server && el("span", { class: "id" }, `${SOURCES[call.source] ?? call.source}, ${call.server}`)],
    ["Token", call.principal && call.principal !== "local" && label(call.principal)],
    ["Left out", call.handle && el("a", { href: `#results/${encodeURIComponent(call.handle)}`, class: "id" }, call.handle)],
    ["Changes", call.entry && el("a", { href: `#changes/${encodeURIComponent(call.entry)}`, class: "id" }, call.entry)],
  ];
  $("#call-facts").replaceChildren(...facts.filter(([, value]) => value).flatMap(([term, value]) => [el("dt", {}, term), el("dd", {}, value)]));
  const kept = call.contents;
  text("args", kept ? pretty(kept.args) : pretty(call.args ?? ""), kept?.args_cut && `the start of ${bytes(call.bytes_in)}`);
  text("answer", kept?.answer ?? "", kept?.answer_cut && `the start of ${bytes(call.bytes_out)}; the model read all of it`);
  const why = call.source === "code" ? "A script made this call: the answer went to the script, not to the model."
    : call.keeps_contents ? "The answer is not kept: it is older than what is kept, or the server was too busy."
      : "Answers are not kept (mcp.observability.keep_contents).";
  $("#call-unkept").textContent = kept ? "" : why;
  $("#call-unkept").hidden = Boolean(kept);
  $("#call-texts").hidden = false;
}

function text(name, value, note) {
  $(`#call-${name}`).textContent = value;
  $(`#call-${name}`).hidden = !value;
  $(`#call-${name}-title`).hidden = !value;
  $(`#call-${name}-note`).textContent = note || "";
}

function pretty(args) {
  try {
    return JSON.stringify(JSON.parse(args), null, 2).replaceAll("\\n", "\n");
  } catch {
    return args;
  }
}

// The files that the call changed, with undo.
async function changed(id, call) {
  try {
    const found = await ask(`/api/history/${encodeURIComponent(id)}`);
    if (call !== opened) return;
    entry = found;
    const files = found.changes.map(({ path, action, undone_by: by }) => el("li", {},
      el("span", { class: `sign ${action}` }, action), " ", label(path, "path"), by ? ` (undone by ${by})` : ""));
    $("#call-changes").replaceChildren(el("h3", {}, `Changed ${plural(found.changes.length, "file")}`), el("ul", { class: "changed-files" }, ...files));
    $("#call-undo").hidden = undo.restorable(found).length === 0;
  } catch (error) {
    if (call === opened) $("#call-changes").replaceChildren(el("p", { class: "about" }, error.message));
  }
}

async function undone({ restored, entry: made }) {
  await Promise.all([load(`${plural(restored.length, "path")} restored${made ? ` (${made})` : ""}.`), list(true)]);
  $("#call-title").focus();
}

function blank(title, about) {
  entry = null;
  $("#call-title").textContent = title;
  $("#call-about").textContent = about;
  $("#call-about").hidden = !about;
  for (const part of ["#call-undo", "#call-texts"]) $(part).hidden = true;
  for (const part of ["#call-facts", "#call-changes"]) $(part).replaceChildren();
}
