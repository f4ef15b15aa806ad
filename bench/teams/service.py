"""Three `llmc serve` over one database, behind a proxy that sends every request to another one."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from postgres import Cluster
from processes import cpu_of, dies_with_us, free_port

HERE = Path(__file__).parent
START_TIMEOUT = 60
# As deploy/docker-compose.team.yml sets them up. `classic` lists every tool; the audit is what the benchmark checks.
SETTINGS = {
    "mcp.server.trust_proxy": "true",
    "mcp.observability.csv_token_audit_enabled": "true",
}
LINES = "".join(f"line {n:05} of a text that is longer than an answer may be\n" for n in range(4000))

class Server:
    """One `llmc serve` with a state directory of its own; without a database it keeps everything in SQLite files."""

    def __init__(self, llmc, name, folder, url=None, settings=None, env=None):
        self.name, self.port = name, free_port()
        self.folder = Path(folder)
        self.log = self.folder / f"{name}.log"
        self.spent = 0.0
        flags = {**SETTINGS, "mcp.docker.data_volume": f'"../{name}"', **(settings or {})}
        self.command = [str(llmc), "serve", "--mode", "classic", "--root", str(self.folder / "workspace"),
                        "--port", str(self.port), "--log-level", "info"]
        for key, value in flags.items():
            self.command += ["--set", f"{key}={value}"]
        self.env = {**llmc_environment(self.folder, url), "LLMC_MCP_TOKEN": f"main-token-of-{name}-0123456789abcdef", **(env or {})}
        self.process = None
        self.launch()

    def launch(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.command, env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            start_new_session=True, preexec_fn=dies_with_us())

    def wait_until_ready(self, path="/health", token=""):
        """Waits until it answers, or until it knows a token."""
        deadline = time.monotonic() + START_TIMEOUT
        probe = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nX-LLMC-Token: {token}\r\nConnection: close\r\n\r\n".encode()
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                break
            with contextlib.suppress(OSError):

                with socket.create_connection(("127.0.0.1", self.port), 2) as connection:
                    connection.sendall(probe)
                    if connection.recv(64).startswith(b"HTTP/1.1 200"):
                        return
            time.sleep(0.05)
        raise RuntimeError(f"llmc serve did not start: {self.log.read_text()[-2000:]}")

    def is_running(self):
        return self.process.poll() is None

    def kill(self):
        self.spent += self.cpu()
        self.process.kill()
        self.process.wait()

    def stop(self):
        if self.is_running():
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def cpu(self):
        return cpu_of(self.process.pid)

class Proxy:
    """One of the programs in proxy.py."""

    def __init__(self, kind, *ports):
        command = [sys.executable, "-B", str(HERE / "proxy.py"), kind, *map(str, ports)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        start_new_session=True, preexec_fn=dies_with_us())
        self.port = int(self.process.stdout.readline())

    def obey(self, order):
        self.process.stdin.write(order + "\n")
        self.process.stdin.flush()
        self.process.stdout.readline()

    def cpu(self):
        return cpu_of(self.process.pid)

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()

class Team:
    """The whole service: database, servers, proxies, workspace, and the tokens of its clients."""

    def __init__(self, llmc, folder, count=3, clients=0, through_proxy=False, settings=None, postgres=None, data=None,
                 env=None, migrates=True):
        self.llmc, self.folder = llmc, Path(folder)
        self.workspace = self.folder / "workspace"
        self.closing = contextlib.ExitStack()
        try:
            make_workspace(self.workspace)
            self.cluster = Cluster(self.folder / "pg", postgres, data)
            self.closing.callback(self.cluster.close)
            self.database_proxy = None
            url = self.cluster.url()
            if through_proxy:
                self.database_proxy = self._closing(Proxy("tcp", self.cluster.port))
                url = self.cluster.url(port=self.database_proxy.port)
            if migrates:
                self.run("store", "migrate", env={"LLMC_MCP__STORE__ADMIN_URL": self.cluster.admin_url()})
            env = env or {}
            self.servers = [self._closing(Server(llmc, f"server{n}", self.folder, url, settings, env.get(n)))
                            for n in range(1, count + 1)]
            for server in self.servers:
                server.wait_until_ready()
            self.tokens = self.add_tokens(clients)
            for server in self.servers if self.tokens else []:
                server.wait_until_ready("/api/summary", self.tokens[-1])
            self.proxy = self._closing(Proxy("http", *(server.port for server in self.servers)))
        except BaseException:
            self.close()
            raise

    def _closing(self, part):
        self.closing.callback(part.stop)
        return part

    def run(self, *arguments, env=None):
        """A command of the operator, on the database itself."""
        state = ["--set", 'mcp.docker.data_volume="../operator"']
        command = [str(self.llmc), *arguments, "--root", str(self.workspace), *state]
        done = subprocess.run(command, env={**llmc_environment(self.folder, self.cluster.url()), **(env or {})},
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
        if done.returncode:
            raise RuntimeError(f"{' '.join(arguments)}: {done.stdout}{done.stderr}")
        return done.stdout.strip()

    def add_tokens(self, count):
        with ThreadPoolExecutor(4) as pool:
            return list(pool.map(lambda n: self.run("token", "add", f"client{n}"), range(count)))

    def cpu(self):
        """CPU seconds so far, of each part."""
        used = {
            "servers": sum(server.cpu() + server.spent for server in self.servers),
            "PostgreSQL": self.cluster.cpu() + self.cluster.spent,
            "proxy": self.proxy.cpu(),
            "clients": time.process_time(),
        }
        if self.database_proxy:
            used["database proxy"] = self.database_proxy.cpu()
        return used

    def close(self):
        self.closing.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

def make_workspace(workspace):
    (workspace / ".git").mkdir(parents=True)
    (workspace / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (workspace / "long.txt").write_text(LINES)

def llmc_environment(folder, url):
    """Nothing of the user's own settings."""
    home = Path(folder) / "home"
    home.mkdir(exist_ok=True)
    env = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": str(home), "LANG": "C.UTF-8"}
    if url:
        env["LLMC_MCP__STORE__URL"] = url
    return env

@contextlib.contextmanager
def team_folder():
    with tempfile.TemporaryDirectory(prefix="llmc-teams-") as folder:
        # PostgreSQL does not run as root and must reach its folder below.
        os.chmod(folder, 0o755)
        yield folder
