//! Calls to the host.

use llmc_sandbox::{ScriptEnd, ScriptErrorKind, ScriptLimit, ScriptLimits};

use crate::fixture::{fails, limits, run, run_with, shows, trouble};

pub(crate) fn list(add: &mut impl FnMut(&'static str, fn())) {
    add("calls::functions_are_found_by_every_name", names);
    add("calls::values_cross_as_plain_data", plain);
    add("calls::failures_are_exceptions_with_a_code", failures);
    add("calls::awaited_calls_run_at_the_same_time", together);
    add("calls::unknown_functions_name_the_nearest", unknown);
    add("calls::too_many_calls_end_the_script", too_many);
    add("calls::a_host_can_end_the_script", stop);
    add("calls::large_answers_do_not_block_the_script", large);
    add("calls::a_reserved_name_is_refused_before_the_run", reserved);
}

fn names() {
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

fn plain() {
    assert_eq!(
        shows("tools.echo(1, 2.5, 'x', [1, (2, None)], flag=True, d={'a': {1: 2}})"),
        "{'args': [1, 2.5, 'x', [1, [2, None]]], 'kwargs': {'flag': True, 'd': {'a': {'1': 2}}}}"
    );
    for code in [
        "echo(b'x')",
        "echo(print)",
        "echo(float('nan'))",
        "x = []\nx.append(x)\necho(x)",
    ] {
        assert_eq!(
            fails(code, ScriptErrorKind::Exception).exception,
            "TypeError",
            "{code}"
        );
    }
}

fn failures() {
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
    // What cannot be caught where Python would catch it is said.
    let inside = "import asyncio\nasync def f():\n  try:\n    await tools.aio.fail()\n  except FileNotFoundError:\n    return 1\nawait asyncio.gather(f(), f())";
    let trouble = fails(inside, ScriptErrorKind::Exception);
    assert!(trouble.hint.unwrap().contains("return_exceptions"));
    let turns = "import asyncio\nasync def f():\n  await asyncio.sleep(0)\ntasks = [asyncio.create_task(f()) for _ in range(2)]\nfor task in tasks: await task";
    let trouble = fails(turns, ScriptErrorKind::Exception);
    assert_eq!(trouble.line, Some(3), "{trouble:?}");
    assert!(trouble.hint.unwrap().contains("to its end"));
    assert_eq!(
        shows("import asyncio\nasync def f():\n  await asyncio.sleep(0)\n  return 1\nawait f()"),
        "1"
    );
}

fn together() {
    // Neither call returns before the other has come.
    let code = "import asyncio\nawait asyncio.gather(tools.aio.meet(1), tools.aio.meet(2))";
    assert_eq!(shows(code), "[1, 2]");
    let many = "import asyncio\nsum(await asyncio.gather(*[tools.aio.add(i) for i in range(50)]))";
    assert_eq!(shows(many), "1225");
}

fn unknown() {
    let trouble = fails("tools.ecko(1)", ScriptErrorKind::Exception);
    assert_eq!(trouble.exception, "AttributeError");
    assert!(trouble.message.contains("did you mean echo"), "{trouble:?}");
    assert_eq!(shows("hasattr(tools, 'nothing')"), "False");
    assert_eq!(shows("getattr(tools, 'nothing', 5)"), "5");
    for code in [
        "tools.__class__.__bases__",
        "tools._secret",
        "tools.__dict__",
        "echo.__globals__",
    ] {
        assert_eq!(
            fails(code, ScriptErrorKind::Exception).exception,
            "AttributeError",
            "{code}"
        );
    }
}

fn too_many() {
    let five = ScriptLimits {
        calls: 5,
        ..limits()
    };
    for code in [
        "for i in range(9):\n  print(i)\n  try:\n    add(i)\n  except BaseException:\n    pass",
        "import asyncio\nprint('first')\nawait asyncio.gather(*[tools.aio.add(i) for i in range(9)])",
    ] {
        let (outcome, toys) = run_with(code, &five);
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
        assert!(toys.seen.lock().unwrap().len() <= 5);
    }
}

fn stop() {
    let outcome = run(
        "print('before')\ntry:\n  FINAL(1)\nexcept BaseException:\n  print('caught')\nprint('after')",
    );
    assert!(matches!(outcome.ending, ScriptEnd::Stopped), "{outcome:?}");
    assert_eq!(outcome.output, "before\n");
    let outcome = run("import asyncio\nawait asyncio.gather(tools.aio.FINAL(1), tools.aio.add(1))");
    assert!(matches!(outcome.ending, ScriptEnd::Stopped), "{outcome:?}");
}

fn large() {
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

fn reserved() {
    let trouble = fails("print('ran')\ntools = 3", ScriptErrorKind::Reserved);
    assert_eq!(trouble.line, Some(2));
    assert!(trouble.message.contains("tools"), "{trouble:?}");
}
