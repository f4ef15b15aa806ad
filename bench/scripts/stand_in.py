"""Runs one script of the corpus in plain Python, with a stand-in for `tools` over the files of the current folder.

    stand_in.py SCRIPT

What it prints is the expected result of the script: the corpus is checked against Python itself, not against llmc.
"""

import ast
import asyncio
import fnmatch
import inspect
import os
import re
import shutil
import subprocess
import sys
import types
from pathlib import Path

HIDDEN = re.compile(r"(^|/)\.[^/]")


class Result(dict):
    """A result with its fields as keys and attributes; that of a command prints as its output."""

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __str__(self):
        if "stdout" in self:
            return self["stdout"] + self["stderr"]
        return super().__str__()


def fail(exception, code, message):
    raise exception(f"{code}: {message}")


def existing(path):
    found = Path(path)
    if not found.exists():
        fail(FileNotFoundError, "NOT_FOUND", f"{path}: no such file or directory")
    return found


def files(root="."):
    """Files below a folder that are not hidden, in the order of their paths."""
    if Path(root).is_file():
        return [str(root)]
    below = (os.path.relpath(p, ".") for p in sorted(Path(root).rglob("*")) if p.is_file())
    return [path for path in below if not HIDDEN.search(path)]


def read_file(path, offset_lines=0, max_lines=None, line_numbers=None):
    if existing(path).is_dir():
        fail(ValueError, "IS_DIRECTORY", path)
    lines = Path(path).read_text().splitlines(keepends=True)[offset_lines:]
    return "".join(lines if max_lines is None else lines[:max_lines])


def list_dir(path, include_hidden=False):
    shown = [p for p in sorted(existing(path).iterdir()) if include_hidden or not p.name.startswith(".")]
    return [p.name + "/" * p.is_dir() for p in shown]


def stat(path):
    facts = existing(path).stat()
    kind = "dir" if Path(path).is_dir() else "file"
    return Result(size=facts.st_size, mtime=int(facts.st_mtime), mode=f"{facts.st_mode & 0o7777:04o}", type=kind)


def linux_fs_read(path):
    text = read_file(path)
    meta = Result(path=str(path), total_lines=len(text.splitlines()), truncated=False)
    return Result(content=text, handle=None, meta=meta)


def linux_fs_write(path, content, mode="rewrite"):
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a" if mode == "append" else "w") as file:
        file.write(content)
    return Result(bytes_written=len(content.encode()))


def linux_fs_edit(path, old_text, new_text, expected_replacements=1):
    text = read_file(path)
    count = text.count(old_text)
    if count != expected_replacements:
        fail(ValueError, "NO_MATCH", f"{count} matches, {expected_replacements} expected")
    Path(path).write_text(text.replace(old_text, new_text))
    return Result(replacements=count, bytes_written=len(text))


def linux_fs_list(path, depth=2, include_hidden=False, file_glob=None):
    entries = []
    for found in sorted(existing(path).rglob("*")):
        below = found.relative_to(path)
        if len(below.parts) > depth + 1 or HIDDEN.search(str(below)) and not include_hidden:
            continue
        if file_glob and found.is_file() and not fnmatch.fnmatch(found.name, file_glob):
            continue
        kind = "dir" if found.is_dir() else "file"
        entries.append(Result(path=os.path.relpath(found), type=kind, size_bytes=found.stat().st_size))
    return Result(entries=entries, total_entries=len(entries), truncated=False)


def linux_fs_move(source, target):
    existing(source)
    if Path(target).exists():
        fail(RuntimeError, "ALREADY_EXISTS", target)
    shutil.move(source, target)
    return Result(ok=True, source=source, target=target)


def linux_fs_delete(path, recursive=False):
    if existing(path).is_dir():
        shutil.rmtree(path)
    else:
        os.remove(path)
    return Result(ok=True, path=path)


def linux_fs_mkdirs(path, exist_ok=True):
    os.makedirs(path, exist_ok=exist_ok)
    return Result(ok=True, path=path)


def linux_search_files(root, pattern, file_glob=None, max_results=200):
    is_glob = any(letter in pattern for letter in "*?[{")
    hits = [
        Result(path=path) for path in files(root)
        if (fnmatch.fnmatch(os.path.basename(path), pattern) if is_glob else pattern.lower() in path.lower())
    ]
    return Result(hits=hits[:max_results], total_hits=len(hits), truncated=len(hits) > max_results)


def linux_search_content(root, pattern, file_glob=None, literal=False, ignore_case=True, context_lines=3, max_results=100):
    wanted = re.compile(re.escape(pattern) if literal else pattern, re.I if ignore_case else 0)
    hits = []
    for path in files(root):
        if file_glob and not fnmatch.fnmatch(os.path.basename(path), file_glob):
            continue
        lines = Path(path).read_text().splitlines()
        for at, line in enumerate(lines):
            if wanted.search(line):
                around = lines[max(0, at - context_lines):at + context_lines + 1]
                hits.append(Result(path=path, line=at + 1, snippet="\n".join(around)))
    return Result(hits=hits[:max_results], total_hits=len(hits), truncated=len(hits) > max_results)


def te_grep(pattern, path=".", raw=False, count=None):
    shown = []
    for found in files(path):
        lines = Path(found).read_text().splitlines()
        hits = [(at, line.strip()) for at, line in enumerate(lines, 1) if re.search(pattern, line)]
        if len(hits) == 1:
            shown.append(f"{found}:{hits[0][0]}: {hits[0][1]}")
        elif hits:
            shown += [found] + [f"  {at}: {line}" for at, line in hits]
    return "\n".join(shown)


def te_find(pattern, path="."):
    return "\n".join(found for found in files(path) if fnmatch.fnmatch(os.path.basename(found), pattern))


def run_cmd(command=None, argv=None, cwd=None, timeout=None, input=None):
    done = subprocess.run(
        argv or ["bash", "-c", command], cwd=cwd, timeout=timeout, input=input, capture_output=True, text=True,
    )
    return Result(stdout=done.stdout, stderr=done.stderr, exit_code=done.returncode)


def error_code(error):
    found = re.match(r"([A-Za-z_]+): ", str(error))
    return found and found.group(1)


TOOLS = [
    read_file, list_dir, stat, linux_fs_read, linux_fs_write, linux_fs_edit, linux_fs_list, linux_fs_move,
    linux_fs_delete, linux_fs_mkdirs, linux_search_files, linux_search_content, te_grep, te_find, run_cmd,
]


def awaited(tool):
    async def call(*args, **kwargs):
        return tool(*args, **kwargs)
    return call


def module():
    tools = types.ModuleType("tools")
    tools.aio = types.ModuleType("tools.aio")
    for tool in TOOLS:
        setattr(tools, tool.__name__, tool)
        setattr(tools.aio, tool.__name__, awaited(tool))
    tools.error_code = error_code
    sys.modules["tools"], sys.modules["tools.aio"] = tools, tools.aio
    return tools


def main():
    source = Path(sys.argv[1]).read_text()
    sys.argv, sys.path[0] = ["script"], os.getcwd()
    tools = module()
    script = sys.modules["__main__"] = types.ModuleType("__main__")
    names = vars(script)
    names["tools"] = tools
    for name, tool in vars(tools).items():
        if inspect.isfunction(tool) and name != "error_code":
            names[name] = tool
    code = compile(source, "script", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(code, names)
    if inspect.iscoroutine(result):
        asyncio.run(result)


if __name__ == "__main__":
    main()
