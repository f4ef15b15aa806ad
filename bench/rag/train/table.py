"""The file of word vectors: what `crates/llmc-index/src/word_vectors.rs` reads.

    magic "LWV1", words N, dimensions D, slots S (u32 each, little endian)
    slots: S × u16, the number of the word whose hash leads there, or 65535; the next slot is tried on a collision
    starts: (N + 1) × u32, where each word starts in `letters`
    weights: N × 4 × u16: as a word of a question, of a name, of a path, of a text; scaled by the f32 that follows `letters`
    rows: N × D × i8
    letters, then the scale of the weights (f32)
"""

import struct

import numpy

MAGIC = b"LWV1"
EMPTY = 65535
QUESTION, NAME, PATH, TEXT = range(4)


def slot_hash(word):
    """FNV-1a with 32 bits."""
    value = 0x811C9DC5
    for byte in word.encode():
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value


def save(path, words, rows, weights):
    """`rows` are numbers of any size; each row is scaled to bytes, and its scale goes into its weights."""
    count, dimensions = rows.shape
    assert count < EMPTY and weights.shape == (count, 4)
    largest = numpy.maximum(numpy.abs(rows).max(axis=1, keepdims=True), 1e-9)
    bytes_ = numpy.round(rows / largest * 127).astype(numpy.int8)
    weights = weights * largest
    scale = float(weights.max()) / 65535
    weights = numpy.round(weights / scale).astype("<u2")
    slots = 1 << (count * 2 - 1).bit_length()
    table = numpy.full(slots, EMPTY, dtype="<u2")
    for number, word in enumerate(words):
        at = slot_hash(word) & slots - 1
        while table[at] != EMPTY:
            at = at + 1 & slots - 1
        table[at] = number
    letters = [word.encode() for word in words]
    starts = numpy.cumsum([0] + [len(one) for one in letters]).astype("<u4")
    with open(path, "wb") as file:
        file.write(MAGIC + struct.pack("<III", count, dimensions, slots))
        for part in (table, starts, weights, bytes_):
            file.write(part.tobytes())
        file.write(b"".join(letters))
        file.write(struct.pack("<f", scale))


class Table:
    def __init__(self, path):
        data = open(path, "rb").read()
        assert data[:4] == MAGIC
        count, self.dimensions, slots = struct.unpack("<III", data[4:16])
        at = 16 + 2 * slots
        starts = numpy.frombuffer(data, "<u4", count + 1, at)
        at += 4 * (count + 1)
        weights = numpy.frombuffer(data, "<u2", count * 4, at).reshape(count, 4)
        at += 8 * count
        self.rows = numpy.frombuffer(data, numpy.int8, count * self.dimensions, at).reshape(count, -1).astype(numpy.float32)
        at += count * self.dimensions
        letters = data[at:at + int(starts[-1])]
        scale = struct.unpack("<f", data[at + int(starts[-1]):])[0]
        self.weights = weights.astype(numpy.float32) * scale
        self.words = [letters[a:b].decode() for a, b in zip(starts[:-1], starts[1:])]
        self.known = {word: number for number, word in enumerate(self.words)}


def pieces(word, known):
    """The rows of a word: its own, or those of its longest known beginning and of the rest."""
    number = known.get(word)
    if number is not None:
        return [number]
    for end in range(min(len(word) - 1, 12), 3, -1):
        number = known.get(word[:end])
        if number is not None:
            rest = known.get(word[end:]) if len(word) - end >= 3 else None
            return [number] if rest is None else [number, rest]
    return []
