#!/usr/bin/env python3
"""CPU time of an index build without a shared store, and of one whose files another machine has parsed.

    bench/shared_units.py LLMC TREE URL [RUNS]

LLMC is the executable, TREE a folder with sources, URL an empty database (`postgres://user:password@host/database`). TREE is
copied for each machine. Standard library only, Linux only.
"""

import ctypes
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile

PR_SET_CHILD_SUBREAPER = 36


def build(llmc, root, url):
    """The CPU time of one build from nothing, parsers included, and what the program says."""
    shutil.rmtree(os.path.join(root, ".llmc"), ignore_errors=True)
    environment = dict(os.environ)
    environment.pop("LLMC_MCP__STORE__URL", None)
    if url:
        environment["LLMC_MCP__STORE__URL"] = url
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([llmc, "rag", "index", "--root", root], env=environment, capture_output=True, text=True, check=True)
    while True:
        # Parsers that outlive the program are given to this process.
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            break
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout.strip()


def main():
    llmc, tree, url = os.path.abspath(sys.argv[1]), sys.argv[2], sys.argv[3]
    runs = int(sys.argv[4]) if len(sys.argv) > 4 else 3
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with tempfile.TemporaryDirectory() as scratch:
        first, second = os.path.join(scratch, "first"), os.path.join(scratch, "second")
        shutil.copytree(tree, first, symlinks=True)
        shutil.copytree(tree, second, symlinks=True)
        print("first with the store:", *build(llmc, first, url))
        alone, shared = [], []
        for _ in range(runs):
            alone.append(build(llmc, first, None)[0])
            seconds, said = build(llmc, second, url)
            shared.append(seconds)
        print("second:", said)
        print("alone ", " ".join(f"{seconds:.2f}" for seconds in alone))
        print("shared", " ".join(f"{seconds:.2f}" for seconds in shared))
        print(f"ratio of the means: {statistics.mean(shared) / statistics.mean(alone):.2f}")


main()
