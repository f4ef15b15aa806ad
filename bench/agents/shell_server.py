#!/usr/bin/env python3
"""An MCP server with one tool, `bash`: what an agent's own shell costs, as a server like any other.

    shell_server.py FOLDER

A command runs in FOLDER with the caller's rights and 120 seconds; the answer is its output, standard error included,
and its exit status if that is not 0. Output is cut in the middle at 30,000 characters, as common agents do.
"""

import json
import subprocess
import sys

MAX_CHARACTERS = 30_000
TIMEOUT_SECONDS = 120
TOOL = {
    "name": "bash",
    "description": "Run a bash command in the project folder and return its output.",
    "inputSchema": {
        "type": "object",
        "properties": {"command": {"type": "string"}},
        "required": ["command"],
    },
}


def run(folder, command):
    try:
        done = subprocess.run(
            ["bash", "-c", command], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, timeout=TIMEOUT_SECONDS, text=True, errors="replace",
        )
    except subprocess.TimeoutExpired:
        return f"timed out after {TIMEOUT_SECONDS} s"
    text = done.stdout
    if len(text) > MAX_CHARACTERS:
        half = MAX_CHARACTERS // 2
        text = f"{text[:half]}\n… {len(text) - MAX_CHARACTERS} characters left out …\n{text[-half:]}"
    if done.returncode:
        text += f"\nexit status {done.returncode}"
    return text


def answer(folder, method, params):
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "shell", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": run(folder, params["arguments"]["command"])}]}
    return {}


def main(folder):
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request:
            result = answer(folder, request["method"], request.get("params", {}))
            print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
