# Python's own functions on files. Reading is the kernel's work, or the server's where the kernel refuses it. What would change
# something is asked of the server, which carries it out with the guards of its file tools. Nothing here holds the script: past
# these functions it meets the kernel's boundary.


def changing(name):
    """A function that changes an open file."""
    native = getattr(Native, name)

    def call(fd, *args):
        image = Image.by_fd.get(fd)
        if image is not None:
            if name == "ftruncate" and image.base is not None and image.exists:
                image.load()
            image.dirty = True
        return native(fd, *args)

    return call


def looking(native):
    """A function that looks at files."""

    def call(*args, **kwargs):
        if Image.open:
            barrier()
        return native(*args, **kwargs)

    return call


class RemoteEntry:
    """An entry of a folder that the server has listed."""

    __slots__ = "name", "path", "_kind"

    def __init__(self, name, path, kind):
        self.name, self.path, self._kind = name, path, kind

    def is_symlink(self):
        return self._kind == "symlink"

    def is_junction(self):
        return False

    def is_dir(self, *, follow_symlinks=True):
        return os.path.isdir(self.path) if follow_symlinks and self._kind == "symlink" else self._kind == "dir"

    def is_file(self, *, follow_symlinks=True):
        return os.path.isfile(self.path) if follow_symlinks and self._kind == "symlink" else self._kind == "file"

    def stat(self, *, follow_symlinks=True):
        return os.stat(self.path, follow_symlinks=follow_symlinks)

    def inode(self):
        return os.lstat(self.path).st_ino

    def __fspath__(self):
        return self.path

    def __repr__(self):
        return "<DirEntry %r>" % self.name


class RemoteEntries:
    """What `os.scandir` returns of them."""

    def __init__(self, entries):
        self.entries = iter(entries)

    def __iter__(self):
        return self

    def __next__(self):
        return next(self.entries)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.entries = iter(())


def listed(full, path):
    """The entries of a folder, by the server."""
    found = []
    for name, kind in Server.request("list", {"path": full})[0]:
        name = os.fsencode(name) if isinstance(path, bytes) else name
        found.append(RemoteEntry(name, os.path.join(path, name), kind))
    return found


def listing(native, shown):
    """A function that lists a folder."""

    def call(path="."):
        if Image.open:
            barrier()
        given = "." if path is None else path
        try:
            return native(given)
        except PermissionError:
            full = remote(given)
            if full is None:
                raise
        return shown(listed(full, given if isinstance(given, (str, bytes)) else os.fspath(given)))

    return call


def bearing(native):
    """A function on modes and times. Those of a script's own files stay as they are where the kernel refuses all of them."""

    def call(*args, **kwargs):
        try:
            return native(*args, **kwargs)
        except PermissionError:
            if OWN_TMP is None:
                raise

    return call


def path_of(path, *fds):
    """The path if the server carries out an operation on it; what has been written is committed first."""
    full = ours(path) if all(fd is None for fd in fds) else None
    if full is not None:
        barrier()
        if not in_roots(full):
            Server.request("check", {"path": full})
    return full


def unlink(path, *, dir_fd=None):
    full = path_of(path, dir_fd)
    if full is None:
        return Native.unlink(path, dir_fd=dir_fd)
    if stat.S_ISDIR(Native.lstat(path).st_mode):
        raise failed(errno.EISDIR, path)
    Server.request("delete", {"path": full, "what": "file"})
    forget(full)


def forget(path):
    """What is written to a deleted file goes nowhere."""
    path = os.path.normpath(path)
    for image in list(Image.open.values()):
        if below(os.path.normpath(image.path), path):
            image.gone = True


def rmdir(path, *, dir_fd=None):
    full = path_of(path, dir_fd)
    if full is None:
        return Native.rmdir(path, dir_fd=dir_fd)
    if not stat.S_ISDIR(Native.lstat(path).st_mode):
        raise failed(errno.ENOTDIR, path)
    if os.listdir(path):
        raise failed(errno.ENOTEMPTY, path)
    Server.request("delete", {"path": full, "what": "empty_dir"})


def mkdir(path, mode=0o777, *, dir_fd=None):
    full = path_of(path, dir_fd)
    if full is None:
        return Native.mkdir(path, mode, dir_fd=dir_fd)
    if os.path.lexists(path):
        raise failed(errno.EEXIST, path)
    refuse_no_dir(os.path.dirname(full.rstrip("/")), path)
    Server.request("mkdir", {"path": full})
    mask = umask()
    if mode & ~mask != 0o777 & ~mask:
        set_attributes(full, mode & ~mask)


def renaming(native):
    def rename(src, dst, *, src_dir_fd=None, dst_dir_fd=None):
        source, target = path_of(src, src_dir_fd, dst_dir_fd), path_of(dst, src_dir_fd, dst_dir_fd)
        if source is None and target is None:
            return native(src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

        def fail(code):
            return OSError(code, os.strerror(code), src, None, dst)

        try:
            # In the order of the kernel.
            for place in (src, dst):
                place = os.fsdecode(place).rstrip("/")
                refuse_no_dir(os.path.dirname(place) or ".", place)
            if source is None or target is None:
                raise fail(errno.EXDEV)
            found = Native.lstat(src)
            old = Native.lstat(dst) if os.path.lexists(dst) else None
        except OSError as error:
            raise fail(error.errno) from None
        is_dir = stat.S_ISDIR(found.st_mode)
        inside = below(os.path.normpath(target), os.path.normpath(source))
        if is_dir and inside and os.path.normpath(target) != os.path.normpath(source):
            raise fail(errno.EINVAL)
        if old is not None:
            if stat.S_ISDIR(old.st_mode) != is_dir:
                raise fail(errno.ENOTDIR if is_dir else errno.EISDIR)
            if is_dir and os.listdir(dst) and not os.path.samefile(src, dst):
                raise fail(errno.ENOTEMPTY)
        Server.request("move", {"source": source, "target": target})
        source, target = os.path.normpath(source), os.path.normpath(target)
        for image in list(Image.open.values()):
            path = os.path.normpath(image.path)
            if below(path, source):
                image.path = target + path[len(source) :]
            elif path == target:
                image.gone = True

    return rename


def chmod(path, mode, *, dir_fd=None, follow_symlinks=True):
    if isinstance(path, int) and path in Image.by_fd:
        Image.by_fd[path].mode = mode & 0o7777
        return
    full = path_of(path, dir_fd)
    if full is None:
        return bearing(Native.chmod)(path, mode, dir_fd=dir_fd, follow_symlinks=follow_symlinks)
    if not follow_symlinks and os.path.islink(path):
        raise NotImplementedError("chmod: follow_symlinks unavailable on this platform")
    Native.stat(path)
    set_attributes(full, mode & 0o7777)


def fchmod(fd, mode):
    return chmod(fd, mode) if fd in Image.by_fd else bearing(Native.fchmod)(fd, mode)


def utime(path, times=None, *, ns=None, dir_fd=None, follow_symlinks=True):
    image = Image.by_fd.get(path) if isinstance(path, int) else None
    full = path_of(path, dir_fd)
    if full is None and image is None:
        options = {"ns": ns} if ns is not None else {"times": times}
        return bearing(Native.utime)(path, dir_fd=dir_fd, follow_symlinks=follow_symlinks, **options)
    if times is not None and ns is not None:
        raise ValueError("utime: you may specify either 'times' or 'ns' but not both")
    if times is not None:
        ns = [int(part // 1) * 10**9 + int((part % 1) * 1e9) for part in times]
    elif ns is None:
        ns = [time.time_ns()] * 2
    if image is not None:
        image.times = list(ns)
        return
    Native.stat(path)
    set_attributes(full, None, list(ns))


def truncate(path, length):
    if isinstance(path, int):
        return os.ftruncate(path, length)
    if ours(path) is None:
        return Native.truncate(path, length)
    with open_file(path, "r+b") as file:
        file.truncate(length)


def refusing(name, instead):
    """A function that the server has nothing for."""
    native = getattr(Native, name)

    def call(*args, **kwargs):
        places = [ours(place) for place in args[:2] if isinstance(place, (str, bytes, os.PathLike))]
        if any(place is not None for place in places):
            raise OSError(errno.EPERM, "os." + name + " is not available to scripts; " + instead, args[0])
        return native(*args, **kwargs)

    return call


def setxattr(path, *args, **kwargs):
    if ours(path) is not None:
        raise failed(errno.ENOTSUP, path)
    return Native.setxattr(path, *args, **kwargs)


def rmtree_of(native):
    def rmtree(path, ignore_errors=False, onerror=None, *, onexc=None, dir_fd=None):
        full = ours(path) if dir_fd is None else None
        if full is None:
            options = {"onerror": onerror} if onexc is None else {"onexc": onexc}
            if dir_fd is not None:
                options["dir_fd"] = dir_fd
            return native(path, ignore_errors, **options)
        barrier()
        try:
            if os.path.islink(path):
                raise OSError("Cannot call rmtree on a symbolic link")
            if not stat.S_ISDIR(Native.lstat(path).st_mode):
                raise failed(errno.ENOTDIR, path)
            Server.request("delete", {"path": full, "what": "tree"})
            forget(full)
        except OSError as error:
            if ignore_errors:
                return
            if onexc is not None:
                onexc(Native.rmdir, path, error)
            elif onerror is not None:
                onerror(Native.rmdir, path, sys.exc_info())
            else:
                raise

    rmtree.avoids_symlink_attacks = True
    return rmtree


class Patched:
    """A function in the place of a built-in one: as an attribute of a class it stays a function."""

    def __init__(self, function, name):
        functools.update_wrapper(self, function)
        self.__name__ = self.__qualname__ = name
        self.function = function

    def __call__(self, *args, **kwargs):
        return self.function(*args, **kwargs)

    def __repr__(self):
        return "<function " + self.__name__ + ">"


def patch_files():
    """Puts the functions above in the place of Python's own."""
    keep_native()

    def put(name, function, sets=()):
        native = getattr(os, name, None)
        if native is None:
            return
        patched = Patched(function, name)
        setattr(os, name, patched)
        for known in sets:
            if native in known:
                known.add(patched)

    put("listdir", listing(Native.listdir, lambda entries: [entry.name for entry in entries]), sets=(os.supports_fd,))
    put("scandir", listing(Native.scandir, RemoteEntries), sets=(os.supports_fd,))
    for name in ("stat", "lstat", "access", "readlink"):
        put(name, looking(getattr(Native, name)), sets=(os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks))
    for name in ("write", "pwrite", "writev", "ftruncate"):
        put(name, changing(name))
    made = {"open": os_open, "close": os_close, "unlink": unlink, "remove": unlink, "rmdir": rmdir, "mkdir": mkdir}
    made.update(fchmod=fchmod, truncate=truncate, setxattr=setxattr)
    made.update(rename=renaming(Native.rename), replace=renaming(Native.replace))
    for name, function in made.items():
        put(name, function)
    put("chmod", chmod, sets=(os.supports_follow_symlinks,))
    put("utime", utime, sets=(os.supports_follow_symlinks,))
    programs = "run the program that does it: subprocess.run([%r, …])"
    for name, instead in {
        "symlink": programs % "ln" + " with -s, or copy the file",
        "link": programs % "ln" + ", or copy the file",
        "chown": programs % "chown",
        "lchown": programs % "chown",
        "mkfifo": programs % "mkfifo",
        "mknod": programs % "mknod",
    }.items():
        put(name, refusing(name, instead))
    builtins.open = io.open = Patched(open_file, "open")
    if hasattr(io, "open_code"):
        io.open_code = Patched(lambda path: open_file(path, "rb"), "open_code")


def patch_shutil(module):
    module.rmtree = rmtree_of(module.rmtree)


def install_imports():
    """Modules of the workspace come through the server where this process may not read it."""
    from importlib import machinery

    class Source(machinery.SourceFileLoader):
        def get_data(self, path):
            if path.endswith(".pyc"):
                raise failed(errno.ENOENT, path)
            with open_file(path, "rb") as file:
                return file.read()

    class Compiled(machinery.ExtensionFileLoader):
        def create_module(self, spec):
            why = "is in the workspace, which this script reads through the server; a compiled module cannot be loaded from it"
            raise ImportError(spec.origin + " " + why, name=spec.name, path=spec.origin)

    class Finder(machinery.FileFinder):
        def _fill_cache(self):
            try:
                self._path_cache = set(os.listdir(self.path))
            except OSError:
                self._path_cache = set()
            self._relaxed_path_cache = set()

    kinds = ((Compiled, machinery.EXTENSION_SUFFIXES), (Source, machinery.SOURCE_SUFFIXES))

    def find(path):
        full = remote(path) if isinstance(path, str) and os.path.isdir(path) else None
        if full is None:
            raise ImportError("not the server's", path=path)
        try:
            Native.listdir(full)
        except PermissionError:
            return Finder(full, *kinds)
        raise ImportError("readable", path=path)

    sys.path_hooks.insert(0, find)
    sys.path_importer_cache.clear()


NO_DATABASE = (
    "unable to open database file: this script reads the workspace through the server, and SQLite cannot; copy the file to"
    " tempfile.gettempdir() and open the copy"
)


def patch_sqlite3(module):
    native = module.connect

    def connect(database, *args, **kwargs):
        try:
            return native(database, *args, **kwargs)
        except module.OperationalError:
            path = os.fsdecode(database)
            path = path[5:].split("?")[0] if path.startswith("file:") else path
            if remote(path) is None:
                raise
            try:
                Native.close(Native.os_open(path, os.O_RDONLY | os.O_CLOEXEC))
            except PermissionError:
                raise module.OperationalError(NO_DATABASE) from None
            except OSError:
                pass
            raise

    module.connect = Patched(connect, "connect")
