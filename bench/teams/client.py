"""One client: MCP over Streamable HTTP, one connection that is kept open, and a record of every call."""

import asyncio
import json
import time
from typing import NamedTuple

PROTOCOL = "2025-11-25"
# No call may take so long: that would be a hang.
ANSWER_TIMEOUT = 30.0
LOST = "connection lost"
HANGS = "no answer"


class Answer(NamedTuple):
    code: str
    text: str
    # "done", "refused" (certainly not carried out), or "unknown".
    outcome: str
    # Whether the server says that the same call may succeed later.
    is_retryable: bool = False

    @property
    def ok(self):
        return self.code == "ok"


class Call(NamedTuple):
    """A call as its client saw it; times are seconds since the epoch."""
    kind: str
    tool: str
    correlation: str
    client: int
    began: float
    seconds: float
    code: str
    is_retry: bool


class Client:
    def __init__(self, number, port, token, calls, label="c"):
        self.number, self.port, self.token, self.calls = number, port, token, calls
        self.label = label
        self.session = None
        self.connection = None
        self.ids = 0

    async def open(self, deadline):
        """Begins the conversation; tries again until then."""
        hello = {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
        while True:
            try:
                status, headers, _ = await self.post({"id": 0, "method": "initialize", "params": hello})
                if status == 200:
                    self.session = headers["mcp-session-id"]
                    await self.post({"method": "notifications/initialized"})
                    return
            except (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError):
                self.disconnect()
                status = LOST
            if time.time() > deadline:
                raise RuntimeError(f"no conversation: {status}")
            await asyncio.sleep(0.2)

    async def call(self, kind, tool, is_retry=False, **arguments):
        """Calls a tool once."""
        self.ids += 1
        correlation = f"{self.label}-{self.number:04}-{self.ids:06}"
        message = {"id": self.ids, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
        began = time.time()
        try:
            status, _, body = await self.post(message, correlation)
            answer = read_answer(status, body)
        except asyncio.TimeoutError:
            self.disconnect()
            answer = Answer(HANGS, "", "unknown")
        except (OSError, asyncio.IncompleteReadError):
            self.disconnect()
            answer = Answer(LOST, "", "unknown")
        if answer.code == "UNAVAILABLE" and "hint" not in answer.text:
            answer = answer._replace(code="UNAVAILABLE without a next step")
        self.calls.append(Call(kind, tool, correlation, self.number, began, time.time() - began, answer.code, is_retry))
        return answer

    async def persist(self, kind, tool, deadline, tries=100, **arguments):
        """Calls a tool until it is carried out, may have been, or fails for good; or until then."""
        answer = await self.call(kind, tool, **arguments)
        pause = 0.1
        while answer.is_retryable and answer.outcome == "refused" and time.time() < deadline and (tries := tries - 1):
            await asyncio.sleep(pause)
            pause = min(1.0, pause * 2)
            answer = await self.call(kind, tool, is_retry=True, **arguments)
        return answer

    async def post(self, message, correlation=None):
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        lines = [
            "POST /mcp HTTP/1.1", "Host: localhost", f"X-LLMC-Token: {self.token}", "Content-Type: application/json",
            "Accept: application/json, text/event-stream", f"MCP-Protocol-Version: {PROTOCOL}",
            f"Content-Length: {len(body)}",
        ]
        if self.session:
            lines.append(f"Mcp-Session-Id: {self.session}")
        if correlation:
            lines.append(f"X-Correlation-Id: {correlation}")
        if self.connection is None:
            self.connection = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 24)
        reader, writer = self.connection
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        return await asyncio.wait_for(read_response(reader), ANSWER_TIMEOUT)

    def disconnect(self):
        if self.connection:
            self.connection[1].close()
            self.connection = None


async def read_response(reader):
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = {}
    for line in head[1:]:
        name, _, value = line.partition(": ")
        headers[name.lower()] = value
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return int(head[0].split()[1]), headers, body


def read_answer(status, body):
    if status == 502:
        # The proxy cannot know what became of it.
        return Answer("HTTP 502", "", "unknown")
    if status != 200:
        return Answer(f"HTTP {status}", body.decode(errors="replace"), "refused", status in (401, 429, 503))
    message = json.loads(body)
    if "error" in message:
        return Answer(f"JSON-RPC {message['error'].get('code')}", json.dumps(message["error"]), "refused")
    result = message["result"]
    text = result["content"][0]["text"] if result.get("content") else ""
    if not result.get("isError"):
        return Answer("ok", text, "done")
    # The tools of the Tool Envelope write their codes in lower case.
    meta = result.get("_meta", {})
    is_unknown = "carried out" in text and "not carried out" not in text
    return Answer(str(meta.get("error_code")).upper(), text, "unknown" if is_unknown else "refused", bool(meta.get("retryable")))
