"""The commands, and what must still be seen of each one's output.

An entry is a command that runs in the world (see `world.py`), the tool call that asks LLMC for the same where there is
one, and regular expressions that must match the answer: the definition, the failing test, the error. `{lines}` in one
stands for the number of lines that the raw command printed.
"""

import re
import shutil
from dataclasses import dataclass, field


@dataclass
class Entry:
    name: str
    argv: list
    must: list
    tool: tuple | None = None
    cwd: str = "."
    needs: list = field(default_factory=list)


def tool(name, **arguments):
    return (name, arguments)


def grep(name, pattern, path, must):
    return Entry(name, ["grep", "-rnIE", "--exclude=.*", pattern, path], must, tool("te_grep", pattern=pattern, path=path))


def cat(name, path, must):
    return Entry(name, ["cat", path], must, tool("te_cat", path=path))


def entries(pytest):
    """Those whose programs are here; and the names of the others."""
    cargo, rustc = shutil.which("cargo") or "cargo", shutil.which("rustc") or "rustc"
    node = shutil.which("node") or "node"
    all_entries = [
        grep("grep: a function's name", "spawn", "src/tokio", [r"runtime/handle\.rs(:|\n(  .*\n)*?  )\d+: pub fn spawn<F>.*# definition", r'"matches":{lines}']),
        grep("grep: a trait's name", "Deserialize", "src", [r"pub trait Deserialize<'de>.*# definition", r'"matches":{lines}']),
        grep("grep: a word everywhere", "error", "src", [r'"matches":\d{4}', r'"hot_zone":"src/']),
        grep("grep: a common call", r"fn new\(", "src", [r'"matches":{lines}', "# definition"]),
        grep("grep: a type", "Connection", "src/rusqlite", [r"pub struct Connection \{.*# definition"]),
        grep("grep: unsafe", "unsafe", "src/rustix", [r'"matches":{lines}']),
        grep("grep: in logs", "refused|could not", "logs", ["connection to db-3.internal refused", "could not compute the discount"]),
        Entry("find: every source file", ["find", "src", "-name", "*.rs"], [r'"files":{lines}'], tool("te_find", pattern="*.rs", path="src")),
        Entry("find: many records", ["find", "many", "-name", "*.dat"], [r'"files":3000'], tool("te_find", pattern="*.dat", path="many")),
        Entry("ls: a flat directory", ["ls", "-l", "flat"], [r'"files":2500', r"image_0"], tool("te_ls", path="flat")),
        Entry("ls -lR: a tree", ["ls", "-lR", "src"], [r'"lines":{lines}', "tokio"]),
        Entry("du: a tree", ["du", "-a", "src"], [r'"lines":{lines}', r"\bsrc\n"]),
        cat("cat: JSON, indented", "data/metadata.json", ["packages", "workspace_root", "resolve"]),
        cat("cat: JSON on one line", "data/bundle.min.json", ["packages", r'"content_type":"json"']),
        cat("cat: JSON lines", "data/events.jsonl", ["level", "msg"]),
        cat("cat: CSV", "data/orders.csv", ["order_id", "amount_eur", "paid", r'"lines":6001']),
        cat("cat: YAML", "data/services.yaml", ["version", "networks", "services", "worker-000"]),
        cat("cat: TOML", "data/Cargo.lock.toml", ["package", "version"]),
        cat("cat: Rust", "src/tokio/src/runtime/builder.rs", ["pub struct Builder", r"pub fn new_multi_thread", r"\d+ .*fn build"]),
        cat("cat: Python", "data/argparse.py", ["class ArgumentParser", "class HelpFormatter", "class Namespace"]),
        cat("cat: Markdown", "src/tokio/CHANGELOG.md", ["# 1\\."]),
        cat("cat: application log", "logs/app.log", ["1 .*ERROR|ERROR", "could not compute the discount of order 4321", "ZeroDivisionError", "db-3.internal refused"]),
        cat("cat: system log", "logs/system.log", ["Out of memory: Killed process 4711"]),
        cat("cat: access log", "logs/access.log", ["404"]),
        Entry("head: 500 lines of a log", ["head", "-n", "500", "logs/app.log"], ["request 0 served"], tool("te_head", path="logs/app.log", lines=500)),
        Entry("tail: 500 lines of a log", ["tail", "-n", "500", "logs/app.log"], ["request 7999 served"], tool("te_tail", path="logs/app.log", lines=500)),
        Entry("git log", ["git", "log"], ["Move to the newer release", "Note finding 199"], cwd="repo"),
        Entry("git log --stat", ["git", "log", "--stat"], ["Move to the newer release"], cwd="repo"),
        Entry("git log -p", ["git", "log", "-p", "-40"], ["Move to the newer release"], cwd="repo"),
        Entry("git show", ["git", "show", "HEAD"], ["Move to the newer release", r"[\d,]+ files?, [\d,]+ hunks?"], cwd="repo"),
        Entry("git diff: two releases", ["git", "diff", "before", "HEAD"], [r"[\d,]+ files?, [\d,]+ hunks?, \+\d+ -\d+", r'"hot_zone"'], cwd="repo"),
        Entry("git diff: the working tree", ["git", "diff"], [r"\+// touched since"], cwd="repo"),
        Entry("git blame", ["git", "blame", "NOTES.md"], ["finding 0"], cwd="repo"),
        Entry("git status", ["git", "status"], ["modified", "todo-00.md|untracked", "drafts"], cwd="repo"),
        Entry("diff -ru: two releases", ["diff", "-ru", "versions/old", "versions/new"], [r"[\d,]+ files?, [\d,]+ hunks?, \+\d+ -\d+"]),
        Entry("diff: two directories", ["diff", "-ruN", "versions/old", "versions/new"], [r'"files":\d+', r"\+\d+ -\d+"], tool("te_diff", a="versions/old", b="versions/new")),
        Entry("pytest: three wrong", ["python3", "-m", "pytest", "-v", "python"], [
            "2 failed, 1 error, 150 passed", "test_prices.py::test_discount_rounds", "cents are lost",
            "test_prices.py::test_total_of_text", "TypeError", "no such warehouse",
        ], tool("run_pytest", args=["-v", "python"]), needs=["pytest"]),
        Entry("unittest: two wrong", ["python3", "-m", "unittest", "-v", "unit/test_sums.py"], [
            "1 failed, 1 error", "test_carry", "the carry is lost", "OverflowError: too large a sum",
        ], needs=["python3"]),
        Entry("cargo test: two wrong", [cargo, "test", "--offline"], [
            "2 failed", "600 passed", "tests::carries_over", "the carry is lost", "tests::overflows", "attempt to add with overflow",
        ], cwd="rust", needs=[cargo]),
        Entry("go test", ["go", "test", "./..."], ["FAIL"], cwd="go", needs=["go"]),
        Entry("node --test: one wrong", [node, "--test", "--test-reporter=tap", "node/sums.test.mjs"], ["carries over", "the carry is lost"], needs=[node]),
        Entry("rustc: many errors", [rustc, "--crate-type", "lib", "--out-dir", "build", "build/wrong.rs"], [
            r"error\[E0308\]|E0308", r"error\[E0425\]|E0425", "missing_0", "wrong.rs:2",
        ], needs=[rustc]),
        Entry("gcc: warnings and three errors", ["gcc", "-Wall", "-Wextra", "-c", "-o", "build/wrong.o", "build/wrong.c"], [
            "wrong.c:62:.*error: expected", "no_such_function",
        ], needs=["gcc"]),
        Entry("a script that fails at its end", ["python3", "build/inventory.py"], ["fatal: part-17 has a negative stock of -4 units", "exit 3"], needs=["python3"]),
    ]
    def there(need):
        return pytest if need == "pytest" else shutil.which(need)

    here = [entry for entry in all_entries if all(map(there, entry.needs))]
    return here, [entry.name for entry in all_entries if entry not in here]


def missing(entry, raw, served):
    """The expressions that do not match the answer."""
    lines = raw.count("\n")
    wanted = [pattern.replace("{lines}", str(lines)) for pattern in entry.must]
    return [pattern for pattern in wanted if not re.search(pattern, served)]
