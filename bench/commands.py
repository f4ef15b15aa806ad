"""One command, confined, against the same command without any confinement, and against Desktop Commander's."""

import json
import os
import statistics
import time

from mcp import Server, scratch
from report import median_and_min, milliseconds, ratio, table, verdict

OVERHEAD_TARGET = 0.005
FASTER_TARGET = 3
# A call is short: many of them make a steady median.
CALLS_PER_RUN = 20
# Those that take turns with Desktop Commander's, which are not.
TURNS_PER_RUN = 4
# Before each call of either server: what the other one still does after its answer is not to count.
PAUSE = 0.05


def measure(bench):
    allowed = 'mcp.tools.run_cmd_allowlist=["true", "echo"]'
    with scratch() as root, scratch() as home:
        # With the network off: that is every layer there is.
        command = [*bench.llmc_mcp(root), "--set", allowed, "--set", "mcp.tools.allow_outbound_network=false"]
        with Server(command, home) as llmc:
            confinement = llmc.call("health")[0]
            bare, confined = against_bare(llmc, bench.runs)
            ours, theirs = against_commander(llmc, bench, home)
    overhead = statistics.median(confined) - statistics.median(bare)
    rows = [
        ["fork and exec of `true` by the client", median_and_min(bare)],
        ['`run_cmd ["true"]`, confined', median_and_min(confined)],
        ['`run_cmd ["echo", "hi"]`, confined', median_and_min(ours)],
    ]
    lines = [f"Confinement and protocol cost {milliseconds(overhead)} more; target ≤ 5 ms: {verdict(overhead <= OVERHEAD_TARGET)}."]
    if theirs:
        rows.append(["Desktop Commander's `start_process` of `echo hi`, unconfined", median_and_min(theirs)])
        times = 1 / ratio(ours, theirs)
        lines.append(f"LLMC answers `echo hi` {times:.1f} × faster; target ≥ {FASTER_TARGET} ×: {verdict(times >= FASTER_TARGET)}.")
    lines.append(f"\nIn force: `{level(confinement)}`.")
    return table(["command", "median (min)"], rows) + "\n\n" + "\n".join(lines)


def against_bare(llmc, runs):
    """Seconds of each call and of each bare start, taking turns."""
    bare, confined = [], []
    for turn in range(runs * CALLS_PER_RUN + 5):
        seconds = spawn("/bin/true"), llmc.call("run_cmd", argv=["true"])[1]
        # The first few warm both up.
        if turn >= 5:
            bare.append(seconds[0])
            confined.append(seconds[1])
    return bare, confined


def against_commander(llmc, bench, home):
    """Seconds of `echo hi` by either server, taking turns."""
    ours, theirs = [], []
    if not bench.desktop_commander:
        for _ in range(bench.runs * TURNS_PER_RUN):
            time.sleep(PAUSE)
            ours.append(llmc.call("run_cmd", argv=["echo", "hi"])[1])
        return ours, theirs
    with Server(bench.desktop_commander, home) as commander:
        for turn in range(bench.runs * TURNS_PER_RUN + 2):
            time.sleep(PAUSE)
            text, mine = llmc.call("run_cmd", argv=["echo", "hi"])
            assert text == "hi\n", text
            time.sleep(PAUSE)
            text, other = commander.call("start_process", command="echo hi", timeout_ms=5000)
            assert "hi" in text, text
            if turn >= 2:
                ours.append(mine)
                theirs.append(other)
    return ours, theirs


def spawn(program):
    """Seconds to start a program and see it end, by the cheapest way there is."""
    started = time.perf_counter()
    os.waitpid(os.posix_spawn(program, [program], {}), 0)
    return time.perf_counter() - started


def level(health):
    """The level in what `health` says."""
    return json.loads(health)["confinement"].partition(";")[0]
