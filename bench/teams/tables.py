"""The figures as Markdown, for docs/benchmarks.md and for the terminal."""

import datetime
import os
import platform

from faults import FAULTS
from load import is_met
from report import milliseconds, table, verdict

SCALE_TARGET = 2.5


def setting(version, postgres, load):
    kernel = ".".join(platform.release().split(".")[:2])
    today = datetime.datetime.now(datetime.timezone.utc).date()
    return (f"{today}; {os.cpu_count()} cores, {platform.machine()}, Linux {kernel}; LLMC {version}, {postgres}; three servers, "
            f"database, proxy and clients on this machine; load average {load:.1f} when it began.")


def load_section(phase):
    rows = [[kind, f"{row['calls']:,}", *(milliseconds(row[key]) for key in ("p50", "p95", "p99"))]
            for kind, row in phase["kinds"].items()]
    cores = os.cpu_count()
    cpu = ", ".join(f"{part} {used / phase['seconds']:.2f}" for part, used in phase["cpu"].items())
    used = sum(phase["cpu"].values()) / phase["seconds"]
    lines = [
        f"{phase['clients']} clients for {phase['seconds']:.0f} s: {phase['calls']:,} calls, {phase['calls_per_second']:,.0f} a "
        f"second. Answers other than success: {codes(phase)}. Retried: {phase['retried']}.",
        f"Checked: {checked(phase)}. Lost: {lost(phase)}: {verdict(is_met(phase))}.",
        f"Cores in use: {used:.2f} of {cores} ({cpu}). The clients are one process, so they would be the bound at 1.00.",
    ]
    return "\n\n".join([table(["call", "answered", "p50", "p95", "p99"], rows), bullets(lines)])


def faults_section(phases):
    rows = []
    for phase in phases:
        last = phase["last_refusal_seconds"]
        rows.append([
            FAULTS[phase["phase"]].what, f"{phase['calls']:,}", phase["refused"], phase["retried"], phase["unknown"],
            sum(phase["lost"].values()), phase["telemetry_lost_in_last_second"], f"{phase['longest_seconds']:.1f} s",
            "–" if last is None else f"{max(0.0, last):.1f} s", verdict(is_met(phase)),
        ])
    head = ["fault", "calls", "refused", "retried", "fate unknown", "lost", "telemetry of the last second", "longest call",
            "last refusal after the end", "target"]
    notes = [f"{phase['phase']}: {'; '.join(phase['notes'])}." for phase in phases if phase["notes"]]
    totals = {}
    for phase in phases:
        for code, count in phase["codes"].items():
            totals[code] = totals.get(code, 0) + count
    wrong = [example for phase in phases for example in phase["examples"]]
    lines = [f"Answers other than success, of all faults: {codes({'codes': totals})}.", *notes, *map(repr, wrong)]
    return "\n\n".join([table(head, rows), bullets(lines)])


def cost_section(cost):
    rows = []
    for kind, row in cost.items():
        target = row["target"]
        met = "–" if target is None else f"≤ {target:.0f} ms: {verdict(row['added'] <= target)}"
        rows.append([kind, f"{row['SQLite']:.2f} ms", f"{row['PostgreSQL']:.2f} ms", f"{row['added']:+.2f} ms", met])
    calls = next(iter(cost.values()))["calls"]
    head = ["call, medians", "SQLite files", "PostgreSQL", "added", "target"]
    return f"{table(head, rows)}\n\n{calls} calls of each kind to each server, alternating, one at a time."


def scale_section(scale):
    rows = [[name, f"{one['calls_per_second']:.0f}", one["failed"], f"{one['cpu_share']:.0%}", f"{one['machine_share']:.0%}"]
            for name, one in (("one", scale["one"]), ("three", scale["three"]))]
    head = ["servers", "handles read a second", "failed", "cores used by all parts", "by the whole machine"]
    return (f"{table(head, rows)}\n\n{scale['clients']} clients without a pause; every request to the database takes "
            f"{scale['delay_ms']:.0f} ms longer, so a server's connections (8) are the bound and not the cores. Ratio "
            f"{scale['ratio']:.2f}; target ≥ {SCALE_TARGET}: {verdict(scale['ratio'] >= SCALE_TARGET)}.")


def codes(phase):
    found = {code: count for code, count in sorted(phase["codes"].items()) if code != "ok"}
    return ", ".join(f"{code} {count:,}" for code, count in found.items()) or "none"


def checked(phase):
    return ", ".join(f"{count:,} {name}" for name, count in phase["checked"].items())


def lost(phase):
    found = [f"{count} {name}" for name, count in phase["lost"].items() if count]
    return ", ".join(found) or "nothing"


def bullets(lines):
    return "\n".join(f"- {line}" for line in lines)
