# What the system's Python runs before the script: it takes the channel to the server away from the script's own streams,
# builds the module of tools, runs the script and says how it ended. Nothing here holds the script; the boundary does.
import ast
import asyncio
import builtins
import inspect
import io
import json
import linecache
import os
import select
import signal
import struct
import sys
import threading
import traceback
import types

SCRIPT = "<script>"
VALUE = "_llmc_value"
SPARE = 64 << 10


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


class Channel:
    """Messages to and from the server, in frames."""

    def __init__(self):
        self.input, self.output = private(0), private(1)
        self.lock = threading.Lock()
        self.waiting, self.last = {}, 0
        null = os.open("/dev/null", os.O_RDWR)
        os.dup2(null, 0)
        os.close(null)

    def exactly(self, size):
        parts = []
        while size:
            part = os.read(self.input, min(size, 1 << 20))
            if not part:
                os._exit(1)
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def hear(self):
        message = json.loads(self.exactly(struct.unpack("<I", self.exactly(4))[0]))
        if "contents" in message:
            message["contents"] = [self.exactly(size) for size in message["contents"]]
        return message

    def say(self, kind, *parts):
        head = kind + struct.pack("<I", sum(map(len, parts)))
        with self.lock:
            for part in (head,) + parts:
                part = memoryview(part)
                while part:
                    part = part[Native.write(self.output, part) :]

    def send(self, kind, message, answered, *contents):
        """Sends a request and returns its number."""
        with self.lock:
            self.last += 1
            number = message["id"] = self.last
            self.waiting[number] = answered
        try:
            head = json.dumps(message, allow_nan=False, ensure_ascii=False).encode()
        except BaseException:
            del self.waiting[number]
            raise
        size = [struct.pack("<I", len(head))] if contents else []
        self.say(kind, *size, head, *contents)
        return number

    def ask(self, name, args, kwargs, answered):
        self.send(b"c", {"name": name, "args": args, "kwargs": kwargs}, answered)

    def request(self, operation, args, content, answered):
        return self.send(b"f", {"operation": operation, "args": args}, answered, content)

    def cancel(self, number):
        self.say(b"k", str(number).encode())

    def listen(self):
        while True:
            reply = self.hear()
            answered = self.waiting.pop(reply["id"], None)
            if answered:
                answered(reply)


class Fields(dict):
    """A tool's document: its fields are keys and attributes, and it prints as the text that a model reads."""

    def __getattr__(self, name):
        try:
            return answer(self[name])
        except KeyError:
            raise AttributeError(f"the result has no field {name!r}; it has {', '.join(self)}") from None

    def __str__(self):
        if not {"stdout", "stderr", "exit_code"} <= self.keys():
            return json.dumps(self, ensure_ascii=False, separators=(",", ":"))
        code = self["exit_code"]
        parts = [self["stdout"], self["stderr"], f"exit {code}" if code else ""]
        return "\n".join(part.rstrip("\n") for part in parts if part)


class Names(list):
    """A list of names, which prints one a line."""

    def __str__(self):
        return "\n".join(map(str, self))


def answer(value):
    if isinstance(value, dict):
        return Fields(value)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return Names(value)
    return value


def result(reply):
    if "raise" in reply:
        name, message = reply["raise"]
        raise getattr(builtins, name)(message)
    return answer(reply["value"])


def tool(channel, name):
    """A function of the host, to be called."""

    def call(*args, **kwargs):
        barrier()
        done, box = threading.Event(), []
        channel.ask(name, args, kwargs, lambda reply: (box.append(reply), done.set()))
        done.wait()
        return result(box[0])

    call.__name__ = call.__qualname__ = name
    return call


def awaitable(channel, name):
    """The same, to be awaited."""

    async def call(*args, **kwargs):
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
    made.aio, made.error_code = aio, error_code
    if start["module"]:
        sys.modules[made.__name__], sys.modules[aio.__name__] = made, aio
    return made


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
        """Sends on what is there. False once every writer has closed."""
        with self.lock:
            try:
                while part := os.read(self.reader, SPARE):
                    self.channel.say(b"o", part)
                return False
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
        null = os.open("/dev/null", os.O_RDWR)
        for fd in (1, 2):
            os.dup2(null, fd)
        pipe.drain()

    return finish


def bound(tree):
    """Names that a script binds."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id, node.lineno
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name, node.lineno
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                name = alias.asname or alias.name.split(".")[0]
                yield name, node.lineno


def compiled(start):
    tree = ast.parse(start["code"], SCRIPT)
    for name, line in bound(tree):
        if name in start["reserved"] and not imports_it(tree, name, start["module"]):
            raise Reserved(name, line)
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = tree.body[-1]
        target = ast.copy_location(ast.Name(VALUE, ast.Store()), last)
        tree.body[-1] = ast.copy_location(ast.Assign([target], last.value), last)
    return compile(tree, SCRIPT, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)


def imports_it(tree, name, known):
    """`import tools` and `from tools import read_file` bind a reserved name to what it is anyway."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == name and not isinstance(node.ctx, ast.Load):
            return False
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and node.name == name:
            return False
    return known is not None


class Reserved(Exception):
    pass


def execute(code, names):
    if code.co_flags & inspect.CO_COROUTINE:
        asyncio.run(types.FunctionType(code, names)())
    else:
        exec(code, names)


def shown(value, most):
    as_text = isinstance(value, (str, Fields, Names))
    text = str(value) if as_text else "" if value is None else repr(value)
    try:
        data = json.loads(json.dumps(value, allow_nan=False))
    except BaseException:
        data = None
    if len(text) > most:
        text, data = text[: most + 1], None
    return {"repr": text, "json": data}


def frames(error):
    """The way to where it happened, in the script's own lines."""
    lines, last = [], None
    stack = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == SCRIPT]
    kept = stack if len(stack) <= 7 else stack[:2] + [None] + stack[-5:]
    for frame in kept:
        if frame is None:
            lines.append(f"  … {len(stack) - 7} more")
            continue
        lines.append(f"  line {frame.lineno}, in {frame.name}")
        if frame.line:
            lines.append(f"    {frame.line[:160]}")
    if stack:
        last = stack[-1].lineno
    return "".join(line + "\n" for line in lines), last


def trouble(error):
    told = {"kind": "exception", "exception": type(error).__name__, "message": text_of(error)}
    if isinstance(error, Reserved):
        name, line = error.args
        message = f"{name} is reserved and cannot be bound"
        return {"kind": "reserved", "exception": "", "message": message, "line": line, "traceback": ""}
    if isinstance(error, SyntaxError) and error.filename == SCRIPT:
        code = (error.text or "").rstrip("\n")
        text = code.lstrip()
        caret = max((error.offset or 1) - 1 - (len(code) - len(text)), 0)
        where = f"  line {error.lineno}\n    {text[:160]}\n    {' ' * min(caret, 160)}^\n"
        told.update(kind="syntax", message=error.msg, line=error.lineno, traceback=where)
        return told
    if isinstance(error, MemoryError):
        told["kind"] = "memory"
    if isinstance(error, RecursionError):
        told["kind"] = "recursion"
    told["traceback"], told["line"] = frames(error)
    return told


def text_of(error):
    try:
        return str(error)[:4096]
    except BaseException:
        return "(its message cannot be shown)"


def main():
    threading.stack_size(1 << 20)
    channel = Channel()
    known = json.loads(sys.argv.pop(1))
    set_up_paths(known)
    channel.say(b"h", json.dumps({"version": sys.version_info[:3]}).encode())
    start = channel.hear()
    sys.setrecursionlimit(start["recursion"] + 60)
    try:
        import resource

        signal.signal(signal.SIGXCPU, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CPU, (start["cpu"], start["cpu"] + 1))
    except (ImportError, ValueError, OSError):
        pass  # the clock still ends the run
    finish = forwarded(channel)
    threading.Thread(target=channel.listen, daemon=True).start()
    install_files(channel, known)
    tools = module(channel, start)
    names = {"__name__": "__main__", "__builtins__": builtins}
    names.update((name, getattr(tools, name)) for name in start["functions"])
    names.update(start["values"])
    if start["module"]:
        names[start["module"]] = tools
    code = start["code"]
    linecache.cache[SCRIPT] = (len(code), None, code.splitlines(keepends=True), SCRIPT)
    # Something to let go of when memory runs out, so that the end can still be told.
    spare = bytearray(4 << 20)
    told = {}
    try:
        execute(compiled(start), names)
        told = {"value": shown(names.get(VALUE), start["output"])}
    except SystemExit as error:
        if error.code in (None, 0):
            told = {"value": shown(None, 0)}
        else:
            told = {"trouble": trouble(error)}
    except BaseException as error:
        del spare
        told = {"trouble": trouble(error)}
    try:
        flush_all()
    except BaseException as error:
        told = told if "trouble" in told else {"trouble": trouble(error)}
    finish()
    clock = os.times()
    told["cpu_us"] = int((clock.user + clock.system) * 1e6)
    channel.say(b"d", json.dumps(told).encode())
    # Threads and exit handlers of the script have no say any more.
    os._exit(0)


main()
