# Programs that a script starts. Its own process may start none, so `subprocess` and `os.system` ask the server, which runs
# them as it runs commands: confined, in the workspace, with its own environment and `/tmp`.
import shlex
import signal
from importlib.machinery import PathFinder

NO_FORK = (
    "a script starts no process of its own; use subprocess.run for programs, threads or asyncio to do several things at once"
)


class Environment:
    """What the environment was. Programs get only what a script changed, beside their own."""

    before = {}

    @staticmethod
    def changed(env):
        env = os.environ if env is None else env
        changed = {os.fsdecode(name): os.fsdecode(value) for name, value in env.items()}
        return {name: value for name, value in changed.items() if Environment.before.get(name) != value}


class Program:
    """A program that the server runs. Its outputs come when it has ended."""

    def __init__(self, args):
        self.args, self.number, self.reply = args, None, None
        self.done = threading.Event()

    def start(self, content):
        def answered(reply):
            self.reply = reply
            self.done.set()

        try:
            flush_all()
            Server.channel.start_listening()
            self.number = send_request("run", self.args, content, answered)
        except OSError as error:
            self.reply = {"raise": [type(error).__name__, str(error)]}
            self.done.set()

    def cancel(self):
        if self.number is not None and not self.done.is_set():
            Server.channel.cancel(self.number)


class LateOutput(io.RawIOBase):
    """One output of a program; reading it waits for the program's end."""

    def __init__(self, popen, index):
        self.popen, self.index, self.at = popen, index, 0

    def readable(self):
        return True

    def readinto(self, buffer):
        data = self.popen._contents()[self.index]
        part = data[self.at : self.at + len(buffer)]
        buffer[: len(part)] = part
        self.at += len(part)
        return len(part)


class Input(io.BytesIO):
    """The input of a program, which starts when this is closed."""

    def __init__(self, popen):
        super().__init__()
        self.popen = popen

    def close(self):
        if not self.closed:
            content = self.getvalue()
            super().close()
            self.popen._start(content)


def content_of(source):
    """Everything that a program would read from this."""
    if hasattr(source, "buffer"):
        source = source.buffer
    if not isinstance(source, int):
        raw = getattr(source, "raw", source)
        if isinstance(raw, LateOutput):
            return source.read()
        source = source.fileno()
    parts = []
    while True:
        part = os.read(source, 1 << 20)
        if not part:
            return b"".join(parts)
        parts.append(part)


def words(args, shell, executable, env):
    """The arguments of `run_cmd`."""
    one = isinstance(args, (str, bytes, os.PathLike))
    argv = [os.fsdecode(args)] if one else [os.fsdecode(word) for word in args]
    if not argv:
        raise IndexError("list index out of range")
    if any("\0" in word for word in argv):
        raise ValueError("embedded null byte")
    changed = Environment.changed(env)
    if shell and len(argv) == 1 and executable is None:
        exports = ["export " + name + "=" + shlex.quote(value) + "\n" for name, value in changed.items() if name.isidentifier()]
        return {"command": "".join(exports) + argv[0]}
    if shell:
        argv = [os.fsdecode(executable or "/bin/sh"), "-c"] + argv
    elif executable is not None:
        argv = [os.fsdecode(executable)] + argv[1:]
    if changed:
        argv = ["env"] + [name + "=" + value for name, value in changed.items()] + argv
    return {"argv": argv}


def folder(cwd):
    """Where a program runs."""
    cwd = Native.getcwd() if cwd is None else os.path.join(Native.getcwd(), os.fsdecode(cwd))
    if not os.path.isdir(cwd):
        raise failed(errno.ENOTDIR if os.path.exists(cwd) else errno.ENOENT, cwd)
    if not in_roots(cwd):
        raise OSError(errno.EACCES, "programs run in the workspace and do not see the script's own files", cwd)
    return os.path.normpath(cwd)


def patch_subprocess(subprocess):
    PIPE, STDOUT, DEVNULL = subprocess.PIPE, subprocess.STDOUT, subprocess.DEVNULL

    class Popen:
        """`subprocess.Popen` for programs that the server runs."""

        count = 1 << 22

        def __init__(
            self, args, bufsize=-1, executable=None, stdin=None, stdout=None, stderr=None, preexec_fn=None, close_fds=True,
            shell=False, cwd=None, env=None, universal_newlines=None, startupinfo=None, creationflags=0,
            restore_signals=True, start_new_session=False, pass_fds=(), *, encoding=None, errors=None, text=None, **_
        ):
            if preexec_fn is not None:
                raise ValueError("preexec_fn is not available: " + NO_FORK)
            self.args, self.returncode, self.closed = args, None, False
            self.stdin = self.stdout = self.stderr = None
            self.encoding, self.errors = encoding, errors
            self.text_mode = self.universal_newlines = bool(encoding or errors or text or universal_newlines)
            Popen.count += 1
            self.pid, self._signal, self._expired, self._sent = Popen.count, None, None, False
            self._targets = (stdout, stderr)
            request = words(args, shell, executable, env)
            request.update(cwd=folder(cwd), merged=stderr == STDOUT)
            self._program, self._lock = Program(request), threading.RLock()
            if stdout == PIPE:
                self.stdout = self._reader(0)
            if stderr == PIPE:
                self.stderr = self._reader(1)
            if stdin == PIPE:
                self.stdin = Input(self)
                if self.text_mode:
                    self.stdin = io.TextIOWrapper(self.stdin, encoding, errors, write_through=True)
            elif stdin is None or stdin == DEVNULL:
                self._start(None)
            else:
                self._start(content_of(stdin))

        def _reader(self, index):
            reader = io.BufferedReader(LateOutput(self, index))
            return io.TextIOWrapper(reader, self.encoding, self.errors) if self.text_mode else reader

        def _start(self, content):
            request = self._program.args
            request["input"] = content is not None
            self._program.start(content or b"")

        def _contents(self):
            self.wait()
            return self._reply[1]

        def _settle(self):
            """Takes the answer over, once."""
            with self._lock:
                if self.returncode is not None:
                    return
                value, contents = self._reply = outcome(self._program.reply)
                self.returncode = value["code"]
                if self._signal is not None and value.get("stopped"):
                    self.returncode = -self._signal
                for target, standard, content in zip(self._targets, (1, 2), contents):
                    if target is None or isinstance(target, int) and target >= 0 or hasattr(target, "fileno"):
                        deliver(target, standard, content)
                if self._expired is not None and self.stdout is not None:
                    self._expired.output = contents[0]
                if self._expired is not None and self.stderr is not None:
                    self._expired.stderr = contents[1]

        def poll(self):
            if self.returncode is None and self._program.done.is_set():
                self._settle()
            return self.returncode

        def wait(self, timeout=None):
            if self.returncode is None:
                if self.stdin is not None and not self.stdin.closed and timeout is None:
                    self.stdin.close()
                if not self._program.done.wait(timeout):
                    self._expired = subprocess.TimeoutExpired(self.args, timeout)
                    raise self._expired
                self._settle()
            return self.returncode

        def communicate(self, input=None, timeout=None):
            if self.stdin is not None and not self.stdin.closed:
                if input:
                    self.stdin.write(input)
                self.stdin.close()
            elif input and self.stdin is None:
                raise ValueError("Cannot send input when stdin is not a pipe")
            self.wait(timeout)
            return tuple(None if pipe is None or pipe.closed else pipe.read() for pipe in (self.stdout, self.stderr))

        def send_signal(self, number):
            if self.poll() is None and number:
                self._signal = int(number)
                self._program.cancel()

        def terminate(self):
            self.send_signal(signal.SIGTERM)

        def kill(self):
            self.send_signal(signal.SIGKILL)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            if self.stdin is not None and not self.stdin.closed:
                self.stdin.close()
            self.wait()
            for pipe in (self.stdout, self.stderr):
                if pipe is not None:
                    pipe.close()

        def __repr__(self):
            return "<Popen: returncode: %s args: %r>" % (self.returncode, self.args)

        def __class_getitem__(cls, item):
            return cls

    subprocess.Popen = Popen


def deliver(target, standard, content):
    """Gives an output to where it would have gone."""
    if target is None:
        target = standard
        try:
            (sys.stdout if standard == 1 else sys.stderr).flush()
        except (OSError, ValueError, AttributeError):
            pass
    fd = target if isinstance(target, int) else target.fileno()
    content = memoryview(content)
    while content:
        content = content[os.write(fd, content) :]


def system(command):
    import subprocess

    code = subprocess.Popen(command, shell=True).wait()
    return code << 8 if code >= 0 else -code


def patch_asyncio(module):
    """`asyncio.create_subprocess_exec` and `_shell`: the program runs, and the loop goes on."""
    import asyncio
    import subprocess

    class Process:
        def __init__(self, popen, loop):
            self._popen, self._loop, self.pid = popen, loop, popen.pid
            self.stdin = Writer(popen.stdin) if popen.stdin is not None else None
            self.stdout = self.stderr = None
            self._ended = loop.run_in_executor(None, popen._program.done.wait)
            for name in ("stdout", "stderr"):
                pipe = getattr(popen, name)
                if pipe is not None:
                    reader = asyncio.StreamReader(limit=1 << 26)
                    setattr(self, name, reader)
                    loop.create_task(self._feed(reader, pipe))

        async def _feed(self, reader, pipe):
            await self._ended
            reader.feed_data(pipe.read())
            reader.feed_eof()

        @property
        def returncode(self):
            return self._popen.poll()

        async def wait(self):
            await asyncio.shield(self._ended)
            return self._popen.wait()

        async def communicate(self, input=None):
            if self._popen.stdin is not None and not self._popen.stdin.closed:
                self._popen.stdin.write(input or b"")
                self._popen.stdin.close()
            await self.wait()
            outputs = [await reader.read() if reader is not None else None for reader in (self.stdout, self.stderr)]
            return tuple(outputs)

        def send_signal(self, number):
            self._popen.send_signal(number)

        def terminate(self):
            self._popen.terminate()

        def kill(self):
            self._popen.kill()

    class Writer:
        def __init__(self, pipe):
            self.write, self.writelines, self.close, self._pipe = pipe.write, pipe.writelines, pipe.close, pipe
            self.write_eof, self.is_closing = pipe.close, lambda: pipe.closed

        async def drain(self):
            pass

        async def wait_closed(self):
            pass

    async def create_subprocess_exec(program, *args, stdin=None, stdout=None, stderr=None, limit=0, **options):
        popen = subprocess.Popen([program, *args], stdin=stdin, stdout=stdout, stderr=stderr, **options)
        return Process(popen, asyncio.get_running_loop())

    async def create_subprocess_shell(cmd, stdin=None, stdout=None, stderr=None, limit=0, **options):
        popen = subprocess.Popen(cmd, shell=True, stdin=stdin, stdout=stdout, stderr=stderr, **options)
        return Process(popen, asyncio.get_running_loop())

    for place in (asyncio, module):
        place.create_subprocess_exec, place.create_subprocess_shell = create_subprocess_exec, create_subprocess_shell


def patch_process_pool(module):
    """Processes for parallel work become threads."""
    from concurrent.futures import ThreadPoolExecutor

    class ProcessPoolExecutor(ThreadPoolExecutor):
        def __init__(self, max_workers=None, mp_context=None, initializer=None, initargs=(), **_):
            super().__init__(max_workers, initializer=initializer, initargs=initargs)

        def map(self, fn, *iterables, timeout=None, chunksize=1, **_):
            return super().map(fn, *iterables, timeout=timeout)

    module.ProcessPoolExecutor = ProcessPoolExecutor


def patch_multiprocessing(module):
    from multiprocessing.pool import ThreadPool

    def Pool(processes=None, initializer=None, initargs=(), maxtasksperchild=None):
        return ThreadPool(processes, initializer, initargs)

    module.Pool = Pool
    module.get_context = lambda method=None: module


LATE_PATCHES = {
    "shutil": patch_shutil,
    "subprocess": patch_subprocess,
    "asyncio.subprocess": patch_asyncio,
    "concurrent.futures.process": patch_process_pool,
    "multiprocessing": patch_multiprocessing,
    "sqlite3": patch_sqlite3,
}


class LatePatches:
    """Patches a module when it is imported, so that none is imported for that."""

    def find_spec(self, name, path=None, target=None):
        patch = LATE_PATCHES.pop(name, None)
        if patch is None:
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            patch(module)

        spec.loader.exec_module = exec_module
        return spec


def patch_programs():
    for name in list(LATE_PATCHES):
        module = sys.modules.get(name)
        if module is not None:
            LATE_PATCHES.pop(name)(module)
    sys.meta_path.insert(0, LatePatches())

    def refuse(*_, **__):
        raise OSError(errno.EPERM, NO_FORK)

    os.system = Patched(system, "system")
    for name in dir(os):
        if name.startswith(("exec", "spawn", "posix_spawn", "fork")) and name != "fork_exec":
            setattr(os, name, Patched(refuse, name))


def install_files(channel, known):
    """From now on the server is asked."""
    Server.roots = tuple(known["roots"])
    Environment.before = dict(os.environ)
    if known["venv"]:
        sys.executable = os.path.join(known["venv"], "bin", "python")
    Server.channel = channel
    Server.reads = not known["reads"]
    if Server.reads:
        install_imports()


patch_files()
patch_programs()
