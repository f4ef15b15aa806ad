"""The workspace and the pages that the tasks are about, the same in every run, and what is true of them."""

import contextlib
import json
import random
import shutil
import sqlite3
import subprocess
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

AUTHORS = ["Ada Ito", "Ben Okoro", "Cleo Marsh", "Dev Nair"]
OWNERS = ["ada", "ben", "cleo"]
CATEGORIES = [f"category-{number:02}" for number in range(20)]
WORDS = "amber basin cedar delta ember fjord grove haven islet jetty knoll larch maple north ocean pearl quill ridge spruce tidal".split()


class World:
    """Everything that a task reads or writes. `reset` undoes what the last task wrote."""

    def __init__(self, work):
        self.random = random.Random(23)
        self.root, self.site = Path(work) / "project", Path(work) / "site"
        self.root.mkdir()
        self.site.mkdir()
        self.make_code()
        self.make_settings()
        self.make_log()
        self.make_commits()
        self.make_shop()
        self.make_pages()
        (self.root / "memory.jsonl").touch()
        self.kept = Path(work) / "kept"
        shutil.copytree(self.root, self.kept, symlinks=True)
        self.server = serve(self.site)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def make_code(self):
        self.modules, self.todos = [], dict.fromkeys(OWNERS, 0)
        for number in range(40):
            name = f"{WORDS[number % 20]}_{number:02}.py"
            self.modules.append(name)
            lines = [f'"""Module {number}."""', ""]
            for function in range(6):
                lines += [f"def {WORDS[(number + function) % 20]}_{function}(value):", f"    return value * {function}", ""]
            if number % 2:
                owner = OWNERS[number % 3]
                self.todos[owner] += 1
                lines.insert(3, f"    # TODO({owner}): check this")
            write(self.root / "app" / name, "\n".join(lines))

    def make_settings(self):
        self.settings = {}
        for number in range(30):
            name = f"{WORDS[number % 20]}-{number:02}.ini"
            self.settings[name] = {"timeout": 10 + number % 7, "retries": number % 4, "workers": 2 + number % 5}
            write(self.root / "conf" / name, ini(name, self.settings[name]))

    def make_log(self):
        self.failures, lines = {}, []
        for number in range(2400):
            user = self.random.randrange(200)
            failed = self.random.random() < 0.12 and user % 9 == 0
            self.failures[user] = self.failures.get(user, 0) + failed
            level, said = ("ERROR", "payment failed") if failed else ("INFO", "page served")
            lines.append(f"2026-03-{1 + number // 100:02} 10:{number % 60:02}:00 {level} user={user} request={number:05} {said}")
        write(self.root / "logs/app.log", "\n".join(lines) + "\n")

    def make_commits(self):
        self.commits = dict.fromkeys(AUTHORS, 0)
        self.git("init", "-q", "-b", "main")
        self.git("add", ".")
        self.commit("Start", AUTHORS[0])
        for number in range(58):
            write(self.root / "notes" / f"{number % 12}.txt", f"note {number}\n")
            self.git("add", "notes")
            self.commit(f"Write note {number} about {WORDS[number % 20]}", self.random.choice(AUTHORS))
        # The last commit changes settings; in some of them the timeout.
        self.slower = []
        for number, (name, values) in enumerate(self.settings.items()):
            values["retries"] += 1
            if number % 6 == 0:
                values["timeout"] += 5
                self.slower.append(name)
            write(self.root / "conf" / name, ini(name, values))
        self.git("add", "conf")
        self.commit("Retry once more", AUTHORS[1])

    def make_shop(self):
        self.prices = {f"SKU-{number:04}": 5 + number * 37 % 400 / 4 for number in range(240)}
        self.stock = {category: 0 for category in CATEGORIES}
        with contextlib.closing(sqlite3.connect(self.root / "shop.db")) as shop:
            shop.execute("CREATE TABLE products (sku TEXT, name TEXT, category TEXT, price REAL, stock INTEGER)")
            shop.execute("CREATE TABLE users (id INTEGER, email TEXT)")
            shop.execute("CREATE TABLE counts (name TEXT, count INTEGER)")
            for number, (sku, price) in enumerate(self.prices.items()):
                category, stock = CATEGORIES[number % 20], number * 13 % 50
                self.stock[category] += stock
                name = f"{WORDS[number % 20]} {WORDS[number * 7 % 20]} {number}"
                shop.execute("INSERT INTO products VALUES (?, ?, ?, ?, ?)", (sku, name, category, price, stock))
            shop.executemany("INSERT INTO users VALUES (?, ?)", [(user, email(user)) for user in range(200)])
            shop.commit()

    def make_pages(self):
        listed = {sku: price + (1.25 if number % 31 == 0 else 0) for number, (sku, price) in enumerate(self.prices.items())}
        self.different = sorted(sku for sku, price in listed.items() if price != self.prices[sku])
        page(self.site, "prices", ["SKU", "Price"], [(sku, f"{price:.2f}") for sku, price in listed.items()])
        self.limits = {category: 240 + number * 11 % 90 for number, category in enumerate(CATEGORIES)}
        page(self.site, "limits", ["Category", "Least stock"], self.limits.items())
        self.events = [(f"{WORDS[number % 20]} {number}", f"2026-05-{1 + number // 6:02}", f"{(7 + number * 5) % 24:02}:30") for number in range(60)]
        page(self.site, "schedule", ["Event", "Day", "UTC"], self.events)
        self.advised = {"timeout": 12, "retries": 2, "workers": 4}
        page(self.site, "advice", ["Setting", "Value"], self.advised.items())
        present = [f"doc-{number:02}.html" for number in range(70)]
        self.dead = [name for number, name in enumerate(present) if number % 11 == 3]
        for name in present:
            if name not in self.dead:
                write(self.root / "public" / name, f"<p>{name}</p>\n")
        links = "".join(f'<li><a href="/public/{name}">{name}</a></li>' for name in present)
        write(self.site / "links.html", f"<!doctype html><title>links</title><ul>{links}</ul>")

    def reset(self):
        """The workspace as it was, in the same folder: servers have it open."""
        for entry in self.root.iterdir():
            if entry.name in (".llmc", ".git", "shop.db", "memory.jsonl", ".serena") or (self.kept / entry.name).exists():
                continue
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        (self.root / "memory.jsonl").write_text("")
        with contextlib.closing(sqlite3.connect(self.root / "shop.db")) as shop:
            shop.execute("DELETE FROM counts")
            shop.commit()

    def counts(self):
        with contextlib.closing(sqlite3.connect(self.root / "shop.db")) as shop:
            return dict(shop.execute("SELECT name, count FROM counts").fetchall())

    def entities(self):
        lines = (self.root / "memory.jsonl").read_text().splitlines()
        return sorted(entity["name"] for entity in map(json.loads, filter(None, lines)) if entity.get("type") == "entity")

    def written(self, name):
        path = self.root / name
        return path.read_text().split() if path.exists() else []

    def git(self, *words):
        subprocess.run(["git", *words], cwd=self.root, check=True)

    def commit(self, message, author):
        self.commits[author] += 1
        name = f"{author} <{author.split()[0].lower()}@example.com>"
        identity = ["-c", f"user.name={author}", "-c", "user.email=a@example.com"]
        self.git(*identity, "commit", "-q", "-m", message, "--author", name)

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def write(path, text):
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def ini(name, values):
    return f"# settings of {name}\n[main]\n" + "".join(f"{key} = {value}\n" for key, value in values.items())


def email(user):
    return f"{WORDS[user % 20]}.{user}@example.com"


def page(site, name, head, rows):
    line = lambda cells, tag: "<tr>" + "".join(f"<{tag}>{cell}</{tag}>" for cell in cells) + "</tr>"
    table = line(head, "th") + "".join(line(row, "td") for row in rows)
    write(site / f"{name}.html", f"<!doctype html><title>{name}</title><h1>{name}</h1><table>{table}</table>")


def serve(folder):
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
