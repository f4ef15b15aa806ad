// The search box over the code index.

import { ask } from "/api.js";
import { $, el, foreign, plural } from "/dom.js";

const STATES = {
  none: "There is no code index: the files themselves were searched.",
  building: "The index is still being built: the files themselves were searched.",
};

// What the server adds, as a sentence of its own.
const because = (note) => note && `(${note})`;

let asked = 0;

export function start() {
  $("#ask").addEventListener("submit", (event) => {
    event.preventDefault();
    look($("#query").value.trim(), $("#scope").value);
  });
}

export function enter() {
  $("#query").focus();
}

export function clear() {
  $("#found").textContent = "";
  $("#snippets").replaceChildren();
}

async function look(q, scope) {
  if (!q) return;
  const mine = (asked += 1);
  $("#found").textContent = "Searching…";
  try {
    const answer = await ask("/rag/search", { body: scope ? { q, scope } : { q } });
    if (mine !== asked) return;
    const { snippets, index, freshness, note } = answer;
    const parts = [STATES[index], index === "building" ? null : because(note), snippets.length ? plural(snippets.length, "snippet") : "Nothing was found."];
    $("#found").textContent = parts.filter(Boolean).join(" ");
    const unverified = new Set(freshness?.unverified ?? []);
    $("#snippets").replaceChildren(...snippets.map((snippet) => el("li", {},
      el("p", {}, foreign(snippet.src, "src"), " ", foreign([snippet.kind, snippet.symbol].filter(Boolean).join(" "), "dim"),
        unverified.has(snippet.src) ? el("span", { class: "bad" }, " not verified") : null,
        el("span", { class: "dim n" }, Number(snippet.score).toFixed(2))),
      el("pre", { tabindex: 0 }, snippet.text))));
  } catch (error) {
    if (mine !== asked) return;
    $("#snippets").replaceChildren();
    $("#found").textContent = [error.message, error.hint].filter(Boolean).join(" · ");
  }
}
