"""Rows of scripts/workday-test: the area that one is run in, a plain shell and a server as two ways to run it, the verdicts.

The marks of a row's lines (row_world.py explains the text):

    ? need PROGRAM...   the row is skipped where one is not installed
    ? if LINE           the row is skipped where LINE fails in a plain shell
    ? expect VERDICT    alike | explained: another verdict is a failure
    ? names REGEX       an explanation has to match it: the place, the variable or the rule
    ? env NAME=VALUE    in the user's environment
    ? loose PATH...     only the existence of these is compared, not what they hold
    ? ws FOLDER, ? args ARGUMENTS
                        another workspace, and arguments of the server
    ? own               the line fails for a reason of its own, which LLMC must not claim
    h LINE              a process of the user's that runs until the row is over
    $ LINE              run_cmd
    x LINE              the same, where LINE fails in a plain shell as well
    c LINE              run_cmd, called by a script of execute_code
    e CODE              a script of execute_code; python3 plainly
    r PATH              read_file; cat plainly
    u LINE              the user's own shell, meanwhile; what it prints is compared
    = TEXT              the output of the line above contains TEXT; `*`: it is the same as in the plain shell

@WS, @HOME, @DISK and @TMP are the workspace, the home directory, a folder beside it and a folder of the user's below /tmp,
@PORT a free TCP port, @PYTHON the folder of the tests' Python packages, and `@UNTIL COMMAND` waits until a command succeeds.
"""

import hashlib
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time

import mcp_stdio
import row_world
from row_world import Verdict, stop

MARKS = "h$xceru="
GOOD = ("alike", "explained")
# Seconds that a command may take before it goes on in the background; then the row waits for it.
CALL_TIMEOUT = 100
END_TIMEOUT = 10
EXPLANATION = re.compile(
    r"boundary|read-only|hidden|protected|not allowed|private|withheld|network|limit|ended"
    r"|not taken over|outside the allowed roots",
    re.IGNORECASE,
)
# A command that is refused before it starts has this error instead of an answer.
REFUSED = "COMMAND_DENIED: refused by LLMC"
# What a script is told that opens a file which it may not change.
OUTSIDE = "outside the allowed roots"
# What a program or the server keeps for itself: no user looks for it there.
NOT_COMPARED = re.compile(
    r"(?:^|/)\.llmc(?:/|$)|^home/\.cargo/(?!bin(?:/|$))|^home/(?:\.cache|\.npm|\.local/state|\.rustup|\.java|\.psql_history"
    r"|\.bash_history|\.sqlite_history|\.lesshst|\.wget-hsts|\.python_history|go/pkg|\.m2|\.gradle|\.config/procps)(?:/|$)"
)
# Folders that such things are in: what else they hold is compared, but not that they are there.
NOT_LISTED = ("home/.local", "home/.cargo", "home/.config", "home/go")
# Of these only the existence is compared: their bytes hold times, process numbers and paths.
LOOSE = re.compile(
    r"/(?:\.git|__pycache__|\.venv|target|node_modules|\.pytest_cache)$|\.(?:pid|log|sock|pyc|jar|class|whl)$|\.s\.PGSQL[^/]*$"
)
# A line that leaves a process behind it: the state outside is compared when the row is over, not while that runs.
BACKGROUND = re.compile(r"(?<![&>|<])&(?![&>\d])")
MAX_HASHED_BYTES = 1 << 20
PRELUDE = r"""
# repository [FOLDER]: a repository with one commit.
repository() { mkdir -p "${1:-.}" && (cd "${1:-.}" && git init -q && printf 'one\n' >a && git add a && git commit -qm first); }
"""
UNTIL = r"""#!/bin/sh
n=0
while ! "$@" >/dev/null 2>&1; do
  n=$((n + 1))
  [ $n -lt 200 ] || { echo "waited in vain: $*"; exit 1; }
  sleep 0.05
done
"""


def explanation(text, own_text=False):
    """The line of an answer that explains it by LLMC's boundary, or None. `own_text`: every line of it is LLMC's."""
    for line in text.splitlines():
        is_of_script = line.startswith("error: ") and OUTSIDE in line
        if is_of_script or line.startswith(REFUSED) or (line.startswith("# LLMC: ") or own_text) and EXPLANATION.search(line):
            return line
    return None


def parse(text):
    return row_world.parse(text, MARKS)


def own_failures(text, setup):
    """Rows of one line each that fail for reasons of their own; the line is the name, and all have one setup."""
    setups = "".join(f"< {line}\n" for line in setup.strip().splitlines())
    table = re.sub(r"^x (.*)$", lambda line: f"== own failure: {line[1]}\n? own\n{setups}x {line[1]}", text, flags=re.MULTILINE)
    return parse(table)


class World(row_world.World):
    """The world of these rows, with the programs that an ordinary user of this machine may run and root alone has."""

    def __init__(self, name, options):
        super().__init__(name, options)
        self.ports, self.until, self.python = {}, self.folder + "/until", self.folder + "/python"
        if os.environ.get("LLMC_TEST_PYTHON_SITE"):
            shutil.copytree(os.environ["LLMC_TEST_PYTHON_SITE"], self.python)
        with open(self.until, "w") as file:
            file.write(UNTIL)
        os.chmod(self.until, 0o755)
        self.path = row_world.PATH
        rust = self.tool_chain()
        if rust:
            self.path += f":{rust}/bin"

    def tool_chain(self):
        """A folder with cargo and rustc that everybody can read: that of rustup, or as root hard links to its files."""
        try:
            found = subprocess.run(["rustup", "which", "rustc"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        except OSError:
            return None
        folder = os.path.dirname(os.path.dirname(found.stdout.decode().strip()))
        if not folder or os.geteuid() != 0:
            return folder or None
        target = self.folder + "/rust"
        try:
            for part in ("bin", "lib"):
                shutil.copytree(f"{folder}/{part}", f"{target}/{part}", symlinks=True, copy_function=os.link)
        except (OSError, shutil.Error):
            return None
        return target

    def port(self, number):
        """A port that was free a moment ago, the same for both runs of a row."""
        if number not in self.ports:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                self.ports[number] = free.getsockname()[1]
        return self.ports[number]


class Area(row_world.Area):
    SHELL = ("bash", "-c")
    PRELUDE = PRELUDE
    PLACES = row_world.Area.PLACES + ("PORT", "UNTIL", "PYTHON")

    def __init__(self, world, number, options):
        self.port, self.until, self.python = world.port(number), world.until, world.python
        super().__init__(world, number, options)
        self.environment = {
            "HOME": self.home,
            "PATH": world.path,
            "LANG": "C.UTF-8",
            "SHELL": "/bin/bash",
            "USER": "ann",
            "LOGNAME": "ann",
        }
        for setting in options.get("env", "").splitlines():
            name, _, value = self.fill(setting).partition("=")
            self.environment[name] = value.replace("\\n", "\n")
        self.arguments = self.fill(options.get("args", "")).split()
        self.loose = self.fill(options.get("loose", "")).split()

    def plain(self, line):
        """Runs a line; its output goes to a file, for a pipe would stay open as long as what the line leaves behind."""
        with tempfile.TemporaryFile() as output:
            process = self.begin(self.fill(line), output)
            try:
                code = process.wait(row_world.SHELL_TIMEOUT)
            except subprocess.TimeoutExpired:
                stop(process)
                code = 255
            output.seek(0)
            return code if code >= 0 else 128 - code, output.read().decode(errors="replace")

    def state(self):
        """A line for every file below the area, as an ordinary user sees it from outside."""
        lines = set()
        for folder, folders, files in os.walk(self.base):
            for name in list(folders) + files:
                path = os.path.join(folder, name)
                relative = os.path.relpath(path, self.base)
                loose = LOOSE.search(path) or any(path == os.path.join(self.ws, place) for place in self.loose)
                if NOT_COMPARED.search(relative) or loose:
                    if name in folders:
                        folders.remove(name)
                    if loose and os.path.lexists(path):
                        lines.add(f"file|{relative}|there")
                    continue
                if relative in NOT_LISTED:
                    continue
                try:
                    lines.add(f"file|{relative}|{content(path)}")
                except FileNotFoundError:
                    pass
        return lines

    def processes(self):
        """The process numbers of everything that was started in this area: its home directory is in their environment."""
        mark, found = b"HOME=" + self.home.encode() + b"\0", []
        for number in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{number}/environ", "rb") as file:
                    if mark in file.read() + b"\0":
                        found.append(int(number))
            except OSError:
                pass
        return found

    def end_processes(self):
        """Ends what was left running, by its number, and waits until it is gone."""
        deadline = time.monotonic() + END_TIMEOUT
        while True:
            left = self.processes()
            if not left or time.monotonic() > deadline:
                return
            for number in left:
                try:
                    os.kill(number, signal.SIGKILL)
                except OSError:
                    pass
            time.sleep(0.02)

    def left_running(self):
        """Processes that outlive their session."""
        deadline = time.monotonic() + END_TIMEOUT
        while time.monotonic() < deadline and self.processes():
            time.sleep(0.05)
        return self.processes()


def content(path):
    """A file's kind, bits and a hash of its bytes, or its size where it is large."""
    found = os.lstat(path)
    if stat.S_ISLNK(found.st_mode):
        return "-> " + os.readlink(path)
    text = f"{stat.filemode(found.st_mode)}"
    if not stat.S_ISREG(found.st_mode):
        return text
    if found.st_size > MAX_HASHED_BYTES:
        return f"{text} {found.st_size} bytes"
    try:
        with open(path, "rb") as file:
            return f"{text} {hashlib.sha1(file.read()).hexdigest()[:12]}"
    except PermissionError:
        return text + " unreadable"


class Plain:
    """Runs the steps of a row in a plain shell."""

    def __init__(self, area):
        self.area = area

    def step(self, mark, line):
        if mark == "u":
            return self.area.shell(line)
        if mark == "e":
            return self.area.plain(f"python3 - <<'CODE'\n{line}\nCODE")
        return self.area.plain(f"cat {line}" if mark == "r" else line)

    def end(self):
        return []


class Served:
    """Runs the steps of a row through a server."""

    def __init__(self, area):
        self.area, self.server = area, area.server(area.arguments)

    def step(self, mark, line):
        if mark == "u":
            return self.area.shell(line)
        line = self.area.fill(line)
        if mark == "c":
            script = f"r = tools.run_cmd(command={line!r})\nprint(r)\nprint('exit', r.exit_code)"
            text, failed = self.server.call("execute_code", code=script)
            # What a script prints of a command has its notes in brackets.
            text = re.sub(r"^\[(.+)\]$", r"# LLMC: \1", text, flags=re.MULTILINE)
            return mcp_stdio.exit_code(text, failed), text.replace("\\# LLMC: ", "# LLMC: ")
        if mark == "e":
            text, failed = self.server.call("execute_code", code=line)
            return 1 if failed else 0, text.replace("\\# LLMC: ", "# LLMC: ")
        if mark == "r":
            text, failed = self.server.call("read_file", path=line)
            return 1 if failed else 0, text
        text, failed = self.server.call("run_cmd", command=line, timeout=CALL_TIMEOUT)
        deadline = time.monotonic() + row_world.SHELL_TIMEOUT
        while re.search(r"^# LLMC: still running", text, re.MULTILINE) and time.monotonic() < deadline:
            more, failed = self.server.call("run_cmd", proc=mcp_stdio.process_id(text))
            text = text.replace("still running", "was running") + "\n" + more
        return mcp_stdio.exit_code(text, failed), text

    def end(self):
        """Ends the session: the processes that outlive it."""
        self.server.close()
        return self.area.left_running()


class Run:
    """What came of the steps: exit codes, answers, and the state outside after each."""

    def __init__(self, area, row, way):
        self.codes, self.texts, self.states, self.left, hosts = [], [], [], [], []
        try:
            area.prepare(row)
            self.before = area.state()
            hosts = [area.begin(area.fill(line), subprocess.DEVNULL) for mark, line in row.steps if mark == "h"]
            shell = way(area)
            try:
                moves = False
                for mark, line in row.steps:
                    moves = moves or mark in "$x" and bool(BACKGROUND.search(line))
                    try:
                        code, text = shell.step(mark, line) if mark not in "h=" else (0, "")
                    except mcp_stdio.Ended as error:
                        code, text = 255, str(error)
                    self.codes.append(code)
                    self.texts.append(text)
                    self.states.append(None if moves else area.state())
            finally:
                for host in hosts:
                    stop(host)
                self.left = shell.end()
            self.states[-1] = area.state()
        finally:
            area.end_processes()
            area.set_aside(way.__name__.lower())


def judge(world, number, row):
    probe = Area(world, number, row.options)
    lacking = missing(probe, row)
    probe.set_aside("probe")
    if lacking:
        return Verdict(f"skipped: {lacking}")
    area = Area(world, number, row.options)
    plain = Run(area, row, Plain)
    for index, ((mark, line), code, text) in enumerate(zip(row.steps, plain.codes, plain.texts)):
        if mark in "h=":
            continue
        wrong = (code != 0) != (mark == "x") and mark != "u"
        assert not wrong, f"{mark} {line}: exit {code} in a plain shell: {text[-300:]}"
        for wanted in named(row, index):
            assert area.fill(wanted) in text or wanted == "*", f"{mark} {line}: no {wanted!r} plainly: {text[-300:]}"
    served = Run(Area(world, number, row.options), row, Served)
    return expected(row, compare(area, row, plain, served))


def missing(area, row):
    """What a row needs and this machine does not have."""
    for program in row.options.get("need", "").split():
        if not shutil.which(program, path=area.environment["PATH"]):
            return program
    for line in row.options.get("if", "").splitlines():
        if area.plain(line)[0]:
            return line
    return None


def named(row, index):
    """The outputs that a row names for one of its steps."""
    wanted = []
    for mark, text in row.steps[index + 1 :]:
        if mark != "=":
            break
        wanted.append(text)
    return wanted


def expected(row, found):
    wanted = row.options.get("expect")
    if wanted and found.word in GOOD and found.word != wanted:
        return Verdict(f"{found.word}, not {wanted}", found.detail)
    return found


def compare(area, row, plain, served):
    """The verdict on a row, by the first step that differs."""
    if plain.before != served.before:
        return Verdict("uneven", difference(plain.before, served.before))
    if served.left:
        return Verdict("outlives", f"    {len(served.left)} processes are left after the session")
    for number, (mark, line) in enumerate(row.steps):
        if mark in "h=":
            continue
        codes, text = (plain.codes[number], served.codes[number]), served.texts[number]
        # What the user sees has its explanation in the answers before it.
        said = "\n".join(served.texts[: number + 1]) if mark == "u" else text
        explained = explanation(said, own_text=mark == "r" and codes[1] != 0)
        states = plain.states[number], served.states[number]
        same = codes[0] == codes[1] or (mark in "er" and bool(codes[0]) == bool(codes[1]))
        unsaid = [wanted for wanted in named(row, number) if not says(area, wanted, plain.texts[number], text)]
        if mark == "u" and plain.texts[number] != text:
            unsaid.append(plain.texts[number].strip()[-200:])
        if "own" in row.options and explained:
            return Verdict("false alarm", f"    > {explained[:300]}")
        if same and states[0] == states[1] and not unsaid:
            continue
        detail = f"    {mark} {line.splitlines()[0][:140]}\n    exit {codes[0]} plainly, {codes[1]} here"
        detail += "".join(f"\n    > {line[:300]}" for line in text.splitlines()[-4:])
        detail += "".join(f"\n    not said: {wanted[:200]}" for wanted in unsaid)
        if states[0] != states[1]:
            detail += "\n" + difference(*states)
        if explained and not re.search(area.fill(row.options.get("names", "")), explained):
            return Verdict("explained otherwise", detail + f"\n    > {explained[:300]}")
        if explained:
            return Verdict("explained", detail)
        return Verdict("silent" if same and (mark == "u" or not unsaid) else "unexplained", detail)
    return Verdict("alike")


def says(area, wanted, plainly, here):
    """Whether an answer holds a named output; `*` is the whole output of the plain shell."""
    if wanted != "*":
        return area.fill(wanted) in here
    own = re.compile(r"# (?:LLMC|TE)|exit \d+$|signal \w+$")
    return plainly.split() == [word for line in here.splitlines() if not own.match(line) for word in line.split()]


def difference(expected, found, most=3):
    """The first lines that only one state has."""

    def some(lines, word):
        texts = [f"    {word} {line.split('|', 1)[1]}"[:180] for line in sorted(lines)[:most]]
        return texts + ([f"    {word} {len(lines) - most} more"] if len(lines) > most else [])

    return "\n".join(some(expected - found, "missing:") + some(found - expected, "extra:  "))
