// A unified diff as a table: both sides beside each other, or one column where the page is narrow.

import { el, plural, visible } from "/dom.js";

// More rows are laid out when they are asked for.
const SHOWN_ROWS = 1_500;
// Parts of two lines are marked when at least this share of them is the same.
const ALIKE = 0.3;

const HUNK = /^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@ ?(.*)$/;

// [{ gap: text }, { same: [old, new] }, { removed: [line], added: [line] }], a line being { number, text, bare }. Lines
// count only inside the hunk that announced them, so that a file's own `--- ` or `@@` is content.
export function blocks(unified) {
  const all = [];
  let [oldLeft, newLeft, oldAt, newAt, last] = [0, 0, 0, 0, null];
  const changed = () => {
    const block = all.at(-1);
    if (block?.removed) return block;
    all.push({ removed: [], added: [] });
    return all.at(-1);
  };
  for (const text of unified.replace(/\n$/, "").split("\n")) {
    const [sign, rest] = [text.slice(0, 1), text.slice(1)];
    if (sign === "\\" && last) {
      last.bare = true;
    } else if (oldLeft <= 0 && newLeft <= 0) {
      const hunk = HUNK.exec(text);
      if (!hunk) continue;
      [oldAt, oldLeft, newAt, newLeft] = [hunk[1], hunk[2] ?? 1, hunk[3], hunk[4] ?? 1].map(Number);
      all.push({ gap: `Line ${newAt || oldAt}${hunk[5] && `, ${hunk[5]}`}` });
    } else if (sign === "-") {
      last = { number: oldAt++, text: rest };
      oldLeft -= 1;
      changed().removed.push(last);
    } else if (sign === "+") {
      last = { number: newAt++, text: rest };
      newLeft -= 1;
      changed().added.push(last);
    } else {
      // Ends of lines matter where they change.
      const same = rest.replace(/\r$/, "");
      last = { number: newAt++, text: same };
      all.push({ same: [{ number: oldAt++, text: same }, last] });
      oldLeft -= 1;
      newLeft -= 1;
    }
  }
  return all;
}

// `sides`: whether both sides are beside each other.
export function table(unified, sides, name) {
  const rows = blocks(unified).flatMap((block) => (sides ? beside : below)(block));
  const body = el("tbody");
  let shown = 0;
  const more = el("button", { type: "button", class: "quiet" });
  const show = () => {
    body.append(...rows.slice(shown, shown + SHOWN_ROWS).map((row) => row()));
    shown = Math.min(rows.length, shown + SHOWN_ROWS);
    more.hidden = shown === rows.length;
    more.textContent = `Show more (${plural(rows.length - shown, "line")} left)`;
  };
  more.addEventListener("click", show);
  show();
  const widths = (sides ? ["number", "text", "number", "text"] : ["number", "number", "text"]).map((kind) => el("col", { class: kind }));
  return [el("table", { class: sides ? "diff sides" : "diff", "aria-label": name }, el("colgroup", {}, ...widths), body), more];
}

// Rows are functions, so that only those that are shown are made.
function beside({ gap, same, removed = [], added = [] }) {
  if (gap !== undefined) return [() => el("tr", { class: "gap" }, el("td", { colspan: 4 }, ...visible(gap)))];
  if (same) return [() => el("tr", {}, ...side(same[0]), ...side(same[1]))];
  return Array.from({ length: Math.max(removed.length, added.length) }, (_, at) => () => {
    const parts = marked(removed[at], added[at]);
    return el("tr", {}, ...side(removed[at], "removed", parts?.[0]), ...side(added[at], "added", parts?.[1]));
  });
}

function below({ gap, same, removed = [], added = [] }) {
  if (gap !== undefined) return [() => el("tr", { class: "gap" }, el("td", { colspan: 3 }, ...visible(gap)))];
  if (same) return [() => el("tr", {}, number(same[0]), ...side(same[1]))];
  return [
    ...removed.map((line, at) => () => {
      const [before, text] = side(line, "removed", marked(line, added[at])?.[0]);
      return el("tr", {}, before, el("td", { class: "removed" }), text);
    }),
    ...added.map((line, at) => () => el("tr", {}, el("td", { class: "added" }), ...side(line, "added", marked(removed[at], line)?.[1]))),
  ];
}

// The number and the text of one side; `parts` are what is before, in and after the changed part of the line.
function side(line, kind = "", parts = null) {
  if (!line) return [el("td", { class: "number none" }), el("td", { class: "text none" })];
  const [before, middle, after] = parts ?? [line.text, "", ""];
  const mark = middle && el(kind === "added" ? "ins" : "del", {}, ...visible(middle));
  const end = line.bare ? el("span", { class: "dim" }, " (no newline at the end)") : "";
  return [number(line, kind), el("td", { class: `text ${kind}` }, ...visible(before), mark, ...visible(after), end)];
}

function number(line, kind = "") {
  return el("td", { class: `number ${kind}` }, String(line.number));
}

// Both lines cut into what is the same before, what differs, and what is the same after; null when little is the same.
function marked(old, now) {
  if (!old || !now) return null;
  const [a, b] = [old.text, now.text];
  const least = Math.min(a.length, b.length);
  let head = 0;
  while (head < least && a[head] === b[head]) head += 1;
  if (halves(a, head) || halves(b, head)) head -= 1;
  let tail = 0;
  while (tail < least - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail += 1;
  if (halves(a, a.length - tail) || halves(b, b.length - tail)) tail -= 1;
  if (head + tail < ALIKE * Math.max(a.length, b.length)) return null;
  return [a, b].map((text) => [text.slice(0, head), text.slice(head, text.length - tail), text.slice(text.length - tail)]);
}

// Whether a cut here would part the two halves of one character.
function halves(text, at) {
  const code = text.charCodeAt(at);
  return at > 0 && code >= 0xdc00 && code <= 0xdfff;
}
