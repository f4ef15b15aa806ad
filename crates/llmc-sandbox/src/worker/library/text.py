# re, string, textwrap, shlex, html, urllib.parse, pprint
import re as _llmc_r


def _llmc_expand(m, template):
    out = ""
    i = 0
    while i < len(template):
        c = template[i]
        if c == "\\" and i + 1 < len(template):
            d = template[i + 1]
            if d == "g" and template[i + 2:i + 3] == "<":
                end = template.index(">", i)
                name = template[i + 3:end]
                out += m.group(int(name) if name.isdigit() else name) or ""
                i = end + 1
                continue
            if d.isdigit():
                out += m.group(int(d)) or ""
            else:
                out += {"n": "\n", "t": "\t", "\\": "\\", "r": "\r"}.get(d, "\\" + d)
            i += 2
            continue
        out += c
        i += 1
    return out


def _llmc_re_subn(pattern, repl, text, count=0, flags=0):
    rx = _llmc_r.compile(pattern, flags) if isinstance(pattern, str) else pattern
    out = []
    end = 0
    n = 0
    for m in rx.finditer(text):
        if count and n >= count:
            break
        out.append(text[end:m.start()])
        out.append(_llmc_expand(m, repl) if isinstance(repl, str) else repl(m))
        end = m.end()
        n += 1
    out.append(text[end:])
    return "".join(out), n


def _llmc_re_flags(pattern, flags):
    """Verbose patterns are written plain."""
    if flags & 64:
        out = ""
        inside = False
        i = 0
        while i < len(pattern):
            c = pattern[i]
            if c == "\\":
                out += pattern[i:i + 2]
                i += 2
                continue
            if c == "[":
                inside = True
            elif c == "]":
                inside = False
            if not inside and c == "#":
                while i < len(pattern) and pattern[i] != "\n":
                    i += 1
                continue
            if inside or not c.isspace():
                out += c
            i += 1
        pattern = out
        flags -= 64
    return pattern, flags


def _llmc_re_compile(pattern, flags=0):
    if not isinstance(pattern, str):
        return pattern
    pattern, flags = _llmc_re_flags(pattern, flags)
    return _llmc_r.compile(pattern, flags)


def _llmc_re_sub(pattern, repl, text, count=0, flags=0):
    return _llmc_re_subn(_llmc_re_compile(pattern, flags), repl, text, count)[0]


def _llmc_re_split(pattern, text, maxsplit=0, flags=0):
    out = []
    end = 0
    n = 0
    for m in _llmc_re_compile(pattern, flags).finditer(text):
        if maxsplit and n >= maxsplit:
            break
        out.append(text[end:m.start()])
        out.extend(m.groups())
        end = m.end()
        n += 1
    out.append(text[end:])
    return out


class _llmc_re_module:
    compile = _llmc_re_compile
    search = lambda pattern, text, flags=0: _llmc_re_compile(pattern, flags).search(text)
    match = lambda pattern, text, flags=0: _llmc_re_compile(pattern, flags).match(text)
    fullmatch = lambda pattern, text, flags=0: _llmc_re_compile(pattern, flags).fullmatch(text)
    findall = lambda pattern, text, flags=0: _llmc_re_compile(pattern, flags).findall(text)
    finditer = lambda pattern, text, flags=0: _llmc_re_compile(pattern, flags).finditer(text)
    split = _llmc_re_split
    sub = _llmc_re_sub
    subn = lambda pattern, repl, text, count=0, flags=0: _llmc_re_subn(_llmc_re_compile(pattern, flags), repl, text, count)
    escape = _llmc_r.escape
    I = 2
    IGNORECASE = 2
    M = 8
    MULTILINE = 8
    S = 16
    DOTALL = 16
    X = 64
    VERBOSE = 64
    A = 256
    ASCII = 256
    U = 32
    UNICODE = 32
    error = ValueError
    purge = lambda: None


def _llmc_m_sub(x, *args, **options):
    if str(type(x)) == "<class 're.Pattern'>":
        return _llmc_re_subn(x, *args, **options)[0]
    return x.sub(*args, **options)


def _llmc_m_subn(x, *args, **options):
    if str(type(x)) == "<class 're.Pattern'>":
        return _llmc_re_subn(x, *args, **options)
    return x.subn(*args, **options)


class _llmc_Template:
    def __init__(self, template):
        self.template = template

    def _fill(self, values, safe):
        def one(m):
            if m.group(1) == "$":
                return "$"
            name = m.group(2) or m.group(3)
            if name in values:
                return str(values[name])
            if safe:
                return m.group(0)
            raise KeyError(name)
        return _llmc_re_subn(r"\$(?:(\$)|(\w+)|\{(\w+)\})", one, self.template)[0]

    def substitute(self, mapping=None, **values):
        return self._fill({**(mapping or {}), **values}, False)

    def safe_substitute(self, mapping=None, **values):
        return self._fill({**(mapping or {}), **values}, True)


class _llmc_string:
    ascii_lowercase = "abcdefghijklmnopqrstuvwxyz"
    ascii_uppercase = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    ascii_letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    digits = "0123456789"
    hexdigits = "0123456789abcdefABCDEF"
    punctuation = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
    whitespace = " \t\n\r\x0b\x0c"
    Template = _llmc_Template
    capwords = lambda s: " ".join([w.capitalize() for w in s.split()])


def _llmc_wrap(text, width=70, initial_indent="", subsequent_indent="", **options):
    lines = []
    line = initial_indent
    empty = True
    for word in text.split():
        while len(word) + len(subsequent_indent) > width and empty:
            room = max(1, width - len(line))
            lines.append(line + word[:room])
            word = word[room:]
            line = subsequent_indent
        if not word:
            continue
        if empty:
            line += word
            empty = False
        elif len(line) + 1 + len(word) <= width:
            line += " " + word
        else:
            lines.append(line)
            line = subsequent_indent + word
    if not empty:
        lines.append(line)
    return lines


def _llmc_dedent(text):
    lines = [line if line.strip() else "" for line in text.split("\n")]
    margin = None
    for line in lines:
        if line:
            indent = line[:len(line) - len(line.lstrip())]
            if margin is None:
                margin = indent
            while not indent.startswith(margin):
                margin = margin[:-1]
    n = len(margin or "")
    return "\n".join([line[n:] for line in lines])


def _llmc_indent(text, prefix, predicate=None):
    out = ""
    for line in text.splitlines(keepends=True):
        out += prefix + line if (predicate(line) if predicate else line.strip()) else line
    return out


def _llmc_shorten(text, width, placeholder=" [...]"):
    words = text.split()
    if len(" ".join(words)) <= width:
        return " ".join(words)
    while words and len(" ".join(words)) + len(placeholder) > width:
        words.pop()
    return " ".join(words) + placeholder if words else placeholder.strip()


class _llmc_textwrap:
    wrap = _llmc_wrap
    fill = lambda text, width=70, **o: "\n".join(_llmc_wrap(text, width, **o))
    dedent = _llmc_dedent
    indent = _llmc_indent
    shorten = _llmc_shorten


def _llmc_quote(s):
    if s and _llmc_r.fullmatch(r"[\w@%+=:,./-]+", s):
        return s
    return "'" + s.replace("'", "'\"'\"'") + "'"


def _llmc_shlex_split(s, comments=False, posix=True):
    out = []
    word = None
    quote = None
    i = 0
    while i < len(s):
        c = s[i]
        if quote:
            if c == quote:
                quote = None
            elif c == "\\" and quote == '"' and s[i + 1:i + 2] in ('"', "\\"):
                i += 1
                word += s[i]
            else:
                word += c
        elif c in "'\"":
            quote = c
            word = word or ""
        elif c == "\\":
            i += 1
            word = (word or "") + s[i:i + 1]
        elif c.isspace():
            if word is not None:
                out.append(word)
                word = None
        else:
            word = (word or "") + c
        i += 1
    if quote:
        raise ValueError("No closing quotation")
    if word is not None:
        out.append(word)
    return out


class _llmc_shlex:
    quote = _llmc_quote
    split = _llmc_shlex_split
    join = lambda words: " ".join([_llmc_quote(w) for w in words])


def _llmc_html_escape(s, quote=True):
    s = s.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return s.replace('"', "&quot;").replace("'", "&#x27;") if quote else s


class _llmc_html:
    escape = _llmc_html_escape
    unescape = lambda s: s.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", '"').replace("&#x27;", "'").replace("&#39;", "'").replace("&uuml;", "ü").replace("&amp;", "&")


def _llmc_url_quote(s, safe="/"):
    out = ""
    for b in str(s).encode():
        c = chr(b)
        out += c if b < 128 and (c.isalnum() or c in "_.-~" or c in safe) else f"%{b:02X}"
    return out


def _llmc_url_unquote(s):
    parts = s.split("%")
    data = parts[0].encode()
    for part in parts[1:]:
        if _llmc_r.match("[0-9a-fA-F]{2}", part):
            data += bytes([int(part[:2], 16)]) + part[2:].encode()
        else:
            data += b"%" + part.encode()
    return data.decode()


class _llmc_Url:
    def __init__(self, url):
        rest, _, fragment = url.partition("#")
        rest, _, query = rest.partition("?")
        self.fragment = fragment
        self.query = query
        self.scheme = ""
        m = _llmc_r.match(r"([a-zA-Z][a-zA-Z0-9+.-]*):", rest)
        if m:
            self.scheme = m.group(1).lower()
            rest = rest[m.end():]
        self.netloc = ""
        if rest.startswith("//"):
            netloc, slash, path = rest[2:].partition("/")
            self.netloc = netloc
            rest = slash + path
        self.path = rest
        self.params = ""
        host = self.netloc.rpartition("@")[2]
        name, _, port = host.partition(":")
        self.hostname = name.lower() or None
        self.port = int(port) if port else None
        self.username = self.netloc.partition("@")[0].partition(":")[0] if "@" in self.netloc else None

    def geturl(self):
        out = self.scheme + ":" if self.scheme else ""
        out += "//" + self.netloc if self.netloc else ""
        out += self.path
        out += "?" + self.query if self.query else ""
        return out + ("#" + self.fragment if self.fragment else "")


def _llmc_parse_qsl(query):
    pairs = [p.partition("=") for p in query.split("&") if p]
    return [(_llmc_url_unquote(k.replace("+", " ")), _llmc_url_unquote(v.replace("+", " "))) for k, _, v in pairs if v]


def _llmc_parse_qs(query):
    out = {}
    for k, v in _llmc_parse_qsl(query):
        out.setdefault(k, []).append(v)
    return out


def _llmc_urlencode(values, doseq=False):
    pairs = values.items() if isinstance(values, dict) else values
    q = lambda x: _llmc_url_quote(x, "").replace("%20", "+")
    return "&".join([q(k) + "=" + q(v) for k, v in pairs])


class _llmc_urllib_parse:
    urlparse = _llmc_Url
    urlsplit = _llmc_Url
    parse_qs = _llmc_parse_qs
    parse_qsl = _llmc_parse_qsl
    urlencode = _llmc_urlencode
    quote = _llmc_url_quote
    unquote = _llmc_url_unquote
    quote_plus = lambda s: _llmc_url_quote(s, "").replace("%20", "+")
    unquote_plus = lambda s: _llmc_url_unquote(s.replace("+", " "))


class _llmc_urllib:
    parse = _llmc_urllib_parse


def _llmc_pretty(x):
    if type(x) is dict:
        return "{" + ", ".join([repr(k) + ": " + _llmc_pretty(x[k]) for k in sorted(x, key=lambda k: str(k))]) + "}"
    if type(x) is list:
        return "[" + ", ".join([_llmc_pretty(v) for v in x]) + "]"
    return repr(x)


def _llmc_pformat(x, indent=1, width=80, **options):
    text = _llmc_pretty(x)
    if len(text) <= width or not isinstance(x, (dict, list)):
        return text
    if isinstance(x, dict):
        parts = [repr(k) + ": " + _llmc_pformat(x[k], indent, width - 2) for k in sorted(x, key=lambda k: str(k))]
        return "{" + ",\n ".join(parts) + "}"
    return "[" + ",\n ".join([_llmc_pformat(v, indent, width - 2).replace("\n", "\n ") for v in x]) + "]"


class _llmc_pprint:
    pformat = _llmc_pformat
    pprint = lambda x, **options: print(_llmc_pformat(x, **options))
    pp = lambda x, **options: print(_llmc_pformat(x, **options))
