"""What is measured and against what: the LLMC binary, the pinned peers, and the folder they live in."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "llmc" / "bench"

RIPGREP = "15.1.0"
DESKTOP_COMMANDER = "0.2.52"
FILESYSTEM = "2026.8.31"
# A polyfill far down the dependencies; not every mirror has the patch release that was asked for last.
NPM_OVERRIDES = {"typedarray.prototype.slice": "1.0.5"}


@dataclass
class Bench:
    """Everything a measurement needs to know."""

    llmc: Path
    count_tokens: Path
    http_load: Path
    runs: int
    ripgrep: Path | None = None
    desktop_commander: list[str] | None = None
    filesystem: list[str] | None = None
    versions: dict[str, str] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)

    @staticmethod
    def prepare(llmc, runs, load=True):
        """Builds LLMC and installs the peers; a peer that cannot be had is noted and left out."""
        CACHE.mkdir(parents=True, exist_ok=True)
        built, counter, load = build(llmc, load)
        bench = Bench(llmc=built, count_tokens=counter, http_load=load, runs=runs)
        bench.versions["llmc"] = first_line([built, "--version"]).removeprefix("llmc ")
        try:
            bench.ripgrep, bench.versions["ripgrep"] = install_ripgrep()
        except Missing as reason:
            bench.missing.append(f"ripgrep: {reason}")
        try:
            bench.desktop_commander = install_desktop_commander()
            bench.versions["desktop-commander"] = DESKTOP_COMMANDER
            bench.versions["node"] = first_line(["node", "--version"]).removeprefix("v")
        except Missing as reason:
            bench.missing.append(f"Desktop Commander: {reason}")
        try:
            bench.filesystem = install_filesystem()
            bench.versions["filesystem"] = FILESYSTEM
        except Missing as reason:
            bench.missing.append(f"the reference filesystem server: {reason}")
        return bench

    @property
    def threads(self):
        """The threads that LLMC searches with; ripgrep gets as many."""
        return min(8, len(os.sched_getaffinity(0)))

    def llmc_mcp(self, root, mode="classic"):
        """The command that serves `root` over stdio."""
        return [str(self.llmc), "mcp", "--root", str(root), "--mode", mode]


class Missing(Exception):
    """Something could not be installed."""


def build(llmc, load=True):
    """The binary to measure, the token counter and, if needed, the HTTP load, built unless they are there already."""
    cargo = ["cargo", "build", "--release", "--locked"]
    if llmc is None:
        subprocess.run([*cargo, "-p", "llmc"], cwd=REPOSITORY, check=True)
    subprocess.run([*cargo, "-p", "llmc-tokens", "--example", "count"], cwd=REPOSITORY, check=True)
    if load:
        subprocess.run([*cargo, "-p", "llmc-server", "--example", "http_load"], cwd=REPOSITORY, check=True)
    metadata = subprocess.run(
        ["cargo", "metadata", "--format-version", "1", "--no-deps", "--locked"],
        cwd=REPOSITORY, check=True, stdout=subprocess.PIPE,
    )
    release = Path(json.loads(metadata.stdout)["target_directory"]) / "release"
    examples = release / "examples"
    return Path(llmc or release / "llmc").resolve(), examples / "count", examples / "http_load"


def install_ripgrep():
    """A pinned ripgrep from source, so that both sides come from this machine's compiler; else an installed one."""
    root = CACHE / "peers" / f"ripgrep-{RIPGREP}"
    program = root / "bin" / "rg"
    if not program.exists() and shutil.which("cargo"):
        print(f"installing ripgrep {RIPGREP}", file=sys.stderr, flush=True)
        environment = {key: value for key, value in os.environ.items() if key != "CARGO_TARGET_DIR"}
        subprocess.run(
            ["cargo", "install", "ripgrep", "--version", RIPGREP, "--locked", "--quiet", "--root", str(root)],
            cwd=CACHE, env=environment,
        )
    if not program.exists():
        if not shutil.which("rg") and shutil.which("apt-get") and os.geteuid() == 0:
            subprocess.run(["apt-get", "install", "-y", "-qq", "ripgrep"], stdout=subprocess.DEVNULL)
        if not shutil.which("rg"):
            raise Missing("neither cargo nor apt-get could install it")
        program = Path(shutil.which("rg"))
    return program, first_line([program, "--version"]).split()[1]


def install_desktop_commander():
    """A pinned Desktop Commander; its install scripts stay out, since they only report the installation."""
    package = install_node("desktop-commander", "@wonderwhy-er/desktop-commander", DESKTOP_COMMANDER, NPM_OVERRIDES)
    # The entry point itself: npx would add its own start to every run.
    return ["node", str(package / "dist" / "index.js"), "--no-onboarding"]


def install_filesystem():
    """The pinned reference server for files; the folder that it serves is its last word."""
    package = install_node("filesystem", "@modelcontextprotocol/server-filesystem", FILESYSTEM)
    return ["node", str(package / "dist" / "index.js")]


def install_node(name, package, version, overrides=None):
    """A package from npm in a folder of its own."""
    root = CACHE / "peers" / f"{name}-{version}"
    done = root / ".complete"
    if not shutil.which("node"):
        raise Missing("node is not installed")
    if not done.exists():
        if not shutil.which("npm"):
            raise Missing("npm is not installed")
        print(f"installing {package} {version}", file=sys.stderr, flush=True)
        root.mkdir(parents=True, exist_ok=True)
        manifest = {"private": True, "dependencies": {package: version}, "overrides": overrides or {}}
        (root / "package.json").write_text(json.dumps(manifest))
        installed = subprocess.run(
            ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"],
            cwd=root, stdout=subprocess.DEVNULL,
        )
        if installed.returncode != 0:
            raise Missing("npm install failed")
        done.touch()
    return root / "node_modules" / package


def first_line(command):
    """The first line that a command prints."""
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[0]
