// Undo, after a look at what it would do. Nothing is forced: what has changed since is left as it is and named.

import { ask } from "/api.js";
import { $, el, foreign, label, plural } from "/dom.js";

// The entry that is asked about, what would happen to it, and who is told when it was undone.
let entry = null;
let plan = null;
let told = null;
// Answers to an earlier question are not shown.
let asked = 0;

export function start() {
  $("#undo-cancel").addEventListener("click", close);
  $("#undo-confirm").addEventListener("click", confirm);
  $("#undo-files").addEventListener("change", look);
  $("#undo-dialog").addEventListener("close", () => { asked += 1; });
}

export function close() {
  $("#undo-dialog").close();
}

// The changes of an entry that can be taken back.
export const restorable = ({ changes }) => changes.filter(({ kept, undone_by: by }) => kept && !by);

export function open(detail, then) {
  [entry, told] = [detail, then];
  $("#undo-title").textContent = `Undo ${entry.id}?`;
  const files = restorable(entry);
  $("#undo-shared").hidden = !entry.shared;
  // One file needs no choice, unless it may be another writer's.
  $("#undo-files").hidden = files.length < 2 && !entry.shared;
  $("#undo-files").replaceChildren(...files.map(({ path, from }, at) => {
    const box = el("input", { type: "checkbox", value: String(at) });
    box.checked = !entry.shared;
    return el("li", {}, el("label", {}, box, el("span", {}, from ? label(from, "path") : "", from ? " → " : "", label(path, "path"))));
  }));
  $("#undo-dialog").showModal();
  look();
}

// The paths of these changes: both of what was moved.
const pathsOf = (changes) => changes.flatMap(({ path, from }) => (from ? [path, from] : [path]));

// The chosen changes.
function chosen() {
  const boxes = [...document.querySelectorAll("#undo-files input")];
  return restorable(entry).filter((_, at) => boxes[at].checked);
}

// The body of a request: paths are named when not all are meant, or when each of shared ones was chosen.
function body(changes, dry_run) {
  const all = changes.length === entry.changes.length && !entry.more_files && !entry.shared;
  return { ...(all ? {} : { paths: pathsOf(changes) }), dry_run, atomic: !dry_run };
}

const request = (sent) => ask(`/api/history/${encodeURIComponent(entry.id)}/undo`, { body: sent });

// Asks what would happen, and shows it.
async function look() {
  const mine = (asked += 1);
  const changes = chosen();
  plan = null;
  $("#undo-plan").replaceChildren();
  $("#undo-confirm").disabled = true;
  if (changes.length === 0) return say("Choose the files to restore.");
  say("Checking…");
  try {
    const found = await request(body(changes, true));
    if (mine !== asked) return;
    plan = found;
    tell(changes);
  } catch (error) {
    if (mine === asked) failed(error);
  }
}

function tell(changes) {
  const { restored, conflicts } = plan;
  const skipped = plan.shared.map((path) => ({ path, why: "another writer was active when it changed" }));
  const left = [...conflicts, ...skipped, ...plan.not_kept];
  const names = new Set(left.map(({ path }) => path));
  plan.changes = changes.filter((change) => !pathsOf([change]).some((path) => names.has(path)));
  say(restored.length ? `Would restore ${plural(restored.length, "path")}; files that changed since are left as they are.` : "Nothing can be restored.");
  $("#undo-plan").replaceChildren(
    restored.length ? el("h3", {}, "Restored") : "", el("ul", {}, ...restored.map((path) => el("li", {}, label(path, "path")))),
    left.length ? el("h3", { class: "bad" }, `${conflicts.length ? "Conflicts" : "Not restorable"}: left as they are`) : "",
    el("ul", { class: "conflicts" }, ...left.map(({ path, why }) => el("li", {}, label(path, "path"), el("p", { class: "dim" }, foreign(why))))),
    plan.git_command ? el("p", { class: "about" }, "HEAD is not moved. Afterwards run: ", el("code", {}, foreign(plan.git_command))) : "");
  $("#undo-confirm").textContent = left.length ? `Undo ${plural(restored.length, "path")}, leave ${left.length}` : `Undo ${plural(restored.length, "path")}`;
  $("#undo-confirm").disabled = restored.length === 0;
}

// What was shown, or nothing: if another file has changed meanwhile, the server refuses and the new state is shown.
async function confirm() {
  $("#undo-confirm").disabled = true;
  const mine = (asked += 1);
  try {
    const done = await request(body(plan.changes, false));
    close();
    told(done);
  } catch (error) {
    if (mine !== asked) return;
    if (error.status !== 409) return failed(error);
    await look();
    say(`Nothing was changed: ${error.message}`);
  }
}

function failed(error) {
  say([error.message, error.hint].filter(Boolean).join(" · "), "bad");
}

function say(text, kind = "") {
  $("#undo-say").textContent = text;
  $("#undo-say").className = `about ${kind}`;
}
