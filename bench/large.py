"""A file and a directory that are far larger than an answer: time, and the most memory they cost."""

import json
import re
import time

from mcp import PeakMemory, Server, scratch
from peers import CACHE, REPOSITORY
from report import median_and_min, megabytes, table, verdict

MEMORY_TARGET = 40e6
FILE_BYTES = 1 << 30
LINES = 200
ENTRIES = 200_000
REPEATS = 30
# By then the server has been idle for long enough to give memory back.
REST_SECONDS = 2.5


def measure_read(bench):
    path, total = make_file()
    skip = total // 2
    arguments = {"path": path.name, "offset_lines": skip, "max_lines": LINES}

    def lines_of(tool, text):
        return (json.loads(text)["content"] if tool == "linux_fs_read" else text).splitlines()[:LINES]

    def check(tool, text):
        expected = [line_of_file(number) for number in range(skip + 1, skip + LINES + 1)]
        if lines_of(tool, text) != expected or f"{total}" not in text:
            raise SystemExit(f"{tool} returned other lines than asked for, or a wrong total")

    rows, peak = measure_calls(bench, path.parent, ["read_file", "linux_fs_read"], arguments, check)
    head = ["tool", "first call, median (min)", "second call, median (min)", "peak of private memory (PSS)"]
    return "\n\n".join([
        table(head, rows),
        f"The file: {FILE_BYTES >> 20:,} MiB, {total:,} lines, in the page cache. Both tools pass over all of it: the "
        "answer carries the true number of lines and the tag of the whole content.",
        f"Target < 40 MB private: {verdict(peak < MEMORY_TARGET)}. The call: `{json.dumps(arguments)}`.",
    ])


def measure_list(bench):
    folder = make_folder()
    first = name_of_entry(0)

    def check(tool, text):
        if tool == "linux_fs_list":
            answer = json.loads(text)
            shown, count, total = answer["entries"][0]["path"], len(answer["entries"]), answer["total_entries"]
        else:
            lines = text.splitlines()
            shown, count = lines[0], len(lines) - 1
            total = int(re.search(r"of ([\d,]+) entries", lines[-1])[1].replace(",", ""))
        if not shown.endswith(first) or total != ENTRIES:
            raise SystemExit(f"{tool} began with {shown} and counted {total}")
        pages[tool] = count

    pages = {}
    arguments = {"path": folder.name}
    rows, _ = measure_calls(bench, folder.parent, ["list_dir", "linux_fs_list"], arguments, check)
    for row in rows:
        row.insert(1, f"{pages[row[0].strip('`')]:,}")
    head = [
        "tool", "entries on the first page", "first call, median (min)", "second call, median (min)",
        "peak of private memory (PSS)",
    ]
    return "\n\n".join([
        table(head, rows),
        f"The directory: {ENTRIES:,} empty files. Both answers give the true total; the rest is behind a handle. "
        f"The call: `{json.dumps(arguments)}`.",
    ])


def measure_retained(bench):
    """What memory the calls take, and what is left of it when they are over."""
    folder = make_folder()
    calls = {
        "`list_dir`": ("list_dir", {"path": folder.name}),
        "`linux_fs_list`": ("linux_fs_list", {"path": folder.name}),
        "`linux_search_content`, ten lines of context": (
            "linux_search_content",
            {"root": "crates", "pattern": "fn ", "context_lines": 10, "max_results": 1000},
        ),
    }
    rows = []
    for name, (tool, arguments) in calls.items():
        root = folder.parent if "path" in arguments else REPOSITORY
        with scratch() as state:
            command = [*bench.llmc_mcp(root), "--set", f'mcp.docker.data_volume="{state}"']
            with Server(command) as server:
                with PeakMemory(server.process.pid) as peak:
                    for _ in range(REPEATS):
                        server.call(tool, **arguments)
                time.sleep(REST_SECONDS)
                rest = server.memory()
                rows.append([name, shown(peak.private, peak.pss), shown(rest["private"], rest["pss"])])
    return table([f"{REPEATS} calls of", "peak of private memory (PSS)", f"{REST_SECONDS} s later"], rows)


def shown(private, pss):
    return f"{megabytes(private)} ({megabytes(pss)})"


def measure_calls(bench, root, tools, arguments, check):
    """Calls each tool twice in a fresh server, again and again; a row for each tool, and the highest peak.

    A third call is the one whose memory is looked at.
    """
    times = {tool: ([], []) for tool in tools}
    peaks = {tool: (0, 0) for tool in tools}
    for _ in range(bench.runs):
        for tool in tools:
            # A state folder of its own: the handles of hundreds of runs are no part of the picture.
            with scratch() as state:
                command = [*bench.llmc_mcp(root), "--set", f'mcp.docker.data_volume="{state}"']
                with Server(command) as server:
                    for seconds in times[tool]:
                        text, taken = server.call(tool, **arguments)
                        seconds.append(taken)
                        check(tool, text)
                    with PeakMemory(server.process.pid) as peak:
                        server.call(tool, **arguments)
                    peaks[tool] = max(peaks[tool], (peak.private, peak.pss))
    rows = [[f"`{tool}`", *map(median_and_min, times[tool]), shown(*peaks[tool])] for tool in tools]
    return rows, max(private for private, _ in peaks.values())


def line_of_file(number):
    return f"{number:010} the quick brown fox jumps over the lazy dog, again and again and again"


def make_file():
    """A text file of 1 GiB, made once; its path and number of lines."""
    path = CACHE / "data" / "large.txt"
    length = len(line_of_file(1)) + 1
    total = FILE_BYTES // length + 1
    # The last line is cut so that the size is exact.
    if not path.exists() or path.stat().st_size != FILE_BYTES:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "w", buffering=1 << 20) as file:
            for number in range(1, total):
                file.write(line_of_file(number) + "\n")
            file.write(line_of_file(total)[: FILE_BYTES - (total - 1) * length])
    with open(path, "rb", buffering=0) as file:
        while file.read(1 << 20):
            pass
    return path, total


def name_of_entry(number):
    return f"entry-{number:06}.txt"


def make_folder():
    """A directory of many files, made once."""
    folder = CACHE / "data" / "many"
    done = CACHE / "data" / "many.complete"
    if not done.exists():
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(ENTRIES):
            (folder / name_of_entry(number)).touch()
        done.touch()
    return folder
