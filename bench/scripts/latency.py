"""Scripts in `execute_code`: what one costs with and without an interpreter that waits, a block of a session, a thousand
calls from one script, and fifty scripts at once beside other work."""

import statistics
import time
from pathlib import Path

from mcp import Server, scratch
from report import median_and_min, milliseconds, table, verdict

READY_TARGET = 0.010
UNREADY_TARGET = 0.070
BLOCK_TARGET = 0.001
CALLS_TARGET = 0.300
CALLS_PER_RUN = 20
# For what a server begins when a client lists its tools, and after a script, to end.
SETTLE = 2.0
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
        ready = [first_script(command, SETTLE) for _ in range(bench.runs)]
        hasty = [first_script(command, 0) for _ in range(bench.runs)]
        with Server(command) as server:
            server.request("tools/list", {})
            timed(server, "print(1)", "1")
            idle, block = taking_turns(server, bench.runs)
            burst = [timed(server, "print(1)", "1") for _ in range(CALLS_PER_RUN)]
            calls = [timed(server, THOUSAND, "10000") for _ in range(bench.runs)]
            gathered = [timed(server, GATHERED, "10000") for _ in range(bench.runs)]
            alone, beside, took = crowd(server)
    over = statistics.median(block) - statistics.median(idle)
    rows = [
        ["`stat`, an idle tool call", median_and_min(idle)],
        ["`print(1)`, the first script, two seconds after the tools were listed", median_and_min(ready)],
        ["`print(1)`, the first script, at once", median_and_min(hasty)],
        [f"`print(1)`, {CALLS_PER_RUN} one after the other", median_and_min(burst)],
        ["`x + 1` in a session", median_and_min(block)],
        ["1,000 tool calls from one script, one after the other", median_and_min(calls)],
        ["1,000 tool calls from one script, awaited together", median_and_min(gathered)],
    ]
    first, next_one, thousand = statistics.median(ready), statistics.median(burst), statistics.median(calls)
    worst = max(beside)
    lines = [
        f"With an interpreter ready a script is answered in {milliseconds(first)}; target ≤ 10 ms: {verdict(first <= READY_TARGET)}. "
        f"Without, in a burst, in {milliseconds(next_one)}; target ≤ 70 ms: {verdict(next_one <= UNREADY_TARGET)}. A block in a "
        f"session takes {milliseconds(over)} more than an idle tool call; target ≤ 1 ms: {verdict(over <= BLOCK_TARGET)}. A "
        f"thousand calls take {milliseconds(thousand)}; target ≤ 300 ms: {verdict(thousand <= CALLS_TARGET)}.",
        f"{SCRIPTS_AT_ONCE} scripts at once, each with a loop and a call, are done in {took:.1f} s. Meanwhile `stat` is answered "
        f"in {milliseconds(statistics.median(beside))} in the median of {len(beside)} calls, {milliseconds(worst)} at worst "
        f"({milliseconds(statistics.median(alone))} alone); none waits for {STARVED:.2f} s: {verdict(worst < STARVED)}.",
    ]
    return table(["call", "median (min)"], rows) + "\n\n" + "\n\n".join(lines)


def first_script(command, pause):
    """Seconds of the first script of a fresh server whose tools were listed so long ago."""
    with Server(command) as server:
        server.request("tools/list", {})
        time.sleep(pause)
        return timed(server, "print(1)", "1")


def taking_turns(server, runs):
    """Seconds of idle calls and of blocks in a session."""
    idle, block = [], []
    server.call("execute_code", code="x = 1", session="bench")
    for turn in range(runs * CALLS_PER_RUN + 5):
        idle_seconds = server.call("stat", path="a.txt")[1]
        text, block_seconds = server.call("execute_code", code="x + 1", session="bench")
        if text != "2":
            raise RuntimeError(f"the block answered {text!r}")
        # The first few warm both up.
        if turn >= 5:
            idle.append(idle_seconds)
            block.append(block_seconds)
    return idle, block


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
