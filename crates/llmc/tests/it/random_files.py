# A random program of file operations: what each returned or raised, and the tree in the end. SEED and STEPS stand before it.
import os, pathlib, random, shutil, stat, tempfile

rng = random.Random(SEED)
NAMES = ["a", "b", "c.txt", "d", "e", "é"]
pool, log = {}, []


def path():
    return "/".join(rng.choice(NAMES) for _ in range(rng.choice([1, 1, 1, 2, 2, 3])))


def data(binary):
    text = "".join(rng.choice(["x", "line\n", "\r\n", "é", "\r", "long" * 5]) for _ in range(rng.randrange(6)))
    return text.encode() + bytes([rng.randrange(256)]) if binary else text


def use(file, mode):
    """A few random operations on an open file."""
    binary = "b" in mode
    done = []
    for _ in range(rng.randrange(5)):
        what = rng.choice(["write", "write", "read", "seek", "tell", "truncate", "flush", "readline", "size"])
        try:
            if what == "write":
                done.append(file.write(data(binary)))
            elif what == "read":
                done.append(file.read(rng.choice([-1, 3])))
            elif what == "readline":
                done.append(file.readline())
            elif what == "seek":
                done.append(file.seek(0, rng.choice([0, 2])))
            elif what == "tell":
                done.append(file.tell())
            elif what == "truncate":
                done.append(file.truncate(rng.choice([None, 0, 4])))
            elif what == "size":
                file.flush()
                done.append(os.path.getsize(file.name))
            else:
                done.append(file.flush())
        except (OSError, ValueError) as error:
            done.append((type(error).__name__, getattr(error, "errno", None)))
    return done


def open_some():
    name, binary = path(), rng.random() < 0.4
    mode = rng.choice(["w", "a", "x", "r+", "w+", "a+", "x+", "r"]) + ("b" if binary else "")
    options = {} if binary else {"encoding": rng.choice(["utf-8", "utf-16", "latin-1"]), "newline": rng.choice([None, "", "\r\n"]), "errors": "replace"}
    if binary and rng.random() < 0.2:
        options["buffering"] = 0
    keep = rng.random() < 0.3
    real = os.path.realpath(name)
    if real in pool:
        return "open already"
    file = open(name, mode, **options)
    if keep and len(pool) < 5:
        pool[real] = (file, mode)
        return file.mode, use(file, mode)
    with file:
        return str(file.name), use(file, mode), file.tell() if binary else None


def use_some():
    if not pool:
        return None
    name = rng.choice(sorted(pool))
    return use(*pool[name])


def close_some():
    if not pool:
        return None
    name = rng.choice(sorted(pool))
    file, mode = pool.pop(name)
    return use(file, mode), file.close()


def raw():
    name = path()
    if os.path.realpath(name) in pool:
        return "open already"
    flags = rng.choice([os.O_CREAT, os.O_CREAT | os.O_EXCL, os.O_CREAT | os.O_TRUNC, 0, os.O_APPEND])
    fd = os.open(name, flags | os.O_RDWR, 0o640)
    try:
        wrote = os.write(fd, data(True))
        if rng.random() < 0.3:
            os.ftruncate(fd, 3)
        return wrote, os.fstat(fd).st_size, os.lseek(fd, 0, 1)
    finally:
        os.close(fd)


def idle(name):
    """Whether no open file is there or below: what is written to a moved or deleted one is another test."""
    real = os.path.realpath(name)
    return not any(known == real or known.startswith(real + "/") for known in pool)


def two(function):
    def call():
        source, target = path(), path()
        if not (idle(source) and idle(target)):
            return "open"
        return str(function(source, target))

    return call


def one(function):
    def call():
        name = path()
        return function(name) if idle(name) else "open"

    return call


def temporary():
    with tempfile.NamedTemporaryFile("w+", dir=".", delete=False) as file:
        file.write(data(False))
    name = path()
    if not idle(name):
        os.unlink(file.name)
        return "open"
    try:
        os.replace(file.name, name)
    except OSError:
        os.unlink(file.name)
        raise


def mode_of(name):
    return stat.S_IMODE(os.stat(name).st_mode)


def set_time(name):
    os.utime(name, (5, rng.randrange(10**9)))
    return os.stat(name).st_mtime_ns


STEPS_OF = [open_some] * 8 + [use_some] * 4 + [close_some] * 3 + [
    raw,
    temporary,
    two(os.rename),
    two(os.replace),
    two(shutil.copy),
    two(shutil.copy2),
    two(shutil.move),
    two(lambda a, b: shutil.copytree(a, b) if not (b + "/").startswith(a + "/") else None),
    two(lambda a, b: pathlib.Path(a).rename(b)),
    one(os.remove),
    one(os.rmdir),
    one(os.mkdir),
    one(os.mkdir),
    one(lambda name: os.mkdir(name, 0o700)),
    one(os.makedirs),
    one(lambda name: os.makedirs(name, exist_ok=True)),
    one(os.removedirs),
    one(shutil.rmtree),
    one(lambda name: os.chmod(name, rng.choice([0o600, 0o644, 0o755]))),
    one(set_time),
    one(lambda name: os.truncate(name, rng.randrange(9))),
    one(lambda name: pathlib.Path(name).write_text(data(False), encoding="utf-8")),
    one(lambda name: pathlib.Path(name).write_bytes(data(True))),
    one(lambda name: pathlib.Path(name).touch(exist_ok=rng.random() < 0.8)),
    one(lambda name: pathlib.Path(name).unlink()),
    one(lambda name: pathlib.Path(name).mkdir(parents=True, exist_ok=True)),
    one(lambda name: open(name, "rb").read()),
    one(lambda name: sorted(os.listdir(name))),
    one(mode_of),
    one(lambda name: (os.path.exists(name), os.path.isdir(name), os.access(name, os.R_OK))),
]

for step in range(STEPS):
    function = rng.choice(STEPS_OF)
    try:
        outcome = function()
    except (OSError, shutil.Error) as error:
        outcome = (type(error).__name__, getattr(error, "errno", None) if not isinstance(error, shutil.Error) else None)
    log.append("%d %s %r" % (step, getattr(function, "__qualname__", ""), outcome))

for name in sorted(pool):
    pool[name][0].close()
for folder, _, files in sorted(os.walk(".")):
    if ".llmc" in folder:
        continue
    log.append("%s %o" % (folder, mode_of(folder) if folder != "." else 0))
    for name in sorted(files):
        name = os.path.join(folder, name)
        log.append("%s %o %r" % (name, mode_of(name), open(name, "rb").read()))
print("\n".join(log))
