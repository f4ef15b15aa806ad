"""Scripts in `execute_code`: what one costs cold and warm, a thousand calls from one, and fifty at once beside other work."""

import statistics
import time
from pathlib import Path

from mcp import Server, scratch
from report import median_and_min, milliseconds, table, verdict

COLD_TARGET = 0.015
WARM_TARGET = 0.002
CALLS_TARGET = 1.0
CALLS_PER_RUN = 20
# Let what a server begins in the background end before it is asked.
SETTLE = 0.3
SCRIPTS_AT_ONCE = 50
# Each of them computes for about this long, so that they would fill every core for seconds.
BUSY = "x = 0\nfor i in range(300_000): x += i\nprint(x, tools.stat('a.txt')['size'])"
# What another call may take beside them before it counts as starved.
STARVED = 0.25
THOUSAND = "n = 0\nfor i in range(1000): n += tools.stat('a.txt')['size']\nprint(n)"
GATHERED = (
    "import asyncio\n"
    "r = await asyncio.gather(*[tools.aio.stat('a.txt') for i in range(1000)])\n"
    "print(sum(x['size'] for x in r))"
)


def measure(bench):
    with scratch() as root:
        (Path(root) / "a.txt").write_text("some text\n")
        command = [*bench.llmc_mcp(root), "--set", "mcp.code_execution.max_tool_calls=2000"]
        cold = [first_script(command) for _ in range(bench.runs)]
        with Server(command) as server:
            idle, warm = taking_turns(server, bench.runs)
            calls = [timed(server, THOUSAND, "10000") for _ in range(bench.runs)]
            gathered = [timed(server, GATHERED, "10000") for _ in range(bench.runs)]
            alone, beside, took = crowd(server)
    over = statistics.median(warm) - statistics.median(idle)
    rows = [
        ["`stat`, an idle tool call", median_and_min(idle)],
        ["`print(1)`, the server's first script", median_and_min(cold)],
        ["`print(1)`, later ones", median_and_min(warm)],
        ["1,000 tool calls from one script, one after the other", median_and_min(calls)],
        ["1,000 tool calls from one script, awaited together", median_and_min(gathered)],
    ]
    first, thousand = statistics.median(cold), statistics.median(calls)
    worst = max(beside)
    lines = [
        f"The first script is answered in {milliseconds(first)}; target ≤ 15 ms: {verdict(first <= COLD_TARGET)}. A later one "
        f"takes {milliseconds(over)} more than an idle tool call; target ≤ 2 ms: {verdict(over <= WARM_TARGET)}. A thousand calls "
        f"take {milliseconds(thousand)}; target ≤ 1 s: {verdict(thousand <= CALLS_TARGET)}.",
        f"{SCRIPTS_AT_ONCE} scripts at once, each with a loop and a call, are done in {took:.1f} s. Meanwhile `stat` is answered "
        f"in {milliseconds(statistics.median(beside))} in the median of {len(beside)} calls, {milliseconds(worst)} at worst "
        f"({milliseconds(statistics.median(alone))} alone); none waits for {STARVED:.2f} s: {verdict(worst < STARVED)}.",
    ]
    return table(["call", "median (min)"], rows) + "\n\n" + "\n\n".join(lines)


def first_script(command):
    """Seconds of the first script of a fresh server."""
    with Server(command) as server:
        server.call("stat", path="a.txt")
        time.sleep(SETTLE)
        return timed(server, "print(1)", "1")


def taking_turns(server, runs):
    """Seconds of idle calls and of short scripts."""
    idle, warm = [], []
    for turn in range(runs * CALLS_PER_RUN + 5):
        seconds = server.call("stat", path="a.txt")[1], timed(server, "print(1)", "1")
        # The first few warm both up.
        if turn >= 5:
            idle.append(seconds[0])
            warm.append(seconds[1])
    return idle, warm


def crowd(server):
    """Seconds of a short call without and beside many scripts, and how long those take."""
    alone = [server.call("stat", path="a.txt")[1] for _ in range(50)]
    started = time.perf_counter()
    waiting = {server.send("tools/call", {"name": "execute_code", "arguments": {"code": BUSY}}) for _ in range(SCRIPTS_AT_ONCE)}
    beside = []
    while waiting:
        asked = time.perf_counter()
        number = server.send("tools/call", {"name": "stat", "arguments": {"path": "a.txt"}})
        while (answer := server.next_answer()).get("id") != number:
            done(answer)
            waiting.discard(answer.get("id"))
        done(answer)
        beside.append(time.perf_counter() - asked)
        time.sleep(0.01)
    return alone, beside, time.perf_counter() - started


def done(answer):
    if "error" in answer or answer.get("result", {}).get("isError"):
        raise RuntimeError(f"the server answered {answer}")


def timed(server, code, printed):
    text, seconds = server.call("execute_code", code=code)
    if text != printed:
        raise RuntimeError(f"the script printed {text!r}, not {printed!r}")
    return seconds
