"""Recursive analysis of 50 MB: what the model is sent, how fast the text is searched, what it takes in memory.

The model is played by a script, so the figures say what LLMC does and costs, not how clever a model is: each question
comes with the code that a capable model would write for it, and its answer is checked.
"""

import http.server
import json
import os
import random
import re
import statistics
import subprocess
import threading
import time
from pathlib import Path

from mcp import PeakMemory, Server, scratch
from report import median_and_min, megabytes, ratio, table, verdict

SIZE = 50_000_000
FIRST_PROMPT = 3_000
SEARCH_MS = 150
SEARCH_RATIO = 3
MEMORY = 3
PATTERNS = [
    # (what it is, pattern, is it literal)
    ("rare literal", "order 4711 was refunded", True),
    ("common literal", "status=500", True),
    ("common regexp", r"user=\w+7 status=50\d", False),
]


def measure(bench):
    with scratch() as root:
        root = Path(root)
        facts = make_log(root / "app.log")
        with Model() as model:
            configure(bench, root, model)
            with Server(bench.llmc_mcp(root)) as server:
                rows = search(bench, server, model, root)
                with PeakMemory(server.process.pid) as peak:
                    answered, sent = questions(bench, server, model, facts)
        whole = count(bench, (root / "app.log").read_bytes())
        size = (root / "app.log").stat().st_size
    first = max(tokens for _, tokens in sent["first"])
    per_question = statistics.mean(sent["all"])
    break_even = size * per_question / whole
    bound = [
        ["first prompt, tokens", f"{first:,}", f"≤ {FIRST_PROMPT:,}", verdict(first <= FIRST_PROMPT)],
        [
            "private memory of server and worker at their peak (PSS)", f"{megabytes(peak.private)} ({megabytes(peak.pss)})",
            f"≤ {MEMORY} × {megabytes(size)}", verdict(peak.private <= MEMORY * size),
        ],
        ["questions answered right", f"{answered} of {len(facts)}", "all", verdict(answered == len(facts))],
    ]
    head = ["search", "matches", "LLMC median (min)", "rg median (min)", "ratio", f"≤ {SEARCH_MS} ms", f"ratio ≤ {SEARCH_RATIO}"]
    return "\n\n".join([
        table(["over 50 MB", "measured", "bound", ""], bound),
        table(head, rows),
        f"Tokens for one question, everything sent and received: {per_question:,.0f} on average "
        f"({min(sent['all']):,} to {max(sent['all']):,}). Pasting the file would take {whole:,} for each question, "
        f"{whole / per_question:,.0f} times as many, and fits no model. A text of this kind below about "
        f"{break_even / 1000:,.0f} kB is cheaper to paste than to analyse for one question, if the model takes it "
        f"whole; `rlm.direct_tokens` (16,000) makes LLMC itself do so up to about {size * 16_000 / whole / 1000:,.0f} kB.",
        "The search column is the time from the model's answer to the next question it is asked: parsing that answer, "
        "the interpreter, `context_search` with its count of all matches, and the next request. For ripgrep it is "
        "`rg --count-matches` on the same file, its start included. The questions: five needles, five counts and "
        "rankings, each by two or three turns of code written beforehand; a model that needs more turns pays for them.",
    ])


def make_log(path):
    """A log with facts in it; the facts, each with the code that finds it."""
    rng = random.Random(8)
    hours, statuses, planted = {}, {}, {
        0.1: "order 4711 was refunded to card ending 0042",
        0.3: "config reloaded: feature_flag_blue=enabled by admin@example.org",
        0.5: "disk /dev/sdb1 is full, 0 bytes left",
        0.7: "certificate expires on 2031-05-17",
        0.9: "queue drained after 8123 seconds",
    }
    waiting = sorted(planted.items())
    size, line = 0, 0
    slowest = (0, "")
    with open(path, "w") as log:
        while size < SIZE:
            hour, status = rng.randrange(24), rng.choice([200] * 30 + [404, 404, 500, 503])
            user, took = f"u{rng.randrange(5000)}", rng.randrange(1, 90_000)
            text = f"2026-01-01T{hour:02}:{line % 60:02} user={user} status={status} took={took} path=/v1/items/{line}\n"
            if waiting and size > waiting[0][0] * SIZE:
                text += f"2026-01-01T00:00 NOTE {waiting.pop(0)[1]}\n"
            hours[hour] = hours.get(hour, 0) + (status >= 500)
            statuses[status] = statuses.get(status, 0) + 1
            slowest = max(slowest, (took, user))
            size += len(text)
            line += 1
            log.write(text)
    worst = max(hours, key=lambda hour: (hours[hour], -hour))
    needle = "h = context_search({0!r})['hits'][0]\nprint(h)"
    by_hour = (
        "n = {}\nfor k in range(24):\n    p = f'T{k:02d}:.. user=.* status=5'\n    n[k] = context_search(p, limit=0)['total']\n"
        "print(n)"
    )
    return [
        ("To which card was order 4711 refunded?", ["h = context_search('order 4711')['hits'][0]\nprint(h)", "FINAL(h['text'][-4:])"], "0042"),
        ("Who enabled the blue flag?", [needle.format("feature_flag_blue"), "FINAL(h['text'].split()[-1])"], "admin@example.org"),
        ("Which disk is full?", [needle.format("is full"), "FINAL(h['text'].split('disk ')[1].split()[0])"], "/dev/sdb1"),
        ("When does the certificate expire?", [needle.format("certificate expires"), "FINAL(h['text'].split()[-1])"], "2031-05-17"),
        ("How long took the queue?", [needle.format("queue drained"), "FINAL(h['text'].split()[-2])"], "8123"),
        ("How many requests failed with 503?", ["print(context_search('status=503', literal=True, limit=1)['total'])", "FINAL(str(context_search('status=503', literal=True, limit=1)['total']))"], str(statuses[503])),
        ("How many requests were there?", ["print(context_search('user=', literal=True, limit=1)['total'])", "FINAL(str(context_search('user=', literal=True, limit=1)['total']))"], str(line)),
        ("In which hour were there most errors?", [by_hour, "FINAL(str(max(n, key=lambda k: n[k])))"], str(worst)),
        ("What share of answers was 404?", ["a = context_search('status=404', literal=True, limit=1)['total']\nprint(a)", "t = context_search('status=', literal=True, limit=1)['total']\nFINAL(f'{a / t:.3f}')"], f"{statuses[404] / line:.3f}"),
        ("What was the longest time?", ["h = context_search('took=8999[0-9]', limit=1000)['hits']\nprint(len(h))", "FINAL(str(max([int(x['text'].split('took=')[1].split()[0]) for x in h])))"], str(slowest[0])),
    ]


def search(bench, server, model, root):
    """A row for each pattern: LLMC and ripgrep take turns."""
    rows = []
    for name, pattern, literal in PATTERNS:
        code = f"print(context_search({pattern!r}, literal={literal})['total'])"
        ours, theirs, found = [], [], None
        for _ in range(bench.runs):
            model.play([code, "FINAL('x')"])
            ask(server, "?")
            ours.append(model.times[1] - model.times[0])
            found = int(model.prompts[1].split()[0])
            if bench.ripgrep:
                command = [str(bench.ripgrep), "--no-config", "--count-matches", *(["-F"] if literal else []), "-e", pattern, str(root / "app.log")]
                started = time.perf_counter()
                subprocess.run(command, stdout=subprocess.PIPE, check=True)
                theirs.append(time.perf_counter() - started)
        median = statistics.median(ours)
        row = [f"{name} `{pattern}`", f"{found:,}", median_and_min(ours)]
        if theirs:
            by = ratio(ours, theirs)
            row += [median_and_min(theirs), f"{by:.2f}", verdict(median <= SEARCH_MS / 1000), verdict(by <= SEARCH_RATIO)]
        else:
            row += ["–", "–", verdict(median <= SEARCH_MS / 1000), "–"]
        rows.append(row)
    return rows


def questions(bench, server, model, facts):
    """Asks everything; how many answers were right, and the tokens of first prompts and of whole questions."""
    right, sent = 0, {"first": [], "all": []}
    for task, blocks, expected in facts:
        model.play(blocks)
        answer = ask(server, task)["data"]["answer"]
        right += answer == expected
        if answer != expected:
            print(f"rlm: {task} {answer!r}, not {expected!r}", flush=True)
        tokens = [count(bench, text.encode()) for text in model.sent]
        sent["first"].append((task, tokens[0]))
        sent["all"].append(sum(tokens) + sum(count(bench, text.encode()) for text in model.said))
    return right, sent


def ask(server, task):
    text, _ = server.call("rlm_query", task=task, path="app.log", max_bytes=60_000_000, max_turns=10)
    return json.loads(text)


def count(bench, text):
    counted = subprocess.run([bench.count_tokens], input=text, stdout=subprocess.PIPE, check=True)
    return int(counted.stdout)


def configure(bench, root, model):
    (root / "llmc.toml").write_text(
        f'[mcp]\nmode = "classic"\n[rlm]\nmodel = "ollama/scripted"\nbase_url = "http://127.0.0.1:{model.port}"\n'
    )
    # The address of a model in a workspace's own file needs the user's trust.
    shown = subprocess.run([bench.llmc, "trust", "--show", "--root", root], stdout=subprocess.PIPE, text=True, check=True)
    os.environ["LLMC_TRUST"] = re.search("^hash: (.*)$", shown.stdout, re.MULTILINE)[1]


class Model:
    """A scripted Ollama that records what it was sent and when."""

    def __enter__(self):
        outer = self
        self.play([])

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.times.append(time.perf_counter())
                messages = asked["messages"]
                outer.sent.append("\n".join(message["content"] for message in messages))
                outer.prompts.append(messages[-1]["content"])
                turn = sum(message["role"] == "assistant" for message in messages)
                text = f"```python\n{outer.blocks[turn]}\n```"
                outer.said.append(text)
                body = json.dumps({
                    "message": {"role": "assistant", "content": text}, "done": True, "done_reason": "stop",
                    "prompt_eval_count": 1, "eval_count": 1,
                }).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()

    def play(self, blocks):
        self.blocks, self.sent, self.said, self.prompts, self.times = blocks, [], [], [], []
