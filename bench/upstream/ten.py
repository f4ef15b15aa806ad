"""Ten tasks that need several servers, each by direct calls and as a script through LLMC.

The direct way is that of an experienced user: the tool that answers with the least text, all that belongs together in one call.
Desktop Commander's shell does not take the place of the other servers. What the model would work out from the answers is worked out
here, and costs nothing. The script is preceded by a search for the
tools it needs, since no list has told the model about them.
"""

import ast
import json
import re
from dataclasses import dataclass

from world import email

ROWS = "() => [...document.querySelectorAll('tr')].slice(1).map(r => [...r.cells].map(c => c.innerText).join('|')).join('\\n')"
LINKS = "() => [...document.querySelectorAll('a')].map(a => a.innerText).join('\\n')"
# The functions that scripts need, as a model would write them.
PAGE = f"""def page(name, code="{ROWS.replace(chr(92), chr(92) * 2)}"):
    tools.browser.browser_navigate("{{url}}/" + name + ".html")
    text = str(tools.browser.browser_evaluate(function=code))
    return text.split("### Result")[-1].split("###")[0].strip().strip('"').split("\\\\n")
"""
TABLE = """def table(query):
    return json.loads(tools.sqlite.read_query(query).replace("'", '"'))
"""


@dataclass(eq=False)
class Task:
    """What is asked, how it is done directly, the words to search for, the script, and what must be true afterwards."""

    name: str
    direct: object
    words: list
    script: str
    check: object


def all_tasks():
    return [prices(), authors(), links(), modules(), todos(), timeouts(), schedule(), failures(), stock(), advice()]


def page(s, w, name, code=ROWS):
    """The rows of a page's table."""
    s.call("browser", "browser_navigate", url=f"{w.url}/{name}.html")
    text = s.call("browser", "browser_evaluate", function=code)
    result = text.split("### Result")[-1].split("###")[0].strip()
    return [line.split("|") for line in result.strip('"').split("\\n")]


def table(s, query):
    return ast.literal_eval(s.call("sqlite", "read_query", query=query))


def insert(counts):
    return "INSERT INTO counts VALUES " + ", ".join(f"('{name}', {count})" for name, count in counts.items())


def entities(names, kind):
    return [{"name": name, "entityType": kind, "observations": []} for name in names]


def prices():
    def direct(s, w):
        own = {row["sku"]: row["price"] for row in table(s, "SELECT sku, price FROM products")}
        different = sorted(sku for sku, price in page(s, w, "prices") if float(price) != own[sku])
        s.call("files", "write_file", path=f"{w.root}/different.txt", content="\n".join(different))

    script = PAGE + TABLE + """import json
own = {row["sku"]: row["price"] for row in table("SELECT sku, price FROM products")}
rows = [line.split("|") for line in page("prices")]
names = sorted(sku for sku, price in rows if float(price) != own[sku])
tools.files.write_file("{root}/different.txt", "\\n".join(names))
print(len(names))"""
    return Task(
        "compare a table with a page, write a file", direct, ["select query", "open page", "evaluate javascript", "write file"], script,
        lambda w: w.written("different.txt") == w.different,
    )


def authors():
    def direct(s, w):
        log = s.call("git", "git_log", repo_path=str(w.root), max_count=100)
        counts = count(re.findall(r"Author: (\w+ \w+)", log))
        s.call("sqlite", "write_query", query=insert(counts))

    script = """import re
log = str(tools.git.git_log("{root}", 100))
names = re.findall(r"Author: (\\w+ \\w+)", log)
rows = ", ".join(f"('{n}', {names.count(n)})" for n in sorted(set(names)))
tools.sqlite.write_query("INSERT INTO counts VALUES " + rows)
print(rows)"""
    return Task("count commits by author into a table", direct, ["commit log", "insert into table"], script, lambda w: w.counts() == w.commits)


def links():
    def direct(s, w):
        listed = [row[0] for row in page(s, w, "links", LINKS)]
        there = s.call("commander", "list_directory", path=f"{w.root}/public", depth=1)
        dead = [name for name in listed if name not in there]
        s.call("files", "write_file", path=f"{w.root}/dead.txt", content="\n".join(dead))

    script = PAGE + f"""there = str(tools.commander.list_directory("{{root}}/public", 1))
dead = [n for n in page("links", "{LINKS.replace(chr(92), chr(92) * 2)}") if n not in there]
tools.files.write_file("{{root}}/dead.txt", "\\n".join(dead))
print(dead)"""
    return Task(
        "dead links of a page", direct, ["open page", "evaluate javascript", "list directory", "write file"], script,
        lambda w: w.written("dead.txt") == w.dead,
    )


def modules():
    def direct(s, w):
        listed = s.call("serena", "list_dir", relative_path="app", recursive=False)
        names = sorted(set(re.findall(r"(\w+_\d\d)\.py", listed)))
        s.call("memory", "create_entities", entities=entities(names, "module"))

    script = """import re
names = sorted(set(re.findall(r"(\\w+_\\d\\d)\\.py", str(tools.serena.list_dir("app", False)))))
tools.memory.create_entities([{"name": n, "entityType": "module", "observations": []} for n in names])
print(len(names))"""
    return Task(
        "remember every module", direct, ["list directory of the project", "create entities"], script,
        lambda w: w.entities() == sorted(name.removesuffix(".py") for name in w.modules),
    )


def todos():
    def direct(s, w):
        found = s.call("serena", "search_for_pattern", substring_pattern=r"TODO\(\w+\)", relative_path="app")
        s.call("sqlite", "write_query", query=insert(count(re.findall(r"TODO\((\w+)\)", found))))

    script = """import re
found = str(tools.serena.search_for_pattern(substring_pattern=r"TODO\\(\\w+\\)", relative_path="app"))
names = re.findall(r"TODO\\((\\w+)\\)", found)
rows = ", ".join(f"('{n}', {names.count(n)})" for n in sorted(set(names)))
tools.sqlite.write_query("INSERT INTO counts VALUES " + rows)
print(rows)"""
    return Task("count TODOs by owner into a table", direct, ["search pattern", "insert into table"], script, lambda w: w.counts() == w.todos)


def timeouts():
    def direct(s, w):
        shown = s.call("git", "git_show", repo_path=str(w.root), revision="HEAD")
        s.call("memory", "create_entities", entities=entities(slower(shown), "setting"))

    script = """import re
shown = str(tools.git.git_show("{root}", "HEAD"))
names, now = [], ""
for line in shown.replace("\\\\n", "\\n").split("\\n"):
    at = re.search(r"conf/([a-z]+-\\d\\d\\.ini)", line)
    now = at[1] if at else now
    if line.startswith("+timeout"):
        names.append(now)
tools.memory.create_entities([{"name": n, "entityType": "setting", "observations": []} for n in names])
print(names)"""
    return Task(
        "remember what a commit made slower", direct, ["show a commit", "create entities"], script,
        lambda w: w.entities() == sorted(w.slower),
    )


def slower(shown):
    names, now = [], ""
    for line in shown.split("\n"):
        if at := re.search(r"conf/([a-z]+-\d\d\.ini)", line):
            now = at[1]
        if line.startswith("+timeout"):
            names.append(now)
    return names


def schedule():
    day = "2026-05-03"

    def direct(s, w):
        lines = []
        for event, on, utc in page(s, w, "schedule"):
            if on == day:
                told = s.call("time", "convert_time", source_timezone="UTC", time=utc, target_timezone="Asia/Tokyo")
                lines.append(f"{event.replace(' ', '_')} {local(told)}")
        s.call("files", "write_file", path=f"{w.root}/tokyo.txt", content="\n".join(lines))

    script = PAGE + """import json
lines = []
for event, day, utc in [row.split("|") for row in page("schedule")]:
    if day == "2026-05-03":
        told = tools.time.convert_time("UTC", utc, "Asia/Tokyo")
        told = told if isinstance(told, dict) else json.loads(told)
        lines.append(event.replace(" ", "_") + " " + told["target"]["datetime"][11:16])
tools.files.write_file("{root}/tokyo.txt", "\\n".join(lines))
print(len(lines))"""

    def right(w):
        hours = [(event, utc) for event, on, utc in w.events if on == day]
        wanted = [f"{event.replace(' ', '_')} {(int(utc[:2]) + 9) % 24:02}:30" for event, utc in hours]
        return w.written("tokyo.txt") == " ".join(wanted).split()

    return Task("a day of a schedule in another time zone", direct, ["open page", "evaluate javascript", "convert time", "write file"], script, right)


def local(told):
    return json.loads(told)["target"]["datetime"][11:16]


def failures():
    def direct(s, w):
        found = s.call("serena", "search_for_pattern", substring_pattern=r"ERROR user=\d+", relative_path="logs/app.log")
        bad = [int(user) for user, times in count(re.findall(r"ERROR user=(\d+)", found)).items() if times >= 2]
        ids = ", ".join(map(str, bad))
        rows = table(s, f"SELECT id, email FROM users WHERE id IN ({ids}) ORDER BY id")
        s.call("files", "write_file", path=f"{w.root}/failed.txt", content="\n".join(row["email"] for row in rows))

    script = TABLE + """import json, re
found = tools.serena.search_for_pattern(substring_pattern=r"ERROR user=\\d+", relative_path="logs/app.log")
users = re.findall(r"ERROR user=(\\d+)", str(found))
bad = ", ".join(u for u in set(users) if users.count(u) >= 2)
mails = [row["email"] for row in table(f"SELECT email FROM users WHERE id IN ({bad}) ORDER BY id")]
tools.files.write_file("{root}/failed.txt", "\\n".join(mails))
print(len(mails))"""
    return Task(
        "users with failures in a log", direct, ["search pattern", "select query", "write file"], script,
        lambda w: w.written("failed.txt") == [email(user) for user, times in sorted(w.failures.items()) if times >= 2],
    )


def stock():
    def direct(s, w):
        rows = table(s, "SELECT category, SUM(stock) AS stock FROM products GROUP BY category")
        limits = {category: int(least) for category, least in page(s, w, "limits")}
        low = [row["category"] for row in rows if row["stock"] < limits[row["category"]]]
        s.call("memory", "create_entities", entities=entities(low, "shortage"))

    script = PAGE + TABLE + """import json
limits = dict(line.split("|") for line in page("limits"))
rows = table("SELECT category, SUM(stock) AS stock FROM products GROUP BY category")
low = [r["category"] for r in rows if r["stock"] < int(limits[r["category"]])]
tools.memory.create_entities([{"name": n, "entityType": "shortage", "observations": []} for n in low])
print(low)"""
    return Task(
        "stock below the limits of a page", direct, ["select query", "open page", "evaluate javascript", "create entities"], script,
        lambda w: w.entities() == sorted(category for category, stock in w.stock.items() if stock < w.limits[category]),
    )


def advice():
    def direct(s, w):
        advised = {key: int(value) for key, value in page(s, w, "advice")}
        paths = [f"{w.root}/conf/{name}" for name in w.settings]
        text = s.call("files", "read_multiple_files", paths=paths)
        lines = []
        for part in re.split(r"(?=# settings of )", text)[1:]:
            name = re.match(r"# settings of (\S+)", part)[1]
            lines += [f"{name}:{key}" for key, value in re.findall(r"(\w+) = (\d+)", part) if int(value) < advised[key]]
        s.call("files", "write_file", path=f"{w.root}/below.txt", content="\n".join(lines))

    script = PAGE + """import re
advised = dict(line.split("|") for line in page("advice"))
folder = str(tools.files.list_directory("{root}/conf"))
lines = []
for name in sorted(set(re.findall(r"[a-z]+-\\d\\d\\.ini", folder))):
    text = str(tools.files.read_text_file("{root}/conf/" + name)).replace("\\\\n", "\\n")
    lines += [f"{name}:{k}" for k, v in re.findall(r"(\\w+) = (\\d+)", text) if int(v) < int(advised[k])]
tools.files.write_file("{root}/below.txt", "\\n".join(dict.fromkeys(lines)))
print(len(lines))"""
    return Task(
        "settings below a page's advice", direct, ["open page", "evaluate javascript", "list directory", "read text file", "write file"],
        script,
        lambda w: sorted(w.written("below.txt"))
        == sorted(f"{name}:{key}" for name, values in w.settings.items() for key, value in values.items() if value < w.advised[key]),
    )


def count(names):
    return {name: names.count(name) for name in sorted(set(names))}
