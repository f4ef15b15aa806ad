"""Learns the weights of the ranking from documentation and the functions it belongs to, and from commits and their files.

    python3 bench/rag/train/rank.py collect target/release/llmc REPOSITORIES WORK [--use rank] [--questions 40] [--without]
    python3 bench/rag/train/rank.py collect target/release/llmc REPOSITORIES WORK --commits [--use rank] [--questions 15]
    python3 bench/rag/train/rank.py fit WORK/rank.jsonl WORK/rank-commits.jsonl [--evaluate WORK/held-out.jsonl …]

`collect` asks LLMC about the projects of `inputs.txt` with that use and keeps the features of every candidate (`explain`):
documentation, whose answer is a function, or with `--commits` the messages of the last commits, whose answers are the units of the
files that each changed. `rank` ones train: neither were the vectors trained on them nor does the evaluation use them. `fit`
prints the weights for `crates/llmc-index/src/features.rs`, and how candidates of other questions are ordered by them: the loss
is the softmax over the candidates of a question, with the weights that are there as the prior; both kinds of questions, and
each language among them, count the same. A feature that no such question has keeps its weight. Needs numpy.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import commits  # noqa: E402
import docstrings  # noqa: E402
from common import Llmc, piece  # noqa: E402
from documented import SUFFIXES  # noqa: E402

HERE = Path(__file__).resolve().parent
FEATURES_RS = HERE.parents[2] / "crates/llmc-index/src/features.rs"
CANDIDATES = 64
# Questions of the training data do not have these, or always have the same.
BY_HAND = {"provider_near", "verbatim", "quote", "file_named", "named", "test", "foreign", "foreign_page", "text", "type",
           "module", "declared"}
PRIOR_STRENGTH = 0.02


def inputs():
    for line in (HERE / "inputs.txt").read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            yield line.split("\t")


def candidates(llmc, query):
    found = llmc.ask("rag_search", query=query, k=CANDIDATES, explain=True)
    if "handle" in found:
        found = llmc.behind(found["handle"])
    return [(piece(one), {why["name"]: why["value"] for why in one["why"]}) for one in found["snippets"]]


def tree(repository, commit, target):
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    # A snapshot may lack its largest files, at which the archive ends.
    archive = subprocess.run(["git", "-C", repository, "archive", commit], capture_output=True).stdout
    subprocess.run(["tar", "x", "-C", target], input=archive, stderr=subprocess.DEVNULL)


def language_of(folder):
    counts = {language: sum(1 for p in folder.rglob("*") if p.suffix in suffixes) for language, suffixes in SUFFIXES.items()}
    return max(counts, key=counts.get)


def collect(options):
    settings = {"mcp.rag.top_k": CANDIDATES}
    if options.without:
        settings["mcp.rag.embedding.provider"] = "none"
    kind = ("-commits" if options.commits else "") + ("-none" if options.without else "")
    with open(options.work / f"{options.use}{kind}.jsonl", "w") as out:
        for name, commit, _, use in inputs():
            repository = options.repositories / name.replace("/", "+") / "repo"
            if use != options.use or not repository.exists():
                continue
            questions = of_commits if options.commits else of_documentation
            count = 0
            for language, right, found in questions(options, repository, commit, settings):
                features = [features for _, features in found]
                paths = [one[0] for one, _ in found] if options.commits else None
                out.write(json.dumps([name, language, right, features, paths]) + "\n")
                count += 1
            out.flush()
            print(name, count, flush=True)


def of_documentation(options, repository, commit, settings):
    """(language, which candidates are right, candidates) for each question."""
    source, target = options.work / "whole" / options.use, options.work / "stripped" / options.use
    tree(repository, commit, source)
    language = language_of(source)
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    llmc = None
    for question in docstrings.prepare(language, source, target)[:options.questions]:
        llmc = llmc or Llmc(options.llmc, target, **settings)
        found = candidates(llmc, question[0])
        yield language, [docstrings.rank_of(question, [one]) is not None for one, _ in found], found
    if llmc:
        llmc.close()


def of_commits(options, repository, commit, settings):
    target = options.work / "history" / options.use
    shutil.rmtree(target, ignore_errors=True)
    subprocess.run(["git", "clone", "-q", "-s", "--no-checkout", repository, target], check=True)
    # A snapshot may lack its largest files; the others are checked out.
    checkout = ["git", "-C", target, "checkout", "-q", "-f"]
    subprocess.run([*checkout, "-B", "pinned", commit], stderr=subprocess.DEVNULL)
    language = language_of(target)
    for changed, text, files in commits.commits(target, options.questions):
        subprocess.run([*checkout, f"{changed}~1"], stderr=subprocess.DEVNULL)
        llmc = Llmc(options.llmc, target, **settings)
        found = candidates(llmc, text)
        llmc.close()
        yield language, [one[0] in files for one, _ in found], found


def load(path, names):
    import numpy

    for line in open(path):
        _, language, right, features, paths = json.loads(line)
        rows = [[one.get(name, 0.0) for name in names] for one in features]
        matrix = numpy.array(rows, dtype=float).reshape(len(rows), len(names))
        yield f"{language}{'' if paths is None else ' commits'}", numpy.array(right, dtype=bool), matrix, paths


def measure(data, weights):
    found = {}
    for group, right, matrix, paths in data:
        order = (-(matrix @ weights)).argsort(kind="stable")
        if paths is not None:
            # By file: the best piece of each counts.
            best = {}
            for one in order:
                best.setdefault(paths[one], one)
            order = list(best.values())
        place = right[order].nonzero()[0]
        score = 1 / (1 + int(place[0])) if len(place) and place[0] < docstrings.DEPTH else 0.0
        found.setdefault(group, []).append(score)
    every = [score for scores in found.values() for score in scores]
    return {**{group: round(sum(f) / len(f), 3) for group, f in sorted(found.items())},
            "all": round(sum(every) / max(1, len(every)), 3), "questions": len(every)}


def fit(options):
    import numpy

    rows = re.findall(r'\(Feature::\w+, "(\w+)", (-?[\d.]+)\)', FEATURES_RS.read_text())
    names, prior = [name for name, _ in rows], numpy.array([float(weight) for _, weight in rows])
    data = [one for path in options.train for one in load(path, names)]
    learned = numpy.array([name not in BY_HAND for name in names])
    share = {language: sum(1 for d in data if d[0] == language and d[1].any()) for language in {d[0] for d in data}}
    weights = prior.copy()
    mean, square = numpy.zeros_like(prior), numpy.zeros_like(prior)
    for step in range(1, options.steps + 1):
        gradient = 2 * PRIOR_STRENGTH * (weights - prior)
        for language, right, matrix, _ in data:
            if right.any() and not right.all():
                scores = matrix @ weights
                chances = numpy.exp(scores - scores.max())
                good = chances * right
                pull = chances / chances.sum() - good / good.sum()
                gradient = gradient + pull @ matrix / share[language] / len(share)
        gradient = gradient * learned
        mean += 0.1 * (gradient - mean)
        square += 0.01 * (gradient ** 2 - square)
        rate = 0.05 * (1 - step / options.steps)
        weights = weights - rate * mean / (1 - 0.9 ** step) / (numpy.sqrt(square / (1 - 0.99 ** step)) + 1e-8)
    for name, old, new in zip(names, prior, weights):
        print(f"{name:15} {old:7.2f} {new:7.2f}")
    for path in [*options.train, *options.evaluate]:
        other = list(load(path, names))
        print(f"{path}\n  before: {measure(other, prior)}\n  after:  {measure(other, weights)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    verbs = parser.add_subparsers(required=True)
    one = verbs.add_parser("collect")
    one.set_defaults(verb=collect)
    one.add_argument("llmc")
    one.add_argument("repositories", type=Path)
    one.add_argument("work", type=Path)
    one.add_argument("--use", default="rank")
    one.add_argument("--questions", type=int, default=40)
    one.add_argument("--commits", action="store_true", help="ask about the last commits")
    one.add_argument("--without", action="store_true", help="ask without vectors")
    two = verbs.add_parser("fit")
    two.set_defaults(verb=fit)
    two.add_argument("train", type=Path, nargs="+")
    two.add_argument("--evaluate", type=Path, nargs="*", default=[])
    two.add_argument("--steps", type=int, default=300)
    options = parser.parse_args()
    options.verb(options)


if __name__ == "__main__":
    main()
