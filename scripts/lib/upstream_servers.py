"""MCP servers of the registries at exact versions, as scripts/upstream-test and bench/upstream start them.

What is needed is installed once under ~/.cache/llmc, each Python server beside what it needs alone.
"""

import json
import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent

NPM = {
    "everything": ("@modelcontextprotocol/server-everything", "2026.8.31", "dist/index.js"),
    "files": ("@modelcontextprotocol/server-filesystem", "2026.8.31", "dist/index.js"),
    "memory": ("@modelcontextprotocol/server-memory", "2026.8.31", "dist/index.js"),
    "thinking": ("@modelcontextprotocol/server-sequential-thinking", "2026.8.31", "dist/index.js"),
    "browser": ("@playwright/mcp", "0.0.83", "cli.js"),
    "commander": ("@wonderwhy-er/desktop-commander", "0.2.52", "dist/index.js"),
}
PYPI = {
    "git": ("mcp-server-git", "2026.10.19", "mcp_server_git"),
    "fetch": ("mcp-server-fetch", "2026.10.24", "mcp_server_fetch"),
    "time": ("mcp-server-time", "2026.10.19", "mcp_server_time"),
}
# Written for an earlier SDK than the others.
SQLITE, SQLITE_SDK = ("mcp-server-sqlite", "2025.4.25"), ("mcp", "1.30.0")
# Its dependencies are many, and other versions than those of the others.
SERENA = ("serena-agent", "2.1.0")

# As root, and on a machine whose network is closed, Chromium needs all of these.
CHROMIUM_FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
]


@dataclass
class UpstreamServer:
    """A server: how it is started, and what `llmc upstream add` is told beside that."""

    name: str
    package: str
    argv: list
    env: dict = field(default_factory=dict)
    flags: list = field(default_factory=list)
    # Where a client starts it.
    cwd: Path | None = None

    def add_arguments(self):
        """The words after `llmc upstream add`."""
        env = [word for name, value in self.env.items() for word in ("--env", f"{name}={value}")]
        return [self.name, "--yes", *self.flags, *env, "--", *self.argv]


def install():
    """Installs every package; returns node, its modules, and the folders of the Python packages."""
    chromium = shutil.which(os.environ.get("CHROMIUM", "chromium"))
    if not chromium:
        raise SystemExit("chromium is needed: apt install chromium")
    npm = " ".join(f"{package}@{version}" for package, version, _ in NPM.values())
    pypi = [[f"{package}=={version}" for package, version, _ in PYPI.values()], ["==".join(SQLITE), "==".join(SQLITE_SDK)], ["==".join(SERENA)]]
    sites = " && ".join(f"python_tools {' '.join(packages)} >&2 && echo $site" for packages in pypi)
    # Desktop Commander's install scripts only report the installation.
    lines = shell(
        f"npm_config_ignore_scripts=true node_tools {npm} >&2 && echo $node && echo $tools && {sites}"
    )
    return dict(zip(("node", "modules", "site", "sqlite", "serena"), lines), chromium=chromium)


def shell(command):
    """The lines that a command prints which uses the functions that install packages."""
    sources = f". {HERE}/node-tools.sh && . {HERE}/python-tools.sh"
    done = subprocess.run(["bash", "-euc", f"{sources} && {command}"], stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise SystemExit("the packages cannot be installed")
    return done.stdout.split()


def servers(installed, project, work):
    """Every server by its name, at work in `project`; `work` is for what they need themselves."""
    python = shutil.which("python3")
    found = {}

    def add(name, package, version, argv, env=None, flags=(), cwd=None):
        argv = [str(word) for word in argv]
        found[name] = UpstreamServer(name, f"{package} {version}", argv, env or {}, list(flags), cwd)

    def npm(name, *words, **options):
        package, version, entry = NPM[name]
        path = Path(installed["modules"]) / "node_modules" / package / entry
        add(name, package, version, [installed["node"], path, *words], **options)

    def pypi(name, *words, **options):
        package, version, module = PYPI[name]
        env = {"PYTHONPATH": installed["site"], **options.pop("env", {})}
        add(name, package, version, [python, "-m", module, *words], env=env, **options)

    here = {"flags": ["--cwd", "."], "cwd": project}
    npm("everything")
    npm("files", project)
    npm("memory", env={"MEMORY_FILE_PATH": f"{project}/memory.jsonl"})
    npm("thinking")
    npm("browser", "--config", browser_settings(installed["chromium"], work), **here)
    npm("commander", "--no-onboarding", env={"DESKTOP_COMMANDER_DISABLE_TELEMETRY": "1"}, flags=["--cwd", ".", "--no-network"], cwd=project)
    pypi("git", "--repository", project, **here)
    pypi("fetch", "--ignore-robots-txt", "--allow-private-ips")
    pypi("time", "--local-timezone", "UTC")
    # It has an entry point and no module that can be run.
    start = [python, "-c", "from mcp_server_sqlite import main; main()"]
    add("sqlite", *SQLITE, [*start, "--db-path", f"{project}/shop.db"], env={"PYTHONPATH": installed["sqlite"]})
    add(
        "serena", *SERENA,
        [python, "-c", "from serena.cli import top_level; top_level()", "start-mcp-server", "--agent-interface", "tools", "--project", project, "--enable-web-dashboard", "false", "--enable-gui-log-window", "false"],
        env={"PYTHONPATH": installed["serena"]}, **here,
    )
    return found


def browser_settings(chromium, work):
    """The file that makes Playwright start Debian's Chromium."""
    path = Path(work) / "playwright.json"
    path.write_text(json.dumps({
        "browser": {
            "browserName": "chromium",
            "isolated": True,
            "launchOptions": {"headless": True, "executablePath": chromium, "chromiumSandbox": False, "args": CHROMIUM_FLAGS},
        },
    }))
    return path
