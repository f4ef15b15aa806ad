"""Docstring → function: does retrieval find a function by what its author says it does?

Each source tree is copied without its docstrings. The first paragraph of each docstring is then a question, and the
function it was taken from the answer. The same questions go to plain BM25 over windows of 40 lines and over single
lines, which know nothing of code.

    python3 bench/rag/docstrings.py target/release/llmc WORK python:networkx=DIR rust:tokio=DIR …

prints a Markdown table. Everything is deterministic: questions are drawn with a fixed seed.
"""

import argparse
import ast
import collections
import json
import math
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from mcp import Server  # noqa: E402

QUESTIONS = 150
DEPTH = 10
WINDOW = 40


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


class Plain:
    """BM25 over pieces of lines: words in lower case, nothing else."""

    def __init__(self, root, size):
        self.pieces, self.postings = [], collections.defaultdict(list)
        for path in sorted(p for p in root.rglob("*") if p.is_file() and ".llmc" not in p.parts):
            lines = path.read_text().splitlines()
            for start in range(0, len(lines), size):
                words = re.findall(r"\w+", "\n".join(lines[start:start + size]).lower())
                counts = collections.Counter(words)
                number = len(self.pieces)
                relative = str(path.relative_to(root))
                self.pieces.append((relative, start + 1, min(start + size, len(lines)), len(words)))
                for word, count in counts.items():
                    self.postings[word].append((number, count))
        self.average = sum(p[3] for p in self.pieces) / max(1, len(self.pieces))

    def search(self, query, k):
        scores = collections.Counter()
        total = len(self.pieces)
        for word in set(re.findall(r"\w+", query.lower())):
            found = self.postings.get(word, ())
            rarity = math.log(1 + (total - len(found) + 0.5) / (len(found) + 0.5))
            for number, count in found:
                norm = 1.2 * (0.25 + 0.75 * self.pieces[number][3] / self.average)
                scores[number] += rarity * count * 2.2 / (count + norm)
        best = sorted(scores.items(), key=lambda item: (-item[1], item[0]))[:k]
        return [self.pieces[number][:3] for number, _ in best]


def rank_of(question, pieces):
    path, line, _, _ = question
    for place, (found, first, last) in enumerate(pieces, 1):
        if found == path and first <= line <= last:
            return place
    return None


def measures(ranks):
    n = max(1, len(ranks))
    hit = lambda k: sum(1 for r in ranks if r and r <= k) / n
    return sum(1 / r for r in ranks if r) / n, hit(1), hit(5), hit(10)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("llmc")
    parser.add_argument("work", type=Path)
    parser.add_argument("trees", nargs="+", help="language:name=folder")
    parser.add_argument("--misses", action="store_true", help="print what was not found")
    options = parser.parse_args()
    print("| tree | questions | system | MRR | Hit@1 | Hit@5 | Hit@10 |")
    print("|---|---|---|---|---|---|---|")
    sums = collections.defaultdict(list)
    for tree in options.trees:
        language, rest = tree.split(":", 1)
        name, folder = rest.split("=", 1)
        target = options.work / name
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        questions = prepare(language, folder, target)
        subprocess.run([options.llmc, "rag", "index", "--root", target], check=True, stdout=subprocess.DEVNULL)
        server = Server([options.llmc, "mcp", "--root", str(target), "--mode", "classic",
                         "--set", "mcp.rag.top_k=10", "--set", "mcp.rag.token_budget=1000000",
                         "--set", "mcp.limits.rate_limit_rps=100000"])
        systems = {"LLMC": [], "plain windows": [], "plain lines": []}
        plain = {"plain windows": Plain(target, WINDOW), "plain lines": Plain(target, 1)}
        for question in questions:
            text, _ = server.call("rag_search", query=question[3], k=DEPTH)
            pieces = []
            for snippet in json.loads(text)["snippets"]:
                path, lines = snippet["src"].rsplit("#L", 1)
                first, last = lines.split("-L")
                # A class that holds the function is not the answer, a piece no larger than a window is.
                fits = snippet.get("symbol", "").split("::")[-1] == question[2] or int(last) - int(first) < WINDOW
                pieces.append((path, int(first), int(last)) if fits else (path, 0, 0))
            rank = rank_of(question, pieces)
            systems["LLMC"].append(rank)
            if options.misses and rank is None:
                print("miss:", question, pieces[:3], file=sys.stderr)
            for system, index in plain.items():
                systems[system].append(rank_of(question, index.search(question[3], DEPTH)))
        server.process.kill()
        for system, ranks in systems.items():
            sums[(language, system)] += ranks
            sums[("all", system)] += ranks
            print("| {} | {} | {} | {:.3f} | {:.2f} | {:.2f} | {:.2f} |".format(
                name, len(ranks), system, *measures(ranks)), flush=True)
    for (group, system), ranks in sorted(sums.items()):
        print("| **{}** | {} | {} | {:.3f} | {:.2f} | {:.2f} | {:.2f} |".format(
            group, len(ranks), system, *measures(ranks)))


main()
