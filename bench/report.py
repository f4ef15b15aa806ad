"""Numbers into tables, and tables into docs/benchmarks.md."""

import datetime
import os
import platform
import re
import statistics
import subprocess
import sys

from peers import REPOSITORY

DOCUMENT = REPOSITORY / "docs" / "benchmarks.md"


def table(head, rows):
    """A Markdown table; the first column is text, the others align right."""
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def milliseconds(seconds):
    """Seconds as text in milliseconds, to three digits or so."""
    value = seconds * 1000
    return f"{value:.1f} ms" if value < 100 else f"{value:,.0f} ms"


def megabytes(size):
    return f"{size / 1e6:.1f} MB"


def median_and_min(seconds):
    return f"{milliseconds(statistics.median(seconds))} ({milliseconds(min(seconds))})"


def ratio(ours, theirs):
    """How many times theirs ours takes, by the medians."""
    return statistics.median(ours) / statistics.median(theirs)


def verdict(met):
    return "met" if met else "**missed**"


def setting(bench, load):
    """When, where, with what, and how busy the machine was with other things."""
    versions = [f"LLMC {bench.versions['llmc']}"]
    if "ripgrep" in bench.versions:
        versions.append(f"ripgrep {bench.versions['ripgrep']}")
    if "desktop-commander" in bench.versions:
        versions.append(
            f"Desktop Commander {bench.versions['desktop-commander']} on Node {bench.versions['node']}"
        )
    if "filesystem" in bench.versions:
        versions.append(f"reference filesystem server {bench.versions['filesystem']}")
    kernel = ".".join(platform.release().split(".")[:2])
    cores = len(os.sched_getaffinity(0))
    today = datetime.datetime.now(datetime.timezone.utc).date()
    return (
        f"{today}; {cores} cores, {platform.machine()}, Linux {kernel}; {', '.join(versions)}; "
        f"{bench.runs} runs of each, taking turns; load average {load:.1f} when they began."
    )


def load():
    """How many processes are at work; warns when that is too many for good figures."""
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"warning: this machine is busy (load {load:.1f}); the figures will be rough", file=sys.stderr)
    return load


def rewrite(sections, document=DOCUMENT):
    """Puts each section between its markers in the document; pages that quote figures follow."""
    text = document.read_text()
    for name, section in sections.items():
        begin, end = f"<!-- bench:{name} -->", f"<!-- /bench:{name} -->"
        pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
        text, found = pattern.subn(lambda _: f"{begin}\n{section}\n{end}", text)
        if found != 1:
            raise SystemExit(f"{document} must have the markers of {name} once, has them {found} times")
    document.write_text(text)
    if document == DOCUMENT:
        subprocess.run([REPOSITORY / "scripts" / "readme-numbers"], check=True)
