"""Two proxies, each a process of its own, so that their CPU time is counted apart. They end with their standard input.

    proxy.py http PORT...     a conversation stays on one server, as behind the proxies of deploy/; prints its own port
    proxy.py tcp PORT         bytes to and from a database; prints its own port and obeys lines of standard input:
                              `delay SECONDS` to every request, `cut` (forward nothing, close nothing), `reset` (RST to
                              all, and to each new connection), `open`
"""

import asyncio
import contextlib
import hashlib
import socket
import struct
import sys
import time

# How long a server that refuses connections is left out.
REST_SECONDS = 0.5
BAD_GATEWAY = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n"


class HttpProxy:
    """Sends requests by their session, or else their token, to one server as long as that one accepts connections."""

    def __init__(self, ports):
        self.ports = ports
        self.resting = {}

    async def serve(self, reader, writer):
        upstream = {}
        try:
            while request := await read_message(reader):
                await self.pass_on(request, writer, upstream)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            for _, out in upstream.values():
                out.close()
            writer.close()

    async def pass_on(self, request, writer, upstream):
        route = field(request, b"mcp-session-id") + field(request, b"x-llmc-token")
        for port in sorted(self.ports, key=lambda port: hashlib.sha256(route + b"%d" % port).digest()):
            if self.resting.get(port, 0) > time.monotonic():
                continue
            try:
                reader, out = upstream.get(port) or await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                # Not sent, so another server may have it.
                self.resting[port] = time.monotonic() + REST_SECONDS
                continue
            upstream[port] = reader, out
            try:
                out.write(request)
                while part := await read_message(reader):
                    writer.write(part)
                    if not part.startswith(b"HTTP/1.1 1"):
                        break
                if not part:
                    raise OSError("the server closed the connection")
            except (OSError, asyncio.IncompleteReadError):
                # Sent, so it may have been carried out: the client has to decide.
                upstream.pop(port)[1].close()
                writer.write(BAD_GATEWAY)
            await writer.drain()
            return
        writer.write(BAD_GATEWAY)
        await writer.drain()


def field(request, name):
    """A field of a request's head; empty if it has none."""
    head = request[:request.index(b"\r\n\r\n")]
    found = (line.split(b":", 1)[1].strip() for line in head.split(b"\r\n")[1:] if line.lower().startswith(name + b":"))
    return next(found, b"")


async def read_message(reader):
    """One whole request or answer; empty at the end of the connection."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as ended:
        if ended.partial:
            raise
        return b""
    fields = head.lower()
    if b"transfer-encoding: chunked" in fields:
        parts = [head]
        while True:
            line = await reader.readuntil(b"\r\n")
            size = int(line.split(b";")[0], 16)
            parts += [line, await reader.readexactly(size + 2)]
            if size == 0:
                return b"".join(parts)
    at = fields.find(b"content-length:")
    length = int(fields[at + 15:fields.index(b"\r\n", at)]) if at >= 0 else 0
    return head + await reader.readexactly(length) if length else head


class TcpProxy:
    """Forwards bytes, later, or not at all."""

    def __init__(self, target):
        self.target = target
        self.delay = 0.0
        self.is_open = asyncio.Event()
        self.is_open.set()
        self.resets = False
        self.writers = set()

    def obey(self, line):
        word, _, value = line.strip().partition(" ")
        self.resets = word == "reset"
        if word == "delay":
            self.delay = float(value)
        if word == "cut":
            self.is_open.clear()
        else:
            self.is_open.set()
        if self.resets:
            for writer in list(self.writers):
                reset(writer)

    async def serve(self, reader, writer):
        if self.resets:
            return reset(writer)
        out = None
        try:
            server, out = await asyncio.open_connection("127.0.0.1", self.target)
            self.writers |= {writer, out}
            await asyncio.gather(self.copy(reader, out, True), self.copy(server, writer, False))
        except OSError:
            pass
        finally:
            for one in filter(None, (writer, out)):
                self.writers.discard(one)
                one.close()

    async def copy(self, reader, writer, is_request):
        try:
            while data := await reader.read(1 << 16):
                if is_request and self.delay:
                    await asyncio.sleep(self.delay)
                await self.is_open.wait()
                writer.write(data)
                await writer.drain()
        finally:
            await self.is_open.wait()
            writer.close()


def reset(writer):
    """Closes with RST, as a firewall that forgot the connection does."""
    with contextlib.suppress(OSError, AttributeError):
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def main():
    kind, ports = sys.argv[1], [int(port) for port in sys.argv[2:]]
    proxy = HttpProxy(ports) if kind == "http" else TcpProxy(ports[0])
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0, limit=1 << 24, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    orders = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    while line := await orders.readline():
        proxy.obey(line.decode())
        print("done", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
