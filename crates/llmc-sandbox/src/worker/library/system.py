# json, abc, sys, math, statistics, contextlib, asyncio, typing, hashlib, configparser
import json as _llmc_j
import sys as _llmc_s
import math as _llmc_m
import asyncio as _llmc_a
import typing as _llmc_t


def _llmc_plain(x, default):
    if isinstance(x, dict):
        return {k: _llmc_plain(v, default) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        return [_llmc_plain(v, default) for v in x]
    if x is None or isinstance(x, (str, int, float, bool)):
        return x
    return _llmc_plain(default(x), default)


def _llmc_dumps(x, default=None, cls=None, **options):
    if default is not None:
        x = _llmc_plain(x, default)
    return _llmc_j.dumps(x, **options)


class _llmc_json:
    loads = lambda text, **options: _llmc_j.loads(text)
    load = lambda f, **options: _llmc_j.loads(f.read())
    dumps = _llmc_dumps
    dump = lambda x, f, **options: (f.write(_llmc_dumps(x, **options)), None)[1]
    JSONDecodeError = _llmc_j.JSONDecodeError


class _llmc_abc:
    ABC = None
    ABCMeta = None
    abstractmethod = lambda method: method


class _llmc_Stdout:
    def __init__(self):
        self._llmc_stream = True

    def write(self, text):
        print(text, end="")
        return len(text)

    def flush(self):
        return None


def _llmc_exit(code=None):
    raise SystemExit(code)


class _llmc_sys:
    argv = ["script"]
    path = []
    stdout = _llmc_Stdout()
    stderr = _llmc_s.stderr
    version_info = (3, 14, 0, "final", 0)
    version = "3.14"
    maxsize = 9223372036854775807
    platform = "linux"
    exit = _llmc_exit
    getsizeof = lambda x: 64
    modules = {}
    setrecursionlimit = lambda n: None
    getrecursionlimit = lambda: 1000


class _llmc_math:
    pi = _llmc_m.pi
    e = _llmc_m.e
    inf = float("inf")
    nan = float("nan")
    tau = _llmc_m.pi * 2
    hypot = lambda *xs: _llmc_m.sqrt(sum([x * x for x in xs]))
    prod = lambda xs, start=1: _llmc_prod(xs, start)
    dist = lambda a, b: _llmc_m.sqrt(sum([(x - y) ** 2 for x, y in zip(a, b)]))
    sqrt = _llmc_m.sqrt
    ceil = _llmc_m.ceil
    floor = _llmc_m.floor
    log = _llmc_m.log
    log2 = _llmc_m.log2
    log10 = _llmc_m.log10
    exp = _llmc_m.exp
    gcd = _llmc_m.gcd
    factorial = _llmc_m.factorial
    isclose = _llmc_m.isclose
    isnan = _llmc_m.isnan
    isinf = _llmc_m.isinf
    sin = _llmc_m.sin
    cos = _llmc_m.cos
    tan = _llmc_m.tan
    atan2 = _llmc_m.atan2
    pow = _llmc_m.pow
    fabs = _llmc_m.fabs
    trunc = _llmc_m.trunc
    comb = _llmc_m.comb
    isqrt = _llmc_m.isqrt
    radians = _llmc_m.radians
    degrees = _llmc_m.degrees


def _llmc_prod(xs, start):
    for x in xs:
        start = start * x
    return start


def _llmc_exact(x):
    return int(x) if isinstance(x, float) and x == int(x) else x


def _llmc_mean(data):
    data = list(data)
    if not data:
        raise ValueError("mean requires at least one data point")
    total = sum(data)
    return total // len(data) if isinstance(total, int) and total % len(data) == 0 else total / len(data)


def _llmc_median(data):
    data = sorted(data)
    n = len(data)
    if not n:
        raise ValueError("no median for empty data")
    return data[n // 2] if n % 2 else (data[n // 2 - 1] + data[n // 2]) / 2


def _llmc_mode(data):
    counts = {}
    for x in data:
        counts[x] = counts.get(x, 0) + 1
    most = max(counts.values())
    return [x for x in counts if counts[x] == most][0]


def _llmc_spread(data, less):
    data = list(data)
    m = sum(data) / len(data)
    total = sum([(x - m) ** 2 for x in data]) / (len(data) - less)
    return _llmc_exact(total) if all([isinstance(x, int) for x in data]) else total


def _llmc_quantiles(data, n=4):
    data = sorted(data)
    out = []
    for i in range(1, n):
        j = i * (len(data) + 1) // n
        j = 1 if j < 1 else len(data) - 1 if j > len(data) - 1 else j
        delta = i * (len(data) + 1) - j * n
        out.append((data[j - 1] * (n - delta) + data[j] * delta) / n)
    return out


class _llmc_statistics:
    mean = _llmc_mean
    fmean = lambda data: float(_llmc_mean(data))
    median = _llmc_median
    mode = _llmc_mode
    variance = lambda data: _llmc_spread(data, 1)
    pvariance = lambda data: _llmc_spread(data, 0)
    stdev = lambda data: _llmc_m.sqrt(_llmc_spread(data, 1))
    pstdev = lambda data: _llmc_m.sqrt(_llmc_spread(data, 0))
    quantiles = _llmc_quantiles
    StatisticsError = ValueError


class _llmc_suppress:
    def __init__(self, *kinds):
        self.kinds = kinds

    def __enter__(self):
        return None

    def __exit__(self, kind, value, trace):
        return kind is not None and isinstance(value, self.kinds)


class _llmc_closing:
    def __init__(self, x):
        self.x = x

    def __enter__(self):
        return self.x

    def __exit__(self, *error):
        self.x.close()


class _llmc_nullcontext:
    def __init__(self, x=None):
        self.x = x

    def __enter__(self):
        return self.x

    def __exit__(self, *error):
        return None


class _llmc_contextlib:
    suppress = _llmc_suppress
    closing = _llmc_closing
    nullcontext = _llmc_nullcontext


async def _llmc_guard(x):
    try:
        return await x
    except Exception as e:
        return e


async def _llmc_ready(x=None):
    return x


# One after the other, since an exception inside of the interpreter's gather cannot be caught there. Calls of tools are
# under way already.
async def _llmc_gather_all(xs):
    results = []
    for x in xs:
        results.append(await _llmc_guard(x))
    return results


def _llmc_gather(*xs, return_exceptions=False):
    return _llmc_gather_all(xs) if return_exceptions else _llmc_a.gather(*xs)


class _llmc_Semaphore:
    def __init__(self, value=1):
        self.value = value

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None


class _llmc_asyncio:
    run = _llmc_a.run
    gather = _llmc_gather
    sleep = lambda seconds, result=None: _llmc_ready(result)
    create_task = lambda x, name=None: x
    ensure_future = lambda x: x
    Semaphore = _llmc_Semaphore
    BoundedSemaphore = _llmc_Semaphore
    Lock = _llmc_Semaphore
    TimeoutError = TimeoutError


class _llmc_typing:
    TYPE_CHECKING = False
    Any = _llmc_t.Any
    Optional = _llmc_t.Optional
    Union = _llmc_t.Union
    List = list
    Dict = dict
    Set = set
    Tuple = tuple
    FrozenSet = frozenset
    Type = type
    Callable = _llmc_t.Any
    Iterable = _llmc_t.Any
    Iterator = _llmc_t.Any
    Generator = _llmc_t.Any
    Sequence = _llmc_t.Any
    Mapping = _llmc_t.Any
    ClassVar = _llmc_t.Any
    Literal = _llmc_t.Any
    Final = _llmc_t.Any
    Awaitable = _llmc_t.Any
    TypeVar = lambda name, *bounds, **options: None
    cast = lambda kind, value: value


def _llmc_md5(data):
    turns = [7, 12, 17, 22] * 4 + [5, 9, 14, 20] * 4 + [4, 11, 16, 23] * 4 + [6, 10, 15, 21] * 4
    sines = [int(abs(_llmc_m.sin(i + 1)) * 4294967296) & 0xFFFFFFFF for i in range(64)]
    words = [b for b in data] + [128]
    while len(words) % 64 != 56:
        words.append(0)
    size = len(data) * 8
    for i in range(8):
        words.append((size >> (8 * i)) & 255)
    a0, b0, c0, d0 = 0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476
    for start in range(0, len(words), 64):
        m = []
        for i in range(start, start + 64, 4):
            m.append(words[i] | words[i + 1] << 8 | words[i + 2] << 16 | words[i + 3] << 24)
        a, b, c, d = a0, b0, c0, d0
        for i in range(64):
            if i < 16:
                f, g = (b & c) | (~b & d), i
            elif i < 32:
                f, g = (d & b) | (~d & c), (5 * i + 1) % 16
            elif i < 48:
                f, g = b ^ c ^ d, (3 * i + 5) % 16
            else:
                f, g = c ^ (b | (~d & 0xFFFFFFFF)), (7 * i) % 16
            f = (f + a + sines[i] + m[g]) & 0xFFFFFFFF
            a, d, c = d, c, b
            b = (b + ((f << turns[i] | f >> (32 - turns[i])) & 0xFFFFFFFF)) & 0xFFFFFFFF
        a0, b0, c0, d0 = (a0 + a) & 0xFFFFFFFF, (b0 + b) & 0xFFFFFFFF, (c0 + c) & 0xFFFFFFFF, (d0 + d) & 0xFFFFFFFF
    out = ""
    for x in (a0, b0, c0, d0):
        for i in range(4):
            out += f"{(x >> (8 * i)) & 255:02x}"
    return out


class _llmc_Digest:
    def __init__(self, name, data=b""):
        self.name = name
        self.data = data

    def update(self, data):
        self.data += data

    def hexdigest(self):
        return _llmc_md5(self.data) if self.name == "md5" else _llmc_digest(self.name, self.data)

    def digest(self):
        return bytes.fromhex(self.hexdigest())


class _llmc_hashlib:
    sha256 = lambda data=b"": _llmc_Digest("sha256", data)
    sha1 = lambda data=b"", usedforsecurity=True: _llmc_Digest("sha1", data)
    md5 = lambda data=b"", usedforsecurity=True: _llmc_Digest("md5", data)
    sha512 = lambda data=b"": _llmc_Digest("sha512", data)
    new = lambda name, data=b"": _llmc_Digest(name, data)


class _llmc_Ini:
    def __init__(self, **options):
        self.data = {}

    def read_string(self, text):
        section = None
        for line in text.splitlines():
            line = line.strip()
            if not line or line[0] in "#;":
                continue
            if line.startswith("[") and line.endswith("]"):
                section = self.data.setdefault(line[1:-1], {})
            elif section is not None:
                at = min([i for i in (line.find("="), line.find(":")) if i >= 0] or [len(line)])
                section[line[:at].strip().lower()] = line[at + 1:].strip()

    def read(self, names, encoding=None):
        done = []
        for name in [names] if not isinstance(names, (list, tuple)) else names:
            try:
                self.read_string(tools.read_file(str(name)))
                done.append(str(name))
            except FileNotFoundError:
                pass
        return done

    def sections(self):
        return list(self.data)

    def has_section(self, section):
        return section in self.data

    def options(self, section):
        return list(self.data[section])

    def items(self, section):
        return list(self.data[section].items())

    def get(self, section, option, fallback=None):
        return self.data.get(section, {}).get(option.lower(), fallback)

    def getint(self, section, option, fallback=None):
        return int(self.get(section, option, fallback))

    def getfloat(self, section, option, fallback=None):
        return float(self.get(section, option, fallback))

    def getboolean(self, section, option, fallback=None):
        return str(self.get(section, option, fallback)).lower() in ("1", "yes", "true", "on")

    def __contains__(self, section):
        return section in self.data

    def __getitem__(self, section):
        return self.data[section]


class _llmc_configparser:
    ConfigParser = _llmc_Ini
    RawConfigParser = _llmc_Ini
