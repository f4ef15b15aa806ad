// Charts drawn by hand: tokens over time in three lanes, latencies on a scale of powers of ten, bars.

import { el, foreign, hour, clock, plural, short, svg, took, whole } from "/dom.js";

const LANES = [
  ["served", "Served"],
  ["withheld", "Withheld"],
  ["fetched_back", "Fetched back"],
];
const LANE = 56;
const HEAD = 18;
const FOOT = 20;
// Bars are at least this far apart, so an hour fits a phone.
const APART = 5;

// Returns a function that draws the last minutes of a summary's series.
export function overTime(place, readout) {
  let drawn = null;
  let cursor = null;
  let width = 0;

  const root = svg("svg", { role: "img", tabindex: 0, class: "lanes" });
  place.replaceChildren(root);
  new ResizeObserver(([entry]) => {
    width = Math.floor(entry.contentRect.width);
    redraw();
  }).observe(place);

  root.addEventListener("pointermove", (event) => point(Math.floor(event.offsetX / (width / drawn.bars.length))));
  root.addEventListener("pointerleave", () => point(null));
  root.addEventListener("blur", () => point(null));
  root.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by || !drawn) return;
    event.preventDefault();
    point((cursor ?? drawn.bars.length - (by < 0 ? 0 : 1)) + by);
  });

  function point(index) {
    if (!drawn) return;
    cursor = index === null ? null : Math.min(drawn.bars.length - 1, Math.max(0, index));
    redraw();
  }

  function redraw() {
    if (!drawn || width < 50) return;
    const { bars, step } = drawn;
    const each = width / bars.length;
    const height = LANES.length * (HEAD + LANE) + FOOT;
    root.setAttribute("viewBox", `0 0 ${width} ${height}`);
    root.setAttribute("height", height);
    const parts = LANES.flatMap(([key, name], lane) => {
      const top = lane * (HEAD + LANE) + HEAD;
      const peak = Math.max(0, ...bars.map((bar) => bar[key]));
      const d = bars.map((bar, index) => {
        if (!bar[key]) return "";
        const [left, wide] = [(index * each + 0.5).toFixed(1), (each - 1).toFixed(1)];
        const tall = Math.max(2, (bar[key] / peak) * (LANE - 8)).toFixed(1);
        return `M${left} ${top + LANE}v-${tall}h${wide}v${tall}z`;
      });
      return [
        svg("line", { class: "base", x1: 0, x2: width, y1: top + LANE + 0.5, y2: top + LANE + 0.5 }),
        svg("path", { class: `bars ${key}`, d: d.join("") }),
        svg("text", { class: "name", x: 0, y: top - 4 }, name),
        svg("text", { class: "peak", x: width, y: top - 4 }, peak ? `peak ${short(peak)}` : "none"),
      ];
    });
    const foot = height - 5;
    const ticks = [0, 0.5, 1].map((at) => svg("text", {
      class: `tick at${at * 2}`, x: at * width, y: foot,
    }, at === 1 ? "now" : hour((bars[0].at + at * bars.length * step) * 1000)));
    if (cursor !== null) {
      const x = (cursor + 0.5) * each;
      parts.push(svg("line", { class: "cursor", x1: x, x2: x, y1: 0, y2: height - FOOT }));
    }
    root.replaceChildren(...parts, ...ticks);
    tell();
  }

  function tell() {
    const { bars, minutes } = drawn;
    const said = cursor === null ? sum(bars) : bars[cursor];
    const when = cursor === null ? `Last ${minutes === 60 ? "hour" : `${minutes} minutes`}` : `From ${clock(said.at * 1000)}`;
    const parts = LANES.map(([key, name]) => el("span", {}, el("i", { class: `dot ${key}` }), `${whole(said[key])} ${name.toLowerCase()}`));
    readout.replaceChildren(el("span", {}, when), el("span", {}, plural(said.calls, "call")), ...parts);
    root.setAttribute("aria-label", `Tokens over time. ${readout.innerText}. Arrow keys read single moments.`);
  }

  return (series, minutes, now) => {
    const room = Math.max(1, Math.floor((width || 600) / APART));
    const steps = (minutes * 60) / series.step_s;
    const step = series.step_s * Math.ceil(steps / room);
    const count = Math.ceil((minutes * 60) / step);
    const newest = Math.floor(now / step) * step;
    const bars = Array.from({ length: count }, (_, index) => ({
      at: newest - (count - 1 - index) * step, calls: 0, served: 0, withheld: 0, fetched_back: 0,
    }));
    for (const { at, calls, tokens } of series.steps) {
      const bar = bars[Math.min(count - 1, count - 1 - (newest - Math.floor(at / step) * step) / step)];
      if (!bar) continue;
      bar.calls += calls;
      for (const [key] of LANES) bar[key] += tokens[key];
    }
    drawn = { bars, step, minutes };
    redraw();
  };
}

function sum(bars) {
  const total = { calls: 0, served: 0, withheld: 0, fetched_back: 0 };
  for (const bar of bars) for (const key of Object.keys(total)) total[key] += bar[key];
  return total;
}

// One row for each tool, slowest first: a mark at p50, a bar to p95.
export function latencies(tools) {
  const known = tools.filter((tool) => tool.latency_ms.p50 !== null).sort((a, b) => b.latency_ms.p95 - a.latency_ms.p95);
  const power = (ms) => Math.log10(Math.max(ms, 0.01));
  const low = Math.floor(Math.min(...known.map((tool) => power(tool.latency_ms.p50))));
  const high = Math.max(low + 1, Math.ceil(Math.max(...known.map((tool) => power(tool.latency_ms.p95)))));
  const at = (ms) => ((power(ms) - low) / (high - low)) * 100;
  const rows = known.map(({ tool, latency_ms: { p50, p95 } }) => {
    const grid = Array.from({ length: high - low - 1 }, (_, index) => svg("rect", {
      class: "grid", x: ((index + 1) / (high - low)) * 100, y: 0, width: 0.4, height: 10,
    }));
    const bar = svg("rect", { class: "reach", x: at(p50), y: 3, width: Math.max(1, at(p95) - at(p50)), height: 4 });
    const mark = svg("rect", { class: "middle", x: Math.min(98.6, at(p50)), y: 1, width: 1.4, height: 8 });
    return el("li", {},
      foreign(tool, "name"),
      svg("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" }, ...grid, bar, mark),
      el("span", { class: "n" }, `${took(p50)} · ${took(p95)}`));
  });
  const scale = el("p", { class: "scale", "aria-hidden": "true" }, el("span", {}, took(10 ** low)), el("span", {}, took(10 ** high)));
  return [el("ul", { class: "latencies" }, ...rows), scale];
}

// [name, count] as bars, longest first.
export function counts(list) {
  const most = Math.max(...list.map(([, count]) => count));
  return el("ul", { class: "counts" }, ...list.sort((a, b) => b[1] - a[1]).map(([name, count]) => el("li", {},
    foreign(name, "name"),
    svg("svg", { viewBox: "0 0 100 6", preserveAspectRatio: "none", "aria-hidden": "true" },
      svg("rect", { width: (count / most) * 100, height: 6 })),
    el("span", { class: "n" }, whole(count)))));
}
