"""Rows of scripts/git-test: the area that one is run in, a plain shell and a server as two ways to run it, the verdicts.

The marks of a row's lines (row_world.py explains the text):

    ? OPTION VALUE   expect refused | ws FOLDER | args ARGUMENTS | full
                     without KEYS: values that may stay out of the configuration, named in an answer
    < LINE           setup, in the user's shell before the server starts; `start` where a row has none
    $ LINE           run_cmd of the server, the first one
    x LINE           the same, where LINE fails in a plain shell as well: it stops at a conflict
    2 LINE           run_cmd of a second server
    c LINE           run_cmd, called by a script of execute_code
    p LINE           linux_proc_start
    & LINE           run_cmd with a short wait: LINE goes on in the background
    u LINE           the user's own shell, meanwhile
    t LINE           the same, as the trigger of a plant: whatever LINE prints, the mark must not be there
    ! wait           until the background command has ended; its exit code counts
    ! restart        end the server as a client does and start it again
    ! kill           SIGKILL for the server and its processes; the next call starts another

@WS, @HOME, @DISK, @TMP and @MARK are the workspace, the home directory, a folder beside it, a folder below /tmp and the
file that a plant writes.
"""

import os
import re
import subprocess
import time

import git_outside
import mcp_stdio
import row_world
from row_world import Verdict, stop

PRELUDE = r"""
# start [FOLDER]: a repository with one commit.
start() { mkdir -p "${1:-.}" && (cd "${1:-.}" && git init -q && printf 'one\n' >a && git add a && git commit -qm first); }
# commit FILE TEXT [MESSAGE]
commit() { mkdir -p "$(dirname "$1")"; printf '%s\n' "$2" >"$1" && git add "$1" && git commit -qm "${3:-$2}"; }
# fork: `side` and `main`, two commits each, the first of which meet in `a`.
fork() {
  start && git switch -qc side && commit a side && commit s two && git switch -q main && commit a main && commit m two
}
# apart: `side` and `main` without a conflict.
apart() { start && git switch -qc side && commit s side && git switch -q main && commit m main; }
# series: five commits, of which `main` has one and `side` all; the third changes what `main` changed.
series() {
  start && git switch -qc side && commit b b1 && commit a a1 && commit c c1 && commit d d1 && git switch -q main &&
    commit a main
}
# bare FOLDER: a bare copy of the repository here.
bare() { git clone -q --bare . "$1"; }
# craft: makes craft.py, which writes an index. Arguments: a git directory, the name of a file to check out, the index.
craft() {
  cat >craft.py <<'END'
import hashlib, struct, subprocess, sys
folder, name = sys.argv[1:3]
command = ["git", "--git-dir", folder, "hash-object", "-w", "evil"]
blob = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.decode().strip()
entry = bytes(24) + struct.pack(">I", 0o100755) + bytes(12) + bytes.fromhex(blob)
entry += struct.pack(">H", len(name)) + name.encode()
data = b"DIRC" + struct.pack(">II", 2, 1) + entry + bytes(8 - len(entry) % 8)
with open(sys.argv[3] if len(sys.argv) > 3 else folder + "/index", "wb") as file:
    file.write(data + hashlib.sha1(data).digest())
END
}
# until_ COMMAND...: waits for it to succeed.
until_() { n=0; while ! "$@" >/dev/null 2>&1; do n=$((n + 1)); [ $n -lt 600 ] || return 1; sleep 0.05; done; }
# tty COMMAND...: runs it on a terminal.
tty() { timeout 20 python3 -c 'import pty, sys; pty.spawn(sys.argv[1:])' "$@"; }
"""
BACKGROUND_WAIT = 0.3
MARKS = "$x2cp&ut!"
EXPLAINED = re.compile(r"\bLLMC\b|\bllmc [a-z]|[Pp]rotected|[Aa]llow|[Rr]efused")
AREA = re.compile(r"/(?:var/)?tmp/git-test-\w+/(?:rows/)?\d+/?")
ACKNOWLEDGED = re.compile(r"^\[[^\]\n]+ ([0-9a-f]{7,40})\] ", re.MULTILINE)


def parse(text):
    return row_world.parse(text, MARKS)


class Area(row_world.Area):
    """The area of a row, whose repositories are looked at from outside."""

    PRELUDE = PRELUDE
    PLACES = row_world.Area.PLACES + ("MARK",)

    def __init__(self, world, number, options):
        super().__init__(world, number, options)
        self.mark = self.base + "/mark/ran"
        os.makedirs(self.base + "/mark", exist_ok=True)
        self.environment = environment(self.home, world.now)

    def same_commits(self):
        """A line that gives a command what the names of commits depend on, whatever of the environment reaches it."""
        date = f"'{self.world.now} +0000'"
        return f"export GIT_AUTHOR_DATE={date} GIT_COMMITTER_DATE={date} GIT_EDITOR=true\n"

    def prepare(self, row, default="start"):
        super().prepare(row, default)

    def state(self):
        return git_outside.state([self.base, self.tmp], self.environment)

    def commits(self):
        return git_outside.commits([self.base, self.tmp], self.environment)


def environment(home, now):
    """What a user's session has. Every time is the same, so that equal commits have equal names."""
    return {
        "HOME": home,
        "PATH": row_world.PATH,
        "LANG": "C.UTF-8",
        "SHELL": "/bin/sh",
        "XDG_CONFIG_HOME": home + "/.config",
        "XDG_CACHE_HOME": home + "/.cache",
        "XDG_DATA_HOME": home + "/.local/share",
        "XDG_STATE_HOME": home + "/.local/state",
        "GIT_AUTHOR_DATE": f"{now} +0000",
        "GIT_COMMITTER_DATE": f"{now} +0000",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_EDITOR": "true",
    }


class Plain:
    """Runs the steps of a row in a plain shell."""

    def __init__(self, area, _row):
        self.area, self.background = area, None

    def step(self, mark, line):
        if mark in "&p":
            self.background = self.area.begin(self.area.fill(line), subprocess.DEVNULL)
            return 0, ""
        if mark in "ut":
            return self.area.shell(line)
        if mark != "!":
            return self.area.plain(line)
        if line == "kill" and self.background:
            stop(self.background)
        return self.area.finish(self.background) if line == "wait" else (0, "")

    def end(self):
        if self.background:
            self.area.finish(self.background)


class Served:
    """Runs the steps of a row through servers."""

    def __init__(self, area, row):
        self.area, self.servers, self.background = area, {}, None
        self.arguments = area.fill(row.options.get("args", "")).split()
        self.server("$")

    def server(self, mark):
        mark = "2" if mark == "2" else "$"
        if mark not in self.servers:
            self.servers[mark] = self.area.server(self.arguments)
        return self.servers[mark]

    def step(self, mark, line):
        if mark in "ut":
            return self.area.shell(line)
        if mark != "!":
            line = self.area.same_commits() + self.area.fill(line)
        if mark == "&":
            code, text = self.server("$").run(line, timeout=BACKGROUND_WAIT)
            self.background = mcp_stdio.process_id(text)
            return (0, text) if self.background else (code or 255, text)
        if mark == "p":
            text, failed = self.server("$").call("linux_proc_start", command=line)
            return 255 if failed else 0, text
        if mark == "c":
            script = f"print('exit', tools.run_cmd(command={line!r}).exit_code)"
            text, failed = self.server("$").call("execute_code", code=script)
            return mcp_stdio.exit_code(text, failed), text
        if mark != "!":
            return self.server(mark).run(line)
        if line == "wait":
            return self.wait()
        getattr(self.servers.pop("$"), "kill" if line == "kill" else "close")()
        if line == "restart":
            self.server("$")
        return 0, ""

    def wait(self):
        deadline = time.monotonic() + 120
        while True:
            text, failed = self.server("$").call("run_cmd", proc=self.background)
            if "still running" not in text or time.monotonic() > deadline:
                return mcp_stdio.exit_code(text, failed), text

    def end(self):
        for server in self.servers.values():
            server.close()


class Run:
    """What came of the steps: exit codes, answers, and the state outside after each."""

    def __init__(self, area, row, way):
        self.codes, self.texts, self.states = [], [], []
        try:
            area.prepare(row)
            self.before = area.state()
            shell = way(area, row)
            try:
                for number, (mark, line) in enumerate(row.steps):
                    try:
                        code, text = shell.step(mark, line)
                    except mcp_stdio.Ended as error:
                        code, text = 255, str(error)
                        getattr(shell, "servers", {}).pop("2" if mark == "2" else "$", None)
                    self.codes.append(code)
                    self.texts.append(text)
                    # Nothing is looked at while a command in the background goes on, nor between an answer and SIGKILL.
                    moves = mark in "&p" or row.steps[number + 1 : number + 2] in ([("!", "kill")], [("!", "wait")])
                    self.states.append(None if moves else area.state())
            finally:
                shell.end()
            self.states[-1] = area.state()
            self.commits = area.commits()
        finally:
            area.set_aside(way.__name__.lower())


def compare(row, plain, served):
    """The verdict on a flow: what first differs, and whether an acknowledged commit is gone."""
    gone = [
        commit
        for text in served.texts
        for commit in ACKNOWLEDGED.findall(text)
        if not any(full.startswith(commit) for full in served.commits)
    ]
    # A commit that a row itself drops is gone from the plain copy as well.
    told = {commit for text in plain.texts for commit in ACKNOWLEDGED.findall(text)}
    kept = {commit for commit in told if any(full.startswith(commit) for full in plain.commits)}
    gone = [commit for commit in gone if commit in kept or commit not in told]
    verdict = first_difference(row, plain, served)
    if gone and verdict.word != "lost":
        return Verdict("lost", f"acknowledged and gone: {' '.join(gone)}\n{verdict.detail}")
    return verdict


def first_difference(row, plain, served):
    previous = served.before
    if plain.before != served.before:
        return Verdict("uneven", difference(plain.before, served.before))
    for number, (mark, line) in enumerate(row.steps):
        codes = plain.codes[number], served.codes[number]
        states = [left(states[number], row, served.texts) for states in (plain.states, served.states)]
        same = states[0] == states[1] and (mark != "u" or plain.texts[number] == served.texts[number])
        if codes[0] == codes[1] and same:
            previous = served.states[number] or previous
            continue
        answer = "\n".join(f"    > {text[:300]}" for text in served.texts[number].splitlines()[-4:])
        detail = f"    step {number + 1}: {mark} {line.splitlines()[0][:140]}\n    exit {codes[0]} plainly, {codes[1]} here"
        detail += "\n" + answer if answer else ""
        if mark == "u" and plain.texts[number] != served.texts[number]:
            detail += f"\n    plainly: {plain.texts[number].strip()[-200:]}"
        if codes[1] and codes[1] != codes[0]:
            explained = EXPLAINED.search(served.texts[number])
            changed = served.states[number] not in (None, previous)
            notes = ("" if explained else ", without advice") + (", half done" if changed else "")
            return Verdict("refused" + notes, detail + (("\n" + difference(previous, served.states[number])) if changed else ""))
        missing = (states[0] or set()) - (states[1] or set())
        lost = any(entry.split("|", 1)[0] in git_outside.KEPT for entry in missing)
        return Verdict("lost" if lost else "silent", f"{detail}\n{difference(*states)}")
    return Verdict("alike")


def left(state, row, answers):
    """A state without the values that an answer says were left out, where the row allows that."""
    keys = [key for key in row.options.get("without", "").split() if any(key in text for text in answers)]
    return state and {line for line in state if not any(f"|{key}=" in line for key in keys)}


def difference(expected, found, most=3):
    """The first lines that only one state has, references before their logs."""
    expected, found = expected or set(), found or set()
    kinds = ("ref", "config", "operation", "file", "status", "index")

    def some(lines, word):
        rank = sorted(lines, key=lambda line: (kinds.index(line.split("|")[0]) if line.split("|")[0] in kinds else 9, line))
        texts = [f"    {word} {re.sub(AREA, '', line)}"[:180] for line in rank[:most]]
        return texts + ([f"    {word} {len(rank) - most} more"] if len(rank) > most else [])

    return "\n".join(some(expected - found, "missing:") + some(found - expected, "extra:  "))


def flow(world, number, row):
    area = Area(world, number, row.options)
    plain = Run(area, row, Plain)
    for (mark, line), code, text in zip(row.steps, plain.codes, plain.texts):
        assert (code != 0) == (mark == "x"), f"{mark} {line}: exit {code} in a plain shell: {text[-300:]}"
    served = Run(Area(world, number, row.options), row, Served)
    return compare(row, plain, served)
