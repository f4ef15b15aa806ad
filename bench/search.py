"""Content search over a large tree, without and with an index, against ripgrep with as many threads."""

import fcntl
import json
import os
import resource
import shutil
import subprocess
import time
from pathlib import Path

from mcp import Server
from peers import CACHE
from report import median_and_min, ratio, table, verdict

TARGET = 1.3
FILES = 50_000
TREE = CACHE / "tree"
PATTERNS = [
    # (what it is, pattern, is it literal, target without an index, target with one)
    ("rare literal", "unsafe impl GlobalAlloc", True, TARGET, 0.1),
    ("common regexp", r"\bfn\s+\w+_\w+\(", False, TARGET, 0.5),
    ("absent literal", "xylophone quagmire", True, TARGET, 0.05),
]
# A server that takes no more of a processor than this in each of some seconds has built and listed everything. On a busy
# machine a thread of low priority may get nothing for a second.
IDLE_SECONDS = 0.02
IDLE_ROUNDS = 5


def measure(bench):
    if bench.ripgrep is None:
        return "ripgrep is missing."
    copies = make_tree()
    shutil.rmtree(TREE / ".llmc", ignore_errors=True)
    without = measure_patterns(bench, copies, index=False)
    started = time.perf_counter()
    subprocess.run([str(bench.llmc), "rag", "index"], cwd=TREE, check=True, stdout=subprocess.DEVNULL)
    built = time.perf_counter() - started
    part = TREE / ".llmc"
    trigrams = sum(path.stat().st_size for path in part.glob("**/trigrams/*"))
    source = sum(
        os.path.getsize(os.path.join(folder, name)) for folder, _, names in os.walk(TREE / "copy-1") for name in names
    ) * copies
    size = (
        f"With an index, in the server that keeps it. The trigrams take {trigrams / 1e6:.0f} MB for {source / 1e6:.0f} MB of "
        f"files ({100 * trigrams / source:.1f} %); `llmc rag index` took {built:.0f} s for them and the code index."
    )
    return "\n\n".join([without, size, measure_patterns(bench, copies, index=True)])


def wait_until_idle(server):
    """Waits until the server has built what it builds in the background."""
    deadline = time.perf_counter() + 600
    rounds = 0
    while time.perf_counter() < deadline:
        before = server.cpu_seconds()
        time.sleep(1)
        rounds = rounds + 1 if server.cpu_seconds() - before <= IDLE_SECONDS else 0
        if rounds == IDLE_ROUNDS:
            return
    raise SystemExit("the server did not come to rest")


def measure_patterns(bench, copies, index):
    rows = []
    with Server(bench.llmc_mcp(TREE)) as server:
        if index:
            # A client that lists tools which need the index has it kept.
            server.request("tools/list", {})
            wait_until_idle(server)
        for name, pattern, literal, target, target_with_index in PATTERNS:
            target = target_with_index if index else target
            command = ripgrep(bench, pattern, literal)
            arguments = {
                "root": ".", "pattern": pattern, "literal": literal, "ignore_case": False, "context_lines": 0,
            }
            # The first round warms the page cache and compares what both find.
            found = json.loads(server.call("linux_search_content", **arguments)[0])
            lines = count_lines(command)
            ours, theirs, silent = [], [], []
            our_cpu = their_cpu = 0
            for _ in range(bench.runs):
                before = children_cpu()
                theirs.append(time_piped(command))
                their_cpu += children_cpu() - before
                before = server.cpu_seconds()
                ours.append(server.call("linux_search_content", **arguments)[1])
                our_cpu += server.cpu_seconds() - before
                silent.append(time_piped([*command[:-1], "--count", command[-1]]))
            by = ratio(ours, theirs)
            rows.append([
                f"{name} `{pattern}`", f"{found['total_hits']:,}", f"{lines:,}", median_and_min(ours),
                median_and_min(theirs), f"{by:.3f}", verdict(by <= target) + f" (≤ {target})", f"{our_cpu / their_cpu:.2f}",
                f"{ratio(ours, silent):.2f}",
            ])
        memory = server.memory()
        files, skipped = found["files_searched"], found["skipped"]
    if files < FILES:
        raise SystemExit(f"only {files} files were searched, {FILES} are wanted")
    head = [
        "pattern", "lines LLMC", "lines rg", "LLMC median (min)", "rg median (min)", "ratio",
        "target", "ratio of CPU time", "ratio to `rg --count`",
    ]
    left_out = ", ".join(f"{count:,} {why}" for why, count in skipped.items() if count)
    notes = [
        f"The tree: {files:,} files searched ({left_out} left out), {copies} copies of the crate sources in Cargo's "
        "registry, all in the page cache.",
        f"The server after all these searches: {memory['private'] / 1e6:.0f} MB of private memory, "
        f"{memory['pss'] / 1e6:.0f} MB proportional (PSS).",
        "The commands: `linux_search_content " + shown(arguments) + "` to a running `llmc mcp --mode classic`; "
        "`" + " ".join(["rg", *ripgrep(bench, "PATTERN", False)[1:]]) + "` in the tree (`--fixed-strings` for the "
        "literal) into a pipe that is read to its end.",
    ]
    return "\n\n".join([table(head, rows), *notes])


def shown(arguments):
    return json.dumps(dict(arguments, pattern="PATTERN"))


def ripgrep(bench, pattern, literal):
    """The command with LLMC's rules: ignore files count without a repository, none above the tree do."""
    return [
        str(bench.ripgrep), "--no-config", "--no-require-git", "--no-ignore-parent", "--no-ignore-global",
        "--sort", "none", "-j", str(bench.threads), "-n", "--no-heading", "--color", "never",
        *(["--fixed-strings"] if literal else []), "-e", pattern, "./",
    ]


def time_piped(command):
    """Seconds from the start of a command until all of its output has been read and it has ended."""
    buffer = bytearray(1 << 20)
    started = time.perf_counter()
    with subprocess.Popen(command, cwd=TREE, bufsize=0, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as process:
        # As large as a pipe may be, so that the writer is not held up by a reader on the same cores.
        fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, len(buffer))
        while process.stdout.readinto(buffer):
            pass
    return time.perf_counter() - started


def children_cpu():
    """Time on a processor of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def count_lines(command):
    """The matching lines that a command prints; what it says about binary files is none."""
    output = subprocess.run(command, cwd=TREE, stdout=subprocess.PIPE).stdout
    return sum(1 for line in output.splitlines() if b": binary file matches" not in line)


def make_tree():
    """Copies the sources in Cargo's registry until there are enough files; returns the number of copies.

    Real copies rather than links, so that every file has an inode and pages of its own.
    """
    done = TREE / ".complete"
    if done.exists():
        return int(done.read_text())
    shutil.rmtree(TREE, ignore_errors=True)
    home = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo")
    sources = sorted(path for path in (home / "registry" / "src").glob("*/*") if path.is_dir())
    if not sources:
        raise SystemExit("Cargo's registry holds no sources: build something first")
    copies = files = 0
    # Hidden, ignored and binary files are not searched, hence the margin.
    while files < FILES * 1.3:
        copies += 1
        for source in sources:
            shutil.copytree(source, TREE / f"copy-{copies}" / source.name, symlinks=True)
        files = sum(len(names) for _, _, names in os.walk(TREE))
    done.write_text(str(copies))
    return copies
