"""Trains the table of word vectors on what `pairs.py` collected.

    python3 bench/rag/train/train.py PAIRS OUT.bin [--epochs 6]

A text is the sum of its words' vectors, each with a learned weight for the place where it stands: in a question, in a name,
in a path, in a text. Both sides use one table. The loss is the softmax over a batch, in both directions: a question has to
be nearer to its own code than to the code of the others in the batch, most of which are of the same project. Everything
is seeded; needs numpy and scipy, and one core for less than half an hour.
"""

import argparse
import math
import time
from pathlib import Path

import numpy
from scipy.sparse import csr_matrix

from table import pieces, save

FIELDS = ("question", "name", "path", "body")
START_WEIGHTS = (1.0, 1.5, 0.7, 1.0)
BATCH = 768
HEAT = 16.0


def load(folder, size):
    """The most frequent words, and for each field the rows and values of every pair."""
    data = numpy.load(folder / "pairs.npz")
    words = (folder / "words.txt").read_text().split("\n")[:-1]
    bags, often = {}, numpy.zeros(len(words))
    for field in FIELDS:
        flat, ends = data[field].astype(numpy.int64), data[field + "_ends"].astype(numpy.int64)
        pair = numpy.repeat(numpy.arange(len(ends)), numpy.diff(ends, prepend=0))
        key, count = numpy.unique(pair * len(words) + flat, return_counts=True)
        bags[field] = (key // len(words), key % len(words), count)
        # Words of questions are what is asked for; one in a question counts as much as three in code.
        often += numpy.bincount(key % len(words), minlength=len(words)) * (3 if field == "question" else 1)
    fits = numpy.array([2 <= len(word) <= 24 and not word.isdigit() for word in words])
    order = numpy.argsort(-often * fits, kind="stable")[:size]
    order = order[often[order] >= 5]
    kept = [words[number] for number in order]
    known = {word: number for number, word in enumerate(kept)}
    parts = [pieces(word, known) for word in words]
    first = numpy.array([part[0] if part else -1 for part in parts])
    second = numpy.array([part[1] if len(part) > 1 else -1 for part in parts])
    fields = []
    for pair, word, count in bags.values():
        rows = numpy.concatenate([first[word], second[word]])
        pair, count = numpy.concatenate([pair, pair]), numpy.concatenate([count, count])
        keep = rows >= 0
        # Two unknown words may have the same row.
        key, place = numpy.unique(pair[keep] * len(kept) + rows[keep], return_inverse=True)
        count = numpy.bincount(place, weights=count[keep])
        pair, rows = key // len(kept), key % len(kept)
        starts = numpy.searchsorted(pair, numpy.arange(len(data["project"]) + 1))
        value = (1 + numpy.log(count)) / numpy.sqrt(numpy.maximum(numpy.diff(starts), 1))[pair]
        fields.append((starts, rows.astype(numpy.int32), value.astype(numpy.float32)))
    print("pairs", len(data["project"]), "words", len(words), "kept", len(kept), flush=True)
    return kept, fields, data["project"], data["kind"], data["same"]


def batches(random, project, kind):
    """Numbers of pairs: most batches are of one project, the rest of all."""
    order = random.permutation(len(project))
    mixed, same = order[:len(order) // 5], order[len(order) // 5:]
    same = same[numpy.lexsort((random.random(len(same)), kind[same] == 2, project[same]))]
    every = [part[i:i + BATCH] for part in (mixed, same) for i in range(0, len(part), BATCH)]
    random.shuffle(every)
    return [one for one in every if len(one) >= 64]


class Side:
    """The vectors of one side of a batch, and the way back from their gradient."""

    def __init__(self, model, fields, chosen, drops):
        self.model, count = model, len(chosen)
        rows, values, places, pairs = [], [], [], []
        for (place, (starts, all_rows, all_values)), drop in zip(fields, drops):
            lengths = starts[chosen + 1] - starts[chosen]
            if drop is not None:
                lengths = numpy.where(drop, 0, lengths)
            ends = numpy.cumsum(lengths)
            at = numpy.arange(ends[-1]) + numpy.repeat(starts[chosen] - ends + lengths, lengths)
            rows.append(all_rows[at])
            values.append(all_values[at])
            places.append(all_rows[at] + place * len(model.rows))
            pairs.append(numpy.repeat(numpy.arange(count, dtype=numpy.int32), lengths))
        self.rows, self.pairs = numpy.concatenate(rows), numpy.concatenate(pairs)
        self.places = numpy.concatenate(places)
        self.data = numpy.concatenate(values) * numpy.exp(model.weights[self.places])
        self.bag = csr_matrix((self.data, (self.pairs, self.rows)), shape=(count, len(model.rows)))
        sums = self.bag @ model.rows
        self.length = numpy.maximum(numpy.linalg.norm(sums, axis=1, keepdims=True), 1e-6)
        self.vectors = sums / self.length

    def back(self, gradient, row_gradient, weight_gradient):
        along = (gradient * self.vectors).sum(axis=1, keepdims=True)
        gradient = (gradient - self.vectors * along) / self.length
        row_gradient += self.bag.T @ gradient
        dots = numpy.empty(len(self.rows), dtype=numpy.float32)
        for at in range(0, len(dots), 2048):
            part = slice(at, at + 2048)
            numpy.einsum("ij,ij->i", self.model.rows[self.rows[part]], gradient[self.pairs[part]], out=dots[part])
        weight_gradient += numpy.bincount(self.places, weights=dots * self.data, minlength=len(weight_gradient))


class Adam:
    def __init__(self, values, rate):
        self.values, self.rate, self.step = values, rate, 0
        self.mean, self.square = numpy.zeros_like(values), numpy.zeros_like(values)

    def update(self, gradient, share):
        self.step += 1
        self.mean += 0.1 * (gradient - self.mean)
        self.square += 0.001 * (gradient * gradient - self.square)
        rate = (self.rate * share + 1e-5) * math.sqrt(1 - 0.999 ** self.step) / (1 - 0.9 ** self.step)
        self.values -= (rate * self.mean / (numpy.sqrt(self.square) + 1e-8)).astype(numpy.float32)


class Model:
    def __init__(self, random, words, dimensions):
        self.rows = (random.standard_normal((words, dimensions)) / math.sqrt(dimensions)).astype(numpy.float32)
        self.weights = numpy.repeat(numpy.log(START_WEIGHTS), words).astype(numpy.float32)


def softmax(near):
    near = numpy.exp(near - near.max(axis=1, keepdims=True))
    return near / near.sum(axis=1, keepdims=True)


def train_batch(model, fields, chosen, same, random):
    """The gradients, the loss, and how often the right code was nearest."""
    count = len(chosen)
    question = Side(model, [(0, fields[0])], chosen, [None])
    drops = [random.random(count) < 0.15, random.random(count) < 0.3, None]
    code = Side(model, [(place, fields[place]) for place in (1, 2, 3)], chosen, drops)
    near = HEAT * question.vectors @ code.vectors.T
    right = float((near.argmax(axis=1) == numpy.arange(count)).mean())
    near[(same[chosen][:, None] == same[chosen][None, :]) & ~numpy.eye(count, dtype=bool)] = -1e4
    by_row, by_column = softmax(near), softmax(near.T).T
    diagonal = numpy.arange(count)
    loss = -(numpy.log(by_row[diagonal, diagonal] + 1e-12) + numpy.log(by_column[diagonal, diagonal] + 1e-12)).mean() / 2
    gradient = (by_row + by_column) * (HEAT / 2 / count)
    gradient[diagonal, diagonal] -= HEAT / count
    row_gradient = numpy.zeros_like(model.rows)
    weight_gradient = numpy.zeros(len(model.weights))
    question.back(gradient @ code.vectors, row_gradient, weight_gradient)
    code.back(gradient.T @ question.vectors, row_gradient, weight_gradient)
    return row_gradient, weight_gradient.astype(numpy.float32), float(loss), right


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pairs", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--words", type=int, default=27_000)
    parser.add_argument("--kept", type=int, default=23_000, help="the most frequent words, whose vectors are written")
    parser.add_argument("--dimensions", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=6)
    options = parser.parse_args()
    random = numpy.random.default_rng(1)
    words, fields, project, kind, same = load(options.pairs, options.words)
    model = Model(random, len(words), options.dimensions)
    rows, weights = Adam(model.rows, 3e-3), Adam(model.weights, 1e-2)
    started = time.process_time()
    for epoch in range(options.epochs):
        plan = batches(random, project, kind)
        total = numpy.zeros(2)
        for number, chosen in enumerate(plan):
            row_gradient, weight_gradient, *measured = train_batch(model, fields, chosen, same, random)
            part = (epoch + number / len(plan)) / options.epochs
            share = 0.5 * (1 + math.cos(math.pi * part))
            rows.update(row_gradient, share)
            weights.update(weight_gradient, share)
            total += measured
        loss, right = total / len(plan)
        print(f"epoch {epoch + 1}: loss {loss:.3f}, nearest in its batch {right:.3f}, "
              f"{time.process_time() - started:.0f} s of processor time", flush=True)
        kept = slice(options.kept)
        save(options.out, words[kept], model.rows[kept], numpy.exp(model.weights).reshape(4, -1).T[kept])


if __name__ == "__main__":
    main()
