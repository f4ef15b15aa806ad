"""Documentation → function: does retrieval find a function by what its author says it does?

Each source tree is copied without its documentation. The first paragraph of each is then a question, and the function it
was taken from the answer; functions with the same documentation are one answer, and so are the declaration and the definition
of one C function. The same questions go to plain BM25 over windows of 40 lines and over single lines, which know nothing of
code.

    python3 bench/rag/docstrings.py target/release/llmc WORK python:networkx=DIR rust:tokio=DIR … [--plot docs/x.svg]

prints a Markdown table and draws it. `--variant name=mcp.key=value` asks LLMC once more with a setting, `--other
name=EXECUTABLE` asks another version of it, `--documented-place` counts of a C function only the place that has the documentation.
Everything is deterministic: questions are drawn with a fixed seed.
"""

import argparse
import random
import shutil
import sys
from pathlib import Path

from common import BASELINES, DEPTH, WINDOW, Llmc, Plain, Results, measures
from documented import SUFFIXES, c_functions, is_question, same_doc, strip
from plot import bars

QUESTIONS = 150
LEFT_OUT = {"tests", "test", "benches", "examples", "vendor", "third_party", "node_modules", "deps", "docs"}


def prepare(language, tree, target, documented_place=False):
    """Copies a tree without documentation; the questions: (documentation, [(path, line, name)])."""
    answers, others = {}, {}
    for path in sorted(Path(tree).rglob("*")):
        relative = path.relative_to(tree)
        if path.suffix not in SUFFIXES[language] or not path.is_file() or LEFT_OUT & set(relative.parts):
            continue
        try:
            text, found = strip(language, path.read_text())
        except (SyntaxError, UnicodeDecodeError):
            continue
        copy = target / relative
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(text)
        own = set()
        if language == "c" and not documented_place:
            for name, line, of_file in c_functions(text):
                own |= {name} if of_file else set()
                others.setdefault((str(relative) if of_file else "", name), []).append((str(relative), line, name))
        for item in found:
            if is_question(item.name, item.doc):
                places = answers.setdefault(same_doc(item.doc), (item.doc, []))[1]
                places.append((str(relative), item.line, item.name))
                places.append((str(relative) if item.name in own else "", None, item.name))
    questions = [(doc, all_places(places, others)) for _, (doc, places) in sorted(answers.items())]
    random.Random(1).shuffle(questions)
    return questions[:QUESTIONS]


def all_places(places, others):
    """Replaces references to a function (file or "", none, name) by where it is declared and defined."""
    found = []
    for path, line, name in places:
        found += [(path, line, name)] if line else others.get((path, name), [])
    return list(dict.fromkeys(found))


def rank_of(question, pieces):
    for place, (found, first, last, symbol, _) in enumerate(pieces, 1):
        for path, line, name in question[1]:
            # A class that holds the function is not the answer, a piece no larger than a window is.
            fits = symbol.split("::")[-1] == name or last - first < WINDOW
            if fits and found == path and first <= line <= last:
                return place
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("llmc")
    parser.add_argument("work", type=Path)
    parser.add_argument("trees", nargs="+", help="language:name=folder")
    parser.add_argument("--count-tokens", help="the `count` example of llmc-tokens")
    parser.add_argument("--plot", type=Path, help="where to draw the MRR of each tree")
    parser.add_argument("--variant", action="append", default=[], help="name=mcp.key=value")
    parser.add_argument("--other", action="append", default=[], help="name=executable")
    parser.add_argument("--no-plain", action="store_true", help="leave the baselines out")
    parser.add_argument("--documented-place", action="store_true", help="a C function's other place is no answer")
    parser.add_argument("--questions", type=int, default=QUESTIONS, help="at most, of each tree")
    parser.add_argument("--misses", action="store_true", help="print what was not found")
    options = parser.parse_args()
    runs = [("LLMC", options.llmc, {})]
    runs += [(name, options.llmc, dict([rest.split("=", 1)])) for name, rest in (v.split("=", 1) for v in options.variant)]
    runs += [(name, executable, {}) for name, executable in (other.split("=", 1) for other in options.other)]
    systems_asked = [name for name, _, _ in runs] + (list(BASELINES) if not options.no_plain else [])
    results, names, languages = Results(options.count_tokens), [], []
    for tree in options.trees:
        language, rest = tree.split(":", 1)
        name, folder = rest.split("=", 1)
        names.append(name)
        languages += [language] if language not in languages else []
        target = options.work / name
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        questions = prepare(language, folder, target, options.documented_place)[:options.questions]
        plains = BASELINES.items() if not options.no_plain else ()
        systems = {system: Plain(target, size) for system, size in plains}
        systems.update({system: (executable, settings) for system, executable, settings in runs})
        for system, how in systems.items():
            llmc = None if isinstance(how, Plain) else Llmc(how[0], target, **how[1])
            for question in questions:
                pieces = llmc.pieces(question[0]) if llmc else how.search(question[0], DEPTH)
                rank = rank_of(question, pieces)
                results.add([name, f"**{language}**", "**all**"], system, rank, pieces)
                if options.misses and rank is None and system == "LLMC":
                    print("miss:", question, [p[:3] for p in pieces[:3]], file=sys.stderr)
            if llmc:
                llmc.close()
                shutil.rmtree(target / ".llmc", ignore_errors=True)
        print(name, "done", file=sys.stderr)
    groups = names + [f"**{language}**" for language in languages] + ["**all**"]
    print(results.table(groups, systems_asked))
    if options.plot:
        values = [[measures(results.ranks[group, system])[0] for system in systems_asked] for group in groups]
        labels = [group.strip("*") for group in groups]
        options.plot.write_text(bars("Docstring → function: mean reciprocal rank", labels, systems_asked, values))


if __name__ == "__main__":
    main()
