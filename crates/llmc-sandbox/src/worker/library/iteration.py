# itertools, functools, operator, heapq, bisect, collections, copy
import itertools as _llmc_it
import functools as _llmc_ft
import collections as _llmc_co


def _llmc_groupby(items, key=None):
    out = []
    for x in items:
        k = x if key is None else key(x)
        if out and out[-1][0] == k:
            out[-1][1].append(x)
        else:
            out.append((k, [x]))
    return iter([(k, iter(group)) for k, group in out])


def _llmc_combinations(items, r):
    pool = list(items)
    if r == 0:
        return iter([()])
    out = []
    for i in range(len(pool) - r + 1):
        out.extend([(pool[i],) + rest for rest in _llmc_combinations(pool[i + 1:], r - 1)])
    return iter(out)


def _llmc_permutations(items, r=None):
    pool = list(items)
    r = len(pool) if r is None else r
    if r == 0:
        return iter([()])
    out = []
    for i in range(len(pool)):
        out.extend([(pool[i],) + rest for rest in _llmc_permutations(pool[:i] + pool[i + 1:], r - 1)])
    return iter(out)


def _llmc_product(*pools, repeat=1):
    out = [()]
    for pool in [list(p) for p in pools] * repeat:
        out = [done + (x,) for done in out for x in pool]
    return iter(out)


def _llmc_accumulate(items, func=None, initial=None):
    out = []
    total = initial
    started = initial is not None
    if started:
        out.append(total)
    for x in items:
        total = (total + x if func is None else func(total, x)) if started else x
        started = True
        out.append(total)
    return iter(out)


def _llmc_zip_longest(*lists, fillvalue=None):
    lists = [list(x) for x in lists]
    n = max([len(x) for x in lists]) if lists else 0
    return iter([tuple([x[i] if i < len(x) else fillvalue for x in lists]) for i in range(n)])


class _llmc_chain:
    def __init__(self, *lists):
        self.it = iter([x for items in lists for x in items])

    def __iter__(self):
        return self.it

    def __next__(self):
        return next(self.it)

    def from_iterable(lists):
        return iter([x for items in lists for x in items])


class _llmc_islice:
    def __init__(self, items, *bounds):
        start, stop, step = (0, bounds[0], 1) if len(bounds) == 1 else (tuple(bounds) + (1,))[:3]
        self.it = iter(items)
        self.at = 0
        self.next_at = start or 0
        self.stop = stop
        self.step = step or 1

    def __iter__(self):
        return self

    def __next__(self):
        if self.stop is not None and self.next_at >= self.stop:
            raise StopIteration
        while self.at < self.next_at:
            next(self.it)
            self.at += 1
        value = next(self.it)
        self.at += 1
        self.next_at += self.step
        return value


class _llmc_cycle:
    def __init__(self, items):
        self.items = list(items)
        self.at = -1

    def __iter__(self):
        return self

    def __next__(self):
        if not self.items:
            raise StopIteration
        self.at = (self.at + 1) % len(self.items)
        return self.items[self.at]


class _llmc_takewhile:
    def __init__(self, function, items):
        self.function = function
        self.it = iter(items)

    def __iter__(self):
        return self

    def __next__(self):
        value = next(self.it)
        if not self.function(value):
            raise StopIteration
        return value


def _llmc_dropwhile(function, items):
    out = []
    for x in items:
        if out or not function(x):
            out.append(x)
    return iter(out)


def _llmc_tee(items, n=2):
    items = list(items)
    return tuple([iter(items) for _ in range(n)])


def _llmc_pairwise(items):
    items = list(items)
    return iter(list(zip(items, items[1:])))


class _llmc_itertools:
    count = _llmc_it.count
    repeat = _llmc_it.repeat
    chain = _llmc_chain
    groupby = _llmc_groupby
    combinations = _llmc_combinations
    permutations = _llmc_permutations
    product = _llmc_product
    accumulate = _llmc_accumulate
    zip_longest = _llmc_zip_longest
    islice = _llmc_islice
    cycle = _llmc_cycle
    takewhile = _llmc_takewhile
    dropwhile = _llmc_dropwhile
    tee = _llmc_tee
    pairwise = _llmc_pairwise
    starmap = lambda f, items: iter([f(*args) for args in items])
    compress = lambda items, keep: iter([x for x, k in zip(items, keep) if k])
    filterfalse = lambda f, items: iter([x for x in items if not (f(x) if f else x)])


def _llmc_reduce(function, items, *initial):
    it = iter(items)
    total = initial[0] if initial else next(it)
    for x in it:
        total = function(total, x)
    return total


def _llmc_memoised(function):
    cache = {}

    def wrapper(*args, **kwargs):
        key = (args, tuple(sorted(kwargs.items())))
        if key not in cache:
            cache[key] = function(*args, **kwargs)
        return cache[key]
    return wrapper


def _llmc_lru_cache(maxsize=128, typed=False):
    if maxsize is None or isinstance(maxsize, int):
        return _llmc_memoised
    return _llmc_memoised(maxsize)


class _llmc_functools:
    partial = _llmc_ft.partial
    reduce = _llmc_reduce
    wraps = lambda function: lambda wrapper: wrapper
    lru_cache = _llmc_lru_cache
    cache = _llmc_memoised
    total_ordering = lambda cls: cls


def _llmc_itemgetter(*keys):
    if len(keys) == 1:
        return lambda x: x[keys[0]]
    return lambda x: tuple([x[k] for k in keys])


def _llmc_attrgetter(*names):
    if len(names) == 1:
        return lambda x: getattr(x, names[0])
    return lambda x: tuple([getattr(x, n) for n in names])


class _llmc_operator:
    itemgetter = _llmc_itemgetter
    attrgetter = _llmc_attrgetter
    methodcaller = lambda name, *args, **kw: lambda x: getattr(x, name)(*args, **kw)
    add = lambda a, b: a + b
    sub = lambda a, b: a - b
    mul = lambda a, b: a * b
    truediv = lambda a, b: a / b
    floordiv = lambda a, b: a // b
    mod = lambda a, b: a % b
    pow = lambda a, b: a ** b
    eq = lambda a, b: a == b
    ne = lambda a, b: a != b
    lt = lambda a, b: a < b
    le = lambda a, b: a <= b
    gt = lambda a, b: a > b
    ge = lambda a, b: a >= b
    neg = lambda a: -a
    not_ = lambda a: not a
    and_ = lambda a, b: a & b
    or_ = lambda a, b: a | b
    xor = lambda a, b: a ^ b
    contains = lambda a, b: b in a
    getitem = lambda a, b: a[b]


def _llmc_bisect_left(a, x, lo=0, hi=None, key=None):
    hi = len(a) if hi is None else hi
    while lo < hi:
        mid = (lo + hi) // 2
        if (a[mid] if key is None else key(a[mid])) < x:
            lo = mid + 1
        else:
            hi = mid
    return lo


def _llmc_bisect_right(a, x, lo=0, hi=None, key=None):
    hi = len(a) if hi is None else hi
    while lo < hi:
        mid = (lo + hi) // 2
        if x < (a[mid] if key is None else key(a[mid])):
            hi = mid
        else:
            lo = mid + 1
    return lo


class _llmc_bisect:
    bisect_left = _llmc_bisect_left
    bisect_right = _llmc_bisect_right
    bisect = _llmc_bisect_right
    insort = lambda a, x: a.insert(_llmc_bisect_right(a, x), x)
    insort_right = lambda a, x: a.insert(_llmc_bisect_right(a, x), x)
    insort_left = lambda a, x: a.insert(_llmc_bisect_left(a, x), x)


def _llmc_heappush(heap, x):
    heap.insert(_llmc_bisect_right(heap, x), x)


def _llmc_heapify(heap):
    heap.sort()


class _llmc_heapq:
    # A sorted list is a heap.
    heappush = _llmc_heappush
    heappop = lambda heap: heap.pop(0)
    heapify = _llmc_heapify
    nlargest = lambda n, items, key=None: _llmc_sorted(items, key=key, reverse=True)[:n]
    nsmallest = lambda n, items, key=None: _llmc_sorted(items, key=key)[:n]
    heappushpop = lambda heap, x: (_llmc_heappush(heap, x), heap.pop(0))[1]
    heapreplace = lambda heap, x: (heap.pop(0), _llmc_heappush(heap, x))[0]
    merge = lambda *lists: iter(sorted([x for items in lists for x in items]))


class _llmc_collections:
    Counter = _llmc_co.Counter
    defaultdict = _llmc_co.defaultdict
    deque = _llmc_co.deque
    namedtuple = _llmc_co.namedtuple
    OrderedDict = dict


def _llmc_deepcopy(x, memo=None):
    if isinstance(x, dict):
        if type(x) is dict:
            return {k: _llmc_deepcopy(v) for k, v in x.items()}
        out = x.copy()
        for k in list(out):
            out[k] = _llmc_deepcopy(out[k])
        return out
    if isinstance(x, list):
        return [_llmc_deepcopy(v) for v in x]
    if isinstance(x, set):
        return set(x)
    if type(x) is tuple:
        return tuple([_llmc_deepcopy(v) for v in x])
    return x


class _llmc_copy_module:
    deepcopy = _llmc_deepcopy
    copy = lambda x: x.copy() if hasattr(x, "copy") else x
