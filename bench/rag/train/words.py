"""Words of code and of questions, split and stemmed exactly as `crates/llmc-index/src/words.rs` does for ASCII text."""

import re

RUN = re.compile(r"[A-Za-z0-9_]+")
PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
MAX_WORD_BYTES = 48
VOWELS = frozenset("aeiouy")


def stem(word):
    if len(word) > 4 and word.endswith("ies"):
        word = word[:-3] + "y"
    elif len(word) > 4 and word.endswith(("sses", "xes", "ches", "shes", "zzes")):
        word = word[:-2]
    elif len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for suffix in ("ing", "ed"):
        left = len(word) - len(suffix)
        if left >= 3 and word.endswith(suffix) and not word.endswith("eed") and VOWELS & set(word[:left]):
            word = word[:left]
            if left > 3 and word[-1] == word[-2] and word[-1] not in "lsz":
                word = word[:-1]
            break
    if len(word) > 5 and word.endswith(("tion", "sion")):
        word = word[:-3]
    if len(word) > 3 and word.endswith("e"):
        word = word[:-1]
    return word


class Splitter:
    """Remembers the words of each run, since the same runs return all the time."""

    def __init__(self):
        self.known = {}

    def words(self, text):
        known = self.known
        found = []
        for run in RUN.findall(text):
            words = known.get(run)
            if words is None:
                words = known[run] = self.split(run)
                if len(known) > 3_000_000:
                    known.clear()
            found.extend(words)
        return found

    def split(self, run):
        parts = PART.findall(run)
        words = [stem(part.lower()) for part in parts if 2 <= len(part) <= MAX_WORD_BYTES]
        if len(parts) > 1 and len(run) <= MAX_WORD_BYTES:
            whole = run.replace("_", "").lower()
            if len(whole) > 1:
                words.append(whole)
        return words
