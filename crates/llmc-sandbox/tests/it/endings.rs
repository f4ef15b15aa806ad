//! Limits, cancellation, death.

use std::time::{Duration, Instant};

use llmc_sandbox::{ScriptEnd, ScriptErrorKind, ScriptLimit, ScriptLimits};
use tokio_util::sync::CancellationToken;

use crate::fixture::{Toys, limits, open, run_with, runtime, trouble};

pub(crate) fn list(add: &mut impl FnMut(&'static str, fn())) {
    add("endings::computing_without_end", endless);
    add(
        "endings::a_native_operation_that_no_check_interrupts",
        native,
    );
    add("endings::memory", memory);
    add("endings::output", output);
    add("endings::recursion", recursion);
    add("endings::a_call_that_takes_too_long", slow_call);
    add("endings::nothing_is_caught", swallowing);
    add(
        "endings::cancelled_while_it_computes_and_while_it_waits",
        cancelled,
    );
    add("endings::a_worker_that_is_killed", killed);
    add(
        "endings::a_caller_that_goes_away_takes_the_worker_along",
        dropped,
    );
}

fn brief() -> ScriptLimits {
    ScriptLimits {
        cpu: Duration::from_millis(300),
        wall: Duration::from_secs(10),
        ..limits()
    }
}

fn ends(code: &str, limits: &ScriptLimits, limit: ScriptLimit) -> llmc_sandbox::ScriptOutcome {
    let started = Instant::now();
    let (outcome, _) = run_with(code, limits);
    let trouble = trouble(&outcome);
    assert_eq!(
        trouble.kind,
        ScriptErrorKind::Limit(limit),
        "{code}: {trouble:?}"
    );
    assert_eq!(trouble.message, limits.describe(limit));
    assert!(trouble.hint.is_some());
    assert!(started.elapsed() < Duration::from_secs(15), "{code}");
    outcome
}

fn endless() {
    for code in [
        "print('before')\nwhile True: pass",
        "print('before')\nx = 0\nwhile True:\n  x += 1",
        "print('before')\nfor i in range(10**12): pass",
        "print('before')\nimport itertools\nfor i in itertools.count(): pass",
        "print('before')\nasync def f():\n  while True: pass\nawait f()",
    ] {
        let outcome = ends(code, &brief(), ScriptLimit::Cpu);
        assert_eq!(outcome.output, "before\n");
    }
}

fn native() {
    // What is not interrupted inside is ended by the server; either way it ends, and the printed lines are there.
    for code in [
        "print('before')\nimport re\nre.match(r'(a*)*b', 'a' * 5000)\nre.match(r'(?=(a+)+b)', 'a' * 40)\nwhile True: pass",
        "print('before')\nx = 3 ** 3_000_000\nx = str(x)\nwhile True: pass",
        "print('before')\nx = list(range(2_000_000))\nwhile True: x.sort(key=lambda n: -n)",
    ] {
        let outcome = run_with(code, &brief()).0;
        let trouble = trouble(&outcome);
        assert_eq!(outcome.output, "before\n", "{trouble:?}");
        assert!(
            outcome.elapsed < Duration::from_secs(5),
            "{code}: {outcome:?}"
        );
    }
}

fn memory() {
    for code in [
        "print('before')\nx = 'a' * 10**10",
        "print('before')\nx = 'a' * 10**6\nwhile True: x = x + x",
        "print('before')\nx = []\nwhile True: x.append('y' * 1000)",
        "print('before')\nx = [0] * 10**9",
        "print('before')\nx = 1 << 10**10",
        "print('before')\nx = {i: str(i) for i in range(10**8)}",
        "print('before')\nx = bytes(10**10)",
        "print('before')\nx = f'{5:1000000000}'",
        "print('before')\nx = 'a'.ljust(10**10)",
        "print('before')\nx = 'ab'.replace('a', 'c' * 10**7 )\nfor i in range(40): x = x.replace('c', 'cc')",
    ] {
        let (outcome, _) = run_with(code, &limits());
        let trouble = trouble(&outcome);
        let plain = matches!(trouble.exception.as_str(), "ValueError" | "OverflowError");
        assert!(
            plain || trouble.kind == ScriptErrorKind::Limit(ScriptLimit::Memory),
            "{code}: {trouble:?}"
        );
        assert_eq!(outcome.output, "before\n", "{code}");
    }
}

fn output() {
    let small = ScriptLimits {
        output_bytes: 1000,
        ..limits()
    };
    for code in [
        "while True: print('0123456789')",
        "print('é' * 10**6)",
        "while True:\n  try:\n    print('0123456789')\n  except BaseException: pass",
        "print('a' * 999)\n'b' * 100",
    ] {
        let outcome = ends(code, &small, ScriptLimit::Output);
        assert!(
            (990..=1000).contains(&outcome.output.len()),
            "{code}: {}",
            outcome.output.len()
        );
    }
}

fn recursion() {
    ends(
        "def f(n): return f(n + 1)\nf(0)",
        &limits(),
        ScriptLimit::Recursion,
    );
    // Expressions that nest too deep to be parsed are errors of the script, and those that do not are computed.
    for code in [
        format!("x = {}1", "1+".repeat(200_000)),
        format!("x = {}", "[".repeat(100_000)),
        format!("x = a{}", ".b".repeat(100_000)),
    ] {
        let (outcome, _) = run_with(&code, &limits());
        let trouble = trouble(&outcome);
        let kind = ScriptErrorKind::Limit(ScriptLimit::Recursion);
        assert_eq!(trouble.kind, kind, "{trouble:?}");
    }
    let (outcome, _) = run_with(&format!("{}1", "1+".repeat(20)), &limits());
    assert!(matches!(outcome.ending, ScriptEnd::Value(_)), "{outcome:?}");
    for code in [
        "x = []\nfor i in range(100_000): x = [x]\nprint(len(repr(x)))",
        "x = []\nfor i in range(100_000): x = [x]\nx",
        "import json\njson.loads('[' * 100_000)",
        "x = {}\nfor i in range(50_000): x = {'a': x}\nx == x\nimport json\njson.dumps(x)",
        "eval('(' * 100_000)",
    ] {
        // None of them may take more than its worker along.
        let _ = run_with(code, &limits());
    }
}

fn slow_call() {
    let short = ScriptLimits {
        wall: Duration::from_millis(300),
        calls_wall: Duration::from_millis(600),
        ..limits()
    };
    for code in [
        "print('before')\nhang()",
        "print('before')\nawait tools.aio.hang()",
        "print('before')\ntry:\n  hang()\nexcept BaseException:\n  while True: pass",
    ] {
        let outcome = ends(code, &short, ScriptLimit::Wall);
        assert_eq!(outcome.output, "before\n");
        assert!(!outcome.rolled_back, "the worker was only waiting");
        // The time of calls is not the script's.
        assert!(outcome.elapsed >= short.calls_wall, "{outcome:?}");
    }
}

fn swallowing() {
    let code = "while True:\n  try:\n    while True: pass\n  except BaseException:\n    pass\n  finally:\n    pass";
    ends(code, &brief(), ScriptLimit::Cpu);
    let code = "while True:\n  try:\n    x = 'a' * 10**10\n  except BaseException:\n    pass";
    ends(code, &limits(), ScriptLimit::Memory);
}

fn cancelled() {
    for code in [
        "print('on', end='')\nhang()",
        "hang()",
        "print('on', end='')\nwhile True: pass",
    ] {
        runtime().block_on(async {
            let (toys, cancel) = (Toys::default(), CancellationToken::new());
            let mut session = open().await;
            let limits = limits();
            let run = session.run(code, &limits, &toys, &cancel);
            let canceller = async {
                if code.contains("hang") {
                    toys.hangs.notified().await;
                } else {
                    while toys.printed.lock().unwrap().is_empty() {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                }
                cancel.cancel();
            };
            let (outcome, ()) = tokio::join!(run, canceller);
            assert_eq!(trouble(&outcome).kind, ScriptErrorKind::Cancelled, "{code}");
            assert!(outcome.elapsed < Duration::from_secs(5), "{code}");
        });
    }
}

fn killed() {
    runtime().block_on(async {
        let (toys, cancel) = (Toys::default(), CancellationToken::new());
        let mut session = open().await;
        let pid = session.worker_id().unwrap();
        let limits = limits();
        let run = session.run("print('before')\nhang()", &limits, &toys, &cancel);
        let killer = async {
            toys.hangs.notified().await;
            let pid = rustix::process::Pid::from_raw(pid.try_into().unwrap()).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        };
        let (outcome, ()) = tokio::join!(run, killer);
        assert_eq!(trouble(&outcome).kind, ScriptErrorKind::Crashed);
        assert_eq!(outcome.output, "before\n");
        let after = session.run("1 + 1", &limits, &toys, &cancel).await;
        assert!(matches!(after.ending, ScriptEnd::Value(_)), "{after:?}");
    });
}

fn dropped() {
    runtime().block_on(async {
        let (toys, cancel) = (Toys::default(), CancellationToken::new());
        let mut session = open().await;
        let pid = session.worker_id().unwrap();
        let limits = limits();
        let run = session.run("hang()", &limits, &toys, &cancel);
        tokio::select! {
            _ = run => panic!("it hangs"),
            () = toys.hangs.notified() => {}
        }
        drop(session);
        let gone = || !std::path::Path::new(&format!("/proc/{pid}/fd")).exists();
        let deadline = Instant::now() + Duration::from_secs(10);
        while !gone() {
            assert!(Instant::now() < deadline, "the worker lives on");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
}
