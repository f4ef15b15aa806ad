// The server view: confinement, facts, the configuration with its sources.

import { ask } from "/api.js";
import { $, el, foreign, span, whole } from "/dom.js";

// What each word of the confinement line means for the programs that tools start, and what is missing without it.
const WALLS = [
  ["landlock", "Landlock", "writes stay in the roots", "does not restrict writes"],
  ["mntns", "Mounts", "own view of the files", "shared with the machine"],
  ["pidns", "Processes", "others are out of reach", "others can be seen"],
  ["userns", "Users", "no rights outside", "the server's rights"],
  ["netns", "Network", "closed", "open"],
  ["seccomp", "Seccomp", "risky system calls refused", "all system calls allowed"],
];
const PROTECTED = {
  mount: ["yes", "read-only mounts"],
  detect: ["partly", "changes are detected afterwards and undone"],
  none: ["no", "not protected"],
};

const SPOKEN = { yes: "enforced:", partly: "partly enforced:", no: "not enforced:" };

let entries = [];

export function start() {
  $("#filter").addEventListener("input", list);
  $("#changed").addEventListener("change", list);
}

export function clear() {
  entries = [];
  $("#entries").replaceChildren();
  $("#facts").replaceChildren();
}

export async function enter() {
  try {
    const { file, entries: all } = await ask("/api/config");
    entries = all;
    $("#config-file").replaceChildren(file ? foreign(file) : "no file: defaults, environment and flags");
    list();
  } catch (error) {
    $("#no-entries").hidden = false;
    $("#no-entries").textContent = error.message;
  }
}

function list() {
  const words = $("#filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const shown = entries.filter(({ key, value, source }) => {
    const text = `${key} ${value} ${source}`.toLowerCase();
    return words.every((word) => text.includes(word)) && !($("#changed").checked && source.startsWith("default"));
  });
  $("#entries").replaceChildren(...shown.map(entry));
  $("#no-entries").hidden = shown.length > 0;
  $("#no-entries").textContent = entries.length ? "No key matches." : "";
}

function entry({ key, value, source, secret }) {
  const note = secret ? "masked" : value === null ? "unset" : "";
  return el("tr", { class: source.startsWith("default") ? null : "set" },
    el("th", { scope: "row" }, foreign(key)),
    el("td", {}, value === null ? "" : foreign(value), note && el("span", { class: "dim" }, ` ${note}`)),
    el("td", {}, foreign(source)));
}

// `health` is the body of GET /health.
export function confinement({ confinement, profile }) {
  // What the kernel enforces comes before the first semicolon.
  const [level] = confinement.split(";");
  const words = new Map(level.split(",").map((word) => word.split("=")));
  const refused = level.startsWith("commands are refused");
  const held = level !== "none" && !refused;
  const rows = [];
  if (held) {
    for (const [word, name, there, missing] of WALLS) rows.push(words.has(word) ? ["yes", name, there] : ["no", name, missing]);
    if (words.has("hostproc")) rows.push(["no", "/proc", "the machine's own"]);
    const [state, note] = PROTECTED[words.get("protected")] ?? PROTECTED.none;
    rows.push([state, "Protected names", note]);
  }
  const mark = (state) => el("span", { class: "mark", role: "img", "aria-label": SPOKEN[state] });
  const verdict = () => el("p", { class: held || refused ? "about" : "bad" },
    refused ? "No program is started." : held ? "What confines the programs that tools start:" : "The programs that tools start are not confined.");
  const raw = () => el("p", { class: "raw" }, ...confinement.split(/(?<=,)/).flatMap((word) => [foreign(word), el("wbr")]));
  $("#walls").replaceChildren(
    held ? "" : verdict(),
    el("ul", { class: "chips" }, ...rows.map(([state, name, note]) => el("li", { "data-state": state, title: note },
      mark(state), state === "yes" ? name : `${name}: ${note}`))),
    raw());
  $("#confinement").replaceChildren(
    verdict(),
    el("ul", { class: "walls" }, ...rows.map(([state, name, note]) => el("li", { "data-state": state },
      mark(state), el("span", {}, name), el("span", { class: "dim" }, note)))),
    raw(),
    el("p", { class: "about" }, "Profile ", foreign(profile), profile === "unrestricted" ? ": the allowlist of programs is not a security boundary." : "."));
}

function progress({ index, index_error: error }, at) {
  if (at) return `${index}, ${whole(at.done)} of ${whole(at.total)} files`;
  return error ? `${index}: ${error}` : index;
}

export function facts({ server, gauges }) {
  const list = [
    ["Program", server.program], ["Workspace", server.workspace], ["Mode", server.mode],
    ["Writes", server.read_only ? "refused: read only" : "allowed"],
    ["Code index", progress(server, gauges.index_progress)], ["Your token", server.principal], ["Up", span(gauges.uptime_s)],
    ["Connections", whole(gauges.connections)], ["Event streams", whole(gauges.watchers)], ["In progress", whole(gauges.requests_in_progress)],
    ["Refused tokens", whole(gauges.auth_failures)], ["Over the rate", whole(gauges.rate_limited)], ["Not recorded", whole(gauges.events_dropped)],
  ];
  $("#facts").replaceChildren(...list.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, foreign(String(value)))]));
}
