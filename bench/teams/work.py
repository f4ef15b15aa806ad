"""What clients do, and what they were told has been done.

A client works on its own files and on a few that all of them change. It reads the rest of cut answers, uses a background process
and a script session, which the proxy finds by the conversation. Whatever an answer acknowledges is written down here and
checked later: `Facts` is the memory of all clients.
"""

import asyncio
import random
import re
import time

from client import Client

LOGS, COUNTERS, OWN_FILES = 3, 4, 3
FILLER = "".join(f"    some line {n} of a file that is not short\n" for n in range(30))
# What a client does next, by weight. Processes and sessions cost a Python or a shell each, so few clients have them.
WEIGHTS = {"write": 18, "edit": 14, "read": 20, "append": 8, "count": 8, "cut": 9, "handle": 15, "command": 2,
           "process": 6, "script": 6}
SHARE_WITH_PROCESSES = 5
ECHO = 'echo "ready $0"; while read -r line; do echo "got $line"; done'


class Facts:
    """What all clients were told, and what they found wrong on the way."""

    def __init__(self):
        self.calls = []
        self.files = {}
        self.lines = {}
        self.increments = {}
        self.handles = []
        self.wrong = []
        self.lost_sessions = []

    def complain(self, what):
        self.wrong.append(what)


class OwnFile:
    """The content that was acknowledged last, and later ones whose fate is not known."""

    def __init__(self):
        self.acknowledged = None
        self.possible = []

    def allows(self, content):
        return content == self.acknowledged or content in self.possible

    def learn(self, content, outcome):
        if outcome == "done":
            self.acknowledged, self.possible = content, []
        elif outcome == "unknown":
            self.possible.append(content)


class Worker:
    """One client and its conversation."""

    def __init__(self, number, port, token, facts, pause, label):
        self.client = Client(number, port, token, facts.calls, label)
        self.facts, self.pause, self.number = facts, pause, number
        self.random = random.Random(number)
        self.version = 0
        self.files = {}
        self.handles = []
        self.proc_id = None
        self.script_state = {"name": "s0", "value": 0, "unknown": 0, "is_new": True}
        self.deadline = 0
        weights = dict(WEIGHTS)
        if number % SHARE_WITH_PROCESSES != 0:
            del weights["process"]
        if number % SHARE_WITH_PROCESSES != 1:
            del weights["script"]
        self.kinds, self.weights = list(weights), list(weights.values())

    async def run(self, until):
        """Works until then. What is under way then may be tried again for some seconds."""
        self.deadline = until + 10
        await asyncio.sleep(self.random.random() * min(1.0, self.pause * 2))
        await self.client.open(self.deadline)
        while time.time() < until:
            kind = self.random.choices(self.kinds, self.weights)[0]
            await getattr(self, kind)()
            if self.pause:
                await asyncio.sleep(self.random.expovariate(1 / self.pause))
        if self.proc_id:
            await self.end_process()

    async def call(self, kind, tool, **arguments):
        # What ran on a server that is gone does not come back.
        tries = 4 if kind.startswith("process") else 100
        return await self.client.persist(kind, tool, self.deadline, tries, **arguments)

    def expect(self, answer, holds, what):
        """Notes an answer that claims success and is wrong, or a failure that nothing explains."""
        if answer.ok and not holds:
            self.facts.complain(f"client {self.number}: {what}: {answer.text[:300]}")

    def own_file(self):
        name = f"own/c{self.number}/f{self.random.randrange(OWN_FILES)}.txt"
        return name, self.facts.files.setdefault(name, OwnFile())

    async def write(self):
        name, file = self.own_file()
        self.version += 1
        content = f"client {self.number} version {self.version}\n{FILLER}"
        answer = await self.call("write", "linux_fs_write", path=name, content=content)
        file.learn(content, answer.outcome)

    async def edit(self):
        name, file = self.own_file()
        if file.acknowledged is None or file.possible:
            return await self.write()
        self.version += 1
        first = file.acknowledged.split("\n", 1)[0]
        changed = f"client {self.number} version {self.version}"
        answer = await self.call("edit", "linux_fs_edit", path=name, old_text=first + "\n", new_text=changed + "\n")
        if answer.code == "NO_MATCH":
            self.facts.complain(f"client {self.number}: {name} has not what was acknowledged: {answer.text[:300]}")
        file.learn(file.acknowledged.replace(first, changed, 1), answer.outcome)

    async def read(self):
        name, file = self.own_file()
        if file.acknowledged is None:
            return await self.write()
        answer = await self.call("read", "read_file", path=name)
        if answer.ok:
            content = answer.text.rsplit("\n# LLMC:", 1)[0] + "\n"
            if not file.allows(content):
                self.facts.complain(f"client {self.number}: {name} was read as {content[:80]!r}")

    async def append(self):
        name = f"shared/log{self.random.randrange(LOGS)}.txt"
        self.version += 1
        line = f"client {self.number} line {self.version}"
        answer = await self.call("append, contended", "linux_fs_write", path=name, content=line + "\n", mode="append")
        self.facts.lines.setdefault(name, []).append((line, answer.outcome))

    async def count(self):
        """Adds one by compare and swap: the edit fails if another client was faster."""
        name = f"shared/counter{self.random.randrange(COUNTERS)}.txt"
        answer = await self.call("read", "read_file", path=name)
        found = re.match(r"count (\d+)\n", answer.text)
        if not found:
            return self.expect(answer, False, f"{name} has no number")
        number = int(found[1])
        answer = await self.call("edit, contended", "linux_fs_edit", path=name, old_text=f"count {number}\n",
                                 new_text=f"count {number + 1}\n")
        self.facts.increments.setdefault(name, []).append((number, answer.outcome))

    async def cut(self):
        digit = self.random.randrange(10)
        answer = await self.call("cut answer", "te_grep", pattern=f"line [0-9]*{digit} of", path="long.txt")
        found = re.search(r'"handle":"(res_\w+)"', answer.text)
        if found:
            self.handles.append((found[1], digit))
            self.facts.handles.append((self.number, found[1], digit))
        elif answer.ok:
            # Allowed while the database is away; the check of a phase without faults counts them.
            self.facts.calls[-1] = self.facts.calls[-1]._replace(code="ok, no handle")

    async def handle(self):
        if not self.handles:
            return await self.cut()
        handle, digit = self.random.choice(self.handles)
        offset = self.random.randrange(0, 20_000)
        answer = await self.call("handle", "linux_handle_read", handle=handle, offset=offset, limit=2000)
        self.expect(answer, f"{digit} of" in answer.text, f"part of {handle}")
        if answer.code == "HANDLE_EXPIRED":
            self.facts.complain(f"client {self.number}: {handle} is gone")

    async def command(self):
        word = f"said-by-{self.number}-{self.version}"
        answer = await self.call("command", "run_cmd", argv=["echo", word])
        self.expect(answer, word in answer.text, "a command's output")

    async def process(self):
        """Starts a process, uses it, and stops it."""
        word = f"w{self.number}x{self.version}"
        self.version += 1
        answer = await self.call("process: start", "linux_proc_start", argv=["sh", "-c", ECHO, word])
        found = re.search(r'"proc_id":"([^"]+)"', answer.text)
        if not found:
            return
        self.proc_id = found[1]
        # The place to read from is named, so that an answer that was withheld can be read again.
        answer = await self.call("process: read", "linux_proc_read", proc_id=self.proc_id, until="ready", timeout=4, offset=0)
        self.expect(answer, f"ready {word}" in answer.text, "a process's first line")
        answer = await self.call("process: send", "linux_proc_send", proc_id=self.proc_id, input=f"{word}\n")
        if answer.ok:
            answer = await self.call("process: read", "linux_proc_read", proc_id=self.proc_id, until="got", timeout=4, offset=0)
            self.expect(answer, f"got {word}" in answer.text, "a process's second line")
        await self.end_process()

    async def end_process(self):
        answer = await self.call("process: stop", "linux_proc_stop", proc_id=self.proc_id)
        if answer.ok or answer.outcome == "refused":
            self.proc_id = None

    async def script(self):
        """Counts in a variable of a script session. It may go with its server; then another one begins."""
        known = self.script_state
        answer = await self.call("script session", "execute_code", code="n = globals().get('n', 0) + 1\nn", session=known["name"])
        if answer.outcome == "unknown":
            known["unknown"] += 1
        if not answer.ok:
            if "is on server" in answer.text:
                self.facts.lost_sessions.append((time.time(), self.number, answer.text[:200]))
                known.update(name=f"s{len(self.facts.calls)}", value=0, unknown=0, is_new=True)
            return
        value = int(re.match(r"\d+", answer.text)[0])
        if f"# LLMC: session {known['name']}" in answer.text:
            if not known["is_new"]:
                self.facts.lost_sessions.append((time.time(), self.number, answer.text[:200]))
            known.update(value=0, unknown=0)
        lowest, highest = known["value"] + 1, known["value"] + 1 + known["unknown"]
        if not lowest <= value <= highest:
            self.facts.complain(f"client {self.number}: session has {value}, expected {lowest} to {highest}")
        known.update(value=value, unknown=0, is_new=False)
