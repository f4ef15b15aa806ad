"""Collects pairs of a text and the code that it is about, from git repositories at pinned commits.

    python3 bench/rag/train/pairs.py bench/rag/train/inputs.txt REPOSITORIES OUT

reads `REPOSITORIES/owner+name/repo` (a git directory) for every line of the list that is not held out, and writes
`OUT/pairs.npz` and `OUT/words.txt`. Three kinds of pairs: documentation and its function, a comment and the lines behind
it, a commit message and the lines it changed. Vendored, generated and test files are left out, and so is every
documentation that a held-out project has, too, and every file under a copyleft licence.
"""

import collections
import random
import re
import subprocess
import sys
import zlib
from array import array
from pathlib import Path

import numpy

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import documented  # noqa: E402
from words import Splitter  # noqa: E402

MAX_FUNCTIONS, MAX_COMMENTS, MAX_COMMITS = 8_000, 2_000, 500
MAX_FILES, MAX_FILE_BYTES = 2_000, 400_000
# Single files of a project may have another licence than the project.
OTHER_LICENCE = re.compile(r"SPDX-License-Identifier:(?!.*(?:Apache|BSD|MIT)).*GPL|GNU (?:Lesser |Library )?General Public")
HEADER_CHARS = 3_000
LEFT_OUT = re.compile(r"(^|/)(tests?|testing|testdata|__tests__|spec|vendor|third_party|thirdparty|node_modules|deps|dist|"
                      r"build|generated|examples?|docs?|benches|benchmarks?|fixtures)(/|$)|_test\.|\.test\.|\.min\.|\.pb\.|"
                      r"zz_generated|\.spec\.|\.d\.ts$|_pb2")
LANGUAGES = {suffix: language for language, suffixes in documented.SUFFIXES.items() for suffix in suffixes}


def git(repository, *arguments, **options):
    # A snapshot may lack its largest files, over which git fails after having printed the rest.
    return subprocess.run(["git", "-C", repository, *arguments], capture_output=True, **options).stdout


def inputs(path):
    """(repository, commit, licence, use) of each line."""
    for line in Path(path).read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            yield line.split("\t")


def sources(repository, commit):
    """(path, language, text) of the source files, in a fixed random order."""
    rows = git(repository, "ls-tree", "-r", "--format=%(objecttype) %(objectname) %(path)", commit).decode(errors="replace")
    files = []
    for row in rows.splitlines():
        kind, name, path = row.split(" ", 2)
        suffix = "." + path.rsplit(".", 1)[-1]
        if kind == "blob" and suffix in LANGUAGES and not LEFT_OUT.search(path):
            files.append((name, path, LANGUAGES[suffix]))
    random.Random(1).shuffle(files)
    files = files[:MAX_FILES]
    listed = "".join(name + "\n" for name, _, _ in files).encode()
    blobs = git(repository, "cat-file", "--batch", input=listed)
    at = 0
    for _, path, language in files:
        end = blobs.index(b"\n", at)
        head = blobs[at:end].split()
        if head[-1] == b"missing":
            at = end + 1
            continue
        size = int(head[-1])
        text = blobs[end + 1:end + 1 + size].decode(errors="replace") if size < MAX_FILE_BYTES else ""
        if text and not OTHER_LICENCE.search(text[:HEADER_CHARS]):
            yield path, language, text
        at = end + 2 + size


def functions(path, language, text):
    """(question, name, path, body) of documented functions, and of comments inside of them."""
    try:
        stripped, items = documented.strip(language, text)
    except (SyntaxError, ValueError, RecursionError):
        return [], []
    lines = stripped.splitlines(keepends=True)
    found, comments = [], []
    for item in items:
        if not documented.is_question(item.name, item.doc):
            continue
        body = documented.body(lines, item.line)
        found.append((item.doc, item.name, f"{path} {item.scope}", "".join(body)))
    mark = "#" if language == "python" else "//"
    at = 0
    while at < len(lines):
        if not lines[at].lstrip().startswith(mark) or not lines[at].startswith((" ", "\t")):
            at += 1
            continue
        end = at
        while end < len(lines) and lines[end].lstrip().startswith(mark):
            end += 1
        said = " ".join(line.strip().lstrip("#/! ") for line in lines[at:end])
        code = "".join(lines[end:end + 6])
        if 6 <= len(re.findall(r"[A-Za-z]{2,}", said)) <= 50 and code.strip():
            comments.append((said, "", path, code))
        at = end
    return found, comments


CONTEXT = re.compile(r"^@@ [^@]* @@ ?(.*)$")


def commits(repository, commit):
    """(message, name, path, changed lines) of commits that change few files."""
    log = git(repository, "log", "--no-merges", f"-n{MAX_COMMITS}", "-p", "-U6", "--no-renames", "--no-color",
              "--format=%x01%B%x02", commit).decode(errors="replace")
    for entry in log.split("\x01")[1:]:
        message, _, patch = entry.partition("\x02")
        message = re.sub(r"(?m)^[A-Z][\w-]+: .*$|https?://\S+|\(?#\d+\)?", "", message).strip()
        message = " ".join(message.split())[:400]
        if len(re.findall(r"[A-Za-z]{3,}", message)) < 4 or len(patch) > 60_000:
            continue
        files = patch.split("diff --git ")[1:]
        kept = []
        for file in files:
            head, _, rest = file.partition("\n@@")
            path = head.split("\n")[0].split(" b/")[-1]
            if "." + path.rsplit(".", 1)[-1] not in LANGUAGES or LEFT_OUT.search(path) or not rest:
                continue
            body, names = [], []
            for line in ("@@" + rest).splitlines():
                match = CONTEXT.match(line)
                if match:
                    names.append(match.group(1)[:80])
                elif line[:1] in " -":
                    body.append(line[1:])
            if len(body) >= 3:
                kept.append((message, " ".join(names[:2]), path, "\n".join(body[:60])))
        if 1 <= len(kept) <= 3:
            yield from kept


class Store:
    """Bags of words as numbers: for each pair four lists."""

    def __init__(self):
        self.ids, self.words = {}, []
        self.splitter = Splitter()
        self.flat = [array("I") for _ in range(4)]
        self.ends = [array("Q") for _ in range(4)]
        self.project, self.kind, self.question = array("H"), array("B"), array("Q")

    def bag(self, text):
        ids = self.ids
        found = []
        for word in self.splitter.words(text):
            number = ids.get(word)
            if number is None:
                number = ids[word] = len(ids)
            found.append(number)
        return found

    def add(self, project, kind, pair):
        question, name, path, body = pair
        for place, text in enumerate((question[:600], name, path, body[:4000])):
            self.flat[place].extend(self.bag(text))
            self.ends[place].append(len(self.flat[place]))
        self.project.append(project)
        self.kind.append(kind)
        self.question.append(zlib.crc32(documented.same_doc(pair[0]).encode()))

    def save(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        arrays = {}
        for place, field in enumerate(("question", "name", "path", "body")):
            arrays[field] = numpy.array(self.flat[place], dtype=numpy.uint32)
            arrays[field + "_ends"] = numpy.array(self.ends[place], dtype=numpy.uint64)
        numpy.savez(folder / "pairs.npz", project=numpy.array(self.project), kind=numpy.array(self.kind),
                    same=numpy.array(self.question), **arrays)
        (folder / "words.txt").write_text("\n".join(self.ids) + "\n")


def main():
    listed, repositories, out = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    random.seed(1)
    listed = list(inputs(listed))
    held_out = set()
    for name, commit, _, use in listed:
        if use == "held-out":
            for path, language, text in sources(repositories / name.replace("/", "+") / "repo", commit):
                held_out.update(documented.same_doc(pair[0]) for pair in functions(path, language, text)[0])
    print("held-out documentations:", len(held_out), flush=True)
    store, often = Store(), collections.Counter()
    for project, (name, commit, _, use) in enumerate(listed):
        if use != "train":
            continue
        repository = repositories / name.replace("/", "+") / "repo"
        counts = [0, 0, 0]
        for path, language, text in sources(repository, commit):
            found, comments = functions(path, language, text)
            for pair in found:
                said = documented.same_doc(pair[0])
                if counts[0] < MAX_FUNCTIONS and said not in held_out and often[said] < 3:
                    often[said] += 1
                    counts[0] += 1
                    store.add(project, 0, pair)
            for pair in comments:
                if counts[1] < MAX_COMMENTS:
                    counts[1] += 1
                    store.add(project, 1, pair)
        for pair in commits(repository, commit):
            counts[2] += 1
            store.add(project, 2, pair)
        print(name, *counts, len(store.ids), flush=True)
    store.save(out)


if __name__ == "__main__":
    main()
