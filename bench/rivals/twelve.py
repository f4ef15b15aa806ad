"""Twelve things that agents do all day, done with each server's own tools, and a check of each answer.

A task is done as an experienced user would: the best tool for it, its best arguments, no call too many.
Desktop Commander is used in two manners: with the tools that its descriptions ask to be used, and with its shell
wherever that is cheaper. `None` means that a server has no tool for it. The check looks at what came back, or at the
files that were changed, and compares with `project.py`.
"""

import re
from dataclasses import dataclass

import project
from servers import COMMANDER, FILES, HYBRID, SHELL, TE

WEIGHTED = "networkx/algorithms/shortest_paths/weighted.py"
PAGERANK = "networkx/algorithms/link_analysis/pagerank_alg.py"
FIRST, LAST = 1001, 1060
ITERATIONS = "def pagerank(\n    G,\n    alpha=0.85,\n    personalization=None,\n    max_iter={},"


@dataclass(eq=False)
class Task:
    """What is asked, how each server does it, and what must be true afterwards."""

    name: str
    question: str
    ways: dict
    check: object
    prepare: object = None


def all_tasks():
    return [definition(), callers(), middle(), todos(), edit(), failing(), explore(), rename(), trace(), diff(), key(), count()]


def definition():
    pattern = r"def connected_components\b"
    return Task(
        "find a definition",
        "Where is `connected_components` defined, and what does it take?",
        {
            HYBRID: lambda s, p: s.call("run_cmd", argv=["rg", "-n", pattern]),
            TE: lambda s, p: s.call("te_grep", pattern=pattern),
            COMMANDER: lambda s, p: s.search(pattern + ".*"),
            SHELL: lambda s, p: s.shell(f"rg -n '{pattern}' ."),
            FILES: lambda s, p: (
                s.call("search_files", path=s.root, pattern="**/connected.py"),
                s.call("read_text_file", path=f"{s.root}/networkx/algorithms/components/connected.py", head=20),
            ),
        },
        lambda answer, p: all(
            located(answer, p, name, number) and "def connected_components(G)" in answer
            for name, number, _ in p.lines(pattern)
        ),
    )


def callers():
    name = "_weight_function"
    return Task(
        "list callers",
        f"Which lines call `{name}`?",
        {
            HYBRID: lambda s, p: s.call("run_cmd", argv=["rg", "-n", "--heading", "--trim", rf"\b{name}\("]),
            TE: lambda s, p: s.call("te_grep", pattern=rf"\b{name}\("),
            COMMANDER: lambda s, p: s.search(rf"\b{name}\(.*"),
            SHELL: lambda s, p: s.shell(rf"rg -n --heading --trim '\b{name}\(' ."),
        },
        lambda answer, p: all(located(answer, p, *place) for place in p.callers(name)),
    )


def middle():
    def way(tool, **arguments):
        return lambda s, p: s.call(tool, **arguments)

    return Task(
        "read the middle of a large file",
        f"Show lines {FIRST} to {LAST} of `{WEIGHTED}` (2,517 lines).",
        {
            HYBRID: way("read_file", path=WEIGHTED, offset_lines=FIRST - 1, max_lines=LAST - FIRST + 1),
            TE: way("te_cat", path=f"{WEIGHTED}#L{FIRST}-L{LAST}"),
            COMMANDER: lambda s, p: s.call(
                "read_file", path=f"{s.root}/{WEIGHTED}", offset=FIRST - 1, length=LAST - FIRST + 1
            ),
            SHELL: lambda s, p: s.shell(f"sed -n {FIRST},{LAST}p {WEIGHTED}"),
            FILES: lambda s, p: s.call("read_text_file", path=f"{s.root}/{WEIGHTED}", head=LAST),
        },
        lambda answer, p: holds(answer, (p.root / WEIGHTED).read_text().splitlines()[FIRST - 1:LAST]),
    )


def todos():
    pattern, under = "TODO|FIXME", "networkx/algorithms"
    return Task(
        "TODOs in a tree",
        f"List every TODO and FIXME under `{under}`.",
        {
            HYBRID: lambda s, p: s.call("run_cmd", argv=["rg", "-n", "--heading", "--trim", pattern, under]),
            TE: lambda s, p: s.call("te_grep", pattern=pattern, path=under),
            COMMANDER: lambda s, p: s.search(f"({pattern}).*", under),
            SHELL: lambda s, p: s.shell(f"rg -n --heading --trim '{pattern}' {under}"),
        },
        lambda answer, p: all(located(answer, p, name, number) for name, number, _ in p.lines(pattern, under)),
    )


def edit():
    old, new = ITERATIONS.format(100), ITERATIONS.format(200)
    look = r"rg -n --heading -A6 '^def pagerank\(' ."
    return Task(
        "edit a line",
        "Let `pagerank` take 200 iterations by default instead of 100.",
        {
            HYBRID: lambda s, p: (
                s.call("run_cmd", argv=["rg", "-n", "--heading", "-A6", r"^def pagerank\("]),
                s.call("linux_fs_edit", path=PAGERANK, old_text=old, new_text=new),
            ),
            COMMANDER: lambda s, p: (
                s.search(r"def pagerank\("),
                s.call("read_file", path=f"{s.root}/{PAGERANK}", offset=9, length=8),
                s.call("edit_block", file_path=f"{s.root}/{PAGERANK}", old_string=old, new_string=new),
            ),
            SHELL: lambda s, p: (
                s.shell(look),
                s.shell(f"sed -i 14s/100/200/ {PAGERANK} && sed -n 14p {PAGERANK}"),
            ),
            FILES: lambda s, p: (
                s.call("search_files", path=s.root, pattern="**/pagerank*.py"),
                s.call("read_text_file", path=f"{s.root}/{PAGERANK}", head=20),
                s.call("edit_file", path=f"{s.root}/{PAGERANK}", edits=[{"oldText": old, "newText": new}]),
            ),
        },
        lambda answer, p: changed(p, {PAGERANK: (p.committed(PAGERANK).replace(old, new, 1))}),
    )


def failing():
    tests = "networkx/algorithms/tests/test_distance_measures.py"
    # One line for each failure, wide enough for what was compared.
    command = f"COLUMNS=200 .venv/bin/python -m pytest -q --tb=no {tests} 2>/dev/null"
    must = [
        "TestDistance::test_center - ", "{6, 7, 10, 11}", "test_center_weight_None", "3 ± 3.0e-06 == 2",
        "test_center_weight_attr", "{0, 1, 2, 3, 4, 5} != {0, 1, 2, 3, 4, 5}", "test_center_weight_fn", "assert 6 == 4", "4 failed",
    ]
    return Task(
        "run failing tests",
        f"Run `{tests}`: which tests fail, and what did they compare?",
        {way: lambda s, p: s.shell(command) for way in (HYBRID, COMMANDER, SHELL)},
        lambda answer, p: all(text in answer for text in must),
    )


def explore():
    must = [
        "Python package for the creation, manipulation,", "pip install networkx", "algorithms", "classes", "drawing",
        "generators", "linalg", "readwrite", "utils", "convert_matrix.py", "conftest.py",
    ]
    one = "ls . networkx && sed -n '/^NetworkX is/,/^Bugs/p' README.md"
    return Task(
        "explore an unknown repository",
        "What is this project, what are its parts, how is it used and installed?",
        {
            HYBRID: lambda s, p: s.shell(one),
            TE: lambda s, p: (s.call("te_ls", path="networkx"), s.call("te_cat", path="README.md#L15-L59")),
            COMMANDER: lambda s, p: (
                s.call("list_directory", path=f"{s.root}/networkx", depth=1),
                s.call("read_file", path=f"{s.root}/README.md", offset=14, length=45),
            ),
            SHELL: lambda s, p: s.shell(one),
            FILES: lambda s, p: (
                s.call("list_directory", path=f"{s.root}/networkx"),
                s.call("read_text_file", path=f"{s.root}/README.md", head=58),
            ),
        },
        lambda answer, p: all(text in answer for text in must),
    )


def rename():
    old, new = "_weight_function", "_edge_weight"
    command = rf"rg -lw {old} . | xargs sed -i 's/\b{old}\b/{new}/g' && git diff --shortstat"
    return Task(
        "rename across files",
        f"Rename `{old}` to `{new}` everywhere.",
        {way: lambda s, p: s.shell(command) for way in (HYBRID, COMMANDER, SHELL)},
        lambda answer, p: changed(p, {
            name: re.sub(rf"\b{old}\b", new, p.committed(name)) for name in {name for name, *_ in p.original(rf"\b{old}\b")}
        }),
    )


def trace():
    first, last = 745, 767
    return Task(
        "explain a stack trace",
        "`plan_route.py` ends with this trace (given): why is there no path? Show the code that raises.",
        {
            HYBRID: lambda s, p: s.call("read_file", path=WEIGHTED, offset_lines=first - 1, max_lines=last - first + 1),
            TE: lambda s, p: s.call("te_cat", path=f"{WEIGHTED}#L{first}-L{last}"),
            COMMANDER: lambda s, p: s.call(
                "read_file", path=f"{s.root}/{WEIGHTED}", offset=first - 1, length=last - first + 1
            ),
            SHELL: lambda s, p: s.shell(f"sed -n {first},{last}p {WEIGHTED}"),
            FILES: lambda s, p: s.call("read_text_file", path=f"{s.root}/{WEIGHTED}", head=last),
        },
        lambda answer, p: (
            "line 767, in multi_source_dijkstra" in p.trace()
            and holds(answer, project.body((p.root / WEIGHTED).read_text(), "multi_source_dijkstra"))
        ),
    )


def diff():
    return Task(
        "review a diff",
        "What do the open changes do, and is anything wrong with them?",
        {
            HYBRID: lambda s, p: s.shell("git diff"),
            TE: lambda s, p: s.call("te_git", args=["diff"]),
            COMMANDER: lambda s, p: s.shell("git diff"),
            SHELL: lambda s, p: s.shell("git diff"),
        },
        lambda answer, p: all(line in answer for line in p.open_lines()),
        prepare=lambda p: p.change(project.CHANGE),
    )


def key():
    name = "backend_priority"
    return Task(
        "find a config key's uses",
        f"Where is the setting `{name}` declared, read and set?",
        {
            HYBRID: lambda s, p: s.call("run_cmd", argv=["rg", "-n", "--heading", "--trim", name]),
            TE: lambda s, p: s.call("te_grep", pattern=name),
            COMMANDER: lambda s, p: s.search(f".*{name}.*"),
            SHELL: lambda s, p: s.shell(f"rg -n --heading --trim {name} ."),
        },
        lambda answer, p: all(located(answer, p, place, number) for place, number, _ in p.lines(name)),
    )


def count():
    pattern, under = r"raise nx\.NetworkXError\b", "networkx/algorithms"
    command = f"rg '{pattern}' {under} | wc -l"
    return Task(
        "count by pattern",
        f"How many lines under `{under}` raise `NetworkXError`?",
        {
            HYBRID: lambda s, p: s.shell(command),
            TE: lambda s, p: s.call("te_grep", pattern=pattern, path=under, count=True),
            COMMANDER: lambda s, p: s.shell(command),
            SHELL: lambda s, p: s.shell(command),
        },
        lambda answer, p: re.search(rf'(^|matches":|^# TE: ){len(p.lines(pattern, under))}\b', answer, re.MULTILINE),
    )


def located(answer, p, name, number):
    """Whether the answer shows that line of that file: as `name:number`, under the file's name, or in the file itself."""
    if re.search(rf"{re.escape(name)}\D{{1,3}}{number}\b", answer):
        return True
    under = re.search(rf"^(?:\./)?{re.escape(name)}\n((?: *\d+[:-].*\n?)*)", answer, re.MULTILINE)
    if under and re.search(rf"^ *{number}\b", under[1], re.MULTILINE):
        return True
    lines = (p.root / name).read_text().splitlines()
    return name in answer and "\n".join(lines[max(number - 8, 0):number]) in answer


def holds(answer, lines):
    """Whether all these lines are in the answer."""
    return all(line.strip() in answer for line in lines)


def changed(p, expected):
    """Whether the files are as expected and every other one is as it was."""
    return p.changed_files() == expected
