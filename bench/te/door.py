"""How LLMC is asked: the one place that knows."""

import os
import shutil
import subprocess

from mcp import Server

PROGRAMS = ["cat", "cargo", "diff", "du", "find", "gcc", "git", "go", "grep", "head", "ls", "node", "python3", "rustc", "tail"]


class Door:
    """Serves a command in the world as an agent would be served it."""

    def __init__(self, llmc, world, site, budget):
        self.world = world
        self.environment = dict(os.environ, NO_COLOR="1", GIT_PAGER="cat")
        if site:
            self.environment["PYTHONPATH"] = site
        # Programs outside the fixed search path are named by their own path.
        allowed = [name for name in PROGRAMS if shutil.which(name)]
        allowed += [path for name in ("cargo", "rustc", "node") if (path := shutil.which(name))]
        flags = [
            "--root", str(world), "--set", f"mcp.te.budget_tokens={budget}", "--set", "mcp.tools.exec_timeout=300", "--set", "mcp.te.timeout=300",
            "--set", "mcp.tools.read_timeout=60",
            "--set", "mcp.tools.run_cmd_allowlist=[" + ", ".join(f'"{name}"' for name in allowed) + "]",
        ]
        self.server = Server([str(llmc), "mcp", "--mode", "classic", *flags])

    def serve(self, entry):
        """The text that an agent is sent, and the seconds it took."""
        if entry.tool:
            name, arguments = entry.tool
            return self.server.call(name, **arguments)
        return self.server.call("run_cmd", argv=entry.argv, cwd=entry.cwd)

    def raw(self, entry):
        """What the command prints, both streams, as a terminal would show them one after the other."""
        return self.output(entry).decode(errors="replace")

    def output(self, entry):
        done = subprocess.run(
            entry.argv, cwd=self.world / entry.cwd, env=self.environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        return done.stdout + done.stderr

    def close(self):
        self.server.close()
