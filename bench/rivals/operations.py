"""How long single operations take and how much memory they need, with the servers taking turns."""

import statistics
import time
from pathlib import Path

import plot
from mcp import Server, scratch
from report import megabytes, milliseconds, ratio, table, verdict

from project import Project
from servers import COMMANDER, FILES, Kind, Session, command
from twelve import FIRST, ITERATIONS, LAST, PAGERANK, WEIGHTED

LLMC = Kind("classic", "LLMC", "classic")
WARM = 3
# What one server still does after its answer is not to count against the next one.
PAUSE = 0.01
NO_OP, TOOL, RETRIEVAL = 0.015, 0.150, 0.200
# What S1 asks of its tools "for typical directory trees and search operations on medium-sized repos".
S1 = 0.500


def measure(bench, plots):
    present = [LLMC]
    present += [COMMANDER] if bench.desktop_commander else []
    present += [FILES] if bench.filesystem else []
    seconds, memory = {}, {}
    p = Project()
    try:
        for name, ways in operations().items():
            sessions, homes = {}, [scratch() for _ in present]
            for kind, home in zip(present, homes):
                if kind in ways:
                    sessions[kind] = Session(
                        kind, Server(command(kind, bench, p.root), home.name), lambda _: 0, str(p.root)
                    )
            taken = {kind: [] for kind in sessions}
            for turn in range(WARM + bench.runs):
                for kind, session in sessions.items():
                    time.sleep(PAUSE)
                    began = time.perf_counter()
                    ways[kind](session, turn)
                    if turn >= WARM:
                        taken[kind].append(time.perf_counter() - began)
            for kind, session in sessions.items():
                seconds[name, kind], memory[name, kind] = taken[kind], session.server.memory()
                session.close()
            for home in homes:
                home.cleanup()
    finally:
        p.remove()
    rows = [[name, *(cell(seconds, memory, name, kind) for kind in present)] for name in operations()]
    head = ["operation", *(f"{title(kind)}: median, p95; memory" for kind in present)]
    text = "\n\n".join([table(head, rows), goals(seconds), NOTE.format(runs=bench.runs)])
    if plots:
        series = {
            title(kind): [p95(seconds[name, kind]) * 1000 if (name, kind) in seconds else None for name in operations()]
            for kind in present
        }
        names = [name.replace("`", "") for name in operations()]
        text += plot.put("operations", plot.groups(
            "95th percentile, milliseconds, logarithmic", names, series, [plot.LLMC, plot.RIVAL, plot.OTHER], log=True
        ))
    return text, []


NOTE = (
    "{runs} calls of each, the servers taking turns; a fresh server for each operation. Time runs from the request to the "
    "parsed answer; memory is the private memory after them (in brackets the proportional size), summed over the server's processes. LLMC in mode `classic`, which "
    "has all these tools in one list. Desktop Commander's search is `start_search` and `get_more_search_results`. A dash: no tool for it."
)


def operations():
    """{name: {server: how}}."""
    def turned(turn, *names):
        texts = [ITERATIONS.format(100 + turn), ITERATIONS.format(101 + turn)]
        return dict(zip(names, texts))

    ping = {kind: lambda s, _: s.server.request("ping", {}) for kind in (LLMC, COMMANDER, FILES)}
    length = LAST - FIRST + 1
    return {
        "no-op (`ping`)": ping,
        "read 60 lines of a file": {
            LLMC: lambda s, _: s.call("read_file", path=WEIGHTED, offset_lines=FIRST - 1, max_lines=length),
            COMMANDER: lambda s, _: s.call("read_file", path=f"{s.root}/{WEIGHTED}", offset=FIRST - 1, length=length),
            FILES: lambda s, _: s.call("read_text_file", path=f"{s.root}/{WEIGHTED}", head=LAST),
        },
        "list a directory": {
            LLMC: lambda s, _: s.call("list_dir", path="networkx/algorithms"),
            COMMANDER: lambda s, _: s.call("list_directory", path=f"{s.root}/networkx/algorithms", depth=1),
            FILES: lambda s, _: s.call("list_directory", path=f"{s.root}/networkx/algorithms"),
        },
        "search 570 files": {
            LLMC: lambda s, _: s.call("te_grep", pattern="backend_priority"),
            COMMANDER: lambda s, _: s.search("backend_priority", thinking=0),
        },
        "edit a line": {
            LLMC: lambda s, turn: s.call("linux_fs_edit", path=copy(s), **turned(turn, "old_text", "new_text")),
            COMMANDER: lambda s, turn: s.call(
                "edit_block", file_path=f"{s.root}/{copy(s)}", **turned(turn, "old_string", "new_string")
            ),
            FILES: lambda s, turn: s.call(
                "edit_file", path=f"{s.root}/{copy(s)}", edits=[turned(turn, "oldText", "newText")]
            ),
        },
        # The tools of S1.
        "`linux_fs_list`, a tree": {
            LLMC: lambda s, _: s.call("linux_fs_list", path="networkx", depth=3),
            COMMANDER: lambda s, _: s.call("list_directory", path=f"{s.root}/networkx", depth=4),
            FILES: lambda s, _: s.call("directory_tree", path=f"{s.root}/networkx"),
        },
        "`linux_search_files`": {
            LLMC: lambda s, _: s.call("linux_search_files", root=".", pattern="*weighted*.py"),
            COMMANDER: lambda s, _: s.search("*weighted*.py", thinking=0, kind="files"),
            FILES: lambda s, _: s.call("search_files", path=s.root, pattern="**/*weighted*.py"),
        },
        "`linux_search_content`, with context": {
            LLMC: lambda s, _: s.call("linux_search_content", root=".", pattern="backend_priority", context_lines=2),
            COMMANDER: lambda s, _: s.search("backend_priority", thinking=0, context=2),
        },
        "`linux_fs_read` 60 lines": {
            LLMC: lambda s, _: s.call("linux_fs_read", path=WEIGHTED, offset_lines=FIRST - 1, max_lines=length),
            COMMANDER: lambda s, _: s.call("read_file", path=f"{s.root}/{WEIGHTED}", offset=FIRST - 1, length=length),
            FILES: lambda s, _: s.call("read_text_file", path=f"{s.root}/{WEIGHTED}", head=LAST),
        },
        "`linux_fs_write` a file": {
            LLMC: lambda s, turn: s.call("linux_fs_write", path="written_by_llmc.txt", content=f"{turn}\n" * 50),
            COMMANDER: lambda s, turn: s.call(
                "write_file", path=f"{s.root}/written_by_dc.txt", content=f"{turn}\n" * 50, mode="rewrite"
            ),
            FILES: lambda s, turn: s.call(
                "write_file", path=f"{s.root}/written_by_files.txt", content=f"{turn}\n" * 50
            ),
        },
        "`linux_fs_mkdirs`, `_move`, `_delete`": {LLMC: made_moved_and_deleted},
        "run `echo hi`": {
            LLMC: lambda s, _: s.call("run_cmd", argv=["bash", "-c", "echo hi"]),
            COMMANDER: lambda s, _: s.call("start_process", command="echo hi", timeout_ms=5000),
        },
        "retrieval (`rag_search`)": {
            LLMC: lambda s, turn: s.call("rag_search", query=QUESTIONS[turn % len(QUESTIONS)]),
        },
    }


QUESTIONS = [
    "shortest path between two nodes with negative weights", "read a graph from an edge list file", "_weight_function",
    "where are backends loaded", "NetworkXNoPath No path to harbour", "draw nodes with matplotlib", "random geometric graph",
    "eccentricity radius center", "convert to pandas", "maximum flow preflow push",
]


def copy(session):
    """A file of its own for each server to edit."""
    name = f"edited_by_{session.kind.key}.py"
    path = Path(session.root) / name
    if not path.exists():
        path.write_text((Path(session.root) / PAGERANK).read_text())
    return name


def made_moved_and_deleted(session, turn):
    session.call("linux_fs_mkdirs", path=f"made_{turn}/inner")
    session.call("linux_fs_move", source=f"made_{turn}", target=f"moved_{turn}")
    session.call("linux_fs_delete", path=f"moved_{turn}", recursive=True)


def title(kind):
    return kind.title.partition(",")[0]


def p95(values):
    return statistics.quantiles(values, n=20, method="inclusive")[-1]


def cell(seconds, memory, name, kind):
    if (name, kind) not in seconds:
        return "–"
    taken = seconds[name, kind]
    return f"{milliseconds(statistics.median(taken))}, {milliseconds(p95(taken))}; {shown(memory[name, kind])}"


def shown(memory):
    return f"{megabytes(memory['private'])} ({megabytes(memory['pss'])})"


def goals(seconds):
    names = list(operations())
    no_op = p95(seconds[names[0], LLMC])
    tool = max(p95(seconds[name, LLMC]) for name in names[1:-1])
    retrieval = p95(seconds[names[-1], LLMC])
    of_s1 = [name for name in names if name.startswith("`linux_")]
    s1 = max(p95(seconds[name, LLMC]) for name in of_s1)
    ratios = [
        f"{ratio(seconds[name, LLMC], seconds[name, COMMANDER]):.2f} {name}"
        for name in of_s1 if (name, COMMANDER) in seconds
    ]
    return (
        f"LLMC's p95: no-op {milliseconds(no_op)}, target ≤ 15 ms: {verdict(no_op <= NO_OP)}; the slowest tool call "
        f"{milliseconds(tool)}, target ≤ 150 ms: {verdict(tool <= TOOL)}; retrieval {milliseconds(retrieval)}, "
        f"target ≤ 200 ms: {verdict(retrieval <= RETRIEVAL)}. The slowest of the `linux_*` tools {milliseconds(s1)}, target of "
        f"S1 < 500 ms: {verdict(s1 < S1)}; medians as a share of Desktop Commander's: {', '.join(ratios) or 'not measured'}."
    )
