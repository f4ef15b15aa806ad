"""Ten everyday tasks, each done by direct calls and by one script: tokens, round trips, and whether it was done right."""

import json
import re
import statistics
import subprocess
from pathlib import Path

import shop
from mcp import Server, scratch
from report import table, verdict

# A script may cost this share of what the direct calls cost, in the median.
SHARE = 1 / 3


def measure(bench):
    rows, shares = [], []
    for task in TASKS:
        direct = attempt(bench, "classic", task, task.direct)
        script = attempt(bench, "hybrid", task, task.by_script)
        shares.append(script.tokens / direct.tokens)
        rows.append([
            task.title, f"{direct.calls} in {direct.trips}", f"{direct.tokens:,}", script.trips, f"{script.tokens:,}",
            f"{shares[-1]:.0%}",
        ])
    head = ["task", "direct: calls in round trips", "tokens", "script: round trips", "tokens", "script of direct"]
    median = statistics.median(shares)
    return table(head, rows) + (
        f"\n\nMedian share: {median:.0%}; target ≤ {SHARE:.0%}: {verdict(median <= SHARE)}.\n\n"
        "Tokens are those of every request (name and arguments) and every answer, counted once. A conversation sends what "
        "was said again with every further round trip, so what direct calls cost in practice is more. Calls that do "
        "not need each other's answers share a round trip. A task counts only if the files, or the reported answer, are "
        "right afterwards. The project is generated (`bench/shop.py`): "
        f"{files()} files."
    )


def files():
    with scratch() as folder:
        shop.make(Path(folder))
        return sum(path.is_file() for path in Path(folder).rglob("*"))


def attempt(bench, mode, task, way):
    """Does a task in a fresh project one way, and makes sure that it was done."""
    with scratch() as folder:
        root = Path(folder)
        shop.make(root)
        expected = task.expected(root)
        with Server(bench.llmc_mcp(root, mode)) as server:
            agent = Agent(server, bench.count_tokens)
            answer = way(agent)
        task.check(root, expected, answer)
        return agent.done()


class Agent:
    """Calls tools and keeps count of what a model would have written and read."""

    def __init__(self, server, counter):
        self.server, self.counter = server, counter
        self.words, self.calls, self.trips, self.tokens = [], 0, 0, 0

    def turn(self, *calls):
        """Calls that do not need each other's answers, in one round trip."""
        self.trips += 1
        return [self.one(name, arguments) for name, arguments in calls]

    def call(self, name, **arguments):
        return self.turn((name, arguments))[0]

    def json(self, name, **arguments):
        return json.loads(self.call(name, **arguments))

    def search(self, pattern, **arguments):
        """Every hit of a content search, page by page if need be."""
        found = self.json(
            "linux_search_content", root=".", pattern=pattern, context_lines=0, max_results=1000, ignore_case=False,
            **arguments,
        )
        assert not found["truncated"], "the project is small enough for one page"
        return found["hits"]

    def script(self, code):
        return self.call("execute_code", code=code)

    def one(self, name, arguments):
        self.calls += 1
        text, _ = self.server.call(name, **arguments)
        self.words.append(json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False))
        self.words.append(text)
        return text

    def done(self):
        text = "\n".join(self.words).encode()
        counted = subprocess.run([self.counter], input=text, stdout=subprocess.PIPE, check=True)
        self.tokens = int(counted.stdout)
        return self


class Task:
    """One task: what is right, how it is done by hand, and the script that does it."""

    title = ""
    script = ""

    def by_script(self, agent):
        return self.read(agent.script(self.script.strip() + "\n"))

    def read(self, printed):
        """The script's answer: what it printed, as JSON."""
        return json.loads(printed)

    def expected(self, root):
        return None

    def check(self, root, expected, answer):
        assert answer == expected, f"{self.title}: {answer!r} is not {expected!r}"


def sources(root):
    return sorted(path for path in root.rglob("*.py"))


class Rename(Task):
    title = "rename a function in every file that uses it"
    script = """
hits = tools.linux_search_content(root=".", pattern="compute_total", context_lines=0, max_results=1000)["hits"]
counts = {}
for h in hits:
    counts[h["path"]] = counts.get(h["path"], 0) + h["snippet"].count("compute_total")
for path, n in counts.items():
    tools.linux_fs_edit(path=path, old_text="compute_total", new_text="order_total", expected_replacements=n)
print(len(counts))
"""

    def direct(self, agent):
        counts = {}
        for hit in agent.search("compute_total"):
            counts[hit["path"]] = counts.get(hit["path"], 0) + hit["snippet"].count("compute_total")
        agent.turn(*(
            ("linux_fs_edit", dict(
                path=path, old_text="compute_total", new_text="order_total", expected_replacements=count))
            for path, count in counts.items()
        ))
        return len(counts)

    def expected(self, root):
        return sum("compute_total" in path.read_text() for path in sources(root))

    def check(self, root, expected, answer):
        super().check(root, expected, answer)
        texts = [path.read_text() for path in sources(root)]
        assert not any("compute_total" in text for text in texts)
        assert sum("order_total" in text for text in texts) == expected


class Todos(Task):
    title = "count all TODOs by owner"
    script = """
import json
owners = {}
for h in tools.linux_search_content(root=".", pattern="TODO(", literal=True, context_lines=0, max_results=1000)["hits"]:
    owner = h["snippet"].split("TODO(")[1].split(")")[0]
    owners[owner] = owners.get(owner, 0) + 1
print(json.dumps(owners))
"""

    def direct(self, agent):
        return self.count(hit["snippet"] for hit in agent.search("TODO(", literal=True))

    def expected(self, root):
        return self.count(line for path in sources(root) for line in path.read_text().splitlines() if "TODO(" in line)

    def count(self, lines):
        owners = {}
        for line in lines:
            owner = re.search(r"TODO\((\w+)\)", line)[1]
            owners[owner] = owners.get(owner, 0) + 1
        return owners


class Keys(Task):
    title = "cross-check settings with their uses"
    script = """
import json
keys = set()
for line in tools.read_file(path="settings.toml").splitlines():
    if " = " in line:
        keys.add(line.split(" = ")[0])
used = set()
hits = tools.linux_search_content(root="shop", pattern='settings[', literal=True, context_lines=0, max_results=1000)["hits"]
for h in hits:
    used.add(h["snippet"].split('"')[1])
print(json.dumps({"unused": sorted(keys - used), "unknown": sorted(used - keys)}))
"""

    def direct(self, agent):
        text, hits = agent.turn(
            ("read_file", dict(path="settings.toml")),
            ("linux_search_content", dict(
                root="shop", pattern="settings[", literal=True, context_lines=0, max_results=1000)),
        )
        return self.compare(text, "\n".join(hit["snippet"] for hit in json.loads(hits)["hits"]))

    def expected(self, root):
        return self.compare(
            (root / "settings.toml").read_text(), "\n".join(path.read_text() for path in sources(root)))

    def compare(self, text, code):
        keys = set(re.findall(r"^(\w+) = ", text, re.MULTILINE))
        used = set(re.findall(r'settings\["(\w+)"\]', code))
        return {"unused": sorted(keys - used), "unknown": sorted(used - keys)}


class Headers(Task):
    title = "add the licence line to files without it"
    script = """
line = "# SPDX-License-Identifier: MIT\\n"
n = 0
for h in tools.linux_search_files(root=".", pattern="*.py", max_results=2000)["hits"]:
    text = tools.read_file(path=h["path"])
    if not text.startswith(line):
        tools.linux_fs_write(path=h["path"], content=line + text)
        n += 1
print(n)
"""

    def direct(self, agent):
        found, having = agent.turn(
            ("linux_search_files", dict(root=".", pattern="*.py", max_results=2000)),
            ("linux_search_content", dict(
                root=".", pattern="SPDX-License", file_glob="*.py", context_lines=0, max_results=1000)),
        )
        having = {hit["path"] for hit in json.loads(having)["hits"]}
        lacking = [hit["path"] for hit in json.loads(found)["hits"] if hit["path"] not in having]
        # An edit needs a text that is there: the first line of each.
        firsts = agent.turn(*(("linux_fs_read", dict(path=path, max_lines=1)) for path in lacking))
        firsts = [json.loads(first)["content"] for first in firsts]
        agent.turn(*(
            ("linux_fs_edit", dict(path=path, old_text=first, new_text=shop.HEADER + first))
            for path, first in zip(lacking, firsts)
        ))
        return len(lacking)

    def expected(self, root):
        return sum(not path.read_text().startswith(shop.HEADER) for path in sources(root))

    def check(self, root, expected, answer):
        super().check(root, expected, answer)
        for path in sources(root):
            text = path.read_text()
            assert text.startswith(shop.HEADER) and text.count("SPDX") == 1, path


class Doubles(Task):
    title = "find functions that are defined in several modules"
    script = """
import json
places = {}
hits = tools.linux_search_content(root="shop", pattern="^def ", context_lines=0, max_results=1000)["hits"]
for h in hits:
    name = h["snippet"].split("def ")[1].split("(")[0]
    places.setdefault(name, []).append(h["path"])
print(json.dumps({k: v for k, v in places.items() if len(v) > 1}))
"""

    def direct(self, agent):
        hits = [(hit["path"], hit["snippet"]) for hit in agent.search("^def ")]
        return self.doubles(hits)

    def expected(self, root):
        lines = [
            (str(path.relative_to(root)), line)
            for path in sources(root) for line in path.read_text().splitlines() if line.startswith("def ")
        ]
        return self.doubles(lines)

    def doubles(self, lines):
        places = {}
        for path, line in lines:
            places.setdefault(re.search(r"def (\w+)", line)[1], []).append(path)
        return {name: sorted(paths) for name, paths in places.items() if len(paths) > 1}

    def read(self, printed):
        return {name: sorted(paths) for name, paths in json.loads(printed).items()}


class Links(Task):
    title = "find broken links in the documents"
    script = """
import json
files = set()
for h in tools.linux_search_files(root=".", pattern="*", max_results=2000)["hits"]:
    files.add(h["path"])
broken = []
for h in tools.linux_search_content(root="docs", pattern="](", literal=True, context_lines=0, max_results=1000)["hits"]:
    for part in h["snippet"].split("](")[1:]:
        link = part.split(")")[0]
        path = link[3:] if link.startswith("../") else "docs/" + link
        if path not in files:
            broken.append(h["path"] + ": " + link)
print(json.dumps(sorted(broken)))
"""

    def direct(self, agent):
        found, hits = agent.turn(
            ("linux_search_files", dict(root=".", pattern="*", max_results=2000)),
            ("linux_search_content", dict(
                root="docs", pattern="](", literal=True, context_lines=0, max_results=1000)),
        )
        known = {hit["path"] for hit in json.loads(found)["hits"]}
        return self.broken(known, [(hit["path"], hit["snippet"]) for hit in json.loads(hits)["hits"]])

    def expected(self, root):
        known = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
        lines = [
            (str(path.relative_to(root)), line)
            for path in (root / "docs").glob("*.md") for line in path.read_text().splitlines()
        ]
        return self.broken(known, lines)

    def broken(self, known, lines):
        found = []
        for path, line in lines:
            for link in re.findall(r"\]\(([^)]*)\)", line):
                target = link[3:] if link.startswith("../") else f"docs/{link}"
                if target not in known:
                    found.append(f"{path}: {link}")
        return sorted(found)


class Version(Task):
    title = "raise the version number everywhere"
    script = f"""
n = 0
for h in tools.linux_search_content(root=".", pattern="{shop.VERSION}", literal=True, context_lines=0)["hits"]:
    tools.linux_fs_edit(path=h["path"], old_text="{shop.VERSION}", new_text="{shop.NEXT_VERSION}")
    n += 1
print(n)
"""

    def direct(self, agent):
        hits = agent.search(shop.VERSION, literal=True)
        agent.turn(*(
            ("linux_fs_edit", dict(path=hit["path"], old_text=shop.VERSION, new_text=shop.NEXT_VERSION)) for hit in hits
        ))
        return len(hits)

    def expected(self, root):
        return 4

    def check(self, root, expected, answer):
        super().check(root, expected, answer)
        texts = [path.read_text() for path in root.rglob("*") if path.is_file() and ".llmc" not in path.parts]
        assert not any(shop.VERSION in text for text in texts)
        assert sum(shop.NEXT_VERSION in text for text in texts) == expected


class Errors(Task):
    title = "document the error codes that are not documented"
    script = """
page = tools.read_file(path="docs/errors.md")
codes = set()
for h in tools.linux_search_content(root="shop", pattern="raise ShopError", context_lines=0, max_results=1000)["hits"]:
    codes.add(h["snippet"].split('"')[1])
new = [c for c in sorted(codes) if c not in page]
tools.linux_fs_write(path="docs/errors.md", content="".join(["| " + c + " | (to be written) |\\n" for c in new]), mode="append")
print(len(new))
"""

    def direct(self, agent):
        page, hits = agent.turn(
            ("read_file", dict(path="docs/errors.md")),
            ("linux_search_content", dict(
                root="shop", pattern="raise ShopError", context_lines=0, max_results=1000)),
        )
        codes = {re.search(r'"(E\d+)"', hit["snippet"])[1] for hit in json.loads(hits)["hits"]}
        new = sorted(code for code in codes if code not in page)
        rows = "".join(f"| {code} | (to be written) |\n" for code in new)
        agent.call("linux_fs_write", path="docs/errors.md", content=rows, mode="append")
        return len(new)

    def raised(self, root):
        return {code for path in sources(root) for code in re.findall(r'ShopError\("(E\d+)"', path.read_text())}

    def expected(self, root):
        page = (root / "docs/errors.md").read_text()
        return len([code for code in self.raised(root) if code not in page])

    def check(self, root, expected, answer):
        super().check(root, expected, answer)
        rows = re.findall(r"^\| (E\d+) \|", (root / "docs/errors.md").read_text(), re.MULTILINE)
        assert self.raised(root) <= set(rows) and len(rows) == len(set(rows))


class Report(Task):
    title = "sum a table of orders by country"
    script = """
import json
sums = {}
for line in tools.read_file(path="data/orders.csv").splitlines()[1:]:
    parts = line.split(",")
    sums[parts[2]] = sums.get(parts[2], 0) + int(parts[3])
print(json.dumps(sums))
"""

    def direct(self, agent):
        return self.sums(agent.call("read_file", path="data/orders.csv", max_lines=2000))

    def expected(self, root):
        return self.sums((root / "data/orders.csv").read_text())

    def sums(self, text):
        sums = {}
        for line in text.splitlines()[1:]:
            if re.match(r"\d", line):
                _, _, country, cents = line.split(",")
                sums[country] = sums.get(country, 0) + int(cents)
        return sums


class Move(Task):
    title = "move a module and correct its imports"
    script = """
tools.linux_fs_move(source="shop/legacy/pricing.py", target="shop/catalog/pricing.py")
n = 0
for h in tools.linux_search_content(root=".", pattern="from shop.legacy.pricing", literal=True, context_lines=0, max_results=1000)["hits"]:
    tools.linux_fs_edit(path=h["path"], old_text="shop.legacy.pricing", new_text="shop.catalog.pricing")
    n += 1
print(n)
"""

    def direct(self, agent):
        _, hits = agent.turn(
            ("linux_fs_move", dict(source="shop/legacy/pricing.py", target="shop/catalog/pricing.py")),
            ("linux_search_content", dict(
                root=".", pattern="from shop.legacy.pricing", literal=True, context_lines=0, max_results=1000)),
        )
        hits = json.loads(hits)["hits"]
        agent.turn(*(
            ("linux_fs_edit", dict(
                path=hit["path"], old_text="shop.legacy.pricing", new_text="shop.catalog.pricing"))
            for hit in hits
        ))
        return len(hits)

    def expected(self, root):
        return sum("shop.legacy.pricing" in path.read_text() for path in sources(root))

    def check(self, root, expected, answer):
        super().check(root, expected, answer)
        assert (root / "shop/catalog/pricing.py").exists() and not (root / "shop/legacy/pricing.py").exists()
        assert sum("shop.catalog.pricing" in path.read_text() for path in sources(root)) == expected


TASKS = [
    Rename(), Todos(), Keys(), Headers(), Doubles(), Links(), Version(), Errors(), Report(), Move(),
]
