"""Docstring → function: does retrieval find a function by what its author says it does?

Each source tree is copied without its docstrings. The first paragraph of each docstring is then a question, and the
function it was taken from the answer. The same questions go to plain BM25 over windows of 40 lines and over single
lines, which know nothing of code.

    python3 bench/rag/docstrings.py target/release/llmc WORK python:networkx=DIR rust:tokio=DIR … [--plot docs/x.svg]

prints a Markdown table and draws it. Everything is deterministic: questions are drawn with a fixed seed.
"""

import argparse
import ast
import random
import re
import shutil
import sys
from pathlib import Path

from common import BASELINES, DEPTH, WINDOW, Llmc, Plain, Results, measures
from plot import bars

QUESTIONS = 150
SYSTEMS = ["LLMC", *BASELINES]


def first_paragraph(text):
    text = re.split(r"\n\s*\n", text.strip())[0]
    return " ".join(text.split())


def is_question(name, text):
    words = re.findall(r"[A-Za-z]{2,}", text)
    return len(words) >= 4 and not name.startswith(("_", "test")) and len(text) < 400


def strip_python(source):
    """The source without docstrings, and what they were: (line of def in the new text, name, docstring)."""
    tree = ast.parse(source)
    lines = source.splitlines(keepends=True)
    gone, found = set(), []
    for node in ast.walk(tree):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)):
            continue
        body = node.body
        if not (body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
                and isinstance(body[0].value.value, str)):
            continue
        doc = body[0]
        if len(body) == 1:
            continue
        gone.update(range(doc.lineno, doc.end_lineno + 1))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found.append((node.lineno, node.name, first_paragraph(doc.value.value)))
    kept, place = [], {}
    for number, line in enumerate(lines, 1):
        if number not in gone:
            kept.append(line)
            place[number] = len(kept)
    return "".join(kept), [(place[line], name, text) for line, name, text in found if line in place]


RUST_FN = re.compile(r"^\s*(?:pub(?:\([^)]*\))?\s+)?(?:const\s+|async\s+|unsafe\s+)*fn\s+(\w+)")


def strip_rust(source):
    kept, found, doc = [], [], []
    for line in source.splitlines(keepends=True):
        text = line.strip()
        if text.startswith(("///", "//!")):
            if text.startswith("///"):
                doc.append(text[3:].strip())
            continue
        if text.startswith("#[") or text.startswith("#!["):
            kept.append(line)
            continue
        kept.append(line)
        match = RUST_FN.match(line)
        if match and doc:
            paragraph = []
            for part in doc:
                if not part and paragraph:
                    break
                paragraph.append(part)
            text = re.sub(r"\[`?([^\]`]*)`?\](\([^)]*\))?", r"\1", " ".join(paragraph)).strip()
            found.append((len(kept), match.group(1), text))
        doc = []
    return "".join(kept), found


def prepare(language, tree, target):
    """Copies a tree without docstrings; the questions."""
    suffix, strip = {"python": (".py", strip_python), "rust": (".rs", strip_rust)}[language]
    questions = []
    for path in sorted(Path(tree).rglob("*" + suffix)):
        relative = path.relative_to(tree)
        if any(part in ("tests", "test", "benches", "examples") for part in relative.parts):
            continue
        try:
            text, found = strip(path.read_text())
        except (SyntaxError, UnicodeDecodeError):
            continue
        copy = target / relative
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(text)
        questions += [(str(relative), line, name, doc) for line, name, doc in found if is_question(name, doc)]
    random.Random(1).shuffle(questions)
    return questions[:QUESTIONS]


def rank_of(question, pieces):
    path, line, name, _ = question
    for place, (found, first, last, symbol, _) in enumerate(pieces, 1):
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
    parser.add_argument("--misses", action="store_true", help="print what was not found")
    options = parser.parse_args()
    results, names, languages = Results(options.count_tokens), [], []
    for tree in options.trees:
        language, rest = tree.split(":", 1)
        name, folder = rest.split("=", 1)
        names.append(name)
        languages += [language] if language not in languages else []
        target = options.work / name
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        questions = prepare(language, folder, target)
        llmc = Llmc(options.llmc, target)
        systems = {"LLMC": llmc.pieces}
        for system, size in BASELINES.items():
            plain = Plain(target, size)
            systems[system] = lambda query, plain=plain: plain.search(query, DEPTH)
        for question in questions:
            for system, search in systems.items():
                pieces = search(question[3])
                rank = rank_of(question, pieces)
                results.add([name, f"**{language}**", "**all**"], system, rank, pieces)
                if options.misses and rank is None and system == "LLMC":
                    print("miss:", question, [p[:3] for p in pieces[:3]], file=sys.stderr)
        llmc.close()
        print(name, "done", file=sys.stderr)
    groups = names + [f"**{language}**" for language in languages] + ["**all**"]
    print(results.table(groups, SYSTEMS))
    if options.plot:
        values = [[measures(results.ranks[group, system])[0] for system in SYSTEMS] for group in groups]
        labels = [group.strip("*") for group in groups]
        options.plot.write_text(bars("Docstring → function: mean reciprocal rank", labels, SYSTEMS, values))


main()
