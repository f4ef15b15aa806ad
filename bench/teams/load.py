"""One phase: a fresh service, its clients, a fault in the middle if one is wanted, and the checks."""

import asyncio
import contextlib
import statistics
import time
from collections import Counter

from check import check
from service import Team, team_folder
from work import COUNTERS, Facts, Worker

# Codes that a client has to expect, whatever happens to the database or to a server.
EXPECTED = {"ok", "ok, no handle", "UNAVAILABLE", "RESOURCE_BUSY", "NO_MATCH"}
# What a client sees of a server that was killed.
BROKEN = {"HTTP 502", "connection lost"}
# A call waits six seconds for the database; the rest is for the work itself and a busy machine.
LONGEST_CALL = 8.0


class Incident:
    """When a fault began and ended, and when telemetry may have been lost."""

    def __init__(self):
        self.began = self.ended = None
        self.crashes = []
        self.notes = []

    def begin(self):
        self.began = time.time()

    def end(self):
        self.ended = time.time()

    def crash(self):
        self.crashes.append(time.time())


def run_phase(args, fault=None, tamper=None):
    """Figures of one phase. `tamper` may spoil something before the check, to show that the check finds it."""
    name = fault.name if fault else "load"
    clients, seconds, pause = args.clients, args.seconds, args.pause
    if fault:
        clients, seconds, pause = args.fault_clients, fault.seconds or args.fault_seconds, args.fault_pause
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(team_folder())
        options = fault.prepare(folder, stack) if fault else {}
        team = stack.enter_context(Team(args.llmc, folder, clients=clients, **options))
        (team.workspace / "shared").mkdir()
        for n in range(COUNTERS):
            (team.workspace / f"shared/counter{n}.txt").write_text("count 0\n")
        facts, incident = Facts(), Incident()
        cpu, began = team.cpu(), time.time()
        asyncio.run(work(team, facts, incident, fault, clients, seconds, pause, name))
        wall = time.time() - began
        cpu = {part: used - cpu[part] for part, used in team.cpu().items()}
        if tamper:
            tamper(team, facts)
        checked = check(team, facts, "check", incident.crashes)
        return figures(name, fault, clients, wall, cpu, facts, incident, checked)


async def work(team, facts, incident, fault, clients, seconds, pause, name):
    until = time.time() + seconds
    workers = [Worker(n, team.proxy.port, team.tokens[n], facts, pause, name[:16]) for n in range(clients)]
    running = asyncio.gather(*(worker.run(until) for worker in workers))
    try:
        if fault:
            await asyncio.sleep(min(5.0, seconds / 5))
            await fault.inject(team, incident)
        await running
    finally:
        running.cancel()
        for worker in workers:
            worker.client.disconnect()


def figures(name, fault, clients, wall, cpu, facts, incident, checked):
    calls = facts.calls
    codes = Counter(call.code for call in calls)
    allowed = EXPECTED | (BROKEN if fault and fault.breaks_connections else set())
    if not fault:
        allowed -= {"UNAVAILABLE", "ok, no handle"}
    lost_sessions = len(facts.lost_sessions) if not (fault and fault.ends_sessions) else 0
    if lost_sessions:
        checked["lost"]["script sessions"] = lost_sessions
        checked["examples"] += [text for _, _, text in facts.lost_sessions[:3]]
    refusals = [call.began + call.seconds for call in calls if call.code in ("UNAVAILABLE", *BROKEN)]
    longest = max((call.seconds for call in calls), default=0)
    slowest = max(calls, key=lambda call: call.seconds)
    return {
        "phase": name, "clients": clients, "seconds": wall, "calls": len(calls), "calls_per_second": len(calls) / wall,
        "codes": dict(codes), "unexpected": {code: n for code, n in codes.items() if code not in allowed},
        "refused": codes["UNAVAILABLE"], "busy": codes["RESOURCE_BUSY"],
        "retried": sum(call.is_retry for call in calls), "unknown": sum(codes[code] for code in BROKEN),
        "longest_seconds": longest, "longest": f"{slowest.tool} ({slowest.code})",
        "last_refusal_seconds": max(refusals) - incident.ended if refusals and incident.ended else None,
        "fault_seconds": incident.ended - incident.began if incident.ended else None,
        "notes": incident.notes, "kinds": kinds(calls), "cpu": cpu, **checked,
    }


def kinds(calls):
    """Number and quantiles of the calls that succeeded, by kind."""
    by_kind = {}
    for call in calls:
        if call.code.startswith("ok"):
            by_kind.setdefault(call.kind, []).append(call.seconds)
    return {kind: {"calls": len(seconds), **quantiles(seconds)} for kind, seconds in sorted(by_kind.items())}


def quantiles(seconds):
    ordered = sorted(seconds)
    at = lambda share: ordered[min(len(ordered) - 1, int(share * len(ordered)))]
    return {"p50": statistics.median(ordered), "p95": at(0.95), "p99": at(0.99)}


def is_met(phase):
    """Whether a phase lost nothing, hung nowhere, and answered with codes that a client expects."""
    return not (sum(phase["lost"].values()) or phase["unexpected"] or phase["longest_seconds"] > LONGEST_CALL)
