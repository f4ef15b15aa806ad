"""Bar charts as SVG, written by hand: no library, no fonts of their own, legible on light and dark pages."""

import math
from xml.sax.saxutils import escape

from report import DOCUMENT

LLMC, LLMC_TOO, RIVAL, RIVAL_TOO, OTHER = "#0a7d5a", "#57b894", "#c2410c", "#f0a370", "#64748b"
INK, QUIET, RULE = "#1f2937", "#6b7280", "#e5e7eb"
WIDTH, LABELS, RIGHT, BAR, GAP = 860, 250, 90, 15, 14


def put(name, picture):
    """Writes a picture beside the document; returns the Markdown that shows it."""
    title, svg = picture
    folder = DOCUMENT.parent / "bench"
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.svg").write_text(svg)
    return f"\n\n![{title}](bench/{name}.svg)"


def groups(title, names, series, colours, log=False):
    """A group of bars for each name, a bar for each series; None is no bar."""
    top = max(value for values in series.values() for value in values if value)
    least = min(value for values in series.values() for value in values if value) if log else 0
    low = 10 ** math.floor(math.log10(least)) if log else 0
    span = WIDTH - LABELS - RIGHT

    def length(value):
        if log:
            return span * (math.log10(value / low) / math.log10(top / low))
        return span * value / top

    parts, y = [], 62 + 18 * ((len(series) - 1) // 3)
    for place, name in enumerate(names):
        there = [(index, values[place]) for index, values in enumerate(series.values()) if values[place] is not None]
        middle = y + len(there) * BAR / 2 + 4
        parts.append(text(LABELS - 12, middle, name, anchor="end"))
        for index, value in there:
            parts.append(bar(LABELS, y, max(length(value), 1), colours[index]))
            parts.append(text(LABELS + max(length(value), 1) + 6, y + 11, number(value), size=11, colour=QUIET))
            y += BAR
        y += GAP
    return title, frame(title, series, colours, parts, y)


def stacks(title, names, series, colours):
    """One bar for each name, in as many parts as there are series."""
    totals = [sum(values[place] for values in series.values()) for place in range(len(names))]
    span = WIDTH - LABELS - RIGHT
    parts, y = [], 62
    for place, name in enumerate(names):
        parts.append(text(LABELS - 12, y + 16, name, anchor="end"))
        x = LABELS
        for index, values in enumerate(series.values()):
            size = span * values[place] / max(totals)
            parts.append(bar(x, y, size, colours[index], height=22))
            x += size
        parts.append(text(x + 6, y + 16, number(totals[place]), size=12, colour=QUIET))
        y += 22 + GAP
    return title, frame(title, series, colours, parts, y)


def frame(title, series, colours, parts, height):
    legend, x, y = [], 20, 46
    for index, name in enumerate(series):
        if index and index % 3 == 0:
            x, y = 20, y + 18
        legend.append(bar(x, y - 9, 10, colours[index], height=10))
        legend.append(text(x + 15, y, name, size=12))
        x += 280
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" height="{height:.0f}" '
        f'role="img" font-family="system-ui, sans-serif">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{height:.0f}" rx="8" fill="#ffffff" stroke="{RULE}"/>',
        text(20, 24, title, size=15, weight="600"),
        *legend, *parts,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def bar(x, y, width, colour, height=BAR - 2):
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height}" fill="{colour}"/>'


def text(x, y, words, size=13, colour=INK, anchor="start", weight="400"):
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" text-anchor="{anchor}" '
        f'font-weight="{weight}">{escape(words)}</text>'
    )


def number(value):
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if isinstance(value, float) else str(value)
