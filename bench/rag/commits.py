"""Commit message → files: does retrieval find what a change touches from what its author says about it?

For each commit that changes at most a handful of source files, the repository stands at its parent, the message (without
trailers and numbers of issues) is the question, and every changed file that already existed is an answer. Ranks are by
file: the best piece of each counts.

    python3 bench/rag/commits.py target/release/llmc WORK name=REPOSITORY … [--last N]

`releases.py` makes a repository of a package's releases where none with history can be had.
"""

import argparse
import re
import shutil
import subprocess
from pathlib import Path

from common import BASELINES, Llmc, Plain, Results

SOURCES = (".py", ".rs", ".js", ".ts", ".tsx", ".go", ".java", ".c", ".h", ".cc", ".cpp", ".cs", ".rb", ".php", ".sh")
MOST_FILES = 5
DEPTH = 30


def git(repository, *arguments):
    run = subprocess.run(["git", "-C", repository, *arguments], check=True, capture_output=True)
    return run.stdout.decode(errors="replace")


def commits(repository, last):
    """(commit, question, files), newest first."""
    found = []
    for commit in git(repository, "rev-list", "--no-merges", "HEAD").split()[:-1]:
        status = git(repository, "show", "--format=", "--name-status", "--no-renames", commit)
        changed = [line.split("\t")[1] for line in status.splitlines() if line.startswith("M\t")]
        changed = [path for path in changed if path.endswith(SOURCES) and says_more(repository, commit, path)]
        text = git(repository, "show", "-s", "--format=%B", commit)
        text = re.sub(r"(?m)^[A-Z][\w-]+: .*$|https?://\S+|\(?#\d+\)?", "", text).strip()
        words = re.findall(r"[A-Za-z]{3,}", text)
        if 1 <= len(changed) <= MOST_FILES and len(words) >= 4:
            found.append((commit, text, set(changed)))
        if len(found) >= last:
            break
    return found


def says_more(repository, commit, path):
    """Whether a change is more than a new version number."""
    lines = git(repository, "show", "--format=", "-U0", commit, "--", path).splitlines()
    lines = [line for line in lines if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    return any("version" not in line.lower() for line in lines)


def by_file(pieces):
    seen = {}
    for one in pieces:
        seen.setdefault(one[0], one)
    return list(seen.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("llmc")
    parser.add_argument("work", type=Path)
    parser.add_argument("repositories", nargs="+", help="name=folder")
    parser.add_argument("--last", type=int, default=100, help="commits looked at")
    parser.add_argument("--count-tokens", help="the `count` example of llmc-tokens")
    parser.add_argument("--variant", action="append", default=[], help="name=mcp.key=value")
    parser.add_argument("--other", action="append", default=[], help="name=executable")
    parser.add_argument("--no-plain", action="store_true", help="leave the baselines out")
    options = parser.parse_args()
    runs = [("LLMC", options.llmc, {})]
    runs += [(name, options.llmc, dict([rest.split("=", 1)])) for name, rest in (v.split("=", 1) for v in options.variant)]
    runs += [(name, executable, {}) for name, executable in (other.split("=", 1) for other in options.other)]
    asked = [name for name, _, _ in runs] + (list(BASELINES) if not options.no_plain else [])
    results, names = Results(options.count_tokens), []
    for repository in options.repositories:
        name, folder = repository.split("=", 1)
        names.append(name)
        target = options.work / name
        shutil.rmtree(target, ignore_errors=True)
        subprocess.run(["git", "clone", "-q", folder, target], check=True)
        for commit, text, files in commits(target, options.last):
            git(target, "checkout", "-q", f"{commit}~1")
            systems = {}
            for system, executable, settings in runs:
                # Each version keeps its own index of the tree from commit to commit.
                state = options.work / f"{name}-{system}.llmc"
                if state.exists():
                    state.rename(target / ".llmc")
                llmc = Llmc(executable, target, **{"mcp.rag.top_k": DEPTH, **settings})
                systems[system] = llmc.pieces(text, DEPTH)
                llmc.close()
                (target / ".llmc").rename(state)
            for system, size in BASELINES.items() if not options.no_plain else ():
                systems[system] = Plain(target, size).search(text, DEPTH)
            for system, pieces in systems.items():
                pieces = by_file(pieces)
                ranks = [place for place, one in enumerate(pieces, 1) if one[0] in files]
                results.add([name, "**all**"], system, ranks[0] if ranks else None, pieces)
    print(results.table([*names, "**all**"], asked))


if __name__ == "__main__":
    main()
