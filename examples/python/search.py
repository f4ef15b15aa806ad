"""Ask LLMC from Python, with the official SDK (pip install "mcp>=2.3,<3").

    python examples/python/search.py PATTERN [FOLDER]

Starts `llmc mcp` for the folder, lists what it offers in mode `te`, and prints where the pattern is.
"""

import sys

import anyio
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client


async def main(pattern: str, folder: str) -> None:
    llmc = StdioServerParameters(command="llmc", args=["mcp", "--mode", "te", "--root", folder, "--log-level", "error"])
    async with Client(stdio_client(llmc)) as client:
        tools = (await client.list_tools()).tools
        print("tools:", " ".join(tool.name for tool in tools))
        found = await client.call_tool("te_grep", {"pattern": pattern})
        if found.is_error:
            sys.exit(found.content[0].text)
        print(found.content[0].text)


anyio.run(main, sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ".")
