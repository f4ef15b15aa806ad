"""The official Python SDK: connect, list, call, progress, cancel, image. python_sdk.py PROJECT MARK"""

import pathlib
import sys

import anyio
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

project, mark = sys.argv[1:]
llmc = StdioServerParameters(command="llmc", args=["mcp", "--mode", "classic", "--root", project, "--log-level", "error"])


def said(result):
    return "\n".join(part.text for part in result.content if part.type == "text")


def sleeping():
    """Whether the command that holds the mark still runs, seen from outside of its namespace."""
    for command in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if command.read_bytes() == f"sleep\0{mark}\0".encode():
                return True
        except OSError:
            pass
    return False


async def main():
    async with Client(stdio_client(llmc)) as client:
        print("connect", client.server_info.name, client.protocol_version)
        tools = (await client.list_tools()).tools
        print("list", "te_grep" in {tool.name for tool in tools})
        print("call", said(await client.call_tool("te_grep", {"pattern": "needle"})).splitlines()[0])

        notes = []

        async def note(progress, total, message):
            notes.append(progress)

        await client.call_tool("run_cmd", {"command": "sleep 3"}, progress_callback=note)
        print("progress", bool(notes))

        async with anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "run_cmd", {"command": f"sleep {mark}"})
            while not sleeping():
                await anyio.sleep(0.05)
            group.cancel_scope.cancel()
        with anyio.fail_after(30):
            while sleeping():
                await anyio.sleep(0.05)
        print("cancel", said(await client.call_tool("run_cmd", {"command": "echo still here"})).strip())

        image = await client.call_tool("read_file", {"path": "dot.png"})
        print("image", *(part.type for part in image.content))


anyio.run(main)
