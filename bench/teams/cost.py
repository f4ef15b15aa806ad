"""What the shared store costs against SQLite files, and what three servers do more than one."""

import asyncio
import contextlib
import os
import re
import statistics
import time

from client import Client
from service import Server, Team, team_folder

# The audit is compared by nothing: without a shared store it is a file that no answer waits for.
QUIET = {
    "mcp.observability.csv_token_audit_enabled": "false",
    "mcp.limits.rate_limit_rps": "1000000",
    "mcp.limits.rate_limit_burst": "1000000",
    "mcp.limits.concurrency_per_token": "1000",
}
WARM_UP = 20
SCALE_CLIENTS = 72
SCALE_SECONDS = 12.0
SCALE_DELAY = 0.05
# Calls, and the target for what the database adds to the median, in milliseconds.
TARGETS = {"reading a file, with telemetry": 1.0, "a cut answer with its handle": 3.0, "reading a handle": 3.0,
           "editing a file, with its lease": None}


def measure_cost(args):
    """Latencies of calls that alternate between a server on SQLite files and one on PostgreSQL."""
    with team_folder() as folder, Team(args.llmc, folder, count=1, settings=QUIET) as team:
        with contextlib.ExitStack() as stack:
            alone = Server(args.llmc, "alone", team.folder, settings=QUIET)
            stack.callback(alone.stop)
            alone.wait_until_ready()
            seconds = asyncio.run(alternate({"SQLite": alone, "PostgreSQL": team.servers[0]}, args.cost_calls))
    rows = {}
    for kind, target in TARGETS.items():
        medians = {name: statistics.median(seconds[name, kind]) * 1000 for name in ("SQLite", "PostgreSQL")}
        added = medians["PostgreSQL"] - medians["SQLite"]
        rows[kind] = {**medians, "added": added, "target": target, "calls": len(seconds["SQLite", kind])}
    return rows


async def alternate(servers, count):
    clients = {name: Client(0, server.port, server.env["LLMC_MCP_TOKEN"], [], name) for name, server in servers.items()}
    seconds = {(name, kind): [] for name in servers for kind in TARGETS}
    for client in clients.values():
        await client.open(time.time() + 30)

    async def timed(name, kind, n, tool, **arguments):
        answer = await clients[name].call(kind, tool, **arguments)
        if not answer.ok:
            raise RuntimeError(f"{tool} of {name}: {answer}")
        if n >= WARM_UP:
            seconds[name, kind].append(clients[name].calls[-1].seconds)
        return answer

    for n in range(WARM_UP + count):
        # The one that is asked first changes, so that neither always finds the caches warm.
        for name in sorted(servers, reverse=bool(n % 2)):
            edited = f"edited-{name}.txt"
            if n == 0:
                await clients[name].call("", "linux_fs_write", path=edited, content="version 0\n")
            await timed(name, "reading a file, with telemetry", n, "read_file", path=edited)
            cut = await timed(name, "a cut answer with its handle", n, "te_grep", pattern="line [0-9]*7 of", path="long.txt")
            handle = re.search(r'"handle":"(res_\w+)"', cut.text)[1]
            await timed(name, "reading a handle", n, "linux_handle_read", handle=handle, offset=1000, limit=2000)
            await timed(name, "editing a file, with its lease", n, "linux_fs_edit", path=edited,
                        old_text=f"version {n}\n", new_text=f"version {n + 1}\n")
    for client in clients.values():
        client.disconnect()
    return seconds


def measure_scale(args):
    """Calls a second of one server and of three, with a database that is 50 ms away: its connections are the bound."""
    found = {}
    for count in (1, 3):
        with team_folder() as folder:
            with Team(args.llmc, folder, count=count, clients=SCALE_CLIENTS, through_proxy=True,
                      settings={**QUIET, "mcp.observability.csv_token_audit_enabled": "true"}) as team:
                found[count] = asyncio.run(read_handles(team))
    return {"one": found[1], "three": found[3], "ratio": found[3]["calls_per_second"] / found[1]["calls_per_second"],
            "clients": SCALE_CLIENTS, "delay_ms": SCALE_DELAY * 1000}


async def read_handles(team):
    calls = []
    clients = [Client(n, team.proxy.port, token, calls, "scale") for n, token in enumerate(team.tokens)]
    handles = {}
    for client in clients:
        await client.open(time.time() + 30)
        answer = await client.call("", "te_grep", pattern="line [0-9]*7 of", path="long.txt")
        handles[client] = re.search(r'"handle":"(res_\w+)"', answer.text)[1]
    team.database_proxy.obey(f"delay {SCALE_DELAY}")
    until = time.time() + 4 + SCALE_SECONDS

    async def read(client):
        while time.time() < until:
            await client.call("handle", "linux_handle_read", handle=handles[client], offset=1000, limit=2000)

    reading = asyncio.gather(*map(read, clients))
    # New connections and their prepared statements are not measured.
    await asyncio.sleep(4)
    began, cpu, busy, first = time.time(), team.cpu(), busy_seconds(), len(calls)
    await asyncio.sleep(SCALE_SECONDS - 0.5)
    wall, done = time.time() - began, calls[first:]
    used = sum(team.cpu().values()) - sum(cpu.values())
    machine = busy_seconds() - busy
    await reading
    for client in clients:
        client.disconnect()
    cores = os.cpu_count()
    return {"calls_per_second": sum(call.code == "ok" for call in done) / wall,
            "failed": sum(call.code != "ok" for call in done), "cpu_share": used / wall / cores,
            "machine_share": machine / wall / cores}


def busy_seconds():
    """CPU seconds of the whole machine that were not idle."""
    with open("/proc/stat") as stat:
        words = [int(word) for word in stat.readline().split()[1:9]]
    return (sum(words) - words[3] - words[4]) / os.sysconf("SC_CLK_TCK")
