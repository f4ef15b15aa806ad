"""What an enveloped answer takes longer than the command itself, on outputs of up to 10 MB."""

import json
import os
import statistics
import sys
import time

from corpus import Entry, tool
from report import load, median_and_min, table, verdict

SHARE = 0.10
SECONDS = 0.1
SIZES = [100_000, 1_000_000, 10_000_000]
# The target speaks of outputs up to here, with some room for line ends; larger ones are shown beside it.
JUDGED = 11_000_000


def measure(door, runs):
    rows, worst, busy = [], True, load()
    for entry in entries(door.world):
        door.serve(entry)
        size = len(door.output(entry))
        plain, served = [], []
        for _ in range(runs):
            if entry.tool and "path" in entry.tool[1]:
                # Else the server would know that it has stored this file before.
                os.utime(door.world / entry.tool[1]["path"])
            started = time.perf_counter()
            door.output(entry)
            plain.append(time.perf_counter() - started)
            served.append(door.serve(entry)[1])
        extra = statistics.median(served) - statistics.median(plain)
        allowed = max(SHARE * statistics.median(plain), SECONDS)
        judged = size <= JUDGED
        worst = worst and (extra <= allowed or not judged)
        rows.append([
            entry.name, f"{size / 1e6:.1f} MB", median_and_min(plain), median_and_min(served),
            f"{extra * 1000:+.0f} ms", f"{allowed * 1000:.0f} ms", verdict(extra <= allowed) if judged else "larger than asked",
        ])
        print(f"{entry.name}: {extra * 1000:+.0f} ms", file=sys.stderr, flush=True)
    door.close()
    head = ["command", "output", "alone, median (min)", "enveloped, median (min)", "added", "allowed", "target"]
    return table(head, rows) + (
        f"\n\n{runs} runs of each, taking turns; {len(os.sched_getaffinity(0))} cores, load average {busy:.1f} when they "
        "began. Alone: the process is started and its output read to the end. "
        "Enveloped: the call over MCP to a running server, which confines the process, condenses its output and stores "
        f"it. Target for outputs of up to 10 MB: at most {SHARE:.0%} or {SECONDS * 1000:.0f} ms more, whichever is larger: {verdict(worst)}."
    )


def entries(world):
    """Commands whose outputs have these sizes."""
    found = []
    line = "{n:07} INFO worker-{w} finished the step in {ms} ms without anything to report\n"
    for size in SIZES:
        path = world / f"sized-{size}.log"
        with open(path, "w") as file:
            written = number = 0
            while written < size:
                number += 1
                written += file.write(line.format(n=number, w=number % 9, ms=number * 7 % 100))
        name = path.name
        found.append(Entry(f"cat, {size // 1000:,} kB", ["cat", name], [], tool("te_cat", path=name)))
        found.append(Entry(f"run_cmd cat, {size // 1000:,} kB", ["cat", name], []))
        found.append(Entry(f"grep, {size // 1000:,} kB", ["grep", "-n", "INFO", name], [], tool("te_grep", pattern="INFO", path=name)))
    (world / "sized.json").write_text(json.dumps(
        [{"id": n, "name": f"item {n}", "tags": ["a", "b"], "price": {"amount": n / 7, "currency": "EUR"}} for n in range(50_000)],
        indent=1,
    ))
    found.append(Entry("cat, JSON", ["cat", "sized.json"], [], tool("te_cat", path="sized.json")))
    found.append(Entry("diff, two releases", ["diff", "-ruN", "versions/old", "versions/new"], [], tool("te_diff", a="versions/old", b="versions/new")))
    found.append(Entry("git log -p, all", ["git", "log", "-p"], [], cwd="repo"))
    found.append(Entry("diff -ru, two releases", ["diff", "-ru", "versions/old", "versions/new"], []))
    return found
