"""How well a table of word vectors alone finds the functions of the held-out projects by their documentation.

    python3 bench/rag/train/evaluate.py bench/rag/train/inputs.txt REPOSITORIES TABLE.bin [--signs]

Each project's documented functions are ranked by cosine, or by the number of equal signs.
"""

import collections
import random
import sys
from pathlib import Path

import numpy

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import documented  # noqa: E402
from pairs import functions, inputs, sources  # noqa: E402
from table import NAME, PATH, QUESTION, TEXT, Table, pieces  # noqa: E402
from words import Splitter  # noqa: E402

QUESTIONS = 200


def vector(table, splitter, fields):
    total = numpy.zeros(table.dimensions, dtype=numpy.float32)
    for place, text in fields:
        counts = collections.Counter(n for word in splitter.words(text) for n in pieces(word, table.known))
        if counts:
            rows = numpy.fromiter(counts, dtype=numpy.int64)
            often = 1 + numpy.log(numpy.fromiter(counts.values(), dtype=numpy.float32))
            total += (table.weights[rows, place] * often / len(rows) ** 0.5) @ table.rows[rows]
    return total / max(float(numpy.linalg.norm(total)), 1e-9)


def main():
    signs = "--signs" in sys.argv
    listed, repositories, table = sys.argv[1], Path(sys.argv[2]), Table(sys.argv[3])
    splitter = Splitter()
    for name, commit, _, use in inputs(listed):
        if use != "held-out":
            continue
        pairs = []
        for path, language, text in sources(repositories / name.replace("/", "+") / "repo", commit):
            pairs += functions(path, language, text)[0]
        if len(pairs) < 20:
            continue
        code = numpy.array([vector(table, splitter, [(NAME, p[1]), (PATH, p[2]), (TEXT, p[3])]) for p in pairs])
        same = [documented.same_doc(p[0]) for p in pairs]
        order = list(range(len(pairs)))
        random.Random(1).shuffle(order)
        ranks = []
        for chosen in order[:QUESTIONS]:
            question = vector(table, splitter, [(QUESTION, pairs[chosen][0])])
            near = (numpy.sign(code) @ numpy.sign(question)) if signs else code @ question
            best = max(near[n] for n in range(len(pairs)) if same[n] == same[chosen])
            ranks.append(1 + int((near > best).sum()))
        print(f"{name:25} {len(pairs):6} functions, MRR {sum(1 / r for r in ranks) / len(ranks):.3f}, in the first 96: "
              f"{sum(r <= 96 for r in ranks) / len(ranks):.3f}", flush=True)


if __name__ == "__main__":
    main()
