// Savings: tokens that were served and kept out of contexts, by day, client, tool and upstream.

import { ask } from "/api.js";
import { $, el, foreign, plural, pressed, short, svg, whole } from "/dom.js";

let days = 30;

export function start() {
  $("#savings-days").addEventListener("click", ({ target }) => {
    if (!target.dataset.days) return;
    days = Number(target.dataset.days);
    pressed($("#savings-days").children, target);
    enter();
  });
}

export function clear() {
  for (const part of ["day", "client", "tool", "upstream"]) $(`#savings-${part}`).replaceChildren();
  $("#savings-note").textContent = "";
}

export async function enter() {
  const offset = -new Date().getTimezoneOffset();
  try {
    const found = await ask(`/api/savings?days=${days}&${offset < 0 ? "west" : "east"}=${Math.abs(offset)}`);
    const sum = found.days.reduce((all, { calls, tokens }) => ({
      calls: all.calls + calls, served: all.served + tokens.served, kept: all.kept + kept(tokens),
    }), { calls: 0, served: 0, kept: 0 });
    $("#savings-note").textContent = sum.calls
      ? `${plural(sum.calls, "call")}: ${whole(sum.kept)} tokens kept out of contexts, ${whole(sum.served)} served (${share(sum.kept, sum.served)} kept out).`
      : "No calls in this time.";
    table("day", "Day", [...found.days].reverse());
    table("client", "Client", found.clients);
    table("tool", "Tool", found.tools);
    ledgers(found.upstreams);
  } catch (error) {
    $("#savings-note").textContent = [error.message, error.hint].filter(Boolean).join(" · ");
  }
}

// What was fetched back was served after all.
const kept = ({ withheld, fetched_back: back }) => Math.max(0, withheld - back);
const share = (kept, served) => (kept + served ? `${Math.floor((kept / (kept + served)) * 1000) / 10} %` : "–");

function table(part, title, groups) {
  const most = Math.max(1, ...groups.map(({ tokens }) => kept(tokens) + tokens.served));
  const head = el("tr", {}, el("th", { scope: "col" }, title), el("th", { scope: "col", class: "wide" }, "Kept out and served"),
    el("th", { scope: "col", class: "n" }, "Kept out"), el("th", { scope: "col", class: "n" }, "Served"), el("th", { scope: "col", class: "n" }, "Share"),
    el("th", { scope: "col", class: "n" }, "Calls"));
  const rows = groups.map(({ name, calls, tokens }) => el("tr", {},
    el("th", { scope: "row" }, foreign(name || "unknown")), el("td", { class: "wide" }, bar(kept(tokens), tokens.served, most)),
    el("td", { class: "n w", "data-label": "kept out" }, short(kept(tokens))), el("td", { class: "n", "data-label": "served" }, short(tokens.served)),
    el("td", { class: "n", "data-label": "share" }, share(kept(tokens), tokens.served)), el("td", { class: "n dim", "data-label": "calls" }, whole(calls))));
  $(`#savings-${part}`).replaceChildren(groups.length
    ? el("table", { class: "savings" }, el("thead", {}, head), el("tbody", {}, ...rows))
    : el("p", { class: "empty" }, "Nothing yet."));
}

// The columns of an upstream's ledger, beside its name.
const LEDGER = [
  ["List avoided", ({ list_avoided: tokens }) => tokens], ["Served", ({ tokens }) => tokens.served],
  ["Withheld", ({ tokens }) => tokens.withheld], ["Fetched back", ({ tokens }) => tokens.fetched_back],
  ["Read by scripts", ({ read_by_scripts: tokens }) => tokens], ["Calls", ({ calls }) => calls],
];

function ledgers(upstreams) {
  const head = el("tr", {}, el("th", { scope: "col" }, "Upstream"), ...LEDGER.map(([title]) => el("th", { scope: "col", class: "n" }, title)));
  const rows = upstreams.map((ledger) => el("tr", {}, el("th", { scope: "row" }, foreign(ledger.upstream)),
    ...LEDGER.map(([title, read]) => el("td", { class: "n", "data-label": title.toLowerCase() }, short(read(ledger))))));
  $("#savings-upstream").replaceChildren(...(upstreams.length ? [
    el("h3", {}, "By upstream"),
    el("p", { class: "about" }, "List avoided: tokens of its tool list that conversations did not take. Read by scripts: tokens of answers that scripts read in a model's place."),
    el("table", { class: "savings" }, el("thead", {}, head), el("tbody", {}, ...rows)),
  ] : []));
}

function bar(kept, served, most) {
  const width = (count) => (count / most) * 100;
  return svg("svg", { viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("rect", { class: "kept", width: width(kept), height: 8 }),
    svg("rect", { class: "served", x: width(kept), width: width(served), height: 8 }));
}
