// Changes: the entries of the history by call, by file or by session, and one of them with its diffs.

import { ask } from "/api.js";
import { $, bytes, el, foreign, label, moment, plural, pressed, whole } from "/dom.js";
import { table } from "/diff.js";
import * as undo from "/undo.js";

const PAGE = 50;
const FILES = 100;
// Diffs that are open from the start, until this many characters are shown.
const OPEN_CHARS = 40_000;
const NARROW = matchMedia("(max-width: 60rem)");

const SOURCES = { outside: "Change from outside", undo: "Undo" };
const ACTIONS = { created: ["+", "created"], changed: ["~", "changed"], deleted: ["−", "deleted"], moved: ["→", "moved"] };

let entries = [];
let next = null;
let grouping = "call";
let opened = null;
let detail = null;
// Groups that are open, and the entries that were asked for each.
const groups = new Map();

export function start() {
  $("#grouping").addEventListener("click", ({ target }) => {
    if (!target.dataset.group) return;
    grouping = target.dataset.group;
    groups.clear();
    pressed($("#grouping").children, target);
    list();
  });
  $("#older").addEventListener("click", older);
  $("#history").addEventListener("keydown", arrows);
  $("#undo").addEventListener("click", () => undo.open(detail, done));
  NARROW.addEventListener("change", () => detail && show(detail));
  undo.start();
}

export function clear() {
  [entries, next, opened, detail] = [[], null, null, null];
  groups.clear();
  undo.close();
  list();
  describe("Nothing opened", "Select an entry to see what it changed.");
}

// Shows the list, and the entry that the address names.
export async function enter(id) {
  const listed = refresh();
  if (id && id !== opened) {
    opened = id;
    mark();
    await load();
    $("#entry-title").focus();
  }
  await listed;
}

// The newest entries again; those that were loaded further down stay.
export async function refresh() {
  try {
    const page = await ask(`/api/history?limit=${PAGE}`);
    const fresh = new Set(page.entries.map(({ id }) => id));
    const joined = page.next === null || entries.some(({ id }) => fresh.has(id));
    const rest = joined && page.next !== null ? entries.filter(({ id }) => !fresh.has(id)) : [];
    if (!rest.length) next = page.next;
    const before = JSON.stringify(entries);
    entries = [...page.entries, ...rest];
    say("");
    if (JSON.stringify(entries) === before && $("#history").children.length) return;
    groups.clear();
    list();
    const own = entries.find(({ id }) => id === opened);
    if (detail && own && own.undone_by !== detail.undone_by) load();
  } catch (error) {
    say([error.message, error.hint].filter(Boolean).join(" · "));
  }
}

async function older() {
  try {
    const page = await ask(`/api/history?limit=${PAGE}&before=${encodeURIComponent(next)}`);
    entries.push(...page.entries);
    next = page.next;
    list();
  } catch (error) {
    say(error.message);
  }
}

function say(text) {
  const none = entries.length ? "" : "No changes yet. What calls change in the workspace appears here.";
  $("#history-note").textContent = text || none;
  $("#history-note").hidden = !$("#history-note").textContent;
}

function list() {
  const at = document.activeElement?.dataset?.key;
  const open = new Set([...document.querySelectorAll("#history details[open]")].map((group) => group.dataset.group));
  const body = grouping === "call" ? entries.map(item) : grouped().map(([name, title, own]) => group(name, title, own, open.has(name)));
  $("#history").replaceChildren(el("ul", { class: "history" }, ...body));
  $("#older").hidden = next === null;
  mark();
  if (at) [...document.querySelectorAll("#history [data-key]")].find(({ dataset }) => dataset.key === at)?.focus();
}

// [key, what is shown, entries] of each file or session, the one that changed last first.
function grouped() {
  const all = new Map();
  const add = (key, title, entry) => {
    if (!all.has(key)) all.set(key, [key, title, []]);
    const [, , own] = all.get(key);
    if (own.at(-1) !== entry) own.push(entry);
  };
  for (const entry of entries) {
    if (grouping === "session") {
      const outside = entry.source === "outside";
      const title = () => (outside ? ["Outside of calls"] : [label(entry.session || "no session", "id"), " ", foreign(entry.agent || "", "dim")]);
      add(outside ? "" : `session ${entry.session}`, title, entry);
    } else {
      for (const { path, from } of entry.files) {
        for (const name of [path, from]) if (name) add(`path ${name}`, () => [label(name, "path")], entry);
      }
    }
  }
  return [...all.values()];
}

// A group that can be opened. With older entries on the server, all of its entries are asked for then.
function group(key, title, own, open) {
  const body = el("ul", {}, ...(groups.get(key) ?? own).map(item));
  const count = next === null || groups.has(key) ? whole((groups.get(key) ?? own).length) : `${whole(own.length)}+`;
  const counted = el("span", { class: "dim n" }, count);
  const head = el("summary", { "data-key": key }, el("span", {}, ...title()), counted);
  const node = el("details", { "data-group": key }, head, body);
  node.open = open;
  node.addEventListener("toggle", async () => {
    const [kind, ...name] = key.split(" ");
    if (!node.open || next === null || groups.has(key) || !kind) return;
    try {
      const page = await ask(`/api/history?limit=${PAGE}&${kind}=${encodeURIComponent(name.join(" "))}`);
      groups.set(key, page.entries);
      body.replaceChildren(...page.entries.map(item));
      counted.textContent = `${whole(page.entries.length)}${page.next === null ? "" : "+"}`;
      mark();
    } catch (error) {
      say(error.message);
    }
  });
  return el("li", {}, node);
}

function item(entry) {
  const { id, time, files, agent, session } = entry;
  const counts = Object.entries(ACTIONS).map(([action, [sign, word]]) => {
    const count = entry.counts[action];
    return count ? el("span", { class: action, title: `${whole(count)} ${word}` }, `${sign}${whole(count)} `) : null;
  });
  const left = total(entry) - Math.min(3, files.length);
  const names = files.slice(0, 3).flatMap(({ path }, at) => [at ? ", " : "", label(path, "path")]);
  return el("li", {}, el("a", { href: `#changes/${encodeURIComponent(id)}`, "data-entry": id, "data-key": `entry ${id}`, class: undone(entry) ? "undone" : null },
    el("span", { class: "kind" }, name(entry), " ", foreign(entry.args || "", "dim")),
    el("time", { class: "dim n", datetime: time, title: time }, moment(time)),
    el("span", { class: "files" }, ...counts, ...names, left > 0 ? ` and ${whole(left)} more` : ""),
    el("span", { class: "dim n id" }, foreign(id)),
    el("span", { class: "marks" }, ...marks(entry), agent || session ? el("span", { class: "dim" }, foreign(agent || ""), " ", foreign(session || "", "id")) : null)));
}

const total = ({ counts }) => Object.values(counts).reduce((sum, count) => sum + count, 0);

// Whether everything was taken back.
const undone = (entry) => Boolean(entry.undone_by) && entry.undone >= total(entry);

function name(entry) {
  if (entry.source === "undo") {
    const [last, ...others] = entry.undoes;
    return el("strong", {}, "Undo", last ? ` of ${others.length ? `${others.at(-1)} to ${last}` : last}` : "");
  }
  return el("strong", {}, SOURCES[entry.source] ?? foreign(entry.tool || ""));
}

// What is special about an entry, in words.
function marks(entry) {
  const { source, shared, undone_by: by, not_kept: left, head, not_undoable: why } = entry;
  const all = [
    source === "outside" && ["outside", "outside", "Changed by another program, or by hand, between calls"],
    shared && ["shared", "shared", "Another writer was active meanwhile: some of these changes may be its"],
    by && ["undone", `${undone(entry) ? "" : "partly "}undone by ${by}`, "These changes were taken back"],
    why && ["kept", "not undoable", why],
    left && ["kept", `${whole(left)} not kept`, "Ignored, protected or too large: the content is not stored and cannot be restored"],
    head && ["head", "HEAD moved", `${head.before} → ${head.after}`],
  ];
  return all.filter(Boolean).map(([kind, text, title]) => el("span", { class: `mark ${kind}`, title }, text));
}

function mark() {
  for (const link of document.querySelectorAll("#history a")) {
    if (link.dataset.entry === opened) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
}

// Arrow keys go through the list, as Tab does.
function arrows(event) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!step) return;
  const stops = [...document.querySelectorAll("#history :is(a, summary)")].filter((node) => node.checkVisibility());
  const at = stops.indexOf(document.activeElement);
  if (at < 0) return;
  event.preventDefault();
  stops[Math.max(0, Math.min(stops.length - 1, at + step))].focus();
}

async function load(note = "") {
  const id = opened;
  try {
    const found = await ask(`/api/history/${encodeURIComponent(id)}`);
    if (id === opened) show(found, note);
  } catch (error) {
    if (id === opened) describe(id, [error.message, error.hint].filter(Boolean).join(" · "));
  }
}

// The entry that was opened. `note`: what has just been done.
function show(found, note = "") {
  detail = found;
  describe(found.id, note);
  $("#entry-title").replaceChildren(foreign(found.id, "id"), " ", name(found));
  $("#entry-marks").replaceChildren(...marks(found));
  const { head } = found;
  const facts = [
    ["Time", el("time", { datetime: found.time }, found.time)], ["Arguments", found.args && label(found.args)],
    ["Agent", found.agent && foreign(found.agent)], ["Session", found.session && label(found.session)],
    ["HEAD", head && foreign(`${head.before} → ${head.after}`, "id")],
    ["Undoes", found.undoes.length > 0 && el("span", {}, ...found.undoes.flatMap((id) => [link(id), " "]))], ["Undone by", found.undone_by && link(found.undone_by)],
    ["Not kept", found.not_kept > 0 && `${plural(found.not_kept, "file")}: ignored, protected or too large`],
    ["Not undoable", found.not_undoable && foreign(found.not_undoable)],
    ["Steps", found.steps?.length > 0 && el("ol", {}, ...found.steps.map((step) => el("li", {}, label(step))))],
  ];
  $("#entry-facts").replaceChildren(...facts.filter(([, value]) => value).flatMap(([term, value]) => [el("dt", {}, term), el("dd", {}, value)]));
  $("#undo").hidden = undo.restorable(found).length === 0;
  $("#undo").textContent = found.source === "undo" ? "Undo this undo…" : "Undo…";
  let chars = 0;
  const all = found.changes.map((change) => {
    chars += change.diff.length;
    const open = chars <= OPEN_CHARS;
    return () => file(change, open);
  });
  more(all);
  $("#entry-cut").hidden = !found.more_files;
  $("#entry-cut").textContent = `${plural(found.more_files, "file")} more: llmc history show ${found.id}`;
}

// Lays out the next files of the entry, each made by a function.
function more(all) {
  const shown = $("#entry-files").children.length;
  $("#entry-files").append(...all.slice(shown, shown + FILES).map((make) => make()));
  $("#more-files").hidden = shown + FILES >= all.length;
  $("#more-files").textContent = `Show more (${plural(all.length - shown - FILES, "file")} left)`;
  $("#more-files").onclick = () => more(all);
}

function link(id) {
  return el("a", { href: `#changes/${encodeURIComponent(id)}`, class: "id" }, id);
}

// One file of the entry; its diff is laid out when it is opened.
function file({ path, action, from, before, after, diff, note, shared, undone_by: by }, open) {
  const [sign, word] = ACTIONS[action] ?? ["?", action];
  const modes = before?.mode && after?.mode && before.mode !== after.mode ? `mode ${before.mode} → ${after.mode}` : "";
  const kinds = kind(before) !== kind(after) && kind(before) && kind(after) ? `${kind(before)} → ${kind(after)}` : "";
  const sizes = [before, after].map((state) => (state?.size === undefined || state.size === null ? null : bytes(state.size)));
  const size = sizes[0] && sizes[1] && sizes[0] !== sizes[1] ? sizes.join(" → ") : sizes[1] ?? sizes[0] ?? "";
  const about = [kinds || (kind(after) || kind(before)).replace(/^file$/, ""), modes, size].filter(Boolean).join(" · ");
  const body = el("div", { class: "body" });
  const node = el("details", { class: "file" },
    el("summary", {}, el("span", { class: `sign ${action}`, title: word }, sign), from ? label(from, "path") : "", from ? " → " : "", label(path, "path"),
      shared ? el("span", { class: "mark shared" }, "shared") : "", by ? el("span", { class: "mark undone" }, `undone by ${by}`) : "", el("span", { class: "dim n" }, word, about && ` · ${about}`)), body);
  const fill = () => {
    if (!node.open || body.children.length) return;
    if (note) body.append(el("p", { class: "about" }, foreign(note)));
    if (diff) body.append(...table(diff, !NARROW.matches, `Changes of ${path}`));
    else if (!note) body.append(el("p", { class: "about" }, "The content is the same."));
  };
  node.addEventListener("toggle", fill);
  node.open = open;
  fill();
  return node;
}

const KINDS = { file: "file", link: "symbolic link", dir: "directory" };

function kind(state) {
  return KINDS[state?.kind] ?? "";
}

function describe(title, about) {
  $("#entry-title").textContent = title;
  $("#entry-about").textContent = about;
  $("#entry-about").hidden = !about;
  for (const part of ["#undo", "#more-files", "#entry-cut"]) $(part).hidden = true;
  for (const part of ["#entry-marks", "#entry-facts", "#entry-files"]) $(part).replaceChildren();
}

// After an undo: its own entry is shown, and what it left to the person.
async function done({ entry, restored, git_command: command }) {
  const git = command ? ` HEAD stays where it is; to move it back: ${command}` : "";
  const note = `${plural(restored.length, "path")} restored.${git}`;
  const before = opened;
  opened = entry ?? before;
  if (entry) history.replaceState(null, "", `#changes/${encodeURIComponent(entry)}`);
  await Promise.all([load(note), refresh()]);
  $("#entry-title").focus();
}
