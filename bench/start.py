"""From the start of a process to its answered `initialize`, and the memory it then holds."""

import statistics
import time

from mcp import Server, scratch
from report import median_and_min, megabytes, ratio, table, verdict

START_TARGET = 50
MEMORY_TARGET = 14e6
# Both get this long to finish what they begin in the background before their memory is read.
SETTLE = 0.5


def measure(bench):
    commands = {"LLMC": None, "Desktop Commander": bench.desktop_commander}
    times = {name: [] for name in commands}
    memory = {name: [] for name in commands}
    with scratch() as root, scratch() as home:
        commands["LLMC"] = bench.llmc_mcp(root)
        present = {name: command for name, command in commands.items() if command}
        for command in present.values():
            Server(command, home).close()
        for _ in range(bench.runs):
            for name, command in present.items():
                with Server(command, home) as server:
                    times[name].append(server.start_seconds)
                    time.sleep(SETTLE)
                    memory[name].append(server.memory())
    rows = []
    for name in present:
        size = {key: statistics.median(one[key] for one in memory[name]) for key in memory[name][0]}
        rows.append([name, median_and_min(times[name]), megabytes(size["private"]), megabytes(size["pss"])])
    lines = []
    if bench.desktop_commander:
        times_less = 1 / ratio(times["LLMC"], times["Desktop Commander"])
        lines.append(
            f"LLMC starts in 1/{times_less:.0f} of Desktop Commander's time; target ≤ 1/{START_TARGET}: "
            f"{verdict(times_less >= START_TARGET)}."
        )
    most = max(one["private"] for one in memory["LLMC"])
    lines.append(f"Most private memory of LLMC in any run: {megabytes(most)}; target ≤ 14 MB: {verdict(most <= MEMORY_TARGET)}.")
    head = ["server", "start to answer, median (min)", "private memory", "proportional (PSS)"]
    return table(head, rows) + "\n\n" + "\n".join(lines)
