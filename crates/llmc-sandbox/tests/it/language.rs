//! What Python there is, and what is said about the rest.

use llmc_sandbox::ScriptErrorKind;

use crate::fixture::{fails, run, shows, trouble};

pub(crate) fn list(add: &mut impl FnMut(&'static str, fn())) {
    add("language::prints_and_the_last_value_come_back", values);
    add("language::undefined_names_are_name_errors", undefined);
    add(
        "language::unknown_constructs_name_the_way_round",
        unsupported,
    );
    add("language::syntax_errors_have_line_and_caret", syntax);
    add("language::other_modules_are_not_there", imports);
    add("language::hostile_code_is_answered", hostile);
}

fn values() {
    for (code, shown) in [
        ("print(1)", "1\n"),
        ("1 + 1", "2"),
        ("'text'", "text"),
        ("print('a', 'b', sep='-', end='')\nNone", "a-b"),
        ("x = 5", ""),
        (
            "[1, 'a', None, {'k': (1, 2)}]",
            "[1, 'a', None, {'k': (1, 2)}]",
        ),
        ("# nothing", ""),
        ("import json\njson.dumps({'a': 1})", "{\"a\": 1}"),
        ("seven * 6", "42"),
        (
            "from collections import Counter\nCounter('aab').most_common(1)",
            "[('a', 2)]",
        ),
        (
            "import asyncio\nasync def f(): return 3\nasyncio.run(f())",
            "3",
        ),
        ("sum(x * x for x in range(4))", "14"),
        // What is rewritten before it runs.
        (
            "n = 1\nn += 2 > 1\nprint(n, sum(x > 1 for x in [1, 2, 3]), True + 1)",
            "2 2 2\n",
        ),
        ("'%05.1f|%-4s|%d%%' % (2.25, 'ab', 7)", "002.2|ab  |7%"),
        ("'%(a)s' % {'a': 1}", "1"),
        ("7 % 4", "3"),
        (
            "d = {'a': 1, 'b': 2}\ndel d['a']\nxs = [1, 2, 3, 4]\ndel xs[1:3]\nprint(d, xs)",
            "{'b': 2} [1, 4]\n",
        ),
        (
            "y, z = 1, 2\ndef f():\n  y = 1\n  del y; return 'left'\nprint(f())\ndel y, z\ntry:\n  y\nexcept NameError as e:\n  print(e)",
            "left\nname 'y' is not defined\n",
        ),
        (
            "try:\n  del nothing\nexcept NameError as e:\n  print(e)",
            "name 'nothing' is not defined\n",
        ),
        ("xs = [1, 2, 3]\nxs[1:] = 'ab'\nxs", "[1, 'a', 'b']"),
        ("{'a': 1} | {'b': 2}", "{'a': 1, 'b': 2}"),
        ("({1} <= {1, 2}, {1, 2} < {1, 2})", "(True, False)"),
        (
            "def g(n):\n  for i in range(n):\n    if i == 3:\n      return\n    yield i\nlist(g(9))",
            "[0, 1, 2]",
        ),
        (
            "def w(t):\n  for k in t:\n    yield k\n    yield from w(t[k])\nlist(w({'a': {'b': {}}}))",
            "['a', 'b']",
        ),
        (
            "def f(x):\n  match x:\n    case [a, *rest] if a > 0:\n      return rest\n    case {'k': v}:\n      return v\n    case 1 | 2:\n      return 'low'\n    case _:\n      return None\n[f([1, 2]), f([0]), f({'k': 3}), f(2)]",
            "[[2], None, 3, 'low']",
        ),
        (
            "class A:\n  def __init__(self, x): self.x = x\n  @property\n  def twice(self): return self.x * 2\n  def who(self): return 'A'\nclass B(A):\n  def __init__(self, x):\n    super().__init__(x + 1)\n  def who(self): return 'B' + super().who()\nb = B(1)\n(b.twice, b.who(), isinstance(b, A))",
            "(4, 'BA', True)",
        ),
        (
            "class M:\n  def __init__(self, n): self.n = n\n  @classmethod\n  def of(cls, t): return cls(int(t))\n  @staticmethod\n  def ok(t): return t.isdigit()\n  def more(self): return self.ok('1')\n(M.of('3').n, M.ok('x'), M(1).more())",
            "(3, False, True)",
        ),
        (
            "class P:\n  def __init__(self, a, b):\n    self.a, self.b = a, b\nP(1, 2).b",
            "2",
        ),
        ("d = {'a': 2, 'b': 1}\nsorted(d, key=d.get)", "['b', 'a']"),
        ("sorted(['b', 'A'], key=str.lower)", "['A', 'b']"),
        (
            "import itertools, functools\nfrom itertools import groupby\n[(k, len(list(g))) for k, g in groupby('aab')]",
            "[('a', 2), ('b', 1)]",
        ),
        (
            "import re\nre.sub(r'\\d', lambda m: str(int(m.group()) + 1), 'a1b2')",
            "a2b3",
        ),
        (
            "import csv\nlist(csv.DictReader(['a,b', '1,\"x, y\"']))",
            "[{'a': '1', 'b': 'x, y'}]",
        ),
        (
            "import hashlib\nhashlib.sha256(b'abc').hexdigest()[:8] + hashlib.md5(b'abc').hexdigest()[:8]",
            "ba7816bf90015098",
        ),
        (
            "from abc import ABC, abstractmethod\nclass A(ABC):\n  @abstractmethod\n  def f(self): ...\n  @abstractmethod\n  def g(self): ...\nclass B(A):\n  def f(self): return 1\nclass C(B):\n  def g(self): return 2\nfor make in (lambda: A(), lambda: B(), lambda: C()):\n  try:\n    print(make().g())\n  except TypeError as e:\n    print(e)",
            "Can't instantiate abstract class A without an implementation for abstract methods 'f', 'g'\nCan't instantiate abstract class B without an implementation for abstract method 'g'\n2\n",
        ),
        (
            "import asyncio\nasync def f(n):\n  if n > 1: raise ValueError('no')\n  return n\nr = await asyncio.gather(f(1), f(2), return_exceptions=True)\n(r[0], type(r[1]).__name__)",
            "(1, 'ValueError')",
        ),
        (
            "import textwrap, statistics\n(textwrap.fill('a b c', 3), statistics.median([3, 1, 2]))",
            "('a b\\nc', 2)",
        ),
    ] {
        assert_eq!(shows(code), shown, "{code}");
    }
}

fn undefined() {
    let trouble = fails("x = 1\nprint(ech('a'))", ScriptErrorKind::Exception);
    assert_eq!(trouble.exception, "NameError");
    assert_eq!(trouble.line, Some(2));
    assert_eq!(trouble.hint.as_deref(), Some("did you mean echo?"));
    assert_eq!(
        shows("try:\n  nothing\nexcept NameError as e:\n  print(e)"),
        "name 'nothing' is not defined\n"
    );
}

fn unsupported() {
    for (code, construct, way) in [
        ("def f():\n  while True:\n    yield 1", "yield", "list"),
        ("def f():\n  print(1)\n  yield 1", "yield", "list"),
        ("def f():\n  x = yield 1", "yield", "list"),
        (
            "x = 1\nclass A(dict):\n  pass",
            "inheritance",
            "without bases",
        ),
        ("class E(Exception): pass", "inheritance", "RuntimeError"),
        ("class A: pass\nx = A()\nx.y = 1\ndel x.y", "'del'", "pop"),
        ("match 1:\n  case {**rest}: pass", "match", "if and elif"),
        (
            "async def f():\n  async for x in y: pass",
            "async for",
            "plain for",
        ),
        (
            "class A:\n  @cache\n  def f(self): pass",
            "decorators",
            "plain method",
        ),
    ] {
        let trouble = fails(code, ScriptErrorKind::Unsupported);
        assert!(trouble.message.contains(construct), "{trouble:?}");
        assert!(
            trouble.hint.as_deref().unwrap().contains(way),
            "{trouble:?}"
        );
        assert!(trouble.line.is_some(), "{trouble:?}");
        assert!(!trouble.message.contains("monty"), "{trouble:?}");
    }
}

fn syntax() {
    let trouble = fails("x = 1\nif x\n  print(x)", ScriptErrorKind::Syntax);
    assert_eq!(trouble.line, Some(2), "{trouble:?}");
    assert!(trouble.traceback.contains("if x"), "{trouble:?}");
    assert!(trouble.traceback.contains('^'), "{trouble:?}");
}

fn imports() {
    for module in [
        "subprocess",
        "socket",
        "ctypes",
        "threading",
        "urllib.request",
        "time",
    ] {
        let trouble = fails(&format!("import {module}"), ScriptErrorKind::Exception);
        assert_eq!(trouble.exception, "ModuleNotFoundError", "{trouble:?}");
        assert!(
            trouble.hint.as_deref().unwrap().contains("tools"),
            "{trouble:?}"
        );
    }
}

fn hostile() {
    let long = format!("x = [{}]\nlen(x)", "1,".repeat(100_000));
    let deep = "(".repeat(50_000);
    let sum = format!("x = 1{}", "+1".repeat(200_000));
    for code in [
        "\0",
        "\u{1}\u{2}\u{ffff}",
        "print(\u{202e}1)",
        "\u{feff}print(1)",
        "a\0b = 1",
        "\r\n\r\n",
        &long,
        &deep,
        &sum,
    ] {
        // Any ending will do, as long as there is one.
        let outcome = run(code);
        if let llmc_sandbox::ScriptEnd::Failed(_) = outcome.ending {
            assert!(!trouble(&outcome).message.is_empty(), "{outcome:?}");
        }
    }
    let text = format!("x = '{}'\nlen(x)", "a".repeat(1 << 20));
    assert_eq!(shows(&text), "1048576");
}
