"""A PostgreSQL of the benchmark's own, in a folder of its own, that can be killed, filled up and starved."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from processes import cpu_of, dies_with_us, free_port

DEBIAN_VERSIONS = Path("/usr/lib/postgresql")
OLDEST_VERSION = 15
NOBODY = 65534
START_TIMEOUT = 60
ADMIN, PASSWORD = "admin", "bench"
ROLE, DATABASE = "llmc", "llmc"


class Cluster:
    """A cluster and the database of the servers, whose tables `llmc store migrate` makes."""

    def __init__(self, folder, settings=None, data=None):
        self.folder = Path(folder)
        self.data = Path(data or self.folder) / "data"
        self.programs = find_programs()
        self.port = free_port()
        self.process = None
        self.spent = 0.0
        self.folder.mkdir(parents=True, exist_ok=True)
        self._make(settings or {})
        self.start()
        self.sql(f"CREATE ROLE {ROLE} LOGIN PASSWORD '{PASSWORD}'", "postgres")
        self.sql(f"CREATE DATABASE {DATABASE} OWNER {ROLE}", "postgres")

    def _make(self, settings):
        password = self.folder / "password"
        password.write_text(PASSWORD)
        for path in {self.folder, self.data.parent, password}:
            if os.geteuid() == 0:
                os.chown(path, NOBODY, NOBODY)
        self._run("initdb", "-D", self.data, "--pwfile", password, "-U", ADMIN, "-A", "scram-sha-256", "-E", "UTF8",
                  "--locale=C", "--no-sync")
        lines = {
            "listen_addresses": "'127.0.0.1'", "port": self.port, "unix_socket_directories": f"'{self.folder}'",
            "shared_buffers": "128MB", "logging_collector": "off", **settings,
        }
        with open(self.data / "postgresql.conf", "a") as conf:
            conf.writelines(f"{key} = {value}\n" for key, value in lines.items())

    def _unprivileged(self):
        if os.geteuid() != 0:
            return []
        return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--pdeathsig", "QUIT"]

    def _run(self, program, *arguments):
        command = [*self._unprivileged(), self.programs / program, *arguments]
        done = subprocess.run(command, cwd=self.folder, env=environment(), capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{program}: {done.stderr}")

    def start(self):
        self.launch()
        self.wait_until_ready()

    def launch(self):
        """Starts it, from the main thread: it ends with the thread that starts it."""
        log = open(self.folder / "log", "ab")
        command = [*self._unprivileged(), self.programs / "postgres", "-D", self.data]
        # A session of its own: Ctrl-C is for the benchmark, which stops the cluster itself.
        self.process = subprocess.Popen(command, cwd=self.folder, env=environment(), stdout=log, stderr=log,
                                        stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=dies_with_us())
        log.close()

    def wait_until_ready(self):
        deadline = time.monotonic() + START_TIMEOUT
        while not self.answers():
            if self.process.poll() is not None:
                raise RuntimeError(f"PostgreSQL ended with {self.process.returncode}: {self.log_tail()}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL does not answer: {self.log_tail()}")
            time.sleep(0.05)

    def answers(self):
        ready = [self.programs / "pg_isready", "-q", "-U", ADMIN, "-d", "postgres", "-h", self.folder, "-p", str(self.port)]
        return subprocess.run(ready, env=environment()).returncode == 0

    def is_running(self):
        return self.process is not None and self.process.poll() is None

    def stop(self, how):
        """Ends it: SIGINT as an administrator does, SIGQUIT at once, SIGKILL as a crash. Returns when all processes ended."""
        if not self.is_running():
            return
        self.spent += self.cpu()
        family = children(self.process.pid)
        self.process.send_signal(how)
        self.process.wait(START_TIMEOUT)
        deadline = time.monotonic() + START_TIMEOUT
        # Its processes notice the end of their parent, and can commit until then.
        while any(map(is_alive, family)) and time.monotonic() < deadline:
            time.sleep(0.02)

    def close(self):
        with contextlib.suppress(Exception):
            self.stop(signal.SIGQUIT)
        shutil.rmtree(self.data, ignore_errors=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def cpu(self):
        """CPU seconds of its processes, those that have ended included."""
        if not self.is_running():
            return 0.0
        return cpu_of(self.process.pid) + sum(map(cpu_of, children(self.process.pid)))

    def sql(self, statement, database=DATABASE, timeout=30):
        """Runs statements as the superuser; what they print, columns separated by tabs."""
        done = subprocess.run(self.psql(ADMIN, database, statement), env=environment(), capture_output=True, text=True,
                              timeout=timeout)
        if done.returncode:
            raise RuntimeError(f"{statement}: {done.stderr.strip()}")
        return done.stdout.strip("\n")

    def rows(self, statement):
        return [line.split("\t") for line in self.sql(statement, timeout=120).splitlines()]

    def psql(self, role, database, statement):
        return [str(self.programs / "psql"), "-X", "-q", "-A", "-t", "-F", "\t", "-v", "ON_ERROR_STOP=1", "-U", role,
                "-d", database, "-h", str(self.folder), "-p", str(self.port), "-c", statement]

    def url(self, role=ROLE, port=None):
        return f"postgres://{role}:{PASSWORD}@127.0.0.1:{port or self.port}/{DATABASE}?sslmode=disable"

    def admin_url(self):
        return self.url(ADMIN)

    def log_tail(self, size=2000):
        with contextlib.suppress(OSError):
            return (self.folder / "log").read_text(errors="replace")[-size:]
        return ""


def environment():
    return {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "PGPASSWORD": PASSWORD}


def find_programs():
    """The programs of the newest version that Debian has installed."""
    found = []
    for entry in DEBIAN_VERSIONS.glob("*/bin/postgres"):
        version = entry.parent.parent.name
        if version.isdigit() and int(version) >= OLDEST_VERSION:
            found.append((int(version), entry.parent))
    if not found:
        sys.exit("PostgreSQL 15 or newer is missing (Debian package postgresql)")
    return max(found)[1]


def children(pid):
    with contextlib.suppress(OSError):
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def is_alive(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@contextlib.contextmanager
def small_disk(folder, megabytes):
    """A file system of its own that can be full. The mount is in this process's name space and ends with it."""
    folder = Path(folder)
    folder.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=755", "llmc-bench", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False)
        shutil.rmtree(folder, ignore_errors=True)


def fill_up(folder):
    """Takes the last byte of a file system; removing the file gives them back."""
    ballast = Path(folder) / "ballast"
    with open(ballast, "wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12):
            with contextlib.suppress(OSError):
                while True:
                    file.write(b"\0" * size)
    return ballast
