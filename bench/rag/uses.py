"""Where-used against a language server: which uses does the index find, and which of its uses are real?

    python3 bench/rag/uses.py target/release/llmc WORK name=FOLDER … --server pyright-langserver --language python
    … --server typescript-language-server --language typescript
    … --server rust-analyzer --language rust

A reproducible sample of the functions, methods and classes that the server lists (`textDocument/documentSymbol`) is asked
of the server (`textDocument/references`, without the declaration) and of LLMC (`rag_where_used` by path-qualified name). A
use is a file and a line; only files that the server was shown count. A use counts from confidence 0.5 on; the baseline is the bare name as a whole word in any line
but the definition's, which is what a grep gives. `--show` prints every difference, `--cache` keeps the server's answers.

Names that one scope defines twice (overloads, conditions) are left out, since it is unclear which is asked for, and so are
names of one letter and names that the language gives (`__init__`, `constructor`).

Trees and commits of the published figures (no dependencies installed):

    python      pallets/flask 2ac89889, encode/httpx ae1b9f66, mahmoud/boltons 967864f8;
                not tuned on: pallets/click 2c8cd3ac, psf/requests 1f6589ec, Textualize/rich 42899d8a,
                pytest-dev/pluggy e382e727
                causes seen and repaired after a first measurement: encode/starlette cb8f84f5, pallets/werkzeug 1b00618e
    typescript  pmndrs/zustand f094eebe, honojs/hono 28a9c128, typestack/class-validator 0853341c, mobxjs/mobx 01211a69;
                not tuned on: sindresorhus/ky 3419113b
                causes seen and repaired after a first measurement: ReactiveX/rxjs 54796b38, reduxjs/redux 3084fc33,
                colinhacks/zod e516c3ba, socketio/socket.io d2d753fe
    rust        BurntSushi/ripgrep 3fce3b5b, chronotope/chrono b04c42fd; not tuned on: indexmap-rs/indexmap 0a553502
                causes seen and repaired after a first measurement, with --all-features: petgraph/petgraph ed714652,
                hyperium/http 82db5b8a, tokio-rs/bytes d5c8ad32, rust-itertools/itertools af6d17d3, rayon-rs/rayon c4dac9f8

The packages of socket.io import one another by name. For each, WORK/NAME/node_modules has a folder of its name with a
`package.json` whose `types` is the path of the package's source file (`lib/index.ts`, of engine.io `lib/engine.io.ts`, of
component-emitter `lib/esm/index.d.ts`).
"""

import argparse
import collections
import json
import random
import re
import shutil
import subprocess
import threading
import time
from pathlib import Path

from common import Llmc

ENDINGS = {"python": [".py"], "typescript": [".ts", ".tsx"], "javascript": [".js", ".ts"], "rust": [".rs"]}
# tsserver finds the tests of some projects only if their scripts are open too.
OPENED = {"typescript": [".ts", ".tsx", ".mts", ".js", ".jsx"]}
FLAGS = {"rust": []}
CLASS, METHOD, PROPERTY, ENUM, INTERFACE, FUNCTION, STRUCT = 5, 6, 7, 10, 11, 12, 23
ASKED_KINDS = {CLASS, METHOD, ENUM, INTERFACE, FUNCTION, STRUCT}
CONTAINERS = {CLASS, INTERFACE, STRUCT, ENUM, 19, 2, 3}
MAX_OPEN = 700


class LanguageServer:
    def __init__(self, command, root, language, all_features=False):
        flags = FLAGS.get(language, ["--stdio"])
        self.process = subprocess.Popen([*command, *flags], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, cwd=root)
        self.ids, self.language, self.quiet = 0, language, threading.Event()
        uri = root.as_uri()
        capabilities = {"textDocument": {"documentSymbol": {"hierarchicalDocumentSymbolSupport": True}},
                        "experimental": {"serverStatusNotification": True}}
        cargo = {"noDeps": False, **({"features": "all"} if all_features else {})}
        options = {"checkOnSave": False, "cargo": cargo} if language == "rust" else {}
        self.request("initialize", {"processId": None, "rootUri": uri, "capabilities": capabilities,
                                    "initializationOptions": options,
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

    def handle(self, message):
        if "id" in message and "method" in message:
            empty = [{}] * len(message["params"].get("items", [])) if message["method"] == "workspace/configuration" else None
            self.write({"id": message["id"], "result": empty})
        if message.get("method") == "experimental/serverStatus" and message["params"].get("quiescent"):
            self.quiet.set()

    def request(self, method, params):
        self.ids += 1
        number = self.ids
        self.write({"id": number, "method": method, "params": params})
        while True:
            message = self.read()
            if message.get("id") == number and "method" not in message:
                return message.get("result")
            self.handle(message)

    def settle(self):
        """rust-analyzer answers before it has loaded the workspace."""
        until = time.time() + 300
        while self.language == "rust" and not self.quiet.is_set() and time.time() < until:
            self.handle(self.read())

    def open(self, path):
        kinds = {".tsx": "typescriptreact", ".jsx": "javascriptreact", ".js": "javascript"}
        language = kinds.get(path.suffix, self.language)
        self.write({"method": "textDocument/didOpen", "params": {"textDocument": {
            "uri": path.as_uri(), "languageId": language, "version": 1, "text": path.read_text(errors="replace")}}})

    def symbols(self, path):
        return self.request("textDocument/documentSymbol", {"textDocument": {"uri": path.as_uri()}}) or []

    def uses(self, path, line, column):
        found = self.request("textDocument/references", {
            "textDocument": {"uri": path.as_uri()}, "position": {"line": line - 1, "character": column},
            "context": {"includeDeclaration": False}})
        return {(one["uri"], one["range"]["start"]["line"] + 1) for one in found or []}


def defined(server, root, files):
    """(path, qualified name, bare name, line, column of the name) of everything that is defined outside of functions."""
    found = []

    def visit(nodes, around, relative):
        for node in nodes:
            name = node["name"]
            at = node["selectionRange"]["start"]
            bare = re.fullmatch(r"[A-Za-z_$][\w$]+", name)
            given = name == "constructor" or name.startswith("__") and name.endswith("__")
            if node["kind"] in ASKED_KINDS and bare and not given:
                found.append((relative, "::".join([*around, name]), name, at["line"] + 1, at["character"]))
            # `declare module "./x"` adds to a module elsewhere.
            if node["kind"] in CONTAINERS and not name.startswith(("'", '"')):
                inner = name
                if name.startswith("impl"):
                    inner = re.sub(r"<.*", "", name.split(" for ")[-1].removeprefix("impl").strip()).split("::")[-1]
                    inner = inner.lstrip("&").strip()
                visit(node.get("children") or [], [*around, inner], relative)

    for path in files:
        visit(server.symbols(path), [], str(path.relative_to(root)))
    count = collections.Counter((one[0], one[1]) for one in found)
    return sorted(one for one in found if count[one[0], one[1]] == 1)


def ask_server(options, target, files, opened):
    """The sampled symbols with the uses that the language server knows."""
    server = LanguageServer(options.server.split(), target, options.language, options.all_features)
    for path in opened[:MAX_OPEN]:
        server.open(path)
    server.settle()
    asked = defined(server, target, [path for path in files if path in set(opened[:MAX_OPEN])])
    random.Random(1).shuffle(asked)
    prefix = target.as_uri() + "/"
    answers = []
    for relative, qualified, bare, line, column in asked[:options.symbols]:
        real = {(uri.removeprefix(prefix), at) for uri, at in server.uses(target / relative, line, column)}
        real = sorted(site for site in real - {(relative, line)} if "node_modules" not in site[0] and ":" not in site[0])
        answers.append([relative, qualified, bare, line, real])
    server.process.kill()
    return answers


def ask_llmc(options, target, names):
    """For each symbol its uses with their confidence."""
    llmc = Llmc(options.llmc, target)
    answers = []
    for name in names:
        try:
            found = llmc.ask("rag_where_used", symbol=name)
        except RuntimeError as error:  # A definition that the grammar did not parse.
            if "NOT_FOUND" not in str(error):
                raise
            found = {}
        if "handle" in found:
            found = llmc.behind(found["handle"])
        answers.append(found.get("sites", []))
    llmc.close()
    return answers


def cause(line, bare):
    """How the name stands on its line."""
    if not re.search(rf"(?<![\w$]){re.escape(bare)}(?![\w$])", line):
        return "another name"
    if re.match(r"\s*(from|import|use|pub use|export)\b", line):
        return "import"
    if re.search(rf"(\.|::|->)\s*{re.escape(bare)}(?![\w$])", line):
        return "member"
    return "bare"


def measure(options, name, folder):
    target = (options.work / name).resolve()
    if not target.exists():
        shutil.copytree(folder, target, ignore=shutil.ignore_patterns(".git", "node_modules", "target"))
    hidden = lambda path: any(part.startswith(".") for part in path.relative_to(target).parts)
    known = sorted(path for path in target.rglob("*") if path.is_file() and not hidden(path))
    files = [path for path in known if path.suffix in ENDINGS[options.language]]
    opened = [path for path in known if path.suffix in OPENED.get(options.language, ENDINGS[options.language])]
    cache = options.cache and options.cache / f"{name}-{options.symbols}.json"
    if cache and cache.exists():
        answers = json.loads(cache.read_text())
    else:
        answers = ask_server(options, target, files, opened)
        if cache:
            cache.write_text(json.dumps(answers))
    texts = {str(path.relative_to(target)): path.read_text(errors="replace").splitlines() for path in files}
    line_of = lambda site: (texts.get(site[0], [])[site[1] - 1:site[1]] or [""])[0]
    mine_all = ask_llmc(options, target, [f"{relative}#{qualified}" for relative, qualified, *_ in answers])
    counts = {system: [0, 0, 0] for system in ("LLMC", "LLMC, confidence ≥ 0.5", "plain word")}
    causes, total, clear = collections.Counter(), 0, 0
    for (relative, qualified, bare, line, real), sites in zip(answers, mine_all):
        real = {tuple(site) for site in real if site[0] in texts}
        total += len(real)
        sites = {(site["path"], site["line"]): site["confidence"] for site in sites}
        sites = {site: sure for site, sure in sites.items() if site[0] in texts and site != (relative, line)}
        word = re.compile(rf"(?<![\w$]){re.escape(bare)}(?![\w$])")
        plain = {(path, at) for path, lines in texts.items() for at, text in enumerate(lines, 1) if word.search(text)}
        plain.discard((relative, line))
        sure = {site for site, confidence in sites.items() if confidence >= 0.5}
        for system, mine in zip(counts, (set(sites), sure, plain)):
            counts[system][0] += len(mine & real)
            counts[system][1] += len(mine)
            counts[system][2] += len(real)
        for site in sure - real:
            causes["wrong, " + cause(line_of(site), bare)] += 1
        for site in real - sure:
            causes[("unsure, " if site in sites else "missed, ") + cause(line_of(site), bare)] += 1
        if options.show:
            for site in sorted(sure - real):
                print(f"  wrong  {relative}#{qualified}: {site[0]}:{site[1]} {sites[site]} {line_of(site).strip()[:110]}")
            for site in sorted(real - sure):
                print(f"  missed {relative}#{qualified}: {site[0]}:{site[1]} {sites.get(site)} {line_of(site).strip()[:110]}")
    for system, (right, mine, real) in counts.items():
        precision, recall = right / max(1, mine), right / max(1, real)
        both = 2 * precision * recall / max(1e-9, precision + recall)
        print(f"| {name} | {len(answers)} | {total} | {system} | {precision:.3f} | {recall:.3f} | {both:.3f} |", flush=True)
    if options.causes or options.show:
        print("  " + "; ".join(f"{count} {what}" for what, count in causes.most_common()), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("llmc")
    parser.add_argument("work", type=Path)
    parser.add_argument("trees", nargs="+", help="name=folder")
    parser.add_argument("--server", required=True, help="command of the language server")
    parser.add_argument("--language", choices=list(ENDINGS), default="python")
    parser.add_argument("--symbols", type=int, default=150)
    parser.add_argument("--all-features", action="store_true", help="let rust-analyzer read code behind features")
    parser.add_argument("--cache", type=Path, help="folder for the language server's answers")
    parser.add_argument("--causes", action="store_true", help="print how the names of wrong and missed uses stand")
    parser.add_argument("--show", action="store_true", help="print every wrong and missed use")
    options = parser.parse_args()
    print("| tree | symbols | uses | system | precision | recall | F1 |\n| --- | ---: | ---: | --- | ---: | ---: | ---: |")
    for tree in options.trees:
        name, folder = tree.split("=", 1)
        measure(options, name, folder)


if __name__ == "__main__":
    main()
