"""Bars as SVG, drawn by hand: no library is needed to see a result."""

from xml.sax.saxutils import escape

COLOURS = ["#2563a8", "#e08a1e", "#9aa3ad"]
WIDTH, ROW, LEFT, TOP = 760, 14, 130, 56


def bars(title, groups, systems, values):
    """One group of bars for each label; `values` by group and system, from 0 to 1."""
    high = max(0.1, max(max(row) for row in values))
    step = len(systems) * ROW + 12
    height = TOP + len(groups) * step + 10
    scale = (WIDTH - LEFT - 70) / high
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="system-ui, sans-serif" font-size="12" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="20" font-size="15" fill="#1c2733">{escape(title)}</text>',
    ]
    for place, system in enumerate(systems):
        x = LEFT + place * 130
        parts.append(f'<rect x="{x}" y="32" width="11" height="11" fill="{COLOURS[place]}"/>')
        parts.append(f'<text x="{x + 16}" y="42" fill="#1c2733">{escape(system)}</text>')
    for row, (group, numbers) in enumerate(zip(groups, values)):
        top = TOP + row * step
        middle = top + len(systems) * ROW / 2 + 4
        parts.append(f'<text x="{LEFT - 8}" y="{middle:.0f}" text-anchor="end" fill="#1c2733">{escape(group)}</text>')
        for place, number in enumerate(numbers):
            y, length = top + place * ROW, max(1, number * scale)
            parts.append(f'<rect x="{LEFT}" y="{y}" width="{length:.1f}" height="{ROW - 2}" fill="{COLOURS[place]}"/>')
            parts.append(f'<text x="{LEFT + length + 5:.1f}" y="{y + ROW - 4}" font-size="10" fill="#1c2733">{number:.3f}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"
