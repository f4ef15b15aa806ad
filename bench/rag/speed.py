"""How fast retrieval is on a tree: building, one changed file, mixed questions, memory.

    python3 bench/rag/speed.py target/release/llmc TREE

builds the index of TREE anew (in TREE/.llmc/index) and prints a Markdown table.
"""

import argparse
import json
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from mcp import PeakMemory, Server  # noqa: E402

QUESTIONS = 1000
CHANGES = 40
IDLE = 20
COMMON = ["self", "return", "fn", "new error", "test", "the", "use std", "let mut", "pub", "impl for",
          "string", "result ok", "get", "value", "type name"]


def questions(tree):
    """Words, names and sentences that stand in the tree, common words, and error messages; the same in each run."""
    draw = random.Random(1)
    files = sorted(p for p in tree.rglob("*.rs") if p.is_file())[:20000]
    found = []
    while len(found) < QUESTIONS:
        kind = len(found) % 4
        text = draw.choice(files).read_text(errors="replace")
        words = re.findall(r"[A-Za-z_]{3,}", text)
        if kind == 0 or not words:
            found.append(draw.choice(COMMON))
        elif kind == 1:
            found.append(draw.choice(words))
        elif kind == 2:
            start = draw.randrange(len(words))
            found.append(" ".join(words[start:start + 8]))
        else:
            lines = text.splitlines()
            start = draw.randrange(len(lines))
            found.append("error: " + "\n".join(lines[start:start + 6]) + "\n  --> src/lib.rs:12:5")
    return [q for q in found if re.search(r"[A-Za-z]{2}", q)]


def changes(llmc, tree):
    """Milliseconds that the watcher takes to take in one changed file, each time another one."""
    files = sorted(p for p in tree.rglob("*.rs") if p.is_file() and 1000 < p.stat().st_size < 40000)
    draw = random.Random(2).sample(files, CHANGES)
    watch = subprocess.Popen([llmc, "rag", "watch", "--root", tree, "--log-level", "debug"], text=True,
                             stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    os.set_blocking(watch.stderr.fileno(), True)
    took = []
    wait_for = lambda words: next(json.loads(line) for line in watch.stderr if words in line)
    # It looks twice: once more to see whether the kernel reports changes of this file system.
    wait_for("index updated"), wait_for("verified")
    time.sleep(1)
    for path in draw:
        text = path.read_text(errors="surrogateescape")
        path.unlink()  # The trees may be hard links of one another.
        path.write_text(text + "\npub fn changed_just_now() {}\n", errors="surrogateescape")
        note = wait_for("changed files updated")
        assert "changed: 1" in note["updated"], note
        number, unit = re.fullmatch(r"([\d.]+)(ms|µs|s)", note["took"]).groups()
        took.append(float(number) * {"ms": 1, "µs": 0.001, "s": 1000}[unit])
    watch.kill()
    watch.wait()
    return sorted(took)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("llmc")
    parser.add_argument("tree", type=Path)
    parser.add_argument("--keep", action="store_true", help="use the index that is there")
    parser.add_argument("--build-only", action="store_true")
    options = parser.parse_args()
    index = [options.llmc, "rag", "index", "--root", options.tree]
    if not options.keep:
        shutil.rmtree(options.tree / ".llmc" / "index", ignore_errors=True)
    load = os.getloadavg()[0]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    process = subprocess.Popen(index, stdout=subprocess.DEVNULL)
    with PeakMemory(process.pid) as peak:
        if process.wait() != 0:
            raise SystemExit("the index was not built")
    build = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    stats = json.loads(subprocess.run(
        [options.llmc, "rag", "stats", "--json", "--root", options.tree],
        check=True, capture_output=True).stdout)
    print("| measure | value |\n|---|---|")
    megabytes = stats["bytes"] / 1e6
    print(f"| source | {megabytes:.1f} MB, {stats['files']:,} files, {stats['chunks']:,} chunks; load average {load:.1f} |")
    if not options.keep:
        print(f"| build | {build:.1f} s, {cpu:.1f} CPU-s, {megabytes / build:.1f} MB/s, {stats['files'] / build:.0f} files/s |")
        print(f"| private memory of the build at its peak (PSS) | {peak.private / 1e6:.0f} MB ({peak.pss / 1e6:.0f} MB) |")
    print(f"| index | {stats['index_bytes'] / 1e6:.1f} MB, {stats['index_bytes'] / stats['bytes']:.2f} of the source |", flush=True)
    if options.build_only:
        return
    at = lambda sorted_, share: sorted_[min(len(sorted_) - 1, int(share * len(sorted_)))]
    server = Server([options.llmc, "mcp", "--root", str(options.tree), "--mode", "classic",
                     "--set", "mcp.limits.rate_limit_rps=100000"])
    asked = questions(options.tree)
    for question in asked[:50]:
        server.call("rag_search", query=question)
    # The server takes its first looks at the tree meanwhile.
    while (busy := server.cpu_seconds()) + 0.02 < (time.sleep(3), server.cpu_seconds())[1]:
        pass
    seconds = sorted(server.call("rag_search", query=question)[1] * 1000 for question in asked)
    print(f"| `rag_search`, {len(seconds):,} mixed questions | p50 {at(seconds, .5):.1f} ms, p95 {at(seconds, .95):.1f} ms, "
          f"p99 {at(seconds, .99):.1f} ms |")
    common = sorted(server.call("rag_search", query=COMMON[n % len(COMMON)])[1] * 1000 for n in range(150))
    print(f"| only very common words | p50 {at(common, .5):.1f} ms, p95 {at(common, .95):.1f} ms |")
    memory = server.memory()
    print(f"| private memory of the server (PSS) | {memory['private'] / 1e6:.0f} MB ({memory['pss'] / 1e6:.0f} MB) |", flush=True)
    time.sleep(3)
    busy = server.cpu_seconds()
    time.sleep(IDLE)
    print(f"| watching, nothing changes | {(server.cpu_seconds() - busy) / IDLE:.2%} of a processor |")
    server.process.kill()
    server.process.wait()
    took = changes(options.llmc, options.tree)
    print(f"| one changed file, {len(took)} times | p50 {at(took, .5):.0f} ms, p95 {at(took, .95):.0f} ms, most {took[-1]:.0f} ms |")


main()
