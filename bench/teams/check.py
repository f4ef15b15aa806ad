"""Compares what clients were told with what is there: files, handles, audit and telemetry.

`lost` counts acknowledged facts that are not there, or are there in another form. It has to be empty. Telemetry may lack what was
answered within a second before a server was killed or the database crashed.
"""

import asyncio
import time
from collections import Counter

from client import Client

TELEMETRY_SECONDS = 1.0
# How long telemetry that waits may take to arrive when everything is well again.
TELEMETRY_TIMEOUT = 15.0
HANDLE_BYTES = 200_000
# Answers that the audit may lack: it was the audit that refused the call, or no tool was called.
UNAUDITED = {"UNAVAILABLE", "UNAVAILABLE without a next step"}


def check(team, facts, label, crashes=()):
    """What is lost or wrong, by kind. `crashes` are the times at which telemetry may have been lost."""
    lost = Counter()
    examples = list(facts.wrong[:5])
    lost["wrong answers"] = len(facts.wrong)
    for name, count, example in [
        ("own files", *own_files(team, facts)),
        ("lines of contended files", *contended_lines(team, facts)),
        ("increments", *increments(team, facts)),
        ("handles", *asyncio.run(handles(team, facts, label))),
        ("audit rows", *audit_rows(team, facts)),
    ]:
        lost[name] = count
        examples += example[:3]
    missing, excused = telemetry_rows(team, facts, crashes)
    lost["telemetry rows"] = missing
    return {
        "lost": dict(lost),
        "telemetry_lost_in_last_second": excused,
        "examples": examples,
        "checked": {
            "files": len(facts.files), "lines": sum(map(len, facts.lines.values())),
            "increments": sum(map(len, facts.increments.values())), "handles": len(facts.handles),
            "calls": sum(is_answered(call) for call in facts.calls),
        },
    }


def own_files(team, facts):
    """A file has what was acknowledged last, or something later whose fate the client does not know."""
    wrong = []
    for name, file in facts.files.items():
        content = read(team, name)
        if not (file.allows(content) or content is None and file.acknowledged is None):
            wrong.append(f"{name} has {(content or 'nothing')[:60]!r}, acknowledged {(file.acknowledged or '')[:60]!r}")
    return len(wrong), wrong


def contended_lines(team, facts):
    """An acknowledged line is there once, a refused one is not, one of unknown fate is there once or not."""
    wrong = []
    for name, lines in facts.lines.items():
        there = Counter((read(team, name) or "").splitlines())
        for line, outcome in lines:
            allowed = {"done": {1}, "refused": {0}, "unknown": {0, 1}}[outcome]
            if there.pop(line, 0) not in allowed:
                wrong.append(f"{name}: {line!r} ({outcome}) is not there {sorted(allowed)} times")
        wrong += [f"{name}: {line!r} was written by no client" for line in there]
    return len(wrong), wrong


def increments(team, facts):
    """No two clients were told that they changed the same number, and the last number is their sum."""
    wrong = []
    for name, tries in facts.increments.items():
        done = Counter(number for number, outcome in tries if outcome == "done")
        unknown = sum(outcome == "unknown" for _, outcome in tries)
        wrong += [f"{name}: {number} was increased {count} times" for number, count in done.items() if count > 1]
        content = read(team, name) or "nothing"
        last = int(content.split()[1]) if content.startswith("count ") else -1
        if not sum(done.values()) <= last <= sum(done.values()) + unknown:
            wrong.append(f"{name}: {last}, but {sum(done.values())} were acknowledged and {unknown} are unknown")
    return len(wrong), wrong


async def handles(team, facts, label):
    """Every handle is read through every server, and is the same everywhere."""
    wrong = []
    by_client = {}
    for number, handle, digit in facts.handles:
        by_client.setdefault(number, []).append((handle, digit))
    calls = []

    async def check_client(number, own, server):
        client = Client(number, server.port, team.tokens[number], calls, f"{label}-{server.name}")
        await client.open(time.time() + 30)
        for handle, digit in own:
            deadline = time.time() + 30
            answer = await client.persist("check", "linux_handle_read", deadline, handle=handle, limit=HANDLE_BYTES)
            found = answer.text.count(f"{digit} of a text")
            if not answer.ok or found < 400:
                wrong.append(f"{handle} through {server.name}: {answer.code}, {found} hits: {answer.text[:200]}")
        client.disconnect()

    await asyncio.gather(*(check_client(number, own, server) for number, own in by_client.items() for server in team.servers))
    return len(wrong), wrong


def audit_rows(team, facts):
    """Every answer has a committed row with its status, and only one."""
    rows = {}
    for correlation, status in team.cluster.rows("SELECT correlation_id, status FROM llmc.audit"):
        rows.setdefault(correlation, []).append(status)
    wrong = []
    for call in facts.calls:
        if not is_answered(call):
            continue
        status = "ok" if call.code.startswith("ok") else call.code
        found = rows.get(call.correlation, [])
        if found != [status] and not (status in UNAUDITED and len(found) <= 1):
            wrong.append(f"{call.correlation} {call.tool}: answered {call.code}, the audit has {found}")
    return len(wrong), wrong


def telemetry_rows(team, facts, crashes):
    """How many answered calls telemetry lacks without an excuse, and with one."""
    answered = {call.correlation: call.began + call.seconds for call in facts.calls if is_answered(call)}
    deadline = time.time() + TELEMETRY_TIMEOUT
    while True:
        known = {row[0] for row in team.cluster.rows("SELECT correlation_id FROM llmc.calls")}
        missing = [at for correlation, at in answered.items() if correlation not in known]
        excused = sum(any(0 <= crash - at <= TELEMETRY_SECONDS for crash in crashes) for at in missing)
        if len(missing) == excused or time.time() > deadline:
            return len(missing) - excused, excused
        time.sleep(0.5)


def is_answered(call):
    """Whether a tool was called and the client has its answer."""
    return not call.code.startswith(("HTTP", "JSON-RPC")) and call.code not in ("connection lost", "no answer")


def read(team, name):
    try:
        return (team.workspace / name).read_text()
    except OSError:
        return None
