"""Sessions with a server as a client has them, for scripts/deploy-test. Standard library only (`lint` needs a YAML reader).

    deploy-session.py stdio FILE TEXT -- COMMAND...      MCP over the standard streams of a command
    deploy-session.py http NAME HTTP HTTPS CERTIFICATE   MCP, events and limits through a proxy on loopback
    deploy-session.py routing HTTP HTTPS CERTIFICATE PID SERVER SERVER
                                                         conversations through a proxy in front of two servers, of which
                                                         PID is the first; without HTTPS over plain HTTP
    deploy-session.py lint FOLDER                        what the images and the compose file must hold
"""

import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time

INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "deploy-test", "version": "1"},
}


def request(method, params, number):
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def stdio(name, text, command):
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wanted = [
        request("initialize", INITIALIZE, 1),
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        request("tools/list", {}, 2),
        request("tools/call", {"name": "read_file", "arguments": {"path": name}}, 3),
    ]
    out, err = child.communicate("".join(json.dumps(line) + "\n" for line in wanted), timeout=60)
    assert child.returncode == 0, f"exit code {child.returncode}: {err[-2000:]}"
    # Every line is the protocol's, from the first on.
    answers = {answer["id"]: answer for answer in map(json.loads, out.splitlines())}
    assert sorted(answers) == [1, 2, 3], out
    assert answers[2]["result"]["tools"], answers[2]
    assert answers[3]["result"]["content"][0]["text"].startswith(text), answers[3]


class Proxy:
    def __init__(self, name, port, certificate, token):
        self.name, self.port, self.token = name, port, token
        self.context = ssl.create_default_context(cafile=certificate) if certificate else None
        self.session = None

    def connect(self):
        if not self.context:
            return http.client.HTTPConnection(self.name, self.port, timeout=20)
        raw = socket.create_connection(("127.0.0.1", self.port), timeout=20)
        connection = http.client.HTTPSConnection(self.name, self.port, timeout=20, context=self.context)
        connection.sock = self.context.wrap_socket(raw, server_hostname=self.name)
        return connection

    def ask(self, method, path, body=None, token=True, connection=None):
        connection = connection or self.connect()
        headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {self.token}"
        if self.session:
            headers |= {"Mcp-Session-Id": self.session, "MCP-Protocol-Version": INITIALIZE["protocolVersion"]}
        connection.request(method, path, body if body is None else json.dumps(body), headers)
        return connection.getresponse()

    def mcp(self, method, params, number):
        answer = self.ask("POST", "/mcp", request(method, params, number))
        text = answer.read().decode()
        assert answer.status == 200, (answer.status, text)
        self.session = answer.getheader("Mcp-Session-Id") or self.session
        if answer.getheader("Content-Type", "").startswith("text/event-stream"):
            data = [line[5:] for line in text.splitlines() if line.startswith("data:") and line[5:].strip()]
            text = data[-1]
        return json.loads(text)["result"]


def until(what, seconds=20):
    """Tries until it works: a proxy takes a moment to listen and to make its certificate."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return what()
        except (OSError, ssl.SSLError, http.client.HTTPException):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def through(name, plain, secure, certificate):
    token = os.environ["LLMC_MCP_TOKEN"]
    proxy = until(lambda: Proxy(name, secure, certificate, token))
    health = until(lambda: proxy.ask("GET", "/health", token=False))
    assert health.status == 200 and json.loads(health.read())["ok"], health.status
    assert health.getheader("Strict-Transport-Security"), "no HSTS"

    refused = proxy.ask("POST", "/mcp", request("tools/list", {}, 1), token=False)
    assert refused.status == 401, refused.status

    unencrypted = http.client.HTTPConnection("127.0.0.1", plain, timeout=20)
    unencrypted.request("GET", "/", headers={"Host": name})
    moved = unencrypted.getresponse()
    assert moved.status in (301, 308) and moved.getheader("Location").startswith("https://"), moved.status

    hello = proxy.mcp("initialize", INITIALIZE, 1)
    assert hello["serverInfo"], hello
    assert proxy.mcp("tools/list", {}, 2)["tools"]
    read = {"name": "read_file", "arguments": {"path": "hello.txt"}}
    assert proxy.mcp("tools/call", read, 3)["content"][0]["text"].startswith("hello from behind")

    # Events come as they happen, not when a buffer is full: the stream stays open while a call is made beside it.
    events = proxy.ask("GET", "/api/events")
    assert events.status == 200 and events.getheader("Content-Type").startswith("text/event-stream")
    next_event(events, "gauges")
    proxy.mcp("tools/call", read, 4)
    assert "read_file" in next_event(events, "call")
    assert not events.isclosed(), "the stream has ended"

    large = proxy.ask("POST", "/tool", {"session_id": "s", "name": "stat", "args": {"path": "x" * 300_000}})
    assert large.status == 413, large.status

    # Too many at once are turned away, and then all is well again.
    connection, seen = proxy.connect(), []
    for _ in range(200):
        answer = proxy.ask("GET", "/api/config", connection=connection)
        answer.read()
        seen.append(answer.status)
        if answer.status == 429:
            break
        if answer.getheader("Connection") == "close":
            connection = proxy.connect()
    assert seen[0] == 200 and seen[-1] == 429, seen
    time.sleep(1)
    assert proxy.ask("GET", "/api/config").status == 200


CONVERSATIONS = 20


def routing(plain, secure, certificate, first, servers):
    """A process is on one server only, so a call for it finds it there, or fails."""
    token = os.environ["LLMC_MCP_TOKEN"]
    ends = ("llmc.test", int(secure), certificate, token) if secure else ("localhost", int(plain), None, token)
    until(lambda: Proxy(*ends).ask("GET", "/health", token=False).read())
    talks = [Proxy(*ends) for _ in range(CONVERSATIONS)]
    started = []
    for talk in talks:
        talk.mcp("initialize", INITIALIZE, 1)
        assert talk.session, "no session"
        started.append(tool(talk, "linux_proc_start", argv=["cat"])["proc_id"])
    # Every conversation once more, on connections of their own and in another order.
    for talk, process in reversed(list(zip(talks, started))):
        tool(talk, "linux_proc_send", proc_id=process, input="said\n")
        assert tool(talk, "linux_proc_read", proc_id=process, until="said", timeout=10)["output"] == "said\n"
    # REST has no session of MCP: its token decides.
    rest = Proxy(*ends)
    process = rest_tool(rest, "linux_proc_start", argv=["cat"])["proc_id"]
    for _ in range(8):
        assert rest_tool(rest, "linux_proc_read", proc_id=process, timeout=0.1)["running"]
    counts = [len(processes(address, token)) for address in servers]
    assert sum(counts) == CONVERSATIONS + 1 and all(counts), counts
    # A server ends; its conversations go on at the other one, without what ran there. Caddy notices by a request that
    # fails.
    os.kill(first, signal.SIGTERM)
    until(lambda: refuses(servers[0]))
    for talk in talks:
        until(lambda: goes_on(talk))
    assert len(processes(servers[1], token)) == counts[1]


def tool(talk, name, **arguments):
    answer = talk.mcp("tools/call", {"name": name, "arguments": arguments}, 2)
    text = answer["content"][0]["text"]
    assert not answer.get("isError"), text
    return json.loads(text)


def rest_tool(talk, name, **arguments):
    answer = talk.ask("POST", "/tool", {"session_id": "rest", "name": name, "args": arguments})
    text = answer.read().decode()
    assert answer.status == 200, text
    return json.loads(text)["data"]


def goes_on(talk):
    """A call of the conversation is answered."""
    answer = talk.ask("POST", "/mcp", request("tools/call", {"name": "read_file", "arguments": {"path": "hello.txt"}}, 9))
    text = answer.read().decode()
    if answer.status >= 400:
        raise OSError(f"{answer.status}: {text}")
    assert "hello from behind" in text, text


def refuses(address):
    """Nothing listens there any more."""
    name, port = address.rsplit(":", 1)
    try:
        socket.create_connection((name, int(port)), timeout=20).close()
    except ConnectionRefusedError:
        return
    raise OSError(f"{address} still listens")


def processes(address, token):
    """What runs on one server, asked past the proxy."""
    name, port = address.rsplit(":", 1)
    connection = http.client.HTTPConnection(name, int(port), timeout=20)
    connection.request("GET", "/api/activity", headers={"Authorization": f"Bearer {token}"})
    (server,) = json.loads(connection.getresponse().read())["servers"]
    return server["processes"]


def next_event(stream, kind):
    """The data of the next event of this kind."""
    while line := stream.readline().decode():
        if line.strip() == f"event: {kind}":
            return stream.readline().decode()
    raise AssertionError(f"the stream ended before `{kind}`")


def lint(folder):
    import ruamel.yaml

    with open(os.path.join(folder, "Dockerfile")) as file:
        text = file.read()
    stages = {part.splitlines()[0].rsplit(" AS ", 1)[-1]: part for part in text.split("\nFROM ")[1:]}
    for name in ("llmc", "llmc-tools"):
        stage = stages[name]
        for needed in ("USER 10001:10001", "HEALTHCHECK ", "ENTRYPOINT [", "DATA_VOLUME=/data"):
            assert needed in stage, f"{name}: {needed}"
    assert stages["llmc"].startswith("scratch ") and "crt-static" in stages["build"]
    for package in ("git", "ripgrep", "python3-pytest"):
        assert package in stages["llmc-tools"], package

    # What ingress-nginx hashes is tried with nginx.
    with open(os.path.join(folder, "nginx.conf")) as file:
        key = next(line.split()[1] for line in file if line.strip().startswith("hash "))
    with open(os.path.join(folder, "kubernetes.team.yml")) as file:
        documents = list(ruamel.yaml.YAML(typ="safe").load_all(file))
    (ingress,) = (document for document in documents if document["kind"] == "Ingress")
    assert ingress["metadata"]["annotations"]["nginx.ingress.kubernetes.io/upstream-hash-by"] == key, key

    with open(os.path.join(folder, "docker-compose.yml")) as file:
        service = ruamel.yaml.YAML(typ="safe").load(file)["services"]["llmc"]
    assert service["build"]["target"] == "llmc-tools"
    assert service["environment"]["LLMC_MCP_TOKEN"].startswith("${LLMC_MCP_TOKEN:?"), "the token is required"
    assert "llmc-data:/data" in service["volumes"]
    assert any(volume.endswith(":${HOST_REPO_MODE:-ro}") for volume in service["volumes"]), "read-only unless told"
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert service["read_only"] is True and service["cap_drop"] == ["ALL"]


match sys.argv[1:]:
    case ["stdio", name, text, "--", *command]:
        stdio(name, text, command)
    case ["http", name, plain, secure, certificate]:
        through(name, int(plain), int(secure), certificate)
    case ["routing", plain, secure, certificate, first, *servers]:
        routing(plain, secure, certificate, int(first), servers)
    case ["lint", folder]:
        lint(folder)
    case _:
        sys.exit(__doc__)
