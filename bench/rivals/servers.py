"""The servers that take the tasks, and a session with one of them in which every token is counted."""

import re
import subprocess
import time
from dataclasses import dataclass, field

from mcp import Server
from tokens import compact, cost, lean


@dataclass(frozen=True)
class Kind:
    """A server and a manner of using it."""

    key: str
    title: str
    mode: str = ""


HYBRID = Kind("hybrid", "LLMC `hybrid`", "hybrid")
TE = Kind("te", "LLMC `te`", "te")
COMMANDER = Kind("dc", "Desktop Commander, its tools")
SHELL = Kind("shell", "Desktop Commander, its shell")
FILES = Kind("files", "reference filesystem server")
KINDS = [HYBRID, TE, COMMANDER, SHELL, FILES]


@dataclass(frozen=True)
class Step:
    """A request and its answer, in tokens, and the answer's text."""

    sent: int
    received: int
    text: str

    @property
    def tokens(self):
        return self.sent + self.received


@dataclass
class Session:
    """A conversation with one server: what the model is sent first, and each request and answer."""

    kind: Kind
    server: Server
    count: object
    root: str
    schema: int = 0
    prices: dict = field(default_factory=dict)
    instructions: int = 0
    steps: list = field(default_factory=list)

    @staticmethod
    def start(kind, bench, root, home):
        server = Server(command(kind, bench, root), home)
        session = Session(kind, server, lambda text: tokens(bench, text), str(root))
        _, session.schema, _ = cost(bench, server)
        listed = server.request("tools/list", {})["tools"]
        session.prices = {tool["name"]: session.count(compact(lean(tool))) for tool in listed}
        session.instructions = session.count(server.greeting.get("instructions") or "")
        return session

    @property
    def tools(self):
        return len(self.prices)

    @property
    def before(self):
        """The fixed cost of a conversation: the tool list and the instructions."""
        return self.schema + self.instructions

    def call(self, tool, **arguments):
        """Calls a tool as a model does; returns the text."""
        result = self.server.request("tools/call", {"name": tool, "arguments": arguments})
        text = "\n".join(part.get("text", "") for part in result["content"])
        if result.get("isError"):
            raise RuntimeError(f"{self.kind.title}: {tool} {arguments}: {text}")
        self.steps.append(Step(self.count(compact({"name": tool, "arguments": arguments})), self.count(text), text))
        return text

    def shell(self, command):
        """Runs a command line in the project with the server's own means."""
        if self.kind is HYBRID:
            return self.call("run_cmd", argv=["bash", "-c", command])
        # Now and then Desktop Commander loses the output of a short command. That is not held against it: the command is
        # given again, and only the answer that has the output counts.
        for _ in range(5):
            before = len(self.steps)
            text = self.call("start_process", command=f"cd {self.root} && {command}", timeout_ms=30000)
            if text.rstrip().endswith("to get more output."):
                pid = int(re.search(r"PID (\d+)", text)[1])
                text += self.call("read_process_output", pid=pid, timeout_ms=10000)
            if text.partition("Initial output:")[2].strip():
                break
            del self.steps[before:]
        return text

    def search(self, pattern, path="", thinking=0.5, kind="content", context=0):
        """Desktop Commander's search, read to its end."""
        text = self.call(
            "start_search", path=f"{self.root}/{path}".rstrip("/"), pattern=pattern, searchType=kind,
            ignoreCase=False, contextLines=context,
        )
        identity = re.search(r"session: (\S+)", text)[1]
        # The first answer shows ten results, of a search that may still be running. A model takes its time to ask on, and
        # by then the search is done; an answer before that does not count.
        while "more results" in text or "RUNNING" in text or "IN PROGRESS" in text:
            time.sleep(thinking)
            before = len(self.steps)
            text = self.call("get_more_search_results", sessionId=identity)
            if "COMPLETED" in text:
                break
            del self.steps[before:]
        return text

    def take(self):
        """What was exchanged since the last time."""
        taken, self.steps = self.steps, []
        return taken

    def close(self):
        self.server.close()


def command(kind, bench, root):
    if kind.mode:
        return bench.llmc_mcp(root, kind.mode)
    if kind is FILES:
        return [*bench.filesystem, str(root)]
    return bench.desktop_commander


def available(bench):
    """The servers that could be installed."""
    there = {COMMANDER: bench.desktop_commander, SHELL: bench.desktop_commander, FILES: bench.filesystem}
    return [kind for kind in KINDS if kind.mode or there[kind]]


def tokens(bench, text):
    done = subprocess.run([bench.count_tokens], input=text.encode(), stdout=subprocess.PIPE, check=True)
    return int(done.stdout)
