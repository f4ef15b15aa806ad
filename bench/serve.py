"""`llmc serve` under load, beside a bare axum handler on the same machine in the same run."""

import contextlib
import json
import os
import resource
import signal
import subprocess
import time
import urllib.request
from pathlib import Path

from mcp import memory_of, scratch
from report import table, verdict

SECONDS = 8
CONNECTIONS = 32
ROUNDS = 3
LIMITS_OFF = {"rate_limit_rps": 10**9, "rate_limit_burst": 10**9, "concurrency_per_token": 1000}
SLOW = 2000
LEAVING = 10_000
PLACES = 32
# A script that runs for minutes unless it is ended.
MARK = "4711.4711"


def measure(bench):
    lines = []
    raise_descriptor_limit()
    with scratch() as root:
        (Path(root) / "a.txt").write_text("some text\n")
        rows, said = throughput(bench, root)
        lines += said
        lines += rate(bench, root)
        lines += slow(bench, root)
        lines += leaving(bench, root)
    head = ["server, request", "requests a second", "of the bare handler", "p50", "p99", "p99 at half that load"]
    return table(head, rows) + "\n\n" + "\n".join(f"- {line}" for line in lines)


def throughput(bench, root):
    """Who answers how many requests: each in turn, several times, and the median counts."""
    got = {"bare": [], "health": [], "invoke": []}
    half = {}
    body = json.dumps({"session_id": "s", "user_msg": "hello"})
    settings = {**LIMITS_OFF, "mcp.rag.jit_context_enabled": "false"}
    with bare(bench) as url, serving(bench, root, settings) as server:
        asked = {
            "bare": (url + "/", {}),
            "health": (server.url + "/health", {}),
            "invoke": (server.url + "/invoke_agent", {"TOKEN": server.token, "BODY": body}),
        }
        for _ in range(ROUNDS):
            for name, (target, extra) in asked.items():
                got[name].append(load(bench, ["closed", target, SECONDS, CONNECTIONS], extra))
        for name, (target, extra) in asked.items():
            rps = int(median(one["rps"] for one in got[name]) / 2)
            half[name] = load(bench, ["open", target, SECONDS, rps, CONNECTIONS], extra)
        memory = server.memory()
    names = {
        "bare": "bare axum handler",
        "health": "LLMC, `GET /health`",
        "invoke": "LLMC, `POST /invoke_agent`: token, rate, body, place",
    }
    base = median(one["rps"] for one in got["bare"])
    rows = []
    for name, runs in got.items():
        rps = median(one["rps"] for one in runs)
        quantiles = [f"{median(one[key] for one in runs):.1f} ms" for key in ("p50_ms", "p99_ms")]
        rows.append([names[name], f"{rps:,.0f}", f"{rps / base:.0%}", *quantiles, f"{half[name]['p99_ms']:.1f} ms"])
    share = median(one["rps"] for one in got["health"]) / base
    gated = median(one["rps"] for one in got["invoke"]) / base
    late = max(half["health"]["p99_ms"], half["invoke"]["p99_ms"])
    return rows, [
        f"No-op requests reach {share:.0%} of the bare handler, {gated:.0%} through every gate; target ≥ 60 %: "
        f"{verdict(min(share, gated) >= 0.6)}. p99 at half that load: {late:.1f} ms; target ≤ 20 ms: "
        f"{verdict(late <= 20)}. {CONNECTIONS} connections; client and server share {len(os.sched_getaffinity(0))} cores.",
        f"Private memory after {sum(one['requests'] for runs in (got['health'], got['invoke']) for one in runs):,} "
        f"requests: {memory}.",
    ]


def rate(bench, root):
    """Ten a second pass, twenty at once, whatever comes in."""
    with serving(bench, root, {"rate_limit_rps": 10, "rate_limit_burst": 20}) as server:
        extra = {"TOKEN": server.token}
        before = server.memory()
        result = load(bench, ["open", server.url + "/api/config", 12, 100, 16], extra)
        after = server.memory()
    passed = [statuses.get("200", 0) for _, statuses in sorted(result["seconds"].items(), key=lambda item: int(item[0]))]
    sustained = passed[3:]
    others = sum(count for status, count in result["statuses"].items() if status not in ("200", "429"))
    exact = all(9 <= count <= 11 for count in sustained) and others == 0
    return [
        f"`rate_limit_rps = 10`, `rate_limit_burst = 20`, an open-loop client at 100 a second: {passed[0]} pass in the first "
        f"second, then {min(sustained)} to {max(sustained)} in each; all the rest get 429: {verdict(exact)}. Private memory "
        f"{before} before, {after} after."
    ]


def slow(bench, root):
    """Connections that dawdle over their request must not be noticed by a good client."""
    with serving(bench, root, {**LIMITS_OFF, "mcp.tools.read_timeout": "3600"}) as server:
        command = [str(bench.http_load), "slow", server.url + "/health", str(SLOW)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as attack:
            assert attack.stdout.readline() == b"open\n"
            held = server.descriptors()
            body = json.dumps({"name": "read_file", "args": {"path": "a.txt"}})
            extra = {"TOKEN": server.token, "BODY": body}
            good = load(bench, ["open", server.url + "/tool", 10, 50, 8], extra)
            attack.stdin.close()
            attack.wait()
    met = good["p95_ms"] < 100 and set(good["statuses"]) == {"200"}
    return [
        f"{SLOW:,} connections that never finish their request ({held:,} descriptors open): a good client's `read_file` at 50 a "
        f"second has p95 {good['p95_ms']:.1f} ms; target < 100 ms: {verdict(met)}."
    ]


def leaving(bench, root):
    """Clients that go away in mid-call must leave nothing behind."""
    settings = {**LIMITS_OFF, "concurrency_per_token": PLACES, "mcp.tools.run_cmd_allowlist": '["sleep"]'}
    with serving(bench, root, settings) as server:
        body = json.dumps({"name": "run_cmd", "args": {"argv": ["sleep", MARK]}})
        load(bench, ["leave", server.url + "/tool", 50, 8], {"TOKEN": server.token, "BODY": body})
        server.quiet()
        time.sleep(1)
        base = server.descriptors(), server.memory()
        started = time.perf_counter()
        begun = lambda: server.get("/api/summary")["totals"]["calls"]
        before = begun()
        while begun() - before < LEAVING:
            load(bench, ["leave", server.url + "/tool", 2000, 8], {"TOKEN": server.token, "BODY": body})
        took = time.perf_counter() - started
        quiet = server.quiet(base[0])
        end = server.descriptors(), server.memory()
        processes = count_processes(MARK)
        calls = begun() - before
        # Every place is free when as many calls as there are places run at the same time.
        text = json.dumps({"name": "stat", "args": {"path": "a.txt"}})
        again = load(bench, ["closed", server.url + "/tool", 1, PLACES], {"TOKEN": server.token, "BODY": text})
    met = processes == 0 and end[0] <= base[0] and set(again["statuses"]) == {"200"}
    return [
        f"{calls:,} clients that leave in mid-call, in {took:.0f} s: {quiet:.1f} s later "
        f"{processes} of their processes are left, {end[0] - base[0]:+d} descriptors, and every place is free: {verdict(met)}. Private "
        f"memory {base[1]} before, {end[1]} after."
    ]


class Serving:
    """A running `llmc serve`."""

    def __init__(self, process, line):
        self.process = process
        self.url = line["url"]
        self.token = Path(line["token"].removeprefix("in the file ")).read_text().strip()

    def get(self, path):
        request = urllib.request.Request(self.url + path, headers={"X-LLMC-Token": self.token})
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def quiet(self, descriptors=None):
        """Seconds until nothing is worked on and no more than so many descriptors are open; at most ten."""
        started = time.perf_counter()
        while time.perf_counter() - started < 10:
            gauges = self.get("/api/summary")["gauges"]
            # This very request is the one in work.
            calm = gauges["requests_in_progress"] <= 1 and gauges["connections"] <= 1 and not count_processes(MARK)
            if calm and (descriptors is None or self.descriptors() <= descriptors):
                break
            time.sleep(0.05)
        return time.perf_counter() - started

    def memory(self):
        """Private memory, and the proportional size beside it."""
        memory = memory_of(self.process.pid)
        return f"{memory['private'] / 1e6:.0f} MB ({memory['pss'] / 1e6:.0f} MB PSS)"

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


@contextlib.contextmanager
def serving(bench, root, settings):
    command = [str(bench.llmc), "serve", "--root", str(root), "--port", "0", "--log-level", "error"]
    for key, value in settings.items():
        command += ["--set", f"{key if '.' in key else 'mcp.limits.' + key}={value}"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        yield Serving(process, json.loads(process.stderr.readline()))
    finally:
        process.send_signal(signal.SIGTERM)
        if process.wait() != 0:
            raise RuntimeError(f"the server ended with {process.returncode}")


@contextlib.contextmanager
def bare(bench):
    process = subprocess.Popen([str(bench.http_load), "bare"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process.stdout.readline().strip()
    finally:
        process.stdin.close()
        process.wait()


def load(bench, arguments, extra):
    environment = {**os.environ, "TOKEN": "", "BODY": "", **extra}
    command = [str(bench.http_load), *map(str, arguments)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def count_processes(mark):
    count = 0
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            count += entry.name.isdigit() and mark.encode() in (entry / "cmdline").read_bytes().split(b"\0")
    return count


def median(values):
    values = sorted(values)
    return values[len(values) // 2]


def raise_descriptor_limit():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = SLOW + 500 if hard == resource.RLIM_INFINITY else min(hard, SLOW + 500)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
