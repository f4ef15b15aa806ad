"""What the evaluations share: the baseline, the measures, and LLMC asked for pieces of files."""

import collections
import json
import math
import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from mcp import Server  # noqa: E402

DEPTH = 10
WINDOW = 40
BASELINES = {"plain windows": WINDOW, "plain lines": 1}


class Llmc:
    """A server over one tree, whose index is built before it is asked."""

    def __init__(self, llmc, root, **settings):
        subprocess.run([llmc, "rag", "index", "--root", root], check=True, stdout=subprocess.DEVNULL)
        settings = {"mcp.rag.top_k": DEPTH, "mcp.rag.token_budget": 1_000_000,
                    "mcp.limits.rate_limit_rps": 100_000, **settings}
        flags = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
        self.server = Server([llmc, "mcp", "--root", str(root), "--mode", "classic", *flags])

    def ask(self, tool, **arguments):
        return json.loads(self.server.call(tool, **arguments)[0])

    def behind(self, handle):
        """The document that an answer keeps behind a handle."""
        page = self.ask("linux_handle_read", handle=handle, limit=4 << 20)
        return json.loads(page["data"])

    def pieces(self, query, k=DEPTH):
        """What a search finds: (path, first line, last line, symbol, text)."""
        return [piece(snippet) for snippet in self.ask("rag_search", query=query, k=k)["snippets"]]

    def close(self):
        self.server.process.kill()
        self.server.process.wait()


def piece(snippet):
    path, lines = snippet["src"].rsplit("#L", 1)
    first, last = lines.split("-L")
    return path, int(first), int(last), snippet.get("symbol", ""), snippet["text"]


class Plain:
    """BM25 over pieces of lines: words in lower case, nothing else."""

    def __init__(self, root, size):
        self.pieces, self.postings = [], collections.defaultdict(list)
        hidden = lambda path: any(part.startswith(".") for part in path.relative_to(root).parts)
        for path in sorted(p for p in root.rglob("*") if p.is_file() and not hidden(p)):
            try:
                lines = path.read_text().splitlines()
            except UnicodeDecodeError:
                continue
            for start in range(0, len(lines), size):
                text = "\n".join(lines[start:start + size])
                words = re.findall(r"\w+", text.lower())
                number = len(self.pieces)
                relative = str(path.relative_to(root))
                end = min(start + size, len(lines))
                self.pieces.append((relative, start + 1, end, "", text, len(words)))
                for word, count in collections.Counter(words).items():
                    self.postings[word].append((number, count))
        self.average = sum(p[5] for p in self.pieces) / max(1, len(self.pieces))

    def search(self, query, k):
        scores = collections.Counter()
        total = len(self.pieces)
        for word in set(re.findall(r"\w+", query.lower())):
            found = self.postings.get(word, ())
            rarity = math.log(1 + (total - len(found) + 0.5) / (len(found) + 0.5))
            for number, count in found:
                norm = 1.2 * (0.25 + 0.75 * self.pieces[number][5] / self.average)
                scores[number] += rarity * count * 2.2 / (count + norm)
        best = sorted(scores.items(), key=lambda item: (-item[1], item[0]))[:k]
        return [self.pieces[number][:5] for number, _ in best]


class Results:
    """Ranks and the text read up to each answer, by group and system."""

    def __init__(self, count_tokens=None):
        self.ranks = collections.defaultdict(list)
        self.read = collections.defaultdict(list)
        self.count_tokens = count_tokens

    def add(self, groups, system, rank, pieces):
        """`rank` counts from 1; none if no piece answers."""
        for group in groups:
            self.ranks[group, system].append(rank)
            if rank:
                self.read[group, system].append("\n".join(p[4] for p in pieces[:rank]))

    def tokens(self, group, system):
        """Tokens that are read until the answer is there, on the average over answered questions."""
        texts = self.read[group, system]
        if not self.count_tokens or not texts:
            return None
        counted = subprocess.run([self.count_tokens], input="\n".join(texts).encode(), stdout=subprocess.PIPE, check=True)
        return int(counted.stdout) / len(texts)

    def row(self, group, system):
        ranks = self.ranks[group, system]
        mrr, *hits = measures(ranks)
        tokens = self.tokens(group, system)
        return [group, len(ranks), system, f"{mrr:.3f}", *(f"{hit:.2f}" for hit in hits),
                f"{tokens:,.0f}" if tokens is not None else "–"]

    def table(self, groups, systems):
        head = ["tree", "questions", "system", "MRR", "Hit@1", "Hit@5", "Hit@10", "tokens to the answer"]
        lines = [head, ["---"] + ["---:"] * (len(head) - 1)]
        lines += [self.row(group, system) for group in groups for system in systems]
        return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def measures(ranks):
    n = max(1, len(ranks))
    hit = lambda k: sum(1 for r in ranks if r and r <= k) / n
    return sum(1 / r for r in ranks if r) / n, hit(1), hit(5), hit(10)
