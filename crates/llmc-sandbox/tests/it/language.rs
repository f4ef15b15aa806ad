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
        ("def f():\n  yield 1", "yield", "list"),
        (
            "x = 1\nclass A(dict):\n  pass",
            "inheritance",
            "without bases",
        ),
        ("x = {}\ndel x", "'del'", "pop"),
        ("match 1:\n  case 1: pass", "match", "if and elif"),
        (
            "async def f():\n  async for x in y: pass",
            "async for",
            "plain for",
        ),
        ("list(map(echo, [1]))", "external function", "comprehension"),
        (
            "class A:\n  @property\n  def f(self): pass",
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
