"""The files that the corpus is about: real sources, a real history, logs and data that programs write when this runs."""

import csv
import json
import logging
import os
import random
import re
import shutil
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from peers import CACHE, REPOSITORY

WORLD = CACHE / "te"
# Dependencies of LLMC, so that they are there wherever it was built.
CRATES = [
    "tokio", "serde_core", "serde_json", "regex-automata", "rustix", "clap_builder", "rusqlite", "similar",
    "tracing-subscriber", "proptest",
]


def make():
    """Makes all of it anew; takes half a minute. Returns the folder, and the folder that pytest is imported from."""
    shutil.rmtree(WORLD, ignore_errors=True)
    WORLD.mkdir(parents=True)
    random.seed(7)
    for name in CRATES:
        source = newest(name)
        shutil.copytree(source, WORLD / "src" / name, symlinks=True)
    old, new = two_versions()
    shutil.copytree(old, WORLD / "versions" / "old")
    shutil.copytree(new, WORLD / "versions" / "new")
    make_many()
    make_data()
    make_logs()
    make_projects()
    make_repository(old, new)
    return WORLD, make_environment()


def make_environment():
    """An environment with pytest for the Python that LLMC finds; None when it cannot be had."""
    script = 'source scripts/lib/python-tools.sh && python_tools "$PYTEST" && echo "$site"'
    done = subprocess.run(["bash", "-c", script], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        return None
    site = done.stdout.strip()
    subprocess.run([shutil.which("python3"), "-m", "venv", "--without-pip", WORLD / ".venv"], check=True)
    (packages,) = (WORLD / ".venv" / "lib").glob("python*/site-packages")
    shutil.copytree(site, packages, dirs_exist_ok=True)
    return site


def registry():
    home = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo")
    return sorted((home / "registry" / "src").glob("*/"))


def locked():
    """The versions of every crate that this build uses."""
    versions = {}
    lock = (REPOSITORY / "Cargo.lock").read_text()
    for name, version in re.findall(r'name = "([^"]+)"\nversion = "([^"]+)"', lock):
        versions.setdefault(name, []).append(version)
    return versions


def source_of(name, version):
    for folder in registry():
        if (folder / f"{name}-{version}").is_dir():
            return folder / f"{name}-{version}"
    return None


def newest(name):
    found = [source for version in locked().get(name, []) if (source := source_of(name, version))]
    if not found:
        raise SystemExit(f"Cargo's registry has no {name}: build LLMC first")
    return found[-1]


def two_versions():
    """The crate in two versions with the most source."""
    def weight(pair):
        return sum(path.stat().st_size for path in pair[1].rglob("*.rs"))

    pairs = []
    for name, versions in sorted(locked().items()):
        sources = [source for version in versions if (source := source_of(name, version))]
        if len(sources) > 1:
            pairs.append((sources[0], sources[-1]))
    if not pairs:
        raise SystemExit("no crate is there in two versions")
    return max(pairs, key=weight)


def make_many():
    for number in range(3000):
        path = WORLD / "many" / f"part-{number % 30:02}" / f"record-{number:04}.dat"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(number))
    for number in range(2500):
        path = WORLD / "flat" / f"image_{number:05}.png"
        path.parent.mkdir(exist_ok=True)
        path.touch()


def make_data():
    data = WORLD / "data"
    data.mkdir()
    metadata = subprocess.run(
        ["cargo", "metadata", "--format-version", "1", "--locked", "--offline"],
        cwd=REPOSITORY, stdout=subprocess.PIPE, check=True,
    ).stdout
    (data / "metadata.json").write_text(json.dumps(json.loads(metadata), indent=2))
    (data / "bundle.min.json").write_bytes(metadata)
    shutil.copy(REPOSITORY / "Cargo.lock", data / "Cargo.lock.toml")
    shutil.copy(Path(json.__file__).parent.parent / "argparse.py", data / "argparse.py")
    # The regions and their prices follow from the seed.
    with open(data / "orders.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["order_id", "customer", "region", "placed_at", "amount_eur", "paid"])
        for number in range(6000):
            writer.writerow([
                10_000 + number, f"customer{random.randrange(900)}", random.choice(["north", "south", "east"]),
                f"2026-0{random.randrange(1, 9)}-{random.randrange(1, 28):02}", f"{random.uniform(1, 900):.2f}",
                random.choice(["yes", "no"]),
            ])
    with open(data / "services.yaml", "w") as file:
        file.write("version: 3\nnetworks:\n  backbone:\n    driver: overlay\nservices:\n")
        for number in range(400):
            file.write(
                f"  worker-{number:03}:\n    image: registry.example.org/worker:{number % 7}.2\n    environment:\n"
                f"      QUEUE: q{number % 13}\n      RETRIES: {number % 5}\n    ports:\n      - {8000 + number}:80\n"
            )
    with open(data / "events.jsonl", "w") as file:
        for number in range(4000):
            level = "error" if number in (1500, 3100) else random.choice(["info", "info", "debug"])
            message = "payment gateway refused the card" if level == "error" else f"step {number % 40} done"
            file.write(json.dumps({"ts": 1_760_000_000 + number, "level": level, "msg": message, "req": f"r{number % 97}"}) + "\n")


def make_logs():
    logs = WORLD / "logs"
    logs.mkdir()
    log = logging.Logger("shop")
    handler = logging.FileHandler(logs / "app.log")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s.%(module)s: %(message)s"))
    log.addHandler(handler)
    for number in range(8000):
        log.info("request %d served in %d ms", number, random.randrange(3, 80))
        if number % 40 == 0:
            log.warning("cache miss for key user:%d", random.randrange(500))
        if number == 4321:
            try:
                number / (number - 4321)
            except ZeroDivisionError:
                log.exception("could not compute the discount of order %d", number)
        if number == 6000:
            log.error("connection to db-3.internal refused, giving up")
    handler.close()
    kernel = logging.FileHandler(logs / "system.log")
    kernel.setFormatter(logging.Formatter("%(asctime)s host %(name)s[%(process)d]: %(message)s", "%b %d %H:%M:%S"))
    for number in range(5000):
        unit = logging.Logger(random.choice(["systemd", "sshd", "cron", "kernel"]))
        unit.addHandler(kernel)
        if number == 2500:
            unit.critical("Out of memory: Killed process 4711 (renderer)")
        else:
            unit.info("session %d opened for unit-%d.service", number, random.randrange(60))
    kernel.close()
    access_log(logs / "access.log")


def access_log(path):
    """What a web server wrote about 1,200 requests to it."""
    with open(path, "w") as file:
        class Handler(SimpleHTTPRequestHandler):
            def log_message(self, form, *args):
                file.write(f"{self.address_string()} - - [{self.log_date_time_string()}] {form % args}\n")

        server = ThreadingHTTPServer(("127.0.0.1", 0), lambda *args: Handler(*args, directory=WORLD / "versions"))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        paths = [str(one.relative_to(WORLD / "versions")) for one in sorted((WORLD / "versions" / "new").rglob("*.rs"))]
        for number in range(1200):
            wanted = "missing/report.pdf" if number in (300, 900) else paths[number % len(paths)]
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/{wanted}").read()
            except urllib.error.HTTPError:
                pass
        server.shutdown()


def make_projects():
    """Small projects in which something is wrong."""
    python = WORLD / "python"
    python.mkdir()
    (python / "prices.py").write_text(
        "def total(items):\n    return sum(price * count for price, count in items)\n\n"
        "def discount(amount, percent):\n    return amount - amount * percent // 100\n"
    )
    cases = "".join(
        f"def test_total_{n}():\n    assert total([({n}, 2), (1, {n})]) == {3 * n}\n\n" for n in range(150)
    )
    (python / "test_prices.py").write_text(
        f"import pytest\nfrom prices import discount, total\n\n{cases}"
        "def test_discount_rounds():\n    assert discount(999, 15) == 849.15, 'cents are lost'\n\n"
        "def test_total_of_text():\n    total([('a', 'b')])\n\n"
        "@pytest.fixture\ndef broken():\n    raise OSError('no such warehouse')\n\n"
        "def test_stock(broken):\n    pass\n"
    )
    checks = "".join(f"    def test_sum_{n}(self):\n        self.assertEqual({n} + 1, {n + 1})\n" for n in range(200))
    (WORLD / "unit").mkdir()
    (WORLD / "unit" / "test_sums.py").write_text(
        f"import unittest\n\nclass Sums(unittest.TestCase):\n{checks}"
        "    def test_carry(self):\n        self.assertEqual(9 + 1, 11, 'the carry is lost')\n"
        "    def test_overflow(self):\n        raise OverflowError('too large a sum')\n"
    )
    rust = WORLD / "rust"
    (rust / "src").mkdir(parents=True)
    (rust / "Cargo.toml").write_text('[package]\nname = "sums"\nversion = "0.1.0"\nedition = "2021"\n\n[workspace]\n')
    tests = "".join(f"    #[test]\n    fn adds_{n}() {{\n        assert_eq!(super::add({n}, 1), {n + 1});\n    }}\n" for n in range(600))
    (rust / "src" / "lib.rs").write_text(
        "pub fn add(a: u32, b: u32) -> u32 {\n    a + b\n}\n\n#[cfg(test)]\nmod tests {\n" + tests +
        "    #[test]\n    fn carries_over() {\n        assert_eq!(super::add(9, 1), 11, \"the carry is lost\");\n    }\n"
        "    #[test]\n    fn overflows() {\n        super::add(u32::MAX, 1);\n    }\n}\n"
    )
    build = WORLD / "build"
    build.mkdir()
    wrong = "".join(f"pub fn f{n}() -> u32 {{\n    let value: &str = {n};\n    missing_{n}(value)\n}}\n" for n in range(60))
    (build / "wrong.rs").write_text(wrong)
    functions = "".join(f"int f{n}(int a) {{ int unused{n} = a; unsigned b = a; return a < b; }}\n" for n in range(60))
    (build / "wrong.c").write_text(f"#include <stdio.h>\n{functions}int main(void) {{ return no_such_function(1) + f1(\"text\") }}\n")
    script = (
        "import sys\nfor row in range(4000):\n    print(f'{row:6} part-{row % 60:02} {row * 37 % 1000:8} units checked')\n"
        "print('fatal: part-17 has a negative stock of -4 units', file=sys.stderr)\nsys.exit(3)\n"
    )
    (build / "inventory.py").write_text(script)
    node = WORLD / "node"
    node.mkdir()
    (node / "sums.test.mjs").write_text(
        "import test from 'node:test';\nimport assert from 'node:assert';\n"
        "for (let n = 0; n < 150; n++) test(`adds ${n}`, () => assert.equal(n + 1, 1 + n));\n"
        "test('carries over', () => assert.equal(9 + 1, 11, 'the carry is lost'));\n"
    )


def make_repository(old, new):
    """A repository with a history of several hundred commits, made of what a crate's sources were and are."""
    repository = WORLD / "repo"
    repository.mkdir()

    def git(*words):
        environment = dict(
            os.environ, GIT_CONFIG_GLOBAL="/dev/null", GIT_CONFIG_NOSYSTEM="1", GIT_AUTHOR_NAME="A. Author",
            GIT_AUTHOR_EMAIL="author@example.org", GIT_COMMITTER_NAME="A. Author",
            GIT_COMMITTER_EMAIL="author@example.org",
        )
        subprocess.run(["git", *words], cwd=repository, check=True, stdout=subprocess.DEVNULL, env=environment)

    git("init", "-q", "-b", "main")
    files = sorted(path.relative_to(old) for path in old.rglob("*.rs"))
    for path in files:
        (repository / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(old / path, repository / path)
        git("add", "-A")
        git("commit", "-q", "-m", f"Bring in {path}\n\nAs it was released, with its tests.")
    notes = repository / "NOTES.md"
    for number in range(200):
        with open(notes, "a") as file:
            file.write(f"- finding {number}: looked at {files[number % len(files)]}\n")
        git("add", "-A")
        git("commit", "-q", "-m", f"Note finding {number}")
    git("tag", "before")
    for path in sorted(path.relative_to(new) for path in new.rglob("*.rs")):
        (repository / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(new / path, repository / path)
    git("add", "-A")
    git("commit", "-q", "-m", "Move to the newer release")
    for number in range(300):
        path = repository / "drafts" / f"draft-{number:03}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text("draft\n")
        if number < 40:
            (repository / f"todo-{number:02}.md").write_text("todo\n")
    for path in files[:25]:
        if (repository / path).exists():
            with open(repository / path, "a") as file:
                file.write("// touched since\n")
    git("add", str(files[0]))


def kept_site():
    """The packages of the last run's environment."""
    found = list((WORLD / ".venv" / "lib").glob("*/site-packages"))
    return str(found[0]) if found else None


if __name__ == "__main__":
    sys.exit("bench/te/run is the command")
