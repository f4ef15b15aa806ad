"""A conversation in which every token is counted: with the servers directly, or with LLMC that has them behind it."""

import json
import os
import subprocess

from mcp import Server
from tokens import compact, lean


class Counter:
    """o200k tokens by the tokenizer that LLMC carries; a text is counted once."""

    def __init__(self, program):
        self.program, self.known = program, {}

    def __call__(self, text):
        if text not in self.known:
            done = subprocess.run([self.program], input=text.encode(), stdout=subprocess.PIPE, check=True)
            self.known[text] = int(done.stdout)
        return self.known[text]


class Conversation:
    """Requests and answers since the last `take`."""

    def __init__(self, count):
        self.count, self.exchanged, self.calls = count, 0, 0

    def exchange(self, server, tool, arguments):
        result = server.request("tools/call", {"name": tool, "arguments": arguments})
        text = "\n".join(part.get("text", "") for part in result["content"])
        self.exchanged += self.count(compact({"name": tool, "arguments": arguments})) + self.count(text)
        self.calls += 1
        if result.get("isError"):
            raise RuntimeError(f"{tool} {arguments}: {text}")
        return text

    def take(self):
        """Tokens and calls."""
        taken, self.exchanged, self.calls = (self.exchanged, self.calls), 0, 0
        return taken


class Direct(Conversation):
    """Every server is in the client's settings."""

    def __init__(self, count, servers, home):
        super().__init__(count)
        self.servers, self.lists = {}, {}
        for server in servers:
            running = Server(server.argv, home, server.env, server.cwd)
            if server.name != "commander":
                running.notify("notifications/initialized", {})
            tools = [lean(tool) for tool in running.request("tools/list", {})["tools"]]
            self.servers[server.name] = running
            instructions = running.greeting.get("instructions") or ""
            self.lists[server.name] = (len(tools), count(compact(tools)), count(instructions))

    @property
    def before(self):
        """The fixed cost: all lists and instructions."""
        return sum(tokens + instructions for _, tokens, instructions in self.lists.values())

    def call(self, server, tool, **arguments):
        return self.exchange(self.servers[server], tool, arguments)

    def close(self):
        for server in self.servers.values():
            server.close()


class Through(Conversation):
    """The client has LLMC alone."""

    def __init__(self, count, llmc, root, home):
        super().__init__(count)
        self.server = Server([str(llmc), "mcp", "--root", str(root), "--mode", "hybrid"], home)
        self.server.notify("notifications/initialized", {})
        tools = [lean(tool) for tool in self.server.request("tools/list", {})["tools"]]
        self.tools = len(tools)
        self.list = count(compact(tools))
        self.instructions = count(self.server.greeting.get("instructions") or "")

    @property
    def before(self):
        return self.list + self.instructions

    def script(self, code):
        return self.exchange(self.server, "execute_code", {"code": code})

    def guide(self):
        """Tokens of `init`, which names the servers."""
        text = self.server.call("init")[0]
        return self.count(text)

    def close(self):
        self.server.close()


class User:
    """A home of their own, whose configuration has the servers."""

    def __init__(self, llmc, home, root):
        self.llmc, self.root = llmc, root
        self.environment = {**os.environ, "HOME": str(home)}
        for variable in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
            self.environment.pop(variable, None)
            os.environ.pop(variable, None)

    def add(self, server, *flags):
        name, *rest = server.add_arguments()
        done = subprocess.run(
            [self.llmc, "upstream", "add", name, *flags, *rest], cwd=self.root, env=self.environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=240,
        )
        if done.returncode != 0:
            raise SystemExit(f"{server.name} cannot be added:\n{done.stdout}")


def search(words):
    """The script that finds the tools for a task, as a model would write it."""
    return f"for words in {json.dumps(words)}:\n    print(tools.search(words)[0]['signature'])"


def fill(script, world):
    return script.replace("{root}", str(world.root)).replace("{url}", world.url)
