"""Where-used against a language server: which uses does the index find, and which of its uses are real?

    python3 bench/rag/uses.py target/release/llmc WORK name=FOLDER … --pyright NODE_MODULES/.bin/pyright-langserver

Every function, method and class of a Python tree is asked of pyright (`textDocument/references`) and of LLMC
(`rag_where_used` by its path-qualified name). A use is a file and a line. The baseline is the bare name as a whole word
in any line but the definition's, which is what a grep gives.
"""

import argparse
import ast
import json
import random
import re
import shutil
import subprocess
from pathlib import Path

from common import Llmc

SYMBOLS = 150


class LanguageServer:
    def __init__(self, command, root):
        self.process = subprocess.Popen([*command, "--stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL)
        self.ids = 0
        uri = root.as_uri()
        self.request("initialize", {"processId": None, "rootUri": uri, "capabilities": {},
                                    "workspaceFolders": [{"uri": uri, "name": "tree"}]})
        self.write({"method": "initialized", "params": {}})

    def write(self, message):
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self.process.stdin.flush()

    def read(self):
        length = 0
        while (line := self.process.stdout.readline().strip()):
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        return json.loads(self.process.stdout.read(length))

    def request(self, method, params):
        self.ids += 1
        number = self.ids
        self.write({"id": number, "method": method, "params": params})
        while True:
            message = self.read()
            if message.get("id") == number and "method" not in message:
                return message.get("result")
            if "id" in message and "method" in message:
                empty = [{}] * len(message["params"].get("items", [])) if message["method"] == "workspace/configuration" else None
                self.write({"id": message["id"], "result": empty})

    def open(self, path):
        self.write({"method": "textDocument/didOpen", "params": {"textDocument": {
            "uri": path.as_uri(), "languageId": "python", "version": 1, "text": path.read_text()}}})

    def uses(self, path, line, column):
        found = self.request("textDocument/references", {
            "textDocument": {"uri": path.as_uri()}, "position": {"line": line - 1, "character": column},
            "context": {"includeDeclaration": False}})
        return {(one["uri"], one["range"]["start"]["line"] + 1) for one in found or []}


def symbols(root):
    """(path, qualified name, bare name, line, column of the name) of everything that is defined."""
    found = []

    def visit(node, around, relative, lines):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                line = child.lineno
                at = re.search(rf"\b(def|class)\s+({re.escape(child.name)})\b", lines[line - 1])
                if at and not (child.name.startswith("__") and child.name.endswith("__")):
                    found.append((relative, "::".join([*around, child.name]), child.name, line, at.start(2)))
                if isinstance(child, ast.ClassDef):
                    visit(child, [*around, child.name], relative, lines)
            elif not isinstance(child, ast.expr):
                visit(child, around, relative, lines)

    for path in sorted(root.rglob("*.py")):
        text = path.read_text()
        visit(ast.parse(text), [], str(path.relative_to(root)), text.splitlines())
    # Of names with two definitions in one scope (overloads, conditions) it is unclear which is asked for.
    names = [(one[0], one[1]) for one in found]
    found = [one for one in found if names.count((one[0], one[1])) == 1]
    random.Random(1).shuffle(found)
    return found[:SYMBOLS]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("llmc")
    parser.add_argument("work", type=Path)
    parser.add_argument("trees", nargs="+", help="name=folder")
    parser.add_argument("--pyright", required=True)
    parser.add_argument("--show", action="store_true", help="print what differs")
    options = parser.parse_args()
    print("| tree | symbols | uses | system | precision | recall | F1 |\n| --- | ---: | ---: | --- | ---: | ---: | ---: |")
    for tree in options.trees:
        name, folder = tree.split("=", 1)
        target = (options.work / name).resolve()
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(folder, target)
        asked = symbols(target)
        server = LanguageServer([options.pyright], target)
        files = sorted(target.rglob("*.py"))
        for path in files:
            server.open(path)
        texts = {str(path.relative_to(target)): path.read_text().splitlines() for path in files}
        prefix = target.as_uri() + "/"
        llmc = Llmc(options.llmc, target)
        counts = {system: [0, 0, 0] for system in ("LLMC", "LLMC, confidence ≥ 0.5", "plain word")}
        total = 0
        for relative, qualified, bare, line, column in asked:
            real = {(uri.removeprefix(prefix), at) for uri, at in server.uses(target / relative, line, column)}
            real.discard((relative, line))
            total += len(real)
            found = llmc.ask("rag_where_used", symbol=f"{relative}#{qualified}")
            if "handle" in found:
                found = llmc.behind(found["handle"])
            sites = {(site["path"], site["line"]): site["confidence"] for site in found["sites"]}
            word = re.compile(rf"\b{re.escape(bare)}\b")
            plain = {(path, at) for path, lines in texts.items() for at, text in enumerate(lines, 1) if word.search(text)}
            plain.discard((relative, line))
            sure = {site for site, confidence in sites.items() if confidence >= 0.5}
            for system, mine in zip(counts, (set(sites), sure, plain)):
                counts[system][0] += len(mine & real)
                counts[system][1] += len(mine)
                counts[system][2] += len(real)
            if options.show and (set(sites) - real or real - set(sites)):
                print(f"{relative}#{qualified}: missed {sorted(real - set(sites))[:4]}, wrong {sorted(sure - real)[:4]}")
        for system, (right, mine, real) in counts.items():
            precision, recall = right / max(1, mine), right / max(1, real)
            both = 2 * precision * recall / max(1e-9, precision + recall)
            print(f"| {name} | {len(asked)} | {total} | {system} | {precision:.2f} | {recall:.2f} | {both:.2f} |", flush=True)
        llmc.close()
        server.process.kill()


main()
