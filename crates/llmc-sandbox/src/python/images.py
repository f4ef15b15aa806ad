# Files that a script writes, on a workspace that it cannot write: `open` gives an image of the file, which the server is
# given when it is flushed or closed, when somebody looks, before a program starts and at the end of the script. Where it
# cannot read the workspace either, the server gives it copies.
import builtins
import errno
import functools
import io
import os
import stat
import sys
import threading
import time
import weakref

WRITING_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# Where temporary files go if the script shares `/tmp` with the host (tmp.rs).
OWN_TMP = os.environ.get("TMPDIR", "")
if not OWN_TMP.startswith("/tmp/llmc-run-"):
    OWN_TMP = None
else:
    os.environ["HOME"] = OWN_TMP
# Where a script has files of its own.
PRIVATE_DIRS = (OWN_TMP or "/tmp", "/dev", "/proc")
ERRNOS = {
    "FileNotFoundError": errno.ENOENT,
    "FileExistsError": errno.EEXIST,
    "IsADirectoryError": errno.EISDIR,
    "NotADirectoryError": errno.ENOTDIR,
    "PermissionError": errno.EACCES,
    "TimeoutError": errno.ETIMEDOUT,
    "OSError": errno.EIO,
}
BUSY = "RESOURCE_BUSY"


class Native:
    """Python's own functions, as they were."""


def keep_native():
    for name in dir(os):
        if callable(getattr(os, name)):
            setattr(Native, name, staticmethod(getattr(os, name)))
    Native.os_open, Native.open = staticmethod(os.open), staticmethod(io.open)
    Native.open_tmp = staticmethod(open_tmp)


def open_tmp():
    """A file without a name."""
    flags = os.O_RDWR | os.O_CLOEXEC
    try:
        return Native.os_open(PRIVATE_DIRS[0], flags | os.O_TMPFILE, 0o600)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR):
            raise
    # Layered file systems of containers have none.
    name = "%s/.unnamed-%d" % (PRIVATE_DIRS[0], time.monotonic_ns())
    fd = Native.os_open(name, flags | os.O_CREAT | os.O_EXCL, 0o600)
    Native.unlink(name)
    return fd


class Server:
    """What the patched functions ask. Without a channel they are Python's own."""

    channel = None
    roots = ()
    reads = False  # in place of this process, which may not

    @staticmethod
    def request(operation, args, content=b""):
        """Asks for an operation and waits. Returns its value and contents."""
        reply = Reply()
        send_request(operation, args, content, reply)
        return outcome(Server.channel.wait(reply))


def send_request(operation, args, content, answered):
    """Asks for an operation. Returns its number."""
    try:
        return Server.channel.request(operation, args, content, answered)
    except UnicodeEncodeError:
        raise OSError(errno.EILSEQ, "the server takes only names that are UTF-8") from None


def outcome(reply):
    if "raise" not in reply:
        return reply["value"], reply.get("contents", [])
    name, message = reply["raise"]
    error = getattr(builtins, name)(message)
    if isinstance(error, OSError):
        error.errno = errno.EBUSY if message.startswith(BUSY) else ERRNOS.get(name, errno.EIO)
    raise error


def below(path, folder):
    return path == folder or path.startswith("/" if folder == "/" else folder + "/")


def in_roots(path):
    return any(below(os.path.normpath(path), root) for root in Server.roots)


def ours(path):
    """The absolute path if the server decides on it; None for files of the script's own and for what is no path."""
    if Server.channel is None or isinstance(path, int):
        return None
    try:
        path = os.fsdecode(path)
    except TypeError:
        return None
    if not path or "\0" in path:
        return None
    if not path.startswith("/"):
        path = Native.getcwd() + "/" + path
    if OWN_TMP and below(os.path.normpath(path), OWN_TMP):
        return None
    if not in_roots(path) and any(below(os.path.normpath(path), folder) for folder in PRIVATE_DIRS):
        return None
    return path


def remote(path):
    """The absolute path if the server may read it for this process, which was refused."""
    full = ours(path) if Server.reads else None
    return full if full is not None and in_roots(full) else None


def copy_of(path):
    """A descriptor of a copy of a file of the workspace."""
    content = Server.request("read", {"path": path})[1]
    fd = Native.open_tmp()
    rest = memoryview(content[0] if content else b"")
    while rest:
        rest = rest[Native.write(fd, rest) :]
    Native.lseek(fd, 0, os.SEEK_SET)
    return fd


def open_copy(full, file, mode, buffering, encoding, errors, newline):
    made = Native.open(copy_of(full), mode, buffering, encoding, errors, newline)
    raw = getattr(made, "buffer", made)
    raw = getattr(raw, "raw", raw)
    raw.name = file
    return made


def failed(code, path):
    return OSError(code, os.strerror(code), path)


def refuse_no_dir(folder, path):
    """Raises what the kernel says of a path in a folder that is none."""
    try:
        found = Native.stat(folder)
    except OSError as error:
        raise failed(error.errno, path) from None
    if not stat.S_ISDIR(found.st_mode):
        raise failed(errno.ENOTDIR, path)


def umask():
    mask = Native.umask(0o22)
    Native.umask(mask)
    return mask


class Image:
    """The content of a file that a script is writing, in an unnamed file, until the server has it."""

    open = {}
    by_fd = {}
    lost = []  # why files that nobody closed could not be committed
    lock = threading.RLock()

    def __init__(self, path, exists):
        self.path, self.exists = path, exists
        self.fd = Native.open_tmp()
        self.dirty = False  # differs from what the server has
        self.exported = False  # may change without being seen to
        self.base = None  # bytes before this are the file's, and not here
        self.sha = None  # of what was read, if that must still be there
        self.mode = self.times = None  # to set when it is committed
        self.default_mode = None
        self.stamp = None
        self.gone = False  # its file has been deleted
        self.busy = False
        self.unclosed = False

    def register(self, fd):
        with Image.lock:
            Image.open[id(self)] = self
            Image.by_fd[fd] = self

    def release(self, fd):
        with Image.lock:
            Image.by_fd.pop(fd, None)
            if not any(image is self for image in Image.by_fd.values()):
                Image.open.pop(id(self), None)

    def load(self):
        """Copies the file."""
        try:
            source = Native.os_open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except PermissionError:
            if remote(self.path) is None:
                raise
            source = copy_of(self.path)
        try:
            at = 0
            while True:
                part = Native.pread(source, 1 << 20, at)
                if not part:
                    break
                rest = memoryview(part)
                while rest:
                    written = Native.pwrite(self.fd, rest, at)
                    rest, at = rest[written:], at + written
        finally:
            Native.close(source)
        self.base = None

    def size(self):
        return Native.fstat(self.fd).st_size

    def content(self, start=0):
        parts, at, end = [], start, self.size()
        while at < end:
            part = Native.pread(self.fd, end - at, at)
            if not part:
                break
            parts.append(part)
            at += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def unsent(self):
        if self.gone:
            return False
        if self.dirty or self.mode is not None or self.times is not None:
            return True
        now = Native.fstat(self.fd)
        if self.stamp is not None and self.stamp != (now.st_size, now.st_mtime_ns):
            return True
        return self.exported and self.sha is not None and digest(self.content()) != self.sha

    def commit(self):
        """Gives the server what it does not have yet."""
        with Image.lock:
            if self.busy or not self.unsent():
                return
            self.busy = True
            try:
                self.send()
            finally:
                self.busy = False

    def send(self):
        state = Native.fstat(self.fd)
        stamp = (state.st_size, state.st_mtime_ns)
        if self.dirty or self.stamp != stamp or self.exported:
            args = {"path": self.path, "append": self.base is not None}
            content = self.content(self.base or 0)
            if self.sha is not None:
                args["expected"] = self.sha
            Server.request("write", args, content)
            if self.base is not None:
                self.base = state.st_size
            if self.sha is not None:
                self.sha = digest(content)
            if not self.exists and self.default_mode is not None and self.mode is None:
                self.mode = self.default_mode
            self.exists, self.dirty, self.stamp = True, False, stamp
        mode, times, self.mode, self.times = self.mode, self.times, None, None
        set_attributes(self.path, mode, times)


def digest(content):
    import hashlib

    return hashlib.sha256(content).hexdigest()


def set_attributes(path, mode=None, times=None):
    if mode is not None and stat.S_IMODE(Native.stat(path).st_mode) == mode:
        mode = None
    if mode is not None or times is not None:
        Server.request("attributes", {"path": path, "mode": mode, "times": times})


class WorkspaceFile(io.FileIO):
    """The raw file below `open`: a descriptor of an image that is committed when it is closed."""

    def __init__(self, image, fd, kind, readable, name, closefd=True):
        self.image, self.owns = image, closefd
        modes = {"r": "r+", "w": "w", "a": "a", "x": "w"}
        super().__init__(fd, modes[kind] + ("+" if readable and kind != "r" else ""), closefd)
        self.name, self.is_new = name, kind == "x"

    @property
    def mode(self):
        return ("xb+" if self.readable() else "xb") if self.is_new else super().mode

    def write(self, data):
        self.image.dirty = True
        return super().write(data)

    def truncate(self, size=None):
        image = self.image
        if image.base is not None and image.exists:
            # What is cut must be here.
            at = self.tell()
            image.load()
            self.seek(at)
        image.dirty = True
        return super().truncate(size)

    def _dealloc_warn(self, source):
        # Python drops the failure of a file that is collected before it is closed.
        self.image.unclosed = True

    def fileno(self):
        self.image.exported = True
        return super().fileno()

    def flush(self):
        super().flush()
        self.image.commit()

    def close(self):
        if self.closed or not self.owns:
            return super().close()
        fd, image = super().fileno(), self.image
        try:
            image.commit()
        except OSError as error:
            if not image.unclosed:
                raise
            Image.lost.append(error)
        finally:
            image.release(fd)
            image.gone = True
            super().close()
            if image.fd != fd:
                Native.close(image.fd)


def committing(base):
    class File(base):
        def flush(self):
            super().flush()
            self.raw.image.commit()

    File.__name__ = File.__qualname__ = base.__name__
    return File


WorkspaceWriter = committing(io.BufferedWriter)
WorkspaceRandom = committing(io.BufferedRandom)
opened = weakref.WeakSet()


def barrier():
    """Commits what has been written, so that every reader sees it. What fails is tried again, and raised on close."""
    for image in list(Image.open.values()):
        try:
            image.commit()
        except OSError:
            pass


def flush_all():
    """Commits everything, also what Python has buffered. The first failure is raised when all have been tried."""
    first = None
    for file in list(opened):
        try:
            if not file.closed:
                file.flush()
        except (OSError, ValueError) as error:
            first = first or error
    for image in list(Image.open.values()):
        try:
            image.commit()
        except OSError as error:
            first = first or error
    if Image.lost:
        first = Image.lost[0]
        Image.lost.clear()
    if first is not None:
        raise first


def make_image(path, given, kind, truncate, create, exclusive, readable):
    """Opens a file to be written, as the kernel would, and says what the kernel would say."""
    barrier()
    if not in_roots(path):
        Server.request("check", {"path": path})
    try:
        found = Native.stat(path)
    except FileNotFoundError:
        found = None
    except OSError as error:
        raise failed(error.errno, given) from None
    if exclusive and (found or os.path.islink(path)):
        raise failed(errno.EEXIST, given)
    if found is None:
        if not create:
            raise failed(errno.ENOENT, given)
        if path.endswith("/"):
            raise failed(errno.EISDIR, given)
        refuse_no_dir(os.path.dirname(os.path.realpath(path)), given)
    elif stat.S_ISDIR(found.st_mode):
        raise failed(errno.EISDIR, given)
    Server.request("check", {"path": path})
    image = Image(path, found is not None)
    try:
        if found is None or truncate:
            # `open` makes or empties the file even if nothing is written.
            image.dirty = found is None or found.st_size > 0
            if kind == "a":
                image.base = 0
        elif kind == "a" and not readable:
            image.base = found.st_size
            Native.ftruncate(image.fd, found.st_size)
        else:
            image.load()
            if kind == "a":
                image.base = image.size()
            else:
                image.sha = digest(image.content())
    except BaseException:
        Native.close(image.fd)
        raise
    now = Native.fstat(image.fd)
    image.stamp = (now.st_size, now.st_mtime_ns)
    return image


def is_writing(mode):
    """Whether it is a mode in which a file is written; a wrong one is left to Python's own `open`."""
    if not isinstance(mode, str) or not set(mode) & set("wax+"):
        return False
    kinds = [letter for letter in mode if letter in "rwax"]
    return len(kinds) == 1 and len(set(mode)) == len(mode) and set(mode) <= set("rwaxbt+") and not {"b", "t"} <= set(mode)


def open_file(file, mode="r", buffering=-1, encoding=None, errors=None, newline=None, closefd=True, opener=None):
    arguments = (file, mode, buffering, encoding, errors, newline, closefd, opener)
    if Server.channel is None or not is_writing(mode):
        if Image.open:
            barrier()
        try:
            return Native.open(*arguments)
        except PermissionError:
            full = remote(file) if opener is None else None
            if full is None:
                raise
        return open_copy(full, *arguments[:6])
    binary = "b" in mode
    if binary and (encoding is not None or errors is not None or newline is not None) or newline not in (None, "", "\n", "\r", "\r\n"):
        return Native.open(*arguments)
    if buffering == 0 and not binary:
        return Native.open(*arguments)
    kind, readable = next(letter for letter in mode if letter in "rwax"), "+" in mode
    fd = file if isinstance(file, int) else None
    if fd is None and opener is not None:
        flags = {"r": 0, "w": os.O_CREAT | os.O_TRUNC, "a": os.O_CREAT | os.O_APPEND, "x": os.O_CREAT | os.O_EXCL}[kind]
        fd = opener(file, flags | os.O_CLOEXEC | (os.O_RDWR if readable else os.O_WRONLY))
        if not isinstance(fd, int) or fd not in Image.by_fd:
            return Native.open(file, mode, buffering, encoding, errors, newline, closefd, lambda *_: fd)
    if fd is not None:
        image = Image.by_fd.get(fd)
        if image is None:
            return Native.open(*arguments)
    else:
        path = ours(file)
        if path is None:
            return Native.open(*arguments)
        image = make_image(path, file, kind, kind in "wx", kind != "r", kind == "x", readable)
        fd = image.fd
        if kind == "a":
            import fcntl

            fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND)
    raw = WorkspaceFile(image, fd, kind, readable, file, closefd)
    image.register(fd)
    try:
        made = layered(raw, mode, binary, buffering, encoding, errors, newline, readable)
    except BaseException:
        raw.close()
        raise
    opened.add(made)
    return made


def layered(raw, mode, binary, buffering, encoding, errors, newline, readable):
    """What `io.open` puts on top of a raw file."""
    if buffering == 0:
        return raw
    line_buffering = buffering == 1 and not binary
    if buffering < 0 or buffering == 1:
        buffering = getattr(raw, "_blksize", io.DEFAULT_BUFFER_SIZE)
        if sys.version_info >= (3, 14):
            buffering = max(min(buffering, 8 << 20), io.DEFAULT_BUFFER_SIZE)
    buffer = (WorkspaceRandom if readable else WorkspaceWriter)(raw, buffering)
    if binary:
        return buffer
    text = io.TextIOWrapper(buffer, encoding, errors, newline, line_buffering)
    text.mode = mode
    return text


def os_open(path, flags, mode=0o777, *, dir_fd=None):
    full = ours(path) if dir_fd is None and flags & WRITING_FLAGS else None
    if full is None or flags & getattr(os, "O_DIRECTORY", 0):
        if Image.open:
            barrier()
        try:
            return Native.os_open(path, flags, mode, dir_fd=dir_fd)
        except PermissionError:
            full = remote(path) if dir_fd is None and not flags & WRITING_FLAGS else None
            if full is None or stat.S_ISDIR(Native.stat(full).st_mode):
                raise
        return copy_of(full)
    kind = "a" if flags & os.O_APPEND else "w"
    create = bool(flags & os.O_CREAT)
    image = make_image(full, path, kind, bool(flags & os.O_TRUNC), create, create and bool(flags & os.O_EXCL), True)
    image.sha = None
    image.exported = True
    if not image.exists:
        image.default_mode = mode & ~umask()
    import fcntl

    if kind == "a":
        fcntl.fcntl(image.fd, fcntl.F_SETFL, os.O_APPEND)
    # The script closes its own descriptor, perhaps unseen.
    fd = image.fd
    image.fd = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 100)
    image.register(fd)
    return fd


def os_close(fd):
    image = Image.by_fd.get(fd)
    if image is None:
        return Native.close(fd)
    try:
        image.commit()
    finally:
        image.release(fd)
        if image.fd != fd:
            Native.close(image.fd)
        Native.close(fd)
