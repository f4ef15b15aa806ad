"""What the tool list costs a model in every conversation, in o200k tokens."""

import json
import subprocess

from mcp import Server, scratch
from report import table

MODES = ["te", "code_execution", "hybrid", "classic"]


def measure(bench):
    rows = []
    theirs = None
    with scratch() as root, scratch() as home:
        if bench.desktop_commander:
            with Server(bench.desktop_commander, home) as server:
                theirs = cost(bench, server)
        for mode in MODES:
            with Server(bench.llmc_mcp(root, mode)) as server:
                mine = cost(bench, server)
                # A mode whose tools do not exist yet says nothing.
                if mine[0] > 0:
                    rows.append(row(f"LLMC `{mode}`", mine, theirs))
    if theirs:
        rows.append(row("Desktop Commander", theirs, theirs))
    head = ["list", "tools", "tokens", "bytes", "of Desktop Commander's tokens"]
    return table(head, rows) + (
        "\n\nCounted over `name`, `description` and `inputSchema` of each tool in the answer to `tools/list`, as "
        "compact JSON, with the tokenizer that LLMC carries (`cargo run -p llmc-tokens --example count`)."
    )


def row(name, mine, theirs):
    tools, tokens, size = mine
    share = f"{tokens / theirs[1]:.1%}" if theirs else "–"
    return [name, tools, f"{tokens:,}", f"{size:,}", share]


def cost(bench, server):
    """The number of tools in a server's list, its tokens and its bytes."""
    tools = server.request("tools/list", {})["tools"]
    text = compact([lean(tool) for tool in tools]).encode()
    counted = subprocess.run([bench.count_tokens], input=text, stdout=subprocess.PIPE, check=True)
    return len(tools), int(counted.stdout), len(text)


def lean(tool):
    """What a client passes on to its model."""
    return {key: tool[key] for key in ("name", "description", "inputSchema") if key in tool}


def compact(value):
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
