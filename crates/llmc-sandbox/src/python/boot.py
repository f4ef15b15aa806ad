# What the system's Python runs before the script: it takes the channel to the server away from the script's own streams,
# builds the module of tools, runs the script and says how it ended. Nothing here holds the script; the boundary does.
#
# What is imported here delays every script. `ast`, `asyncio`, `inspect` and `traceback` are half of a start.
import _ast
import _thread
import builtins
import io
import itertools
import json
import os
import select
import signal
import struct
import sys
import threading
import types

SCRIPT = "<script>"
COROUTINE = 0x80  # inspect.CO_COROUTINE
# Imported while the process waits for its first script, so that scripts need not. Not `asyncio` and `hashlib`: each takes
# 3.5 MB.
USUAL_MODULES = (
    "re collections itertools functools datetime pathlib linecache traceback ast glob fnmatch shutil subprocess"
    " tempfile textwrap csv math random time string typing dataclasses enum contextlib"
).split()
LENGTH = struct.Struct("<I")
MAIN_THREAD = _thread.get_ident()
# Made once: `json.dumps` and `json.loads` make theirs for each message.
parsed = json.JSONDecoder(object_hook=Fields).scan_once
written = json.JSONEncoder(allow_nan=False, ensure_ascii=False).encode
VALUE = "_llmc_value"
SPARE = 64 << 10
# Freed when memory runs out, so that the end can still be reported.
MEMORY_RESERVE = []


def private(fd):
    """Moves a descriptor out of the way of the standard ones."""
    import fcntl

    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 100)


def set_up_paths(known):
    """Where modules are found: the standard library, installed packages, and last the workspace, so that a file there
    shadows nothing. Python was started without `site`, whose start files could run code."""
    import site

    folders = []
    venv = known["venv"]
    if venv:
        version = "python%d.%d" % sys.version_info[:2]
        folders += [os.path.join(venv, lib, version, "site-packages") for lib in ("lib", "lib64")]
        sys.prefix = sys.exec_prefix = venv
    if known["system_packages"]:
        folders += site.getsitepackages([sys.base_prefix, sys.base_exec_prefix])
    for folder in folders:
        if os.path.isdir(folder) and folder not in sys.path:
            sys.path.append(folder)
            sys.path += [path for path in editable(folder) if path not in sys.path]
    if known["workspace"] and known["workspace"] not in sys.path:
        sys.path.append(known["workspace"])
    site.setquit()
    site.sethelper()


def editable(folder):
    """Folders that `.pth` files name. Lines that would run code are passed over."""
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".pth"))
    except OSError:
        return
    for name in names:
        file = os.path.join(folder, name)
        if not os.path.isfile(file):
            continue
        try:
            with open(file, encoding="utf-8", errors="replace") as file:
                lines = file.read(1 << 16).splitlines()
        except OSError:
            continue
        for line in map(str.strip, lines):
            if line and not line.startswith(("#", "import ", "import\t")):
                path = os.path.join(folder, line)
                if "\0" not in path and os.path.isdir(path):
                    yield path


class Reply:
    """The answer to one request, once it has come."""

    __slots__ = "message", "done"

    def __init__(self):
        self.message, self.done = None, _thread.allocate_lock()
        self.done.acquire()

    def __call__(self, message):
        self.message = message
        self.done.release()


class Channel:
    """Messages to and from the server, in frames."""

    def __init__(self):
        self.input, self.output = private(0), private(1)
        self.lock, self.reading = threading.Lock(), threading.Lock()
        self.listening, self.unread = False, bytearray()
        self.waiting, self.numbers = {}, itertools.count(1)
        self.blocks, self.has_block = [], threading.Semaphore(0)
        null = os.open("/dev/null", os.O_RDWR)
        os.dup2(null, 0)
        os.close(null)

    def read(self, size):
        part = Native.read(self.input, max(size, SPARE))
        if not part:
            os._exit(1)
        return part

    def exactly(self, size):
        while len(self.unread) < size:
            self.unread += self.read(size - len(self.unread))
        taken = bytes(self.unread[:size])
        del self.unread[:size]
        return taken

    def hear(self):
        if not self.unread:
            part = self.read(SPARE)
            # Mostly one whole message and nothing else.
            if len(part) > 4 and LENGTH.unpack_from(part)[0] == len(part) - 4:
                message = parsed(part[4:].decode(), 0)[0]
                if "contents" not in message:
                    return message
            self.unread += part
        size = LENGTH.unpack(self.exactly(4))[0]
        message = parsed(self.exactly(size).decode(), 0)[0]
        if "contents" in message:
            message["contents"] = [self.exactly(size) for size in message["contents"]]
        return message

    def say(self, kind, *parts):
        size = sum(map(len, parts))
        frame = kind + LENGTH.pack(size)
        if size <= SPARE:
            frame, parts = frame + b"".join(parts), ()
        with self.lock:
            for part in (frame,) + parts:
                done = Native.write(self.output, part)
                while done < len(part):
                    done += Native.write(self.output, memoryview(part)[done:])

    def send(self, kind, message, answered, *contents):
        """Sends a request and returns its number."""
        number = message["id"] = next(self.numbers)
        head = written(message).encode()
        self.waiting[number] = answered
        size = [LENGTH.pack(len(head))] if contents else []
        self.say(kind, *size, head, *contents)
        return number

    def ask(self, name, args, kwargs, answered):
        self.send(b"c", {"name": name, "args": args, "kwargs": kwargs}, answered)

    def request(self, operation, args, content, answered):
        return self.send(b"f", {"operation": operation, "args": args}, answered, content)

    def cancel(self, number):
        self.say(b"k", str(number).encode())

    def dispatch(self, message):
        if "code" in message:
            self.blocks.append(message)
            self.has_block.release()
            return
        answered = self.waiting.pop(message["id"], None)
        if answered:
            answered(message)

    def listen(self):
        with self.reading:
            while True:
                self.dispatch(self.hear())

    def start_listening(self):
        """Messages are read by a thread from now on."""
        with self.lock:
            if self.listening:
                return
            self.listening = True
        threading.Thread(target=self.listen, daemon=True).start()

    def wait(self, reply):
        """Waits for a reply. The main thread reads by itself while nothing else reads, since passing a reply from thread
        to thread takes longer than the call."""
        is_main = _thread.get_ident() == MAIN_THREAD
        if not is_main or self.listening or not self.reading.acquire(False):
            self.start_listening()
            reply.done.acquire()
            return reply.message
        try:
            while reply.message is None:
                self.dispatch(self.hear())
        finally:
            self.reading.release()
        return reply.message

    def next_block(self):
        if not self.listening:
            with self.reading:
                while not self.blocks:
                    self.dispatch(self.hear())
        self.has_block.acquire()
        return self.blocks.pop(0)

    def is_waited_for(self):
        """Whether something has come for this process."""
        return bool(self.unread) or bool(select.select([self.input], [], [], 0)[0])


def result(reply):
    if "raise" in reply:
        name, message = reply["raise"]
        raise getattr(builtins, name)(message)
    return answer(reply["value"])


def tool(channel, name):
    """A function of the host, to be called."""

    def call(*args, **kwargs):
        if Image.open:
            barrier()
        reply = Reply()
        channel.ask(name, args, kwargs, reply)
        return result(channel.wait(reply))

    call.__name__ = call.__qualname__ = name
    return call


def awaitable(channel, name):
    """The same, to be awaited."""

    async def call(*args, **kwargs):
        import asyncio

        channel.start_listening()
        barrier()
        loop = asyncio.get_running_loop()
        answer = loop.create_future()

        def settle(reply):
            if not answer.done():
                answer.set_result(reply)

        def answered(reply):
            try:
                loop.call_soon_threadsafe(settle, reply)
            except RuntimeError:
                pass  # the waiting task has ended

        channel.ask(name, args, kwargs, answered)
        return result(await answer)

    call.__name__ = call.__qualname__ = name
    return call


def error_code(error):
    """The code that the message of a failed call begins with."""
    head = str(error).split(":", 1)
    code = head[0]
    known = len(head) == 2 and code.replace("_", "a").isalpha() and code.isascii()
    return code if known and (code.isupper() or code.islower()) else None


def module(channel, start):
    """The module of tools."""
    made = types.ModuleType(start["module"] or "tools")
    aio = types.ModuleType(made.__name__ + ".aio")
    for name in start["functions"] + start["module_functions"]:
        setattr(made, name, tool(channel, name))
        setattr(aio, name, awaitable(channel, name))
    for part, functions in start["parts"].items():
        for whole, bound in ((made, tool), (aio, awaitable)):
            below = types.ModuleType(f"{whole.__name__}.{part}")
            for name in functions:
                setattr(below, name, bound(channel, f"{part}.{name}"))
            below.__getattr__ = missing(below, {})
            setattr(whole, part, below)
            if start["module"]:
                sys.modules[below.__name__] = below
    made.aio, made.error_code = aio, error_code
    made.__getattr__ = missing(made, start["meant"])
    aio.__getattr__ = missing(aio, start["meant"])
    if start["module"]:
        sys.modules[made.__name__], sys.modules[aio.__name__] = made, aio
    return made


def near(name, known, meant):
    """The function that a name probably means: by what it means elsewhere, or by its spelling."""
    if name in meant:
        return [meant[name]]
    import difflib

    return difflib.get_close_matches(name, [other for other in known if other[0] != "_"], 1)


def missing(module, meant):
    """What a name that the module does not have comes to."""

    def look(name):
        message = f"{module.__name__} has no function {name!r}"
        if not name.startswith("__"):
            found = near(name, vars(module), meant)
            if found:
                message += f"; did you mean {found[0]}?"
            elif "search" in vars(module):
                message += f"; {module.__name__}.search(\"words\") finds one"
        raise AttributeError(message)

    return look


class Printed(io.RawIOBase):
    """What is printed is with the server before `print` returns, whatever the script does next."""

    def __init__(self, channel, pipe, fd):
        self.channel, self.pipe, self.fd = channel, pipe, fd

    def writable(self):
        return True

    def fileno(self):
        return self.fd

    def write(self, data):
        self.pipe.drain()
        part = bytes(data[:SPARE])
        self.channel.say(b"o", part)
        return len(part)


class Pipe:
    """Where the descriptors of the standard outputs lead, for whatever writes to them past Python's streams."""

    def __init__(self, channel):
        self.channel, self.lock = channel, threading.Lock()
        reader, writer = os.pipe()
        self.reader = private(reader)
        os.close(reader)
        os.set_blocking(self.reader, False)
        for fd in (1, 2):
            os.dup2(writer, fd)
        os.close(writer)

    def drain(self):
        """Sends on what is there, or as much as a pipe holds: a thread may write without end."""
        with self.lock:
            try:
                part = os.read(self.reader, 4 * SPARE)
                self.channel.say(b"o", part)
                return bool(part)
            except BlockingIOError:
                return True

    def forward(self):
        while True:
            select.select([self.reader], [], [])
            if not self.drain():
                break


def forwarded(channel):
    """Sends on whatever is written to the standard outputs, by whichever way. Returns what sends the remaining output."""
    pipe = Pipe(channel)
    threading.Thread(target=pipe.forward, daemon=True).start()

    def stream(fd):
        raw = Printed(channel, pipe, fd)
        return io.TextIOWrapper(io.BufferedWriter(raw, SPARE), "utf-8", "replace", line_buffering=True)

    sys.stdout, sys.stderr = stream(1), stream(2)

    def finish():
        for stream in (sys.__stdout__, sys.stdout, sys.__stderr__, sys.stderr):
            try:
                stream.flush()
            except BaseException:
                pass
        pipe.drain()

    return finish


def walk(tree):
    """Every node of a syntax tree."""
    rest = [tree]
    while rest:
        node = rest.pop()
        yield node
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, list):
                rest.extend(item for item in value if isinstance(item, _ast.AST))
            elif isinstance(value, _ast.AST):
                rest.append(value)


def bound(tree, known):
    """Names that a script binds, arguments of functions aside. `import tools` and `from tools import read_file` bind a name to
    what it is anyway."""
    for node in walk(tree):
        if isinstance(node, _ast.Name) and not isinstance(node.ctx, _ast.Load):
            yield node.id, node.lineno
        elif isinstance(node, (_ast.FunctionDef, _ast.AsyncFunctionDef, _ast.ClassDef)):
            yield node.name, node.lineno
        elif isinstance(node, (_ast.Import, _ast.ImportFrom)):
            for alias in node.names:
                source = node.module if isinstance(node, _ast.ImportFrom) else alias.name
                if known is None or (source or "").split(".")[0] != known:
                    yield alias.asname or alias.name.split(".")[0], node.lineno
        elif isinstance(node, (_ast.Global, _ast.Nonlocal)):
            for name in node.names:
                yield name, node.lineno
        elif isinstance(node, CAPTURES):
            name = getattr(node, "rest", None) or getattr(node, "name", None)
            if name:
                yield name, node.lineno


def compiled(start):
    before, nul, _ = start["code"].partition("\0")
    if nul:
        line = before.count("\n") + 1
        raise SyntaxError("source code cannot contain NUL characters", (SCRIPT, line, 1, None))
    flags = _ast.PyCF_ONLY_AST | _ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    tree = compile(start["code"], SCRIPT, "exec", flags, dont_inherit=True)
    reserved = sorted((line, name) for name, line in bound(tree, start["module"]) if name in start["reserved"])
    if reserved:
        raise Reserved(*reserved[0])
    if tree.body and isinstance(tree.body[-1], _ast.Expr):
        last = tree.body[-1]
        where = {name: getattr(last, name) for name in last._attributes}
        target = _ast.Name(VALUE, _ast.Store(), **where)
        tree.body[-1] = _ast.Assign([target], last.value, None, **where)
    return compile(tree, SCRIPT, "exec", _ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)


# What `except … as` and `case` bind.
CAPTURES = (_ast.ExceptHandler,) + tuple(
    getattr(_ast, name) for name in ("MatchAs", "MatchStar", "MatchMapping") if hasattr(_ast, name)
)


class Reserved(Exception):
    pass


def execute(code, names):
    if code.co_flags & COROUTINE:
        import asyncio

        asyncio.run(types.FunctionType(code, names)())
    else:
        exec(code, names)


def shown(value, most):
    as_text = isinstance(value, (str, Fields, Names))
    text = str(value) if as_text else "" if value is None else repr(value)
    try:
        value = value.fields if isinstance(value, CommandText) else value
        data = json.loads(json.dumps(value, allow_nan=False))
    except BaseException:
        data = None
    if len(text) > most:
        text, data = text[: most + 1], None
    return {"repr": text, "json": data}


def frames(error, source):
    """The way to where it happened, in the script's own lines."""
    lines, stack, at = [], [], error.__traceback__
    while at:
        if at.tb_frame.f_code.co_filename == SCRIPT:
            stack.append((at.tb_lineno, at.tb_frame.f_code.co_name))
        at = at.tb_next
    kept = stack if len(stack) <= 7 else stack[:2] + [None] + stack[-5:]
    for frame in kept:
        if frame is None:
            lines.append(f"  … {len(stack) - 7} more")
            continue
        line, name = frame
        lines.append(f"  line {line}, in {name}")
        text = source[line - 1].strip() if 0 < line <= len(source) else ""
        if text:
            lines.append(f"    {text[:160]}")
    return "".join(line + "\n" for line in lines), stack[-1][0] if stack else None


def described(error, source=()):
    report = {"kind": "exception", "exception": type(error).__name__, "message": text_of(error)}
    if isinstance(error, Reserved):
        line, name = error.args
        message = f"{name} is reserved and cannot be bound"
        return {"kind": "reserved", "exception": "", "message": message, "line": line, "traceback": ""}
    if isinstance(error, SyntaxError) and error.filename == SCRIPT:
        code = (error.text or "").rstrip("\n")
        text = code.lstrip()
        caret = max((error.offset or 1) - 1 - (len(code) - len(text)), 0)
        where = f"  line {error.lineno}\n    {text[:160]}\n    {' ' * min(caret, 160)}^\n"
        report.update(kind="syntax", message=error.msg, line=error.lineno, traceback=where)
        return report
    if isinstance(error, MemoryError):
        report["kind"] = "memory"
    if isinstance(error, RecursionError):
        report["kind"] = "recursion"
    report["traceback"], report["line"] = frames(error, source)
    return report


def text_of(error):
    try:
        return str(error)[:4096]
    except BaseException:
        return "(its message cannot be shown)"


def limit_time(seconds):
    """Bounds the computing time from now on."""
    try:
        import resource

        signal.signal(signal.SIGXCPU, signal.SIG_DFL)
        used = resource.getrusage(resource.RUSAGE_SELF)
        most = resource.getrlimit(resource.RLIMIT_CPU)[1]
        resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + seconds, most))
    except (ImportError, ValueError, OSError):
        pass  # the clock still ends the run


def memory_in_use():
    try:
        file = Native.os_open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return int(Native.read(file, 200).split()[1]) * 4096
        finally:
            Native.close(file)
    except (OSError, ValueError, IndexError):
        return 0


def preload(channel):
    """Imports what scripts usually need, until there is something to do."""
    import importlib

    for name in USUAL_MODULES:
        if channel.is_waited_for():
            return
        try:
            importlib.import_module(name)
        except BaseException:
            pass  # not in this Python


def names_of(channel, start):
    """What a script finds beside Python."""
    tools = module(channel, start)
    names = {"__name__": "__main__", "__builtins__": builtins}
    names.update((name, getattr(tools, name)) for name in start["functions"])
    if start["module"]:
        names[start["module"]] = tools
    return names


def run(start, names):
    """Runs one script and says how it ended."""
    source = start["code"].splitlines(keepends=True)
    if "linecache" in sys.modules:
        sys.modules["linecache"].cache[SCRIPT] = (len(start["code"]), None, source, SCRIPT)
    if not MEMORY_RESERVE:
        MEMORY_RESERVE.append(bytearray(1 << 20))
    try:
        names.pop(VALUE, None)
        names.update(start["values"])
        names.update(start["fixed"])
        execute(compiled(start), names)
        return {"value": shown(names.get(VALUE), start["output"])}
    except SystemExit as error:
        if error.code in (None, 0):
            return {"value": shown(None, 0)}
        return {"error": described(error, source)}
    except BaseException as error:
        MEMORY_RESERVE.clear()
        report = described(error, source)
        meant = start["meant"].get(getattr(error, "name", None)) if type(error) is NameError else None
        if meant:
            report["message"] += f"; did you mean {meant}?"
        return {"error": report}


def main():
    threading.stack_size(1 << 20)
    channel = Channel()
    known = json.loads(sys.argv.pop(1))
    set_up_paths(known)
    channel.say(b"h", json.dumps({"version": sys.version_info[:3]}).encode())
    finish = forwarded(channel)
    preload(channel)
    install_files(channel, known)
    names, start = None, {}
    while True:
        # What a message leaves out is as it was.
        start = {**start, **channel.next_block()}
        if names is None:
            names = names_of(channel, start)
            start["fixed"] = {name: names[name] for name in start["reserved"] if name in names}
        before = os.times()
        sys.setrecursionlimit(start["recursion"] + 60)
        limit_time(start["cpu"])
        report = run(start, names)
        try:
            flush_all()
        except BaseException as error:
            report = report if "error" in report else {"error": described(error)}
        finish()
        after = os.times()
        report["cpu_us"] = int((after.user + after.system - before.user - before.system) * 1e6)
        report["memory"] = memory_in_use()
        channel.say(b"d", json.dumps(report).encode())
        if not start["keep"]:
            # Threads and exit handlers of the script have no say any more.
            os._exit(0)


main()
