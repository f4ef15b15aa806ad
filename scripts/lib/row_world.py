"""What the rows of scripts/git-test and scripts/workday-test have in common: their text, folders, shells, user and workers.

A table is text. `== NAME` opens a row; its lines begin with a mark and a space, and the marks belong to the script that
owns the table. Everywhere `? OPTION VALUE` is an option, `< LINE` a setup line, run in the user's shell before the server
starts, a line that begins with two spaces continues the one before it, and `# ` begins a comment. @NAME stands for a place of the
row's area.
Standard library only.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor

import mcp_stdio

NOBODY = 65534
WORKERS = 2
SHELL_TIMEOUT = 120
PATH = "/usr/local/bin:/usr/bin:/bin"


class Row:
    def __init__(self, name):
        self.name, self.setup, self.steps, self.options = name, [], [], {}

    def option(self, name, value):
        """A repeated option has a value of several lines."""
        self.options[name] = f"{self.options[name]}\n{value}" if name in self.options else value


class Verdict:
    def __init__(self, word, detail=""):
        self.word, self.detail = word, detail


def parse(text, marks):
    rows, lines = [], None
    for line in text.splitlines():
        if line.startswith("== "):
            rows.append(Row(line[3:]))
        elif line.startswith("  "):
            lines[-1] = (lines[-1][0], lines[-1][1] + "\n" + line[2:])
        elif line.startswith("? "):
            rows[-1].option(*line[2:].partition(" ")[::2])
        elif line.startswith("< "):
            lines = rows[-1].setup
            lines.append(("<", line[2:]))
        elif line.strip() and not line.startswith("# "):
            assert line[1:2] == " " and line[0] in marks, line
            lines = rows[-1].steps
            lines.append((line[0], line[2:]))
    return rows


class World:
    """What all rows of a run share: the executable, the folders and the time of every commit."""

    def __init__(self, name, options):
        self.now, self.keep = int(time.time()), options.keep
        self.folder = tempfile.mkdtemp(prefix=f"{name}-", dir="/var/tmp")
        self.tmp = "/tmp/" + os.path.basename(self.folder)
        os.mkdir(self.tmp)
        os.makedirs(self.folder + "/logs")
        os.makedirs(self.folder + "/rows")
        self.llmc = self.folder + "/llmc"
        shutil.copy(options.llmc, self.llmc)
        for path in (self.folder, self.tmp, self.llmc):
            os.chmod(path, 0o755)
        if os.geteuid() == 0:
            for path in (self.tmp, self.folder + "/logs", self.folder + "/rows"):
                os.chown(path, NOBODY, NOBODY)

    def errors(self, base):
        return f"{self.folder}/logs/{os.path.basename(base)}"

    def remove(self):
        if self.keep:
            print(f"kept: {self.folder} and {self.tmp}")
            return
        remove(self.folder)
        remove(self.tmp)


class Area:
    """The folders of one row. Both runs of a row have the same paths, one after the other."""

    SHELL = ("sh", "-c")
    PRELUDE = ""
    PLACES = ("HOME", "DISK", "TMP")

    def __init__(self, world, number, options):
        self.world, self.number = world, number
        self.base, self.tmp = f"{world.folder}/rows/{number:03}", f"{world.tmp}/{number:03}"
        self.home, self.disk = self.base + "/home", self.base + "/disk"
        self.ws = self.fill(options.get("ws", "@HOME/src/ws"))
        for folder in (self.home + "/src", self.disk, self.tmp, self.ws):
            os.makedirs(folder, exist_ok=True)
        with open(self.home + "/.gitconfig", "w") as file:
            file.write("[user]\n\tname = Ann User\n\temail = ann@example.com\n[init]\n\tdefaultBranch = main\n")
        self.environment = {}

    def fill(self, text):
        for name in self.PLACES + ("WS",):
            if "@" + name in text:
                text = text.replace("@" + name, str(getattr(self, name.lower())))
        return text

    def shell(self, line, strict=False):
        """Runs a line in the user's shell: its exit code and output."""
        return self.plain(self.PRELUDE + ("set -e\n" if strict else "") + line)

    def plain(self, line):
        """The same without the functions for setups."""
        return self.finish(self.begin(self.fill(line), subprocess.PIPE))

    def begin(self, script, output):
        streams = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": subprocess.STDOUT}
        command = [*self.SHELL, script]
        return subprocess.Popen(command, cwd=self.ws, env=self.environment, start_new_session=True, **streams)

    @staticmethod
    def finish(process):
        """Waits for a shell: its exit code and output. What takes too long is killed, with what it started."""
        try:
            output, _ = process.communicate(timeout=SHELL_TIMEOUT)
        except subprocess.TimeoutExpired:
            stop(process)
            output = b"killed after the time limit"
        return process.returncode, (output or b"").decode(errors="replace")

    def prepare(self, row, default="true"):
        code, text = self.shell("\n".join(line for _, line in row.setup) or default, strict=True)
        if code:
            raise AssertionError(f"setup failed: exit {code}: {text[-600:]}")

    def server(self, arguments=()):
        command = [self.world.llmc, "mcp", *arguments]
        return mcp_stdio.Server(command, self.ws, self.environment, self.world.errors(self.base))

    def set_aside(self, name):
        for folder in (self.base, self.tmp):
            if os.path.exists(folder):
                if self.world.keep:
                    os.rename(folder, f"{folder}-{name}")
                else:
                    remove(folder)


def stop(process):
    """Kills a process and the others of its session."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except OSError:
        pass
    process.wait()


def remove(folder):
    for inner, folders, _ in os.walk(folder):
        for name in folders:
            path = os.path.join(inner, name)
            if not os.path.islink(path):
                os.chmod(path, 0o700)
    shutil.rmtree(folder)


def chosen(rows, options):
    """The rows, each with its number, that --third and --only leave."""
    if options.third:
        rows = rows[::3]
    return [(number, row) for number, row in rows if not options.only or re.search(options.only, row.name)]


def verdicts(world, work):
    """Judges rows (number, row, judge) with several workers; yields each row with its judge and its verdict, in order."""
    with ThreadPoolExecutor(WORKERS) as pool:
        pending = [(row, judge, pool.submit(verdict, world, number, row, judge)) for number, row, judge in work]
        for row, judge, future in pending:
            yield row, judge, future.result()


def verdict(world, number, row, judge):
    try:
        return judge(world, number, row)
    except Exception as error:  # A fault of one row must not hide the others.
        text = str(error) if isinstance(error, AssertionError) else traceback.format_exc()
        return Verdict("broken row", "    " + text.strip().replace("\n", "\n    "))


def parser(script, text):
    """The options that every such script has. The executable is that of the script's own checkout."""
    checkout = os.path.dirname(os.path.dirname(os.path.abspath(script)))
    options = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--llmc", default=os.path.join(checkout, "target/debug/llmc"))
    options.add_argument("--only")
    for switch in ("--third", "--keep"):
        options.add_argument(switch, action="store_true")
    return options


def run(world_type, name, options, work):
    """Runs `work(world, options)` as an ordinary user: its exit code."""
    if not os.access(options.llmc, os.X_OK):
        sys.exit(f"{name}: no executable {options.llmc}; --llmc PATH names one")
    world = world_type(name, options)
    os.chdir(world.folder)
    os.umask(0o022)
    try:
        if os.geteuid() == 0:
            return as_ordinary_user(lambda: work(world, options))
        return work(world, options)
    finally:
        world.remove()


def as_ordinary_user(work):
    """Runs `work` in a child without root's rights: its exit code."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        code = 70
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            code = work()
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)
    try:
        return os.WEXITSTATUS(os.waitpid(child, 0)[1])
    except KeyboardInterrupt:
        os.waitpid(child, 0)
        return 130
