"""How fast retrieval is on a tree: building, one changed file, mixed questions, memory.

    python3 bench/rag/speed.py target/release/llmc TREE

builds the index of TREE anew (in TREE/.llmc/index) and prints a Markdown table.
"""

import argparse
import json
import random
import re
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from mcp import Server  # noqa: E402

QUESTIONS = 1000
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


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("llmc")
    parser.add_argument("tree", type=Path)
    parser.add_argument("--keep", action="store_true", help="use the index that is there")
    options = parser.parse_args()
    index = [options.llmc, "rag", "index", "--root", options.tree]
    if not options.keep:
        shutil.rmtree(options.tree / ".llmc" / "index", ignore_errors=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    subprocess.run(index, check=True, stdout=subprocess.DEVNULL)
    build = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    stats = json.loads(subprocess.run(
        [options.llmc, "rag", "stats", "--json", "--root", options.tree],
        check=True, capture_output=True).stdout)
    print("| measure | value |\n|---|---|")
    mib = stats["bytes"] / 2**20
    print(f"| source | {mib:.1f} MiB, {stats['files']} files, {stats['chunks']} chunks |")
    if not options.keep:
        print(f"| build | {build:.1f} s, {cpu:.1f} CPU-s, {mib / build:.1f} MiB/s, {stats['files'] / build:.0f} files/s |")
        print(f"| peak memory of the build | {after.ru_maxrss / 1024:.0f} MiB |")
    print(f"| index | {stats['index_bytes'] / 2**20:.1f} MiB, {stats['index_bytes'] / stats['bytes']:.2f} of the source |")
    server = Server([options.llmc, "mcp", "--root", str(options.tree), "--mode", "classic",
                     "--set", "mcp.limits.rate_limit_rps=100000"])
    asked = questions(options.tree)
    for question in asked[:50]:
        server.call("rag_search", query=question)
    # The server takes its first look at the tree meanwhile.
    time.sleep(3)
    seconds = sorted(server.call("rag_search", query=question)[1] for question in asked)
    at = lambda share: 1000 * seconds[min(len(seconds) - 1, int(share * len(seconds)))]
    print(f"| rag_search, {len(seconds)} questions | p50 {at(.5):.1f} ms, p95 {at(.95):.1f} ms, p99 {at(.99):.1f} ms |")
    memory = server.memory()
    print(f"| memory of the server | {memory['rss'] / 2**20:.0f} MiB resident, {memory['pss'] / 2**20:.0f} MiB of its own |")
    server.process.kill()


main()
