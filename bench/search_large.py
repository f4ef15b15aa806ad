#!/usr/bin/env python3
"""Content search over a very large tree: the build of the index, its memory, an edit, and the ratios to ripgrep.

    bench/search_large.py --llmc PATH                  500,000 files, about 2 GB, removed afterwards
    bench/search_large.py --llmc PATH --files 200000
    bench/search_large.py --llmc PATH --keep           the tree and its index stay for another run

The files are pieces of the Rust sources in Cargo's registry, a hundred to a folder, so that the default number of watches
suffices. Prints tables; writes no document.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True

import peers
import search
from mcp import PeakMemory, Server

FILES_PER_FOLDER = 100
SOURCE_BYTES = 256 << 20
MAX_SOURCE_BYTES = 200_000
EDITED_TEXT = "zygote quagmire"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llmc", metavar="PATH", required=True)
    parser.add_argument("--files", type=int, default=500_000)
    parser.add_argument("--runs", type=int, default=11)
    parser.add_argument("--keep", action="store_true")
    args = parser.parse_args()
    bench = peers.Bench(llmc=Path(args.llmc).resolve(), count_tokens=None, http_load=None, runs=args.runs)
    bench.ripgrep, _ = peers.install_ripgrep()
    search.TREE = peers.CACHE / f"tree-{args.files}"
    # Some files hold a NUL.
    search.FILES = args.files * 9 // 10
    try:
        make_tree(search.TREE, args.files)
        print(measure_build(bench), flush=True)
        print(measure_edit(bench), flush=True)
        print(search.measure_patterns(bench, 1, index=True))
    finally:
        if not args.keep:
            shutil.rmtree(search.TREE, ignore_errors=True)


def make_tree(root, count):
    done = root / ".complete"
    if done.exists():
        return
    shutil.rmtree(root, ignore_errors=True)
    home = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo")
    sources, total = [], 0
    for path in sorted((home / "registry" / "src").glob("*/*/**/*.rs")):
        if path.is_file() and path.stat().st_size <= MAX_SOURCE_BYTES:
            text = path.read_bytes()
            sources.append(text.split(b"\n"))
            total += len(text)
        if total >= SOURCE_BYTES:
            break
    if not sources:
        raise SystemExit("Cargo's registry holds no sources: build something first")
    pick = random.Random(1)
    for number in range(count):
        folder = root / f"d{number // 10_000:02}" / f"e{number // FILES_PER_FOLDER % 100:02}"
        if number % FILES_PER_FOLDER == 0:
            folder.mkdir(parents=True)
        lines = pick.choice(sources)
        start = pick.randrange(len(lines))
        piece = lines[start:start + pick.randrange(20, 120)]
        # The number makes every file another one.
        name = f"f{number % FILES_PER_FOLDER:02}.txt"
        (folder / name).write_bytes(b"// %d\n" % number + b"\n".join(piece) + b"\n")
    done.touch()


def measure_build(bench):
    started = time.perf_counter()
    process = subprocess.Popen([str(bench.llmc), "rag", "index"], cwd=search.TREE, stdout=subprocess.DEVNULL)
    with PeakMemory(process.pid) as peak:
        _, status, used = os.wait4(process.pid, 0)
    if status != 0:
        raise SystemExit("the index was not built")
    part = search.TREE / ".llmc"
    size = sum(path.stat().st_size for path in part.glob("**/trigrams/*"))
    return (
        f"`llmc rag index`: {time.perf_counter() - started:.0f} s, {used.ru_utime + used.ru_stime:.0f} s of processor time, "
        f"{peak.private / 1e6:.0f} MB of private memory at its peak ({peak.pss / 1e6:.0f} MB PSS); the trigrams take {size / 1e6:.0f} MB."
    )


def measure_edit(bench):
    """Seconds until a search shows an edit, and what that search takes."""
    with Server(bench.llmc_mcp(search.TREE)) as server:
        server.request("tools/list", {})
        search.wait_until_idle(server)
        memory = server.memory()
        arguments = {"root": ".", "pattern": EDITED_TEXT, "literal": True, "ignore_case": False, "context_lines": 0}
        times = []
        path = search.TREE / "d00" / "e00" / "f00.txt"
        text = path.read_bytes()
        for _ in range(bench.runs):
            path.write_bytes(text + EDITED_TEXT.encode() + b"\n")
            answer, taken = server.call("linux_search_content", **arguments)
            if '"total_hits":1' not in answer.replace(" ", ""):
                raise SystemExit("the edit was not found")
            times.append(taken)
            path.write_bytes(text)
        times.sort()
        return (
            f"The server that keeps the index: {memory['private'] / 1e6:.0f} MB of private memory at rest, "
            f"{memory['pss'] / 1e6:.0f} MB proportional (PSS). A search right after an edit shows it, and takes {times[len(times) // 2] * 1e3:.0f} ms (median)."
        )


if __name__ == "__main__":
    main()
