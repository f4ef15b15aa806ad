// The live view: figures, calls as they end, latencies, errors, sessions.

import { now } from "/api.js";
import { counts, latencies, overTime } from "/charts.js";
import { $, bytes, clock, el, foreign, plural, pressed, short, span, took, whole } from "/dom.js";

const SHOWN = 100;

let summary = null;
let minutes = 15;
let paused = false;
let frame = 0;
// Both by key, oldest first: calls not yet on the screen, and the rows that are.
const waiting = new Map();
const rows = new Map();
const draw = overTime($("#chart"), $("#readout"));

export function start() {
  $("#spans").addEventListener("click", ({ target }) => {
    if (!target.dataset.minutes) return;
    minutes = Number(target.dataset.minutes);
    pressed($("#spans").children, target);
    tick();
  });
  $("#pause").addEventListener("click", () => {
    paused = !paused;
    $("#pause").setAttribute("aria-pressed", String(paused));
    later();
  });
}

// Clears everything of the last server.
export function clear() {
  summary = null;
  waiting.clear();
  rows.clear();
  $("#calls tbody").replaceChildren();
  filled();
}

// A whole summary.
export function show(next) {
  summary = next;
  for (const seen of [...summary.recent].reverse()) call(seen, false);
  figures();
  tick();
  const { tools, errors, sessions, gauges, server } = summary;
  $("#latency").replaceChildren(...(tools.length ? latencies(tools) : [empty("Median and p95 of each tool appear here after its first call.")]));
  const gates = [["wrong or missing token", gauges.auth_failures], ["over the rate", gauges.rate_limited]].filter(([, count]) => count);
  const refused = gates.map(([what, count]) => `${whole(count)} ${what}`).join(", ");
  $("#errors").replaceChildren(
    errors.length ? counts(errors.map(({ code, count }) => [code, count])) : empty(`None in ${span(gauges.uptime_s)}.`),
    refused ? el("p", { class: "about" }, `Refused requests: ${refused}.`) : "");
  $("#sessions").replaceChildren(
    sessions.length ? el("ul", { class: "sessions" }, ...sessions.map(session)) : empty("Agents appear here when they call."));
  const notes = [];
  if (!server.counting) notes.push("Metrics are switched off (mcp.observability.metrics_enabled): there are no figures.");
  if (!server.sees_all) notes.push(`These are the calls of the token “${server.principal}” alone.`);
  $("#notice").textContent = notes.join(" ");
  $("#notice").hidden = !notes.length;
}

// What the server sends every two seconds.
export function beat(gauges) {
  if (!summary) return;
  summary.gauges = gauges;
  summary.totals = gauges.totals;
  figures();
  tick();
}

export function call(call, fresh = true) {
  const key = `${call.correlation_id} ${call.ts} ${call.tool}`;
  if (rows.has(key) || waiting.has(key)) return;
  waiting.set(key, { call, fresh });
  trim(waiting);
  later();
}

function trim(map, gone = () => {}) {
  for (const [key, value] of map) {
    if (map.size <= SHOWN) return;
    map.delete(key);
    gone(value);
  }
}

function tick() {
  if (summary) draw(summary.over_time, minutes, now());
}

function figures() {
  const { totals: { calls, errors, tokens }, latency_ms: latency, gauges } = summary;
  // What was fetched back was served after all, and is in both numbers.
  const kept = Math.max(0, tokens.withheld - tokens.fetched_back);
  const all = kept + tokens.served;
  const list = [
    ["kept", "Kept out of contexts", all ? `${Math.floor((kept / all) * 1000) / 10} %` : "–", "of all tokens that answers held"],
    ["served", "Served", short(tokens.served), `tokens; ${short(tokens.in)} came in`],
    ["withheld", "Withheld", short(tokens.withheld), "tokens, stored under handles"],
    ["fetched_back", "Fetched back", short(tokens.fetched_back), "tokens, fetched later"],
    ["calls", "Calls", short(calls), `${plural(errors, "error")} · up ${span(gauges.uptime_s)}`],
    ["p95", "Latency p95", took(latency.p95), `median ${took(latency.p50)}`],
    ["stored", "Stored results", short(gauges.handles?.count ?? 0), gauges.handles ? bytes(gauges.handles.bytes) : "cannot be read"],
  ];
  $("#figures").replaceChildren(...list.map(([key, name, value, note]) => el("div", { class: key, "data-figure": key },
    el("dt", {}, name), el("dd", { class: "value" }, value), el("dd", { class: "note" }, note))));
}

function session({ session, agent, model, principal, calls, errors, tokens, last }) {
  const failed = errors ? `, ${plural(errors, "error")}` : "";
  return el("li", {},
    el("p", {}, foreign(agent, "name"), " ", foreign(model === "unknown" ? "" : model, "dim")),
    el("p", { class: "when" }, `${span(now() - Date.parse(last) / 1000)} ago`),
    el("p", { class: "dim" }, foreign(session, "id"), principal === "local" ? "" : " · ", foreign(principal === "local" ? "" : principal)),
    el("p", { class: "dim n" }, `${plural(calls, "call")}${failed} · ${short(tokens.served)} served · ${short(tokens.withheld)} withheld`));
}

// Rows are added between frames, so that a thousand calls in a second cost one redraw.
function later() {
  $("#pause").textContent = paused ? (waiting.size ? `Resume (${waiting.size} waiting)` : "Resume") : "Pause";
  if (!paused && !frame) frame = requestAnimationFrame(add);
}

function add() {
  frame = 0;
  const body = $("#calls tbody");
  for (const [key, { call, fresh }] of waiting) {
    const row = line(call, fresh);
    rows.set(key, row);
    let next = body.firstElementChild;
    while (next && next.dataset.ts > call.ts) next = next.nextElementSibling;
    body.insertBefore(row, next);
  }
  waiting.clear();
  trim(rows, (row) => row.remove());
  filled();
}

function filled() {
  $("#calls").hidden = rows.size === 0;
  $("#no-calls").hidden = rows.size > 0;
}

function line(call, fresh) {
  const about = [call.path && foreign(call.path, "path"), el("span", { class: "dim" }, foreign(call.agent), " · ", foreign(call.session))];
  const [outcome, kind] = ended(call);
  const open = call.handle && el("a", { href: `#results/${encodeURIComponent(call.handle)}`, title: call.handle }, "open");
  return el("tr", { class: fresh ? "fresh" : null, "data-ts": call.ts },
    el("td", { class: "time" }, el(call.id ? "a" : "span", call.id ? { href: `#calls/${call.id}` } : {}, el("time", { datetime: call.ts }, clock(call.ts)))),
    el("td", { class: "tool" }, foreign(call.tool)),
    el("td", { class: "what" }, ...about),
    el("td", { class: "n took" }, took(call.duration_ms)),
    el("td", { class: "n s" }, whole(call.tokens_served)),
    el("td", { class: call.tokens_withheld ? "n w" : "n w dim" }, call.tokens_withheld ? whole(call.tokens_withheld) : "–"),
    el("td", { class: call.tokens_fetched_back ? "n f" : "n f dim" }, call.tokens_fetched_back ? whole(call.tokens_fetched_back) : "–"),
    el("td", { class: "outcome" }, foreign(outcome, kind), open ? " " : null, open || null));
}

// The outcome and its class. An answer may hold less than there is without being cut off: long lines are clipped.
function ended(call) {
  if (call.status === "error") return [call.error_code ?? "error", "bad"];
  if (call.truncated) return ["cut", "cut"];
  return [call.tokens_withheld ? "condensed" : "whole", "dim"];
}

function empty(text) {
  return el("p", { class: "empty" }, text);
}
