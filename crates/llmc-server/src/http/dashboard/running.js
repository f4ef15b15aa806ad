// Running: calls in progress and background processes of every server, what they print, and how to stop them.

import { ask } from "/api.js";
import { $, el, foreign, label, span, took } from "/dom.js";

const EVERY_MS = 1_500;
const OUTPUT_MS = 700;
const MAX_SHOWN_CHARS = 200_000;
const SURE_MS = 5_000;

let timer = 0;
let reading = 0;
let showing = false;
// The one whose output is shown: { server, target, offset }.
let opened = null;
let stopping = "";

export function start() {
  $("#running-close").addEventListener("click", close);
}

export function clear() {
  leave();
  close();
  $("#running").replaceChildren();
}

export async function enter() {
  showing = true;
  await look();
  if (opened) read(opened);
}

export function leave() {
  showing = false;
  clearTimeout(timer);
  clearTimeout(reading);
}

async function look() {
  clearTimeout(timer);
  try {
    const { servers } = await ask("/api/activity");
    draw(servers);
  } catch (error) {
    say(error.message);
  }
  if (showing) timer = setTimeout(look, EVERY_MS);
}

function say(text) {
  $("#running-note").textContent = text;
}

function draw(servers) {
  const jobs = servers.flatMap((server) => [
    ...(server.calls ?? []).map((call) => ({ server, target: `c${call.id}`, call })),
    ...(server.processes ?? []).map((process) => ({ server, target: process.id, process })),
  ]);
  const running = jobs.filter(({ process }) => !process || process.running);
  const at = document.activeElement?.dataset?.job;
  $("#running").replaceChildren(...running.map(item), ...jobs.filter((job) => !running.includes(job)).map(item));
  if (at) [...document.querySelectorAll("#running [data-job]")].find(({ dataset }) => dataset.job === at)?.focus();
  say(running.length ? `${running.length} running.` : "Nothing is running. Calls in progress and background processes appear here.");
}

function item({ server, target, call, process }) {
  const key = `${server.id}/${target}`;
  const where = `${server.kind ?? "server"}, process ${server.pid}`;
  const state = call ? `for ${took(call.elapsed_ms)}` : process.running ? `since ${span((Date.now() - Date.parse(process.started)) / 1000)}` : ended(process);
  const output = (process || call.has_output) && button("output", key, "Output", () => open({ server: server.id, target, offset: 0, title: process?.command ?? call.tool }));
  const stop = (!process || process.running) && button("stop", key, stopping === key ? "Stop it?" : "Stop", () => stopJob(server.id, target, key));
  return el("li", {},
    el("p", { class: "kind" }, process ? label(process.command, "args") : foreign(call.tool, "name"), " ", call ? label(call.args === "{}" ? "" : call.args, "args") : ""),
    el("p", { class: "dim" }, state, " · ", foreign((call ?? process).agent ?? ""), call?.agent ? " · " : "", where, process?.cwd ? ` · in ${process.cwd}` : ""),
    el("p", { class: "buttons" }, output || null, stop || null));
}

function ended({ exit_code: code, signal }) {
  return signal ? `ended by signal ${signal}` : `ended with ${code ?? "?"}`;
}

function button(kind, key, text, work) {
  const node = el("button", { type: "button", class: kind === "stop" ? "stop" : "quiet", "data-job": `${kind} ${key}` }, text);
  node.addEventListener("click", work);
  return node;
}

// The first press asks, the second within some seconds stops.
async function stopJob(server, target, key) {
  if (stopping !== key) {
    stopping = key;
    setTimeout(() => { if (stopping === key) stopping = ""; }, SURE_MS);
    return look();
  }
  stopping = "";
  try {
    await ask(`/api/activity/${encodeURIComponent(server)}/${encodeURIComponent(target)}/stop`, { body: {} });
    await look();
  } catch (error) {
    await look();
    say([error.message, error.hint].filter(Boolean).join(" · "));
  }
}

function open(job) {
  opened = job;
  $("#running-output").hidden = false;
  $("#running-title").replaceChildren(label(job.title));
  $("#running-text").textContent = "";
  $("#running-title").focus();
  read(job);
}

function close() {
  opened = null;
  clearTimeout(reading);
  $("#running-output").hidden = true;
}

async function read(job) {
  clearTimeout(reading);
  let again = true;
  try {
    const page = await ask(`/api/activity/${encodeURIComponent(job.server)}/${encodeURIComponent(job.target)}/output?offset=${job.offset}`);
    if (job !== opened) return;
    const node = $("#running-text");
    const atEnd = node.scrollHeight - node.scrollTop - node.clientHeight < 40;
    const gap = page.dropped > 0 && job.offset > 0 ? "\n(some output is not kept)\n" : "";
    node.textContent = (node.textContent + gap + page.text).slice(-MAX_SHOWN_CHARS);
    if (atEnd) node.scrollTop = node.scrollHeight;
    job.offset = page.next;
    again = page.running || page.text !== "";
    $("#running-state").textContent = page.running ? "running" : ended(page);
  } catch (error) {
    if (job !== opened) return;
    $("#running-state").textContent = error.status === 404 ? "ended" : error.message;
    again = error.status !== 404;
  }
  if (again && showing) reading = setTimeout(() => read(job), OUTPUT_MS);
}
