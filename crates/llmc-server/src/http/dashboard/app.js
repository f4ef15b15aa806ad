// The page: the token, the event stream with its reconnects, the views, the theme.

import * as agents from "/agents.js";
import { ask, events, token } from "/api.js";
import * as calls from "/calls.js";
import * as changes from "/changes.js";
import { $, foreign } from "/dom.js";
import * as live from "/live.js";
import * as results from "/results.js";
import * as running from "/running.js";
import * as savings from "/savings.js";
import * as search from "/search.js";
import * as server from "/server.js";

const VIEWS = { live, agents, calls, running, savings, changes, results, search, server };
const THEMES = ["auto", "light", "dark"];
// A summary is asked for after calls, but not more often: it counts against the token's rate like any request.
const SUMMARY_MS = 2_500;
const IDLE_MS = 30_000;
const WAIT_MS = { first: 500, most: 15_000 };

let watching = null;
let view = "";
let summarised = 0;
let due = 0;
// Whether this server takes a token at all; one for the dashboard alone takes links only.
let takesToken = true;

function say(state, text) {
  $("#state").dataset.state = state;
  $("#state").textContent = text;
}

const sleep = (ms, signal) => new Promise((done) => {
  const timer = setTimeout(done, ms);
  signal.addEventListener("abort", () => { clearTimeout(timer); done(); }, { once: true });
});

// Reads the stream for as long as the token is good; `entered` is called when it first is.
async function watch(entered) {
  const stop = new AbortController();
  watching?.abort();
  watching = stop;
  let wait = WAIT_MS.first;
  while (!stop.signal.aborted) {
    let connected = false;
    let why = "Not connected";
    try {
      for await (const { kind, data } of events(stop.signal)) {
        if (!connected) {
          connected = true;
          wait = WAIT_MS.first;
          entered();
          say("on", "Live");
          await refresh();
        }
        if (kind === "call") {
          live.call(data);
          calls.fresh();
        }
        else if (kind === "gauges") live.beat(data);
        if (kind !== "gauges" || Date.now() - summarised > IDLE_MS) summarise();
      }
    } catch (error) {
      if (stop.signal.aborted) return;
      if (error.status === 401) return leave(token.get() ? "That token was not accepted." : "This server needs a token.");
      wait = Math.max(wait, error.wait ?? 0);
      why = error.status ? error.message : why;
    }
    if (stop.signal.aborted) return;
    say("off", `${why}; trying again`);
    await sleep(wait, stop.signal);
    wait = Math.min(wait * 2, WAIT_MS.most);
  }
}

async function refresh() {
  summarised = Date.now();
  try {
    const [health, summary] = await Promise.all([ask("/health"), ask("/api/summary?of=workspace")]);
    const { workspace, mode } = summary.server;
    document.title = `${workspace.split("/").pop()} · LLMC`;
    $("#where").replaceChildren(foreign(workspace.split("/").pop(), "name"), ` ${mode}`);
    server.confinement(health);
    server.facts(summary);
    live.show(summary);
    if (view === "changes") await changes.refresh();
  } catch {
    // The stream reports connection errors; a rate limit passes by itself.
    summarise();
  }
}

// Soon after a call, and then at intervals while there are more.
function summarise() {
  if (due) return;
  due = setTimeout(async () => {
    due = 0;
    if (watching && !watching.signal.aborted) await refresh();
  }, Math.max(150, summarised + SUMMARY_MS - Date.now()));
}

function enter() {
  $("#enter").hidden = true;
  $("#need-link").hidden = true;
  $("#refusal").textContent = "";
  $("#token").value = "";
  for (const part of ["#main", "#nav"]) $(part).hidden = false;
  $("#leave").hidden = token.get() === null;
  if (!view) route();
}

// Back to the token form, with a reason if there is one.
function leave(reason = "") {
  watching?.abort();
  watching = null;
  clearTimeout(due);
  due = 0;
  view = "";
  token.forget();
  Object.values(VIEWS).forEach((part) => part.clear());
  for (const part of ["#main", "#nav", "#leave"]) $(part).hidden = true;
  say("none", "");
  document.title = "LLMC";
  $("#where").replaceChildren();
  $("#enter").hidden = !takesToken;
  $("#need-link").hidden = takesToken;
  if (!takesToken) return $("#need-link-title").focus();
  $("#refusal").textContent = reason;
  $("#token").select();
  $("#token").focus();
}

// #live, #agents, #calls, #calls/CALL, #running, #savings, #changes, #changes/ENTRY, #results, #results/HANDLE, #search, #server
function route() {
  if ($("#main").hidden) return;
  const [name, rest] = location.hash.slice(1).split("/");
  VIEWS[view]?.leave?.();
  view = Object.hasOwn(VIEWS, name) ? name : "live";
  for (const part of document.querySelectorAll(".view")) part.hidden = part.id !== `view-${view}`;
  for (const link of $("#nav").children) {
    if (link.hash === `#${view}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  scrollTo(0, 0);
  VIEWS[view].enter?.(rest && decoded(rest));
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function theme(name) {
  if (name === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  localStorage.setItem("llmc-theme", name);
  $("#theme").textContent = `Theme: ${name}`;
}

$("#theme").addEventListener("click", () => {
  const at = THEMES.indexOf(localStorage.getItem("llmc-theme"));
  theme(THEMES[(Math.max(0, at) + 1) % THEMES.length]);
});
$("#leave").addEventListener("click", () => leave());
$("#enter").addEventListener("submit", (event) => {
  event.preventDefault();
  const given = $("#token").value.trim();
  // Others cannot be sent in a header.
  if (/[^\x21-\x7e]/.test(given)) return leave("A token has visible ASCII characters only.");
  token.set(given);
  say("none", "Connecting");
  watch(enter);
});
addEventListener("hashchange", route);

const kept = localStorage.getItem("llmc-theme");
theme(THEMES.includes(kept) ? kept : "auto");
Object.values(VIEWS).forEach((part) => part.start());
const session = await ask("/api/session").catch(() => ({}));
takesToken = session.takes_token ?? true;
if (token.get() === null && !session.signed_in) leave();
else watch(enter);
