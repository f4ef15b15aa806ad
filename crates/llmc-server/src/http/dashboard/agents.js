// Agents: who works in this workspace, and what each is doing now.

import { ask, now } from "/api.js";
import { $, el, foreign, label, plural, short, span, took } from "/dom.js";

const EVERY_MS = 2_000;
const KINDS = { stdio: "MCP over stdio", http: "HTTP server", dashboard: "dashboard" };

let timer = 0;
let showing = false;

export function start() {}

export function clear() {
  leave();
  $("#agents").replaceChildren();
  $("#agents-earlier").replaceChildren();
}

export async function enter() {
  showing = true;
  await look();
}

export function leave() {
  showing = false;
  clearTimeout(timer);
}

async function look() {
  clearTimeout(timer);
  try {
    draw(await ask("/api/activity"));
  } catch (error) {
    $("#agents-note").textContent = error.message;
  }
  if (showing) timer = setTimeout(look, EVERY_MS);
}

function draw({ servers, sessions }) {
  const alive = new Map(servers.map((server) => [server.id, server]));
  const claimed = new Set();
  const all = sessions.map((session) => {
    const server = alive.get(session.server);
    const calls = (server?.calls ?? []).filter((call) => call.session === session.session && call.agent === session.agent);
    for (const call of calls) claimed.add(`${server.id} ${call.id}`);
    return { ...session, calls_total: session.calls, on: server, calls, state: calls.length ? "working" : server ? "idle" : "ended" };
  });
  // Agents whose first call has not ended yet, and clients that have not called at all.
  for (const server of servers) {
    for (const call of server.calls ?? []) {
      if (!claimed.has(`${server.id} ${call.id}`)) all.push({ ...call, server: server.id, on: server, calls: [call], state: "working" });
    }
    if (server.kind === "stdio" && !all.some(({ on }) => on === server)) all.push({ agent: "", session: "", server: server.id, on: server, calls: [], state: "idle" });
  }
  const order = { working: 0, idle: 1, ended: 2 };
  all.sort((a, b) => order[a.state] - order[b.state]);
  const here = all.filter(({ state }) => state !== "ended");
  const earlier = all.filter(({ state }) => state === "ended");
  const working = here.filter(({ state }) => state === "working").length;
  const silent = servers.filter(({ error }) => error);
  $("#agents-note").textContent = here.length
    ? `${plural(working, "agent")} working, ${here.length - working} idle${silent.length ? `; ${plural(silent.length, "server")} not answering` : ""}.`
    : "No agent is connected. Agents appear here when their client starts a server in this workspace.";
  $("#agents").replaceChildren(...here.map(card));
  $("#agents-earlier").hidden = earlier.length === 0;
  $("#agents-earlier").replaceChildren(el("h2", {}, "Earlier today"), el("ul", { class: "agents" }, ...earlier.map(card)));
}

// A server of one machine is named by its process, one that shares a database by its machine, which may be another one.
function gone(server) {
  return /^\d+-[0-9a-f]+$/.test(server) ? `ended, process ${server.split("-")[0]}` : `on another machine, or ended: server ${server}`;
}

function card({ agent, client, session, model, principal, server, on, calls: running, state, last_call: last, ...totals }) {
  const doing = running.map((call) => el("p", { class: "doing" }, el("span", { class: "mark working" }, "now"), " ",
    foreign(call.tool, "name"), " ", label(call.args === "{}" ? "" : call.args, "args"), " ", el("span", { class: "dim" }, `for ${took(call.elapsed_ms)}`)));
  const idle = last && el("p", { class: "doing" }, el("span", { class: "dim" }, `${span(now() - Date.parse(last.ts) / 1000)} ago `),
    el("a", { href: `#calls/${last.id}` }, foreign(last.tool)), " ", label(last.path ?? "", "path"), " ",
    foreign(last.status === "error" ? last.error_code ?? "error" : "", "bad"));
  const counted = totals.tokens && `${plural(totals.calls_total, "call")}${totals.errors ? `, ${plural(totals.errors, "error")}` : ""} · ${short(totals.tokens.served)} served · ${short(totals.tokens.withheld)} withheld`;
  return el("li", { "data-state": state },
    el("p", { class: "who" }, el("span", { class: "dot", title: state }), foreign(agent || "no calls yet", "name"), " ", foreign(client ?? "", "dim"), " ",
      el("span", { class: "dim" }, state)),
    ...(doing.length ? doing : [idle]),
    el("p", { class: "dim" }, on ? `${KINDS[on.kind] ?? "server"}, process ${on.pid}` : gone(String(server)),
      model && model !== "unknown" ? ` · ${model}` : "", principal && principal !== "local" ? ` · token ${principal}` : ""),
    session ? el("p", { class: "dim" }, label(session, "id")) : null,
    counted ? el("p", { class: "dim" }, counted) : null);
}
