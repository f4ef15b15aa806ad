"""Packs executables for every way to install them. Called by scripts/release; standard library only.

    packages.py --version V --epoch SECONDS [--level 1..9] [--namespace NAME] [--download-url URL] \\
        SHARED OUT TARGET=FOLDER...

SHARED holds what is the same on every platform: man/man1/, completions/, deploy/, the documents and tools.json. Each FOLDER
holds `llmc` and `te` of one target. OUT receives, for each target, a tarball, a .deb, a wheel, an npm package and an .mcpb
bundle; and once the npm package that users name, server.json and SHA256SUMS.

The bytes depend on the input and the arguments alone: names are sorted, modes and owners are fixed, and times are EPOCH.
"""

import argparse
import base64
import gzip
import hashlib
import io
import json
import tarfile
import time
import zipfile
from pathlib import Path
from typing import NamedTuple

# Free on crates.io, PyPI and npm, where `llmc` alone belongs to other projects.
PACKAGE = "llmc-mcp"
MODULE = PACKAGE.replace("-", "_")
LICENCE = "Apache-2.0 OR MIT"
AUTHORS = "The LLMC contributors"
SUMMARY = "Lean MCP server for coding agents: files, search, commands and code retrieval"
KEYWORDS = ["mcp", "model-context-protocol", "coding-agent", "search", "cli"]
SERVER_SCHEMA = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
MANIFEST_VERSION = "0.3"

# What each packager calls a processor: Debian, npm, and the machine number in an ELF header.
ARCHITECTURES = {"x86_64": ("amd64", "x64", 62), "aarch64": ("arm64", "arm64", 183)}

LICENCES = ("LICENSE-APACHE", "LICENSE-MIT", "THIRD-PARTY.md")


class Entry(NamedTuple):
    name: str
    data: bytes
    mode: int = 0o644


class Platform(NamedTuple):
    arch: str
    llmc: bytes
    te: bytes

    @property
    def label(self):
        return f"{self.arch}-linux"

    @property
    def debian(self):
        return ARCHITECTURES[self.arch][0]

    @property
    def npm(self):
        return f"{PACKAGE}-linux-{ARCHITECTURES[self.arch][1]}"

    @property
    def static(self):
        return not has_interpreter(self.llmc)

    def programs(self, folder):
        return [Entry(f"{folder}llmc", self.llmc, 0o755), Entry(f"{folder}te", self.te, 0o755)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--version", required=True)
    parser.add_argument("--epoch", type=int, required=True)
    parser.add_argument("--level", type=int, default=9)
    parser.add_argument("--namespace", default="com.example")
    parser.add_argument("--download-url")
    parser.add_argument("shared", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("targets", nargs="+")
    args = parser.parse_args()
    release = Release(args, files(args.shared))
    platforms = [platform(*target.split("=", 1)) for target in args.targets]
    made = {}
    for one in platforms:
        made[f"llmc-{args.version}-{one.label}.tar.gz"] = release.tarball(one)
        made[f"{PACKAGE}_{args.version}_{one.debian}.deb"] = release.deb(one)
        made[f"{MODULE}-{args.version}-py3-none-{'.'.join(wheel_tags(one))}.whl"] = release.wheel(one)
        made[f"{one.npm}-{args.version}.tgz"] = release.npm_platform(one)
        made[f"{PACKAGE}-{args.version}-{one.label}.mcpb"] = release.bundle(one)
    made[f"{PACKAGE}-{args.version}.tgz"] = release.npm_main(platforms)
    made["server.json"] = release.server_json(made)
    made["SHA256SUMS"] = "".join(f"{sha256(data)}  {name}\n" for name, data in sorted(made.items())).encode()
    args.out.mkdir(parents=True, exist_ok=True)
    for name, data in made.items():
        (args.out / name).write_bytes(data)
        print(f"{len(data) / 1e6:8.1f} MB  {name}")


class Release:
    def __init__(self, args, shared):
        self.version, self.epoch, self.level = args.version, args.epoch, args.level
        self.server, self.download_url = f"{args.namespace}/{PACKAGE}", args.download_url
        self.shared = shared
        self.man = {name[4:]: data for name, data in shared.items() if name.startswith("man/man1/")}

    def tarball(self, one):
        top = f"llmc-{self.version}-{one.label}/"
        kept = [Entry(top + name, data) for name, data in self.shared.items() if name != "tools.json"]
        return self.gzip(self.tar(one.programs(top) + kept))

    def deb(self, one):
        doc = f"usr/share/doc/{PACKAGE}/"
        entries = one.programs("usr/bin/")
        entries += [Entry(f"usr/share/man/{name}.gz", self.gzip(data)) for name, data in self.man.items()]
        for place, shell in [
            ("bash-completion/completions/llmc", "bash"),
            ("zsh/vendor-completions/_llmc", "zsh"),
            ("fish/vendor_completions.d/llmc.fish", "fish"),
        ]:
            entries.append(Entry(f"usr/share/{place}", self.shared[f"completions/llmc.{shell}"]))
        entries.append(Entry(f"{doc}copyright", debian_copyright(self.shared["LICENSE-MIT"])))
        entries.append(Entry(f"{doc}changelog.gz", self.gzip(self.shared["CHANGELOG.md"])))
        entries += [Entry(doc + name, self.shared[name]) for name in ("README.md", "THIRD-PARTY.md", "llmc.cdx.json")]
        entries += [
            Entry(f"{doc}examples/{name[7:]}", data) for name, data in self.shared.items() if name.startswith("deploy/")
        ]
        control = f"""\
Package: {PACKAGE}
Version: {self.version}
Architecture: {one.debian}
Maintainer: {AUTHORS}
Installed-Size: {sum(len(entry.data) for entry in entries) // 1024 + 1}
{'' if one.static else 'Depends: libc6, libgcc-s1' + chr(10)}Suggests: git, python3
Section: devel
Priority: optional
Description: {SUMMARY}
 An MCP server in one executable, and `te`, which condenses the output of any
 Unix command to a token budget.
"""
        sums = "".join(f"{hashlib.md5(entry.data).hexdigest()}  {entry.name}\n" for entry in sorted(entries))
        members = [
            ("debian-binary", b"2.0\n"),
            ("control.tar.gz", self.deb_tar([Entry("control", control.encode()), Entry("md5sums", sums.encode())])),
            ("data.tar.gz", self.deb_tar(entries)),
        ]
        packed = b"!<arch>\n"
        for name, data in members:
            packed += f"{name:<16}{self.epoch:<12}{0:<6}{0:<6}{100644:<8}{len(data):<10}`\n".encode()
            packed += data + b"\n" * (len(data) % 2)
        return packed

    def deb_tar(self, entries):
        return self.gzip(self.tar([Entry(f"./{entry.name}", entry.data, entry.mode) for entry in entries]))

    def wheel(self, one):
        info, data = f"{MODULE}-{self.version}.dist-info/", f"{MODULE}-{self.version}.data/"
        # A registry's client runs the program that is named like the package.
        same = b'#!/bin/sh\nexec "$(dirname "$(readlink -f "$0")")/llmc" "$@"\n'
        entries = one.programs(f"{data}scripts/") + [Entry(f"{data}scripts/{PACKAGE}", same, 0o755)]
        entries += [Entry(f"{data}data/share/man/{name}", page) for name, page in self.man.items()]
        entries += [Entry(f"{info}licenses/{name}", self.shared[name]) for name in LICENCES]
        licences = "".join(f"License-File: {name}\n" for name in LICENCES)
        metadata = (
            f"Metadata-Version: 2.4\nName: {PACKAGE}\nVersion: {self.version}\nSummary: {SUMMARY}\n"
            f"Author: {AUTHORS}\nLicense-Expression: {LICENCE}\n{licences}Keywords: {','.join(KEYWORDS)}\n"
            f"Requires-Python: >=3.8\nDescription-Content-Type: text/markdown\n\n{self.about()}"
        )
        tags = "".join(f"Tag: py3-none-{tag}\n" for tag in wheel_tags(one))
        entries.append(Entry(f"{info}METADATA", metadata.encode()))
        wheel = f"Wheel-Version: 1.0\nGenerator: {PACKAGE}\nRoot-Is-Purelib: false\n{tags}"
        entries.append(Entry(f"{info}WHEEL", wheel.encode()))
        record = "".join(f"{entry.name},sha256={record_hash(entry.data)},{len(entry.data)}\n" for entry in sorted(entries))
        entries.append(Entry(f"{info}RECORD", f"{record}{info}RECORD,,\n".encode()))
        return self.zip(entries)

    def npm_platform(self, one):
        package = {
            **self.npm_package(one.npm, f"The executables of {PACKAGE} for {one.label}"),
            "os": ["linux"],
            "cpu": [ARCHITECTURES[one.arch][1]],
            **({} if one.static else {"libc": ["glibc"]}),
        }
        readme = f"# {one.npm}\n\nThe executables of `{PACKAGE}` for {one.label}. Install `{PACKAGE}`, which needs this package.\n"
        return self.npm(package, readme, one.programs("bin/"))

    def npm_main(self, platforms):
        programs = {name: f"bin/{program}.js" for name, program in [(PACKAGE, "llmc"), ("llmc", "llmc"), ("te", "te")]}
        package = {
            **self.npm_package(PACKAGE, SUMMARY),
            "mcpName": self.server,
            "keywords": KEYWORDS,
            "engines": {"node": ">=18"},
            "os": ["linux"],
            "bin": programs,
            # Only packages of this release: a name that is not published could be taken by others.
            "optionalDependencies": {one.npm: self.version for one in platforms},
        }
        entries = [Entry("launch.js", LAUNCHER.encode())]
        for program in ("llmc", "te"):
            start = f'#!/usr/bin/env node\n"use strict";\nrequire("../launch.js")("{program}");\n'
            entries.append(Entry(f"bin/{program}.js", start.encode(), 0o755))
        return self.npm(package, self.about(), entries)

    def npm_package(self, name, description):
        package = {"name": name, "version": self.version, "description": description}
        return {**package, "license": LICENCE, "author": AUTHORS}

    def npm(self, package, readme, entries):
        entries = entries + [Entry("package.json", document(package)), Entry("README.md", readme.encode())]
        entries += [Entry(name, self.shared[name]) for name in LICENCES]
        return self.gzip(self.tar([Entry(f"package/{e.name}", e.data, e.mode) for e in entries], folders=False))

    def bundle(self, one):
        manifest = {
            "manifest_version": MANIFEST_VERSION,
            "name": PACKAGE,
            "display_name": "LLMC",
            "version": self.version,
            "description": SUMMARY,
            "long_description": self.about(),
            "author": {"name": AUTHORS},
            "license": LICENCE,
            "keywords": KEYWORDS,
            "server": {
                "type": "binary",
                "entry_point": "server/llmc",
                "mcp_config": {
                    "command": "${__dirname}/server/llmc",
                    "args": ["mcp", "--root", "${user_config.workspace}", "--mode", "${user_config.mode}"],
                    "env": {},
                },
            },
            "tools": json.loads(self.shared["tools.json"]),
            "tools_generated": True,
            "user_config": {
                "workspace": {
                    "type": "directory",
                    "title": "Workspace",
                    "description": "The folder that the tools may read and change; nothing outside it is reachable",
                    "required": True,
                },
                "mode": {
                    "type": "string",
                    "title": "Mode",
                    "description": "Which tools are listed: hybrid, classic, te or code_execution",
                    "default": "hybrid",
                    "required": False,
                },
            },
            "compatibility": {"platforms": ["linux"]},
        }
        entries = [Entry("manifest.json", document(manifest)), Entry("README.md", self.about().encode())]
        entries += [Entry(name, self.shared[name]) for name in LICENCES]
        return self.zip(entries + one.programs("server/"))

    def server_json(self, made):
        """The MCP registry's description: it holds names and hashes, no programs."""
        run = {"transport": {"type": "stdio"}, "packageArguments": [{"type": "positional", "value": "mcp"}]}
        packages = [
            {"registryType": kind, "identifier": PACKAGE, "version": self.version, "runtimeHint": hint, **run}
            for kind, hint in [("npm", "npx"), ("pypi", "uvx")]
        ]
        for name, data in sorted(made.items()):
            if self.download_url and name.endswith(".mcpb"):
                address = f"{self.download_url.rstrip('/')}/{name}"
                bundle = {"registryType": "mcpb", "identifier": address, "version": self.version}
                packages.append({**bundle, "fileSha256": sha256(data), "transport": run["transport"]})
        about = {"$schema": SERVER_SCHEMA, "name": self.server, "title": "LLMC", "description": SUMMARY}
        return document({**about, "version": self.version, "packages": packages})

    def about(self):
        # The registry looks for the last line on PyPI's page, as a proof of ownership.
        return f"""\
# {PACKAGE}

{SUMMARY}, for Linux.

- `llmc mcp` is what an MCP client starts; `llmc install CLIENT` adds it to the client's settings.
- `te COMMAND` runs a command and condenses its output to a token budget.
- `llmc doctor` checks the installation; `llmc --help` lists all verbs.

<!-- mcp-name: {self.server} -->
"""

    def tar(self, entries, folders=True):
        out = io.BytesIO()
        names = {entry.name: entry for entry in entries}
        parents = {f"{parent}/" for name in names for parent in map(str, Path(name).parents)} - {"./"} if folders else set()
        if any(name.startswith("./") for name in names):
            # dpkg's own packages name every folder, from `./` on.
            parents = {"./"} | {f"./{parent}" for parent in parents}
        with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:
            for name in sorted([*names, *parents]):
                entry = names.get(name, Entry(name, b"", 0o755))
                info = tarfile.TarInfo(name)
                info.type = tarfile.DIRTYPE if name in parents else tarfile.REGTYPE
                info.size, info.mode, info.mtime = len(entry.data), entry.mode, self.epoch
                info.uname = info.gname = "root"
                tar.addfile(info, io.BytesIO(entry.data))
        return out.getvalue()

    def gzip(self, data):
        return gzip.compress(data, compresslevel=self.level, mtime=0)

    def zip(self, entries):
        out = io.BytesIO()
        # The format counts from 1980.
        moment = time.gmtime(max(self.epoch, 315532800))[:6]
        with zipfile.ZipFile(out, "w") as archive:
            # The list of a wheel's files belongs at its end.
            for entry in sorted(entries, key=lambda entry: (entry.name.endswith("/RECORD"), entry.name)):
                info = zipfile.ZipInfo(entry.name, moment)
                info.create_system, info.external_attr = 3, (0o100000 | entry.mode) << 16
                archive.writestr(info, entry.data, zipfile.ZIP_DEFLATED, self.level)
        return out.getvalue()


def files(folder):
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(found)}


def platform(target, folder):
    arch = target.split("-")[0]
    if arch not in ARCHITECTURES or "linux" not in target:
        raise SystemExit(f"packages: no packages for {target}; known: {', '.join(ARCHITECTURES)} on Linux")
    one = Platform(arch, (Path(folder) / "llmc").read_bytes(), (Path(folder) / "te").read_bytes())
    for name, data in [("llmc", one.llmc), ("te", one.te)]:
        machine = int.from_bytes(data[18:20], "little")
        if data[:4] != b"\x7fELF" or machine != ARCHITECTURES[arch][2]:
            raise SystemExit(f"packages: {folder}/{name} is no executable for {target}")
    return one


def has_interpreter(elf):
    """Whether a 64-bit little-endian executable needs a dynamic linker: a program header of type PT_INTERP."""
    start, size, count = (int.from_bytes(elf[at : at + n], "little") for at, n in [(32, 8), (54, 2), (56, 2)])
    return any(int.from_bytes(elf[at : at + 4], "little") == 3 for at in range(start, start + size * count, size))


def wheel_tags(one):
    # A static executable runs with any C library; another one is tagged for the machine that built it and its like.
    if one.static:
        return [f"{tag}_{one.arch}" for tag in ("manylinux_2_17", "manylinux2014", "musllinux_1_1")]
    return [f"linux_{one.arch}"]


def debian_copyright(mit):
    text = "".join(f" {line.strip() or '.'}\n" for line in mit.decode().strip().splitlines())
    return (
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\n"
        f"Files: *\nCopyright: 2026 {AUTHORS}\nLicense: Apache-2.0 or MIT\n"
        f" THIRD-PARTY.md lists the licences of the packages that the executables are made of.\n\n"
        "License: Apache-2.0\n On Debian systems the text is in /usr/share/common-licenses/Apache-2.0.\n\n"
        f"License: MIT\n{text}"
    ).encode()


def document(value):
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def record_hash(data):
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")


LAUNCHER = """\
"use strict";
// Starts the executable of the platform package and ends as it ends.
const { spawn } = require("node:child_process");

module.exports = function launch(program) {
  const platform = `@PACKAGE@-${process.platform}-${process.arch}`;
  let file;
  try {
    file = require.resolve(`${platform}/bin/${program}`);
  } catch {
    console.error(`@PACKAGE@: ${platform} is not installed; install it beside @PACKAGE@, or without --omit=optional`);
    process.exit(1);
  }
  const child = spawn(file, process.argv.slice(2), { stdio: "inherit" });
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) {
    // A terminal sends its interrupt to the child as well.
    process.on(signal, () => signal === "SIGINT" && process.stdin.isTTY || child.kill(signal));
  }
  child.on("error", (error) => {
    console.error(`@PACKAGE@: ${file}: ${error.message}`);
    process.exit(126);
  });
  child.on("exit", (code, signal) => {
    if (signal === null) process.exit(code);
    process.removeAllListeners(signal);
    process.kill(process.pid, signal);
  });
};
""".replace("@PACKAGE@", PACKAGE)


if __name__ == "__main__":
    main()
