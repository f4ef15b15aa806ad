//! Calls to the host.

use llmc_sandbox::{ScriptEnd, ScriptErrorKind, ScriptLimit, ScriptLimits};

use super::{fails, run, run_with, shows};
use crate::fixture::{limits, trouble};

pub(super) fn names() {
    for code in [
        "add(1, 2)",
        "tools.add(1, 2)",
        "from tools import add\nadd(1, 2)",
        "from tools import add as plus\nplus(1, 2)",
        "import tools\ntools.add(1, 2)",
        "f = tools.add\nf(1, 2)",
        "await tools.aio.add(1, 2)",
        "f = tools.aio.add\nawait f(1, 2)",
        "from tools.aio import add\nawait add(1, 2)",
        "import asyncio\nasync def main():\n  return await tools.aio.add(1, 2)\nasyncio.run(main())",
        "[tools.add(x) for x in [3]][0]",
    ] {
        assert_eq!(shows(code), "3", "{code}");
    }
    for code in [
        "tools.github.upper('a')",
        "g = tools.github\ng.upper('a')",
        "f = tools.github.upper\nf('a')",
        "from tools import github\ngithub.upper('a')",
        "await tools.aio.github.upper('a')",
        "f = tools.aio.github.upper\nawait f('a')",
    ] {
        assert_eq!(shows(code), "A", "{code}");
    }
    let error = fails("tools.github.uper('a')", ScriptErrorKind::Exception);
    assert_eq!(error.exception, "AttributeError");
    assert!(
        error.message.contains("did you mean upper?"),
        "{}",
        error.message
    );
    // A script's own names come first.
    assert_eq!(shows("def add(a, b): return 'own'\nadd(1, 2)"), "own");
}

pub(super) fn plain() {
    assert_eq!(
        shows("tools.echo(1, 2.5, 'x', [1, (2, None)], flag=True, d={'a': {1: 2}})"),
        r#"{"args":[1,2.5,"x",[1,[2,null]]],"kwargs":{"flag":true,"d":{"a":{"1":2}}}}"#
    );
    for code in [
        "echo(b'x')",
        "echo(print)",
        "echo(float('nan'))",
        "x = []
x.append(x)
echo(x)",
    ] {
        fails(code, ScriptErrorKind::Exception);
    }
}

pub(super) fn failures() {
    assert_eq!(
        shows(
            "try:\n  tools.fail()\nexcept FileNotFoundError as e:\n  print(tools.error_code(e), e)"
        ),
        "NOT_FOUND NOT_FOUND: no such thing\n"
    );
    assert_eq!(shows("tools.error_code(ValueError('plain words'))\n"), "");
    let trouble = fails("def f():\n  fail()\nf()", ScriptErrorKind::Exception);
    assert_eq!(trouble.exception, "FileNotFoundError");
    assert_eq!(trouble.message, "NOT_FOUND: no such thing");
    assert_eq!(trouble.line, Some(2));
    assert!(trouble.traceback.contains("line 3"), "{trouble:?}");
    assert_eq!(
        shows(
            "import asyncio\ntry:\n  await asyncio.gather(tools.aio.fail(), tools.aio.add(1))\nexcept FileNotFoundError:\n  print('caught')"
        ),
        "caught\n"
    );
    let each = "import asyncio\nr = await asyncio.gather(*(f() for f in (tools.aio.add, tools.aio.fail, tools.aio.add)), return_exceptions=True)\nprint([type(x).__name__ for x in r])";
    assert_eq!(shows(each), "['int', 'FileNotFoundError', 'int']\n");
    assert_eq!(
        shows("import asyncio\nasync def f():\n  await asyncio.sleep(0)\n  return 1\nawait f()"),
        "1"
    );
}

pub(super) fn together() {
    // Neither call returns before the other has come.
    let code = "import asyncio\nawait asyncio.gather(tools.aio.meet(1), tools.aio.meet(2))";
    assert_eq!(shows(code), "[1, 2]");
    let many = "import asyncio\nsum(await asyncio.gather(*[tools.aio.add(i) for i in range(50)]))";
    assert_eq!(shows(many), "1225");
}

pub(super) fn unknown() {
    let trouble = fails("tools.ecko(1)", ScriptErrorKind::Exception);
    assert_eq!(trouble.exception, "AttributeError");
    assert!(trouble.message.contains("did you mean echo"), "{trouble:?}");
    assert_eq!(shows("hasattr(tools, 'nothing')"), "False");
    assert_eq!(shows("getattr(tools, 'nothing', 5)"), "5");
}

pub(super) fn too_many() {
    let five = ScriptLimits {
        calls: 5,
        ..limits()
    };
    for code in [
        "for i in range(9):\n  print(i)\n  try:\n    add(i)\n  except BaseException:\n    pass",
        "import asyncio\nprint('first')\nawait asyncio.gather(*[tools.aio.add(i) for i in range(9)])",
    ] {
        let outcome = run_with(code, &five);
        let trouble = trouble(&outcome);
        assert_eq!(
            trouble.kind,
            ScriptErrorKind::Limit(ScriptLimit::Calls),
            "{code}"
        );
        assert_eq!(trouble.message, "limit of 5 tool calls reached");
        assert_eq!(outcome.calls, 5);
        assert!(
            !outcome.output.is_empty(),
            "what was printed before is shown"
        );
    }
}

pub(super) fn stop() {
    let outcome = run(
        "print('before')\ntry:\n  FINAL(1)\nexcept BaseException:\n  print('caught')\nprint('after')",
    );
    assert!(matches!(outcome.ending, ScriptEnd::Stopped), "{outcome:?}");
    assert_eq!(outcome.output, "before\n");
    let outcome = run("import asyncio\nawait asyncio.gather(tools.aio.FINAL(1), tools.aio.add(1))");
    assert!(matches!(outcome.ending, ScriptEnd::Stopped), "{outcome:?}");
}

pub(super) fn large() {
    assert_eq!(shows("len(big(5_000_000))"), "5000000");
    // Answers arrive while the script prints and does not read.
    let code = "import asyncio
async def talk():
  for i in range(200): print('x' * 1000)
  return 0
r = await asyncio.gather(*[tools.aio.big(500_000) for _ in range(8)], talk())
sum(len(x) for x in r[:-1])";
    let shown = shows(code);
    assert!(
        shown.ends_with("4000000"),
        "{}",
        &shown[shown.len() - 100..]
    );
}

pub(super) fn reserved() {
    for code in [
        "tools = 3",
        "x = tools = 3",
        "a, (tools, *b) = 1, (2, 3)",
        "tools += 1",
        "for tools in [1]: pass",
        "[0 for tools in [1]]",
        "if (tools := 3): pass",
        "def tools(): pass",
        "class tools: pass",
        "import os as tools",
        "from os import path as tools",
        "with open('x') as tools: pass",
        "try:\n  1/0\nexcept ZeroDivisionError as tools: pass",
        "def f():\n  global tools\nf()",
        "del tools",
    ] {
        let trouble = fails(&format!("print('ran')\n{code}"), ScriptErrorKind::Reserved);
        assert!(trouble.line >= Some(2), "{code}: {trouble:?}");
        assert!(trouble.message.contains("tools"), "{trouble:?}");
    }
    for code in [
        "import tools",
        "from tools import add",
        "def f(tools): return tools\nf(1)",
        "tools.x = 1",
        "dict(tools=1)",
    ] {
        run(code);
        assert!(matches!(run(code).ending, ScriptEnd::Value(_)), "{code}");
    }
}
