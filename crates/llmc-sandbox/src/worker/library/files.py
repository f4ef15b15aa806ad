# Files: open, io, os, os.path, pathlib, glob, fnmatch, shutil, tempfile, subprocess, by calls of the tools.
from pathlib import Path as _llmc_Path
import re as _llmc_re
_llmc_root = None
_llmc_number = 0


def _llmc_norm(path):
    """The path as the tools take it."""
    path = str(path)
    if path == "":
        raise FileNotFoundError("[Errno 2] No such file or directory: ''")
    return path


def _llmc_stat(path):
    try:
        return tools.stat(_llmc_norm(path))
    except FileNotFoundError:
        raise FileNotFoundError(f"[Errno 2] No such file or directory: {str(path)!r}")


def _llmc_kind(path):
    try:
        return tools.stat(_llmc_norm(path))["type"]
    except (FileNotFoundError, ValueError, PermissionError):
        return None


def _llmc_read(path):
    path = _llmc_norm(path)
    try:
        return tools.read_file(path)
    except FileNotFoundError:
        raise FileNotFoundError(f"[Errno 2] No such file or directory: {path!r}")
    except ValueError as e:
        if "IS_DIRECTORY" in str(e):
            raise IsADirectoryError(f"[Errno 21] Is a directory: {path!r}")
        raise


def _llmc_write(path, text, mode="rewrite"):
    path = _llmc_norm(path)
    parent = _llmc_dirname(path)
    if parent and _llmc_kind(parent) != "dir":
        raise FileNotFoundError(f"[Errno 2] No such file or directory: {path!r}")
    if _llmc_kind(path) == "dir":
        raise IsADirectoryError(f"[Errno 21] Is a directory: {path!r}")
    tools.linux_fs_write(path=path, content=text, mode=mode)


def _llmc_entries(path="."):
    """Names in a folder, those of folders with a slash."""
    try:
        return tools.list_dir(_llmc_norm(path), include_hidden=True)
    except FileNotFoundError:
        raise FileNotFoundError(f"[Errno 2] No such file or directory: {str(path)!r}")
    except ValueError as e:
        raise NotADirectoryError(f"[Errno 20] Not a directory: {str(path)!r}")


def _llmc_lines(text):
    lines = text.split("\n")
    out = [line + "\n" for line in lines[:-1]]
    if lines[-1]:
        out.append(lines[-1])
    return out


class _llmc_File:
    """An open file or, without a path, a stream in memory."""

    def __init__(self, path, mode, text, binary):
        self._llmc_stream = True
        self.name = path
        self.mode = mode
        self.text = text
        self.at = len(text) if "a" in mode else 0
        self.binary = binary
        self.dirty = False
        self.closed = False
        self.managed = False

    def _check(self):
        if self.closed:
            raise ValueError("I/O operation on closed file.")

    def _out(self, text):
        return text.encode() if self.binary else text

    def read(self, size=-1):
        self._check()
        end = len(self.text) if size is None or size < 0 else self.at + size
        part = self.text[self.at:end]
        self.at += len(part)
        return self._out(part)

    def readline(self):
        self._check()
        end = self.text.find("\n", self.at)
        end = len(self.text) if end < 0 else end + 1
        part = self.text[self.at:end]
        self.at = end
        return self._out(part)

    def readlines(self):
        return [self._out(line) for line in _llmc_lines(self.read() if not self.binary else self.read().decode())]

    def write(self, text):
        self._check()
        if self.name is not None and not ("w" in self.mode or "a" in self.mode or "x" in self.mode or "+" in self.mode):
            raise ValueError("not writable")
        size = len(text)
        if self.binary:
            text = text.decode()
        elif not isinstance(text, str):
            raise TypeError("write() argument must be str, not " + str(type(text))[8:-2])
        self.text = self.text[:self.at] + text + self.text[self.at + len(text):]
        self.at += len(text)
        self.dirty = True
        if not self.managed:
            # A file that nothing closes is written as it changes.
            self.flush()
        return size

    def writelines(self, lines):
        for line in lines:
            self.write(line)

    def seek(self, offset, whence=0):
        self.at = offset if whence == 0 else self.at + offset if whence == 1 else len(self.text) + offset
        return self.at

    def tell(self):
        return self.at

    def truncate(self, size=None):
        self.text = self.text[:self.at if size is None else size]
        self.dirty = True

    def getvalue(self):
        return self._out(self.text)

    def flush(self):
        if self.dirty and self.name is not None:
            _llmc_write(self.name, self.text)
            self.dirty = False

    def close(self):
        if not self.closed:
            self.flush()
            self.closed = True

    def __enter__(self):
        self.managed = True
        return self

    def __exit__(self, kind, value, trace):
        self.close()

    def __iter__(self):
        return iter(self.readlines())


def _llmc_open(file, mode="r", buffering=-1, encoding=None, errors=None, newline=None, closefd=True):
    path = str(file)
    binary = "b" in mode
    if "x" in mode and _llmc_kind(path) is not None:
        raise FileExistsError(f"[Errno 17] File exists: {path!r}")
    if "r" in mode:
        return _llmc_File(path, mode, _llmc_read(path), binary)
    if "a" in mode:
        f = _llmc_File(path, mode, _llmc_read(path) if _llmc_kind(path) == "file" else "", binary)
    else:
        f = _llmc_File(path, mode, "", binary)
    f.dirty = True
    f.flush()
    return f


def _llmc_StringIO(text="", newline=None):
    return _llmc_File(None, "w+", text, False)


def _llmc_BytesIO(data=b""):
    return _llmc_File(None, "w+", data.decode(), True)


class _llmc_io:
    StringIO = _llmc_StringIO
    BytesIO = _llmc_BytesIO
    open = _llmc_open


def _llmc_dirname(path):
    path = str(path)
    head = path.rpartition("/")[0]
    return head.rstrip("/") or ("/" if path.startswith("/") else "")


def _llmc_basename(path):
    return str(path).rpartition("/")[2]


def _llmc_join(first, *rest):
    path = str(first)
    for part in rest:
        part = str(part)
        if part.startswith("/"):
            path = part
        elif path == "" or path.endswith("/"):
            path += part
        else:
            path += "/" + part
    return path


def _llmc_normpath(path):
    path = str(path)
    out = []
    for part in path.split("/"):
        if part == "" or part == ".":
            continue
        if part == ".." and out and out[-1] != "..":
            out.pop()
        elif part != ".." or not path.startswith("/"):
            out.append(part)
    return ("/" if path.startswith("/") else "") + "/".join(out) or "."


def _llmc_splitext(path):
    path = str(path)
    head, slash, name = path.rpartition("/")
    stem, dot, ext = name.rpartition(".")
    if not dot or not stem.strip("."):
        return (path, "")
    return (head + slash + stem, "." + ext)


def _llmc_getcwd():
    global _llmc_root
    if _llmc_root is None:
        _llmc_root = tools.run_cmd(argv=["pwd"])["stdout"].strip()
    return _llmc_root


def _llmc_abspath(path):
    path = str(path)
    return _llmc_normpath(path if path.startswith("/") else _llmc_join(_llmc_getcwd(), path))


def _llmc_relpath(path, start="."):
    path, start = str(path), str(start)
    if path.startswith("/") or start.startswith("/"):
        path, start = _llmc_abspath(path), _llmc_abspath(start)
    a = [p for p in _llmc_normpath(path).split("/") if p not in ("", ".")]
    b = [p for p in _llmc_normpath(start).split("/") if p not in ("", ".")]
    n = 0
    while n < len(a) and n < len(b) and a[n] == b[n]:
        n += 1
    return "/".join([".."] * (len(b) - n) + a[n:]) or "."


def _llmc_commonprefix(paths):
    if not paths:
        return ""
    low, high = min(paths), max(paths)
    for i, letter in enumerate(low):
        if i >= len(high) or letter != high[i]:
            return low[:i]
    return low


class _llmc_ospath:
    sep = "/"
    basename = _llmc_basename
    dirname = _llmc_dirname
    join = _llmc_join
    normpath = _llmc_normpath
    splitext = _llmc_splitext
    abspath = _llmc_abspath
    realpath = _llmc_abspath
    relpath = _llmc_relpath
    commonprefix = _llmc_commonprefix
    exists = lambda path: _llmc_kind(path) is not None
    isfile = lambda path: _llmc_kind(path) == "file"
    isdir = lambda path: _llmc_kind(path) == "dir"
    islink = lambda path: _llmc_kind(path) == "symlink"
    isabs = lambda path: str(path).startswith("/")
    getsize = lambda path: _llmc_stat(path)["size"]
    getmtime = lambda path: float(_llmc_stat(path)["mtime"])
    split = lambda path: (_llmc_dirname(path), _llmc_basename(path))
    expanduser = lambda path: str(path)


class _llmc_StatResult:
    def __init__(self, facts):
        self.st_size = facts["size"]
        self.st_mtime = float(facts["mtime"])
        self.st_mode = int(facts["mode"], 8) + (0o040000 if facts["type"] == "dir" else 0o100000)


class _llmc_DirEntry:
    def __init__(self, folder, name):
        self._dir = name.endswith("/")
        self.name = name.rstrip("/")
        self.path = _llmc_join(folder, self.name)

    def is_dir(self):
        return self._dir

    def is_file(self):
        return not self._dir

    def stat(self):
        return _llmc_StatResult(_llmc_stat(self.path))


class _llmc_Scan:
    def __init__(self, entries):
        self.entries = entries

    def __iter__(self):
        return iter(self.entries)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None


def _llmc_tree(top, tree):
    try:
        names = _llmc_entries(top)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return tree
    tree[top] = names
    for name in names:
        if name.endswith("/"):
            _llmc_tree(_llmc_join(top, name[:-1]), tree)
    return tree


class _llmc_Walk:
    def __init__(self, top):
        # An iterator cannot call tools, so the folders are listed before.
        self.tree = _llmc_tree(str(top), {})
        self.waiting = [str(top)]
        self.last = None

    def __iter__(self):
        return self

    def __next__(self):
        if self.last is not None:
            base, dirs = self.last
            self.last = None
            self.waiting = [_llmc_join(base, d) for d in dirs] + self.waiting
        while self.waiting:
            base = self.waiting.pop(0)
            if base not in self.tree:
                continue
            names = self.tree[base]
            dirs = [n[:-1] for n in names if n.endswith("/")]
            self.last = (base, dirs)
            return base, dirs, [n for n in names if not n.endswith("/")]
        raise StopIteration


def _llmc_mkdir(path, mode=0o777, parents=False, exist_ok=False):
    path = _llmc_norm(path)
    kind = _llmc_kind(path)
    if kind is not None:
        if exist_ok and kind == "dir":
            return
        raise FileExistsError(f"[Errno 17] File exists: {path!r}")
    parent = _llmc_dirname(path)
    if not parents and parent and _llmc_kind(parent) is None:
        raise FileNotFoundError(f"[Errno 2] No such file or directory: {path!r}")
    tools.linux_fs_mkdirs(path)


def _llmc_makedirs(path, mode=0o777, exist_ok=False):
    _llmc_mkdir(path, parents=True, exist_ok=exist_ok)


def _llmc_remove(path, missing_ok=False):
    kind = _llmc_kind(path)
    if kind is None:
        if missing_ok:
            return
        raise FileNotFoundError(f"[Errno 2] No such file or directory: {str(path)!r}")
    if kind == "dir":
        raise IsADirectoryError(f"[Errno 21] Is a directory: {str(path)!r}")
    tools.linux_fs_delete(path=str(path))


def _llmc_rmdir(path):
    if _llmc_entries(path):
        raise OSError(f"[Errno 39] Directory not empty: {str(path)!r}")
    tools.linux_fs_delete(path=str(path), recursive=True)


def _llmc_rename(source, target):
    if _llmc_kind(source) is None:
        raise FileNotFoundError(f"[Errno 2] No such file or directory: {str(source)!r}")
    if _llmc_kind(target) == "file":
        tools.linux_fs_delete(path=str(target))
    tools.linux_fs_move(source=str(source), target=str(target))


class _llmc_Environ:
    def get(self, name, default=None):
        return default

    def items(self):
        return []

    def keys(self):
        return []

    def __iter__(self):
        return iter([])

    def __contains__(self, name):
        return False


class _llmc_os:
    path = _llmc_ospath
    sep = "/"
    linesep = "\n"
    name = "posix"
    curdir = "."
    environ = _llmc_Environ()
    getenv = lambda name, default=None: default
    getcwd = _llmc_getcwd
    listdir = lambda path=".": [n.rstrip("/") for n in _llmc_entries(path)]
    scandir = lambda path=".": _llmc_Scan([_llmc_DirEntry(path, n) for n in _llmc_entries(path)])
    walk = lambda top, topdown=True, onerror=None, followlinks=False: _llmc_Walk(top)
    stat = lambda path: _llmc_StatResult(_llmc_stat(path))
    mkdir = _llmc_mkdir
    makedirs = _llmc_makedirs
    remove = _llmc_remove
    unlink = _llmc_remove
    rmdir = _llmc_rmdir
    rename = _llmc_rename
    replace = _llmc_rename
    fspath = str
    getpid = lambda: 1


def _llmc_translate(pattern, slash):
    """A glob as a regular expression; `*` does not match a slash if `slash` is false."""
    out = ""
    i = 0
    any_one = "." if slash else "[^/]"
    while i < len(pattern):
        c = pattern[i]
        if c == "*":
            if not slash and pattern[i:i + 3] == "**/":
                out += "(?:.*/)?"
                i += 3
                continue
            if not slash and pattern[i:] == "**":
                out += ".*"
                break
            out += any_one + "*"
        elif c == "?":
            out += any_one
        elif c == "[" and "]" in pattern[i + 2:]:
            end = pattern.index("]", i + 2)
            inside = pattern[i + 1:end]
            out += "[" + ("^" + inside[1:] if inside.startswith("!") else inside) + "]"
            i = end
        else:
            out += _llmc_re.escape(c)
        i += 1
    return "(?s)" + out + r"\Z"


def _llmc_fnmatch(name, pattern):
    return _llmc_re.match(_llmc_translate(pattern, True), str(name)) is not None


class _llmc_fnmatch_module:
    fnmatch = _llmc_fnmatch
    fnmatchcase = _llmc_fnmatch
    filter = lambda names, pattern: [n for n in names if _llmc_fnmatch(n, pattern)]
    translate = lambda pattern: _llmc_translate(pattern, True)


def _llmc_below(folder, deep):
    """Paths below a folder, relative to it, folders before what they hold."""
    out = []
    try:
        names = _llmc_entries(folder)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return out
    for name in names:
        plain = name.rstrip("/")
        out.append((plain, name.endswith("/")))
        if deep and name.endswith("/"):
            out.extend([(plain + "/" + p, d) for p, d in _llmc_below(_llmc_join(folder, plain), True)])
    return out


def _llmc_glob(pattern, recursive=False, hidden=True):
    """Paths that match, with the fixed beginning of the pattern."""
    pattern = str(pattern)
    parts = pattern.split("/")
    fixed = []
    while len(parts) > 1 and not _llmc_re.search(r"[*?\[]", parts[0]):
        fixed.append(parts.pop(0))
    rest = "/".join(parts)
    base = "/".join(fixed)
    if not _llmc_re.search(r"[*?\[]", rest):
        return [pattern] if _llmc_kind(pattern) is not None else []
    if not recursive:
        rest = rest.replace("**", "*")
    rx = _llmc_re.compile(_llmc_translate(rest, False))
    deep = "/" in rest or "**" in rest
    only_dirs = rest.endswith("**")
    out = []
    for path, is_dir in _llmc_below(base or ".", deep):
        if not hidden and any([p.startswith(".") for p in path.split("/")]) and not rest.startswith("."):
            continue
        if rx.match(path) and (is_dir or not only_dirs):
            out.append(base + "/" + path if base else path)
    return out


class _llmc_glob_module:
    glob = lambda pattern, root_dir=None, recursive=False: _llmc_glob(pattern, recursive, False)
    iglob = lambda pattern, root_dir=None, recursive=False: iter(_llmc_glob(pattern, recursive, False))
    escape = lambda text: text


def _llmc_copy(source, target):
    target = str(target)
    if _llmc_kind(target) == "dir":
        target = _llmc_join(target, _llmc_basename(source))
    _llmc_write(target, _llmc_read(source))
    return target


def _llmc_copytree(source, target, dirs_exist_ok=False, ignore=None):
    _llmc_mkdir(target, parents=True, exist_ok=dirs_exist_ok)
    for path, is_dir in _llmc_below(source, True):
        here = _llmc_join(target, path)
        if is_dir:
            _llmc_mkdir(here, parents=True, exist_ok=True)
        else:
            _llmc_write(here, _llmc_read(_llmc_join(source, path)))
    return target


def _llmc_rmtree(path, ignore_errors=False):
    if _llmc_kind(path) is None:
        if ignore_errors:
            return
        raise FileNotFoundError(f"[Errno 2] No such file or directory: {str(path)!r}")
    tools.linux_fs_delete(path=str(path), recursive=True)


def _llmc_move(source, target):
    target = str(target)
    if _llmc_kind(target) == "dir":
        target = _llmc_join(target, _llmc_basename(source))
    _llmc_rename(source, target)
    return target


class _llmc_shutil:
    copy = _llmc_copy
    copy2 = _llmc_copy
    copyfile = _llmc_copy
    copytree = _llmc_copytree
    rmtree = _llmc_rmtree
    move = _llmc_move
    which = lambda name: tools.run_cmd(argv=["which", name])["stdout"].strip() or None


class _llmc_TemporaryDirectory:
    def __init__(self, suffix="", prefix="tmp", dir=None):
        global _llmc_number
        _llmc_number += 1
        self.name = f".{prefix}-{_llmc_number}{suffix}"
        _llmc_mkdir(self.name)

    def __enter__(self):
        return self.name

    def __exit__(self, *error):
        self.cleanup()

    def cleanup(self):
        _llmc_rmtree(self.name, ignore_errors=True)


def _llmc_mkdtemp(suffix="", prefix="tmp", dir=None):
    return _llmc_TemporaryDirectory(suffix, prefix).name


class _llmc_tempfile:
    TemporaryDirectory = _llmc_TemporaryDirectory
    mkdtemp = _llmc_mkdtemp
    gettempdir = lambda: "."


class _llmc_Completed:
    def __init__(self, args, done, captured, text):
        self.args = args
        self.returncode = done["exit_code"]
        out = done["stdout"]
        err = done["stderr"]
        self.stdout = None if not captured else out if text else out.encode()
        self.stderr = None if not captured else err if text else err.encode()

    def check_returncode(self):
        if self.returncode:
            raise RuntimeError(f"Command {self.args!r} returned non-zero exit status {self.returncode}.")


def _llmc_run(args, capture_output=False, text=False, shell=False, cwd=None, check=False, input=None, timeout=None,
              stdout=None, stderr=None, universal_newlines=False, encoding=None, env=None, errors=None):
    options = {}
    if isinstance(args, str):
        options["command"] = args
    else:
        options["argv"] = [str(a) for a in args]
    if cwd is not None:
        options["cwd"] = str(cwd)
    if input is not None:
        options["input"] = input if isinstance(input, str) else input.decode()
    if timeout is not None:
        options["timeout"] = timeout
    done = tools.run_cmd(**options)
    text = bool(text or universal_newlines or encoding)
    captured = bool(capture_output or stdout is not None)
    completed = _llmc_Completed(args, done, captured, text)
    if not captured and done["stdout"]:
        print(done["stdout"], end="")
    if check:
        completed.check_returncode()
    return completed


class _llmc_subprocess:
    PIPE = -1
    STDOUT = -2
    DEVNULL = -3
    CalledProcessError = RuntimeError
    SubprocessError = RuntimeError
    TimeoutExpired = TimeoutError
    run = _llmc_run
    check_output = lambda args, **o: _llmc_run(args, capture_output=True, check=True, **o).stdout
    check_call = lambda args, **o: _llmc_run(args, check=True, **o).returncode
    call = lambda args, **o: _llmc_run(args, **o).returncode
    getoutput = lambda command: tools.run_cmd(command=command)["stdout"].rstrip("\n")


def _llmc_p_read_text(p, *args, **options):
    return _llmc_read(p) if isinstance(p, _llmc_Path) else p.read_text(*args, **options)


def _llmc_p_read_bytes(p):
    return _llmc_read(p).encode() if isinstance(p, _llmc_Path) else p.read_bytes()


def _llmc_p_write_text(p, data, *args, **options):
    if not isinstance(p, _llmc_Path):
        return p.write_text(data, *args, **options)
    _llmc_write(p, data)
    return len(data)


def _llmc_p_write_bytes(p, data):
    if not isinstance(p, _llmc_Path):
        return p.write_bytes(data)
    _llmc_write(p, data.decode())
    return len(data)


def _llmc_p_exists(p, *args):
    return _llmc_kind(p) is not None if isinstance(p, _llmc_Path) else p.exists(*args)


def _llmc_p_is_file(p):
    return _llmc_kind(p) == "file" if isinstance(p, _llmc_Path) else p.is_file()


def _llmc_p_is_dir(p):
    return _llmc_kind(p) == "dir" if isinstance(p, _llmc_Path) else p.is_dir()


def _llmc_p_iterdir(p):
    if not isinstance(p, _llmc_Path):
        return p.iterdir()
    return iter([p / n.rstrip("/") for n in _llmc_entries(p)])


def _llmc_p_glob(p, *args, **options):
    if not isinstance(p, _llmc_Path):
        return p.glob(*args, **options)
    base = str(p)
    pattern = args[0] if base == "." else base + "/" + args[0]
    return iter([_llmc_Path(x) for x in _llmc_glob(pattern, True)])


def _llmc_p_rglob(p, pattern):
    return _llmc_p_glob(p, "**/" + pattern)


def _llmc_p_mkdir(p, *args, **options):
    return _llmc_mkdir(p, *args, **options) if isinstance(p, _llmc_Path) else p.mkdir(*args, **options)


def _llmc_p_unlink(p, *args, **options):
    return _llmc_remove(p, *args, **options) if isinstance(p, _llmc_Path) else p.unlink(*args, **options)


def _llmc_p_rmdir(p):
    return _llmc_rmdir(p) if isinstance(p, _llmc_Path) else p.rmdir()


def _llmc_p_rename(p, *args):
    if not isinstance(p, _llmc_Path):
        return p.rename(*args)
    _llmc_rename(p, args[0])
    return _llmc_Path(args[0])


def _llmc_p_stat(p, *args, **options):
    if isinstance(p, _llmc_Path):
        return _llmc_StatResult(_llmc_stat(p))
    return p.stat(*args, **options)


def _llmc_p_open(p, *args, **options):
    return _llmc_open(p, *args, **options) if isinstance(p, _llmc_Path) else p.open(*args, **options)


def _llmc_p_touch(p, *args, **options):
    if not isinstance(p, _llmc_Path):
        return p.touch(*args, **options)
    if _llmc_kind(p) is None:
        _llmc_write(p, "")


def _llmc_p_relative_to(p, *args):
    if not isinstance(p, _llmc_Path):
        return p.relative_to(*args)
    base = str(_llmc_Path(*args))
    text = str(p)
    if base == "." and not text.startswith("/"):
        return p
    if text == base:
        return _llmc_Path(".")
    if not text.startswith(base.rstrip("/") + "/"):
        raise ValueError(f"{text!r} is not in the subpath of {base!r}")
    return _llmc_Path(text[len(base.rstrip("/")) + 1:])


def _llmc_p_is_relative_to(p, *args):
    try:
        _llmc_p_relative_to(p, *args)
        return True
    except ValueError:
        return False


def _llmc_p_resolve(p, *args, **options):
    return _llmc_Path(_llmc_abspath(p)) if isinstance(p, _llmc_Path) else p.resolve(*args, **options)


def _llmc_p_absolute(p):
    return _llmc_Path(_llmc_abspath(p)) if isinstance(p, _llmc_Path) else p.absolute()


def _llmc_p_cwd(p):
    return _llmc_Path(_llmc_getcwd()) if p is _llmc_Path else p.cwd()


class _llmc_pathlib:
    Path = _llmc_Path
    PurePath = _llmc_Path
    PosixPath = _llmc_Path
    PurePosixPath = _llmc_Path
