"""A client for MCP over stdio, and what the kernel says about the memory of the server behind it."""

import json
import os
import subprocess
import tempfile
import threading
import time
from pathlib import Path

PROTOCOL = "2025-06-18"


class Server:
    """A running server that has answered `initialize`."""

    def __init__(self, command, home=None, env=None, cwd=None):
        environment = {**os.environ, "DESKTOP_COMMANDER_DISABLE_TELEMETRY": "1", **(env or {})}
        if home is not None:
            environment["HOME"] = str(home)
        self.ids = 0
        started = time.perf_counter()
        self.process = subprocess.Popen(
            command, env=environment, cwd=cwd, bufsize=0,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )
        self.answers = open(self.process.stdout.fileno(), "rb", buffering=1 << 20, closefd=False)
        client = {"name": "bench", "version": "1"}
        # `initialized` is not sent: Desktop Commander starts to download a browser when it hears it.
        self.greeting = self.request(
            "initialize", {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": client}
        )
        self.start_seconds = time.perf_counter() - started

    def request(self, method, params):
        """Sends a request and waits for its answer."""
        return self.wait_for(self.send(method, params))

    def send(self, method, params):
        """Sends a request and returns its number."""
        self.ids += 1
        self.write({"jsonrpc": "2.0", "id": self.ids, "method": method, "params": params})
        return self.ids

    def notify(self, method, params):
        self.write({"jsonrpc": "2.0", "method": method, "params": params})

    def write(self, message):
        self.process.stdin.write(json.dumps(message).encode() + b"\n")

    def wait_for(self, wanted):
        while True:
            answer = self.next_answer()
            if answer.get("id") == wanted:
                if "error" in answer:
                    raise RuntimeError(f"the server answered {answer['error']}")
                return answer["result"]

    def next_answer(self):
        """The next message from the server, whatever it answers."""
        if line := self.answers.readline():
            return json.loads(line)
        raise RuntimeError(f"the server ended with status {self.process.wait()}")

    def call(self, tool, **arguments):
        """Calls a tool; returns its text and the seconds from the request to its parsed answer."""
        started = time.perf_counter()
        result = self.request("tools/call", {"name": tool, "arguments": arguments})
        seconds = time.perf_counter() - started
        text = result["content"][0]["text"]
        if result.get("isError"):
            raise RuntimeError(f"{tool}: {text}")
        return text, seconds

    def memory(self):
        """Private and proportional memory of the server and its children; see `memory_of`."""
        return memory_of(self.process.pid)

    def cpu_seconds(self):
        """Time on a processor so far, in user and kernel mode, of all threads."""
        words = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def close(self):
        """Ends the server as a client does, by closing its input."""
        self.process.stdin.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.answers.close()
        self.process.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def memory_of(*pids):
    """Private and proportional memory in bytes, summed over processes and all that descend from them.

    Private pages are those that no other process maps; the proportional size has a share of the others, such as those of an
    executable that runs twice. A server hides its memory from its own user, so that only root can ask.
    """
    total = {"private": 0, "pss": 0}
    for pid in (child for pid in pids for child in tree(pid)):
        try:
            sizes = fields(f"/proc/{pid}/smaps_rollup")
        except (FileNotFoundError, ProcessLookupError):
            # It has ended.
            continue
        except PermissionError:
            raise SystemExit("the memory of a server can be read by root only") from None
        total["private"] += sizes["Private_Clean"] + sizes["Private_Dirty"]
        total["pss"] += sizes["Pss"]
    return total


class PeakMemory:
    """The most memory of a process and all that descend from it during a `with` block.

    It is looked at again and again, which takes time of that process: not for a block whose time is measured.
    """

    SAMPLE_SECONDS = 0.005

    def __init__(self, pid):
        self.pid = pid
        self.private = self.pss = 0
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self.sample)

    def sample(self):
        while True:
            now = memory_of(self.pid)
            self.private, self.pss = max(self.private, now["private"]), max(self.pss, now["pss"])
            if self.is_over.wait(self.SAMPLE_SECONDS):
                return

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        self.thread.join()


def tree(pid):
    """A process and all that descend from it."""
    found = [pid]
    for parent in found:
        for children in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                found.extend(int(child) for child in children.read_text().split())
            except (FileNotFoundError, ProcessLookupError):
                # The thread has ended.
                continue
    return found


def fields(path):
    """The sizes in a file of /proc, in bytes."""
    sizes = {}
    for line in Path(path).read_text().splitlines():
        words = line.split()
        if len(words) == 3 and words[2] == "kB":
            sizes[words[0].rstrip(":")] = int(words[1]) * 1024
    return sizes


def scratch():
    """A folder that is gone afterwards."""
    return tempfile.TemporaryDirectory(prefix="llmc-bench-")
