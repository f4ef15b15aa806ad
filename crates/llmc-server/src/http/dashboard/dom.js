// Elements and numbers as text. Whatever the server sends becomes a text node or an attribute, never markup.

export const $ = (selector) => document.querySelector(selector);

// el("td", { class: "n", title: "…" }, child or text, …)
export function el(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

// Text from outside: isolated, so that its writing direction does not affect its neighbours; whole on hover.
export function foreign(text, kind = "") {
  return el("bdi", { class: kind, title: text }, text);
}

// What would be invisible, or would reorder its neighbours: control characters but the tab, marks of direction, zero widths.
const UNSEEN = /([\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]+)/;
const NAMED = { "\n": "\\n", "\r": "\\r" };

// Text from outside as nodes that show every character of it.
export function visible(text) {
  return text.split(UNSEEN).map((part, at) => (at % 2 ? el("span", { class: "unseen" }, [...part].map(named).join("")) : part));
}

function named(char) {
  return NAMED[char] ?? `\\u{${char.codePointAt(0).toString(16)}}`;
}

// A path or another name from outside, isolated and with every character shown.
export function label(text, kind = "") {
  return el("bdi", { class: kind, title: text }, ...visible(text));
}

export function pressed(buttons, chosen) {
  for (const button of buttons) button.setAttribute("aria-pressed", String(button === chosen));
}

const WHOLE = new Intl.NumberFormat("en");
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
const HOUR = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });

export const whole = (number) => WHOLE.format(number ?? 0);
export const short = (number) => (number < 10_000 ? whole(number) : SHORT.format(number).replace("K", "k"));
export const plural = (number, word) => `${whole(number)} ${word}${number === 1 ? "" : "s"}`;
export const clock = (time) => CLOCK.format(new Date(time));
// The time of day, with the date unless that is today.
export const moment = (time) => (new Date(time).toDateString() === new Date().toDateString() ? clock(time) : DAY.format(new Date(time)));
export const hour = (time) => HOUR.format(new Date(time));

export function took(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms >= 9_995) return `${(ms / 1000).toFixed(0)} s`;
  if (ms >= 999.5) return `${(ms / 1000).toFixed(1)} s`;
  return `${ms.toFixed(ms < 1 ? 2 : ms < 9.95 ? 1 : 0)} ms`;
}

export function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB"];
  let unit = 0;
  for (; count >= 1024 && unit < 3; unit += 1) count /= 1024;
  return `${unit && count < 10 ? count.toFixed(1) : Math.round(count)} ${units[unit]}`;
}

// A length of time in its largest unit and the next.
export function span(seconds) {
  const left = Math.max(0, Math.floor(seconds));
  if (left < 60) return `${left} s`;
  if (left < 3600) return `${Math.floor(left / 60)} min`;
  if (left < 86_400) return `${Math.floor(left / 3600)} h ${Math.floor((left % 3600) / 60)} min`;
  return `${Math.floor(left / 86_400)} d ${Math.floor((left % 86_400) / 3600)} h`;
}
