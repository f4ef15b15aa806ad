"""Shows that the checks find what is lost: spoils one fact of each kind after a short load, and expects to be told."""

import time

from load import run_phase

# What is spoiled, and how many losses that is: a handle is read through three servers.
EXPECTED = {"own files": 1, "lines of contended files": 1, "increments": 1, "handles": 3, "audit rows": 1, "telemetry rows": 1}


def self_test(args):
    args.clients, args.seconds = 6, 6.0
    phase = run_phase(args, tamper=tamper)
    found = {kind: count for kind, count in phase["lost"].items() if count}
    if found != EXPECTED:
        raise SystemExit(f"self-test: expected {EXPECTED}, found {found}: {phase['examples']}")
    return phase


def tamper(team, facts):
    own = next(name for name, file in facts.files.items() if file.acknowledged)
    (team.workspace / own).write_text("another content\n")
    log = team.workspace / next(iter(facts.lines))
    log.write_text("".join(log.read_text().splitlines(True)[1:]))
    name = next(name for name, tries in facts.increments.items() if any(outcome == "done" for _, outcome in tries))
    (team.workspace / name).write_text("count 0\n")
    team.cluster.sql(f"DELETE FROM llmc.handles WHERE id = '{facts.handles[0][1]}'")
    call = facts.calls[0].correlation
    team.cluster.sql(f"DELETE FROM llmc.audit WHERE correlation_id = '{call}'")
    # Rows are written four times a second.
    time.sleep(1)
    team.cluster.sql(f"DELETE FROM llmc.calls WHERE correlation_id = '{call}'")
