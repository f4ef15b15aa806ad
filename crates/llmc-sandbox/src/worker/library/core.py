# Replacements for operators and built-in functions that the interpreter lacks; `rewrite.rs` puts calls to them into code.
_llmc_missing = ["missing"]


def _llmc_num(x):
    return 1 if x is True else 0 if x is False else x


def _llmc_sum(xs, start=0):
    total = start
    for x in xs:
        if x is True:
            total = total + 1
        elif x is not False:
            total = total + x
    return total


def _llmc_or(a, b):
    if isinstance(a, dict) and isinstance(b, dict):
        if type(a) is dict:
            return {**a, **b}
        merged = a.copy()
        merged.update(b)
        return merged
    return a | b


def _llmc_ior(a, b):
    if isinstance(a, dict):
        a.update(b)
        return a
    return a | b


def _llmc_le(a, b):
    return a.issubset(b) if isinstance(a, (set, frozenset)) else a <= b


def _llmc_ge(a, b):
    return a.issuperset(b) if isinstance(a, (set, frozenset)) else a >= b


def _llmc_lt(a, b):
    return a.issubset(b) and len(a) < len(b) if isinstance(a, (set, frozenset)) else a < b


def _llmc_gt(a, b):
    return a.issuperset(b) and len(a) > len(b) if isinstance(a, (set, frozenset)) else a > b


def _llmc_setslice(x, start, stop, step, values):
    values = list(values)
    at = list(range(len(x)))[start:stop:step]
    if step is None or step == 1:
        if start is None:
            start = 0
        if start < 0:
            start = max(0, start + len(x))
        first = at[0] if at else min(start, len(x))
        new = list(x[:first]) + values + list(x[first + len(at):])
    else:
        if values and len(values) != len(at):
            raise ValueError(f"attempt to assign sequence of size {len(values)} to extended slice of size {len(at)}")
        new = list(x)
        if values:
            for i, value in zip(at, values):
                new[i] = value
        else:
            new = [value for i, value in enumerate(new) if i not in at]
    x.clear()
    x.extend(new)


def _llmc_del(x, key):
    if hasattr(x, "__delitem__") and not isinstance(x, (dict, list)):
        x.__delitem__(key)
    elif isinstance(x, dict):
        if key not in x:
            raise KeyError(key)
        x.pop(key)
    else:
        x.pop(key)


def _llmc_format(value, spec=""):
    return f"{value:{spec}}" if spec else str(value)


def _llmc_callable(x):
    kind = str(type(x))
    if "function" in kind or "method" in kind or kind == "<class 'type'>" or "partial" in kind:
        return True
    return hasattr(x, "__call__")


_llmc_percent = None


def _llmc_mod(a, b):
    global _llmc_percent
    if not isinstance(a, str):
        return _llmc_num(a) % _llmc_num(b)
    if _llmc_percent is None:
        import re
        _llmc_percent = re.compile(r"%(?:\((\w+)\))?([-+ 0#]*)(\*|\d+)?(?:\.(\d+))?([diouxXeEfFgGcrsa%])")
    values = list(b) if isinstance(b, tuple) else [b]
    out = []
    end = 0
    n = 0
    for m in _llmc_percent.finditer(a):
        out.append(a[end:m.start()])
        end = m.end()
        key, flags, width, precision, kind = m.groups()
        if kind == "%":
            out.append("%")
            continue
        if key is not None:
            value = b[key]
            n = len(values)
        else:
            if width == "*":
                width = str(values[n])
                n += 1
            if n >= len(values):
                raise TypeError("not enough arguments for format string")
            value = values[n]
            n += 1
        flags = flags or ""
        text = None
        if kind == "r" or kind == "a":
            text = repr(value)
        elif kind == "s":
            text = str(value)
        elif kind == "c":
            text = value if isinstance(value, str) else chr(value)
        if text is not None:
            if precision is not None:
                text = text[:int(precision)]
            if width:
                text = text.ljust(int(width)) if "-" in flags else text.rjust(int(width))
        else:
            if isinstance(value, str):
                raise TypeError(f"%{kind} format: a real number is required, not str")
            value = _llmc_num(value)
            if kind in "diu":
                kind = "d"
                value = int(value)
            spec = "+" if "+" in flags else " " if " " in flags else ""
            if "#" in flags:
                spec += "#"
            if kind in "eEfFgG":
                spec += "." + (precision or "6")
            text = f"{value:{spec + kind}}"
            if width:
                size = int(width)
                if "-" in flags:
                    text = text.ljust(size)
                elif "0" in flags:
                    text = text.zfill(size)
                else:
                    text = text.rjust(size)
        out.append(text)
    if n < len(values) and not isinstance(b, dict):
        raise TypeError("not all arguments converted during string formatting")
    out.append(a[end:])
    return "".join(out)


def _llmc_path_key(x):
    if "PosixPath" in str(type(x)):
        return str(x).split("/")
    if type(x) is tuple:
        return tuple([_llmc_path_key(y) for y in x])
    return x


def _llmc_ordered(items, keys, reverse):
    at = sorted(range(len(items)), key=lambda i: keys[i], reverse=reverse)
    return [items[i] for i in at]


def _llmc_sorted(items, key=None, reverse=False):
    items = list(items)
    if key is None:
        key = _llmc_path_key
    return _llmc_ordered(items, [key(x) for x in items], bool(reverse))


def _llmc_sort(items, *args, **options):
    if not isinstance(items, list):
        return items.sort(*args, **options)
    ordered = _llmc_sorted(items, **options)
    items.clear()
    items.extend(ordered)


def _llmc_extreme(most, args, key, default):
    items = list(args[0]) if len(args) == 1 else list(args)
    if not items:
        if default is _llmc_missing:
            raise ValueError("max() arg is an empty sequence" if most else "min() arg is an empty sequence")
        return default
    if key is None:
        key = _llmc_path_key
    best = items[0]
    best_key = key(best)
    for x in items[1:]:
        k = key(x)
        if (k > best_key) if most else (k < best_key):
            best = x
            best_key = k
    return best


def _llmc_max(*args, key=None, default=_llmc_missing):
    return _llmc_extreme(True, args, key, default)


def _llmc_min(*args, key=None, default=_llmc_missing):
    return _llmc_extreme(False, args, key, default)


def _llmc_map(function, *lists):
    if len(lists) == 1:
        return iter([function(x) for x in lists[0]])
    return iter([function(*xs) for xs in zip(*lists)])


def _llmc_filter(function, items):
    if function is None:
        return iter([x for x in items if x])
    return iter([x for x in items if function(x)])


def _llmc_attr(x, name):
    if isinstance(x, dict) and name in x:
        return x[name]
    return getattr(x, name)


def _llmc_command_text(done):
    # What it printed; unless it succeeded, also how it ended and what the server says about it.
    code = done["exit_code"]
    parts = [done["stdout"], done["stderr"]]
    if code != 0:
        notes = done.get("meta", {}).get("notes", [])
        parts.append("exit " + str(code) if code is not None else "")
        parts.append("[" + "; ".join(notes) + "]" if notes else "")
    return "\n".join([part.rstrip("\n") for part in parts if part])


def _llmc_print(*values, sep=" ", end="\n", file=None, flush=False):
    shown = []
    for value in values:
        if type(value) is dict and "_llmc_printed_as" in value:
            value = value["_llmc_printed_as"].rstrip("\n")
        elif type(value) is dict and "stdout" in value and "stderr" in value and "exit_code" in value:
            value = _llmc_command_text(value)
        shown.append(str(value))
    text = (" " if sep is None else sep).join(shown)
    if file is not None and hasattr(file, "_llmc_stream"):
        file.write(text + ("\n" if end is None else end))
    elif file is None or str(type(file)) != "<class '_io.StderrWrapper'>":
        print(text, end=end)


def _llmc_first(items):
    for x in items:
        return x
    raise StopIteration


def _llmc_name(x, name):
    if isinstance(x, str):
        return x.__name__
    text = str(x)
    if text.startswith("<function '"):
        return text[11:].partition("'")[0]
    if text.startswith("<function "):
        return text[10:].partition(" ")[0]
    if text.startswith("<class '"):
        return text[8:-2].rpartition(".")[2]
    return getattr(x, name)


def _llmc_property(x, name):
    value = getattr(x, name)
    return value() if "function" in str(type(value)) or "method" in str(type(value)) else value


def _llmc_getitem(x, key):
    method = getattr(x, "__getitem__", None)
    return x[key] if method is None else method(key)


def _llmc_len(x):
    method = getattr(x, "__len__", None)
    return len(x) if method is None else method()


def _llmc_abs(x):
    method = getattr(x, "__abs__", None)
    return abs(x) if method is None else method()


def _llmc_add(a, b):
    method = getattr(a, "__add__", None)
    return a + b if method is None else method(b)


def _llmc_sub(a, b):
    method = getattr(a, "__sub__", None)
    return a - b if method is None else method(b)


def _llmc_mul(a, b):
    method = getattr(a, "__mul__", None)
    return a * b if method is None else method(b)


def _llmc_truediv(a, b):
    method = getattr(a, "__truediv__", None)
    return a / b if method is None else method(b)


def _llmc_maketrans(a, b=None, drop=""):
    if b is None:
        return {ord(k) if isinstance(k, str) else k: v for k, v in a.items()}
    table = {ord(x): ord(y) for x, y in zip(a, b)}
    for x in drop:
        table[ord(x)] = None
    return table


def _llmc_m_translate(x, table):
    if not isinstance(x, str):
        return x.translate(table)
    out = []
    for c in x:
        to = table.get(ord(c), c)
        out.append("" if to is None else to if isinstance(to, str) else chr(to))
    return "".join(out)


def _llmc_abstract(message, *args, **options):
    raise TypeError(message)


def _llmc_take_turns():
    raise RuntimeError("asyncio.sleep(0): tasks do not take turns here")
