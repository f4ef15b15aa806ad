//! Parsers that are attacked through the files they read.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use llmc_sandbox::{ParserConfinement, ParserOptions, ParserPool, ParserRole, serve_parser};
use llmc_syntax::{
    Definition, DefinitionKind, Language, ParseFailure, ParseGoal, ParseReply, ParseRequest,
    SyntaxAnalysis, parse_here,
};

use crate::escapes::{ATTEMPTS, assert_held, what_works};

pub(crate) fn list(add: &mut impl FnMut(&'static str, fn())) {
    add("parsers::a_parser_finds_what_the_grammar_finds", finds);
    add("parsers::the_kernel_holds_a_parser", held);
    add("parsers::a_parser_taken_over_gets_nowhere", taken_over);
    add("parsers::a_crash_costs_one_source", crash);
    add("parsers::a_lie_costs_one_source", lie);
    add("parsers::a_hang_ends_at_the_deadline", hang);
    add("parsers::exhausted_memory_costs_one_source", memory);
    add(
        "parsers::without_a_filter_it_is_still_a_process",
        unfiltered,
    );
    add("parsers::an_executable_that_is_no_parser", no_parser);
    add("parsers::idle_parsers_end", idle);
    add("parsers::a_full_pool_makes_callers_wait", full);
    add("parsers::hostile_sources_take_no_memory_here", hostile);
}

/// The hidden arguments of parsers that do not what they should.
const HOSTILE: &str = "__hostile_parser";
const TAKEN_OVER: &str = "__parser_taken_over";
const UNHELD: &str = "__parser_unheld";
const UNFILTERED: &str = "__parser_unfiltered";

pub(crate) fn parser_main() -> Option<ExitCode> {
    let mut args = std::env::args().skip(1);
    let kind = args.next()?;
    let held = ParserRole::default();
    let role = match kind.as_str() {
        HOSTILE => ParserRole {
            parse: misbehave,
            ..held
        },
        TAKEN_OVER => ParserRole {
            parse: attack,
            ..held
        },
        UNHELD => ParserRole {
            parse: attack,
            confine: |_| Ok(()),
        },
        UNFILTERED => ParserRole {
            confine: |_| Err(std::io::Error::other("no filter here")),
            ..held
        },
        _ => return None,
    };
    Some(serve_parser(role, args.next()?.parse().ok()?))
}

/// Does what the source asks for.
fn misbehave(request: &ParseRequest<'_>) -> ParseReply {
    match request.source.split_whitespace().next() {
        Some("ABORT") => std::process::abort(),
        Some("HANG") => loop {
            std::hint::spin_loop();
        },
        Some("MEMORY") => {
            let mut all: Vec<Vec<u8>> = Vec::new();
            loop {
                all.push(vec![1; 8 << 20]);
            }
        }
        Some("LIE") => {
            let mut reply = parse_here(request);
            for found in reply
                .analysis
                .iter_mut()
                .flat_map(|all| &mut all.definitions)
            {
                found.end_line = 1 << 40;
            }
            reply
        }
        _ => parse_here(request),
    }
}

/// Tries to get out, and returns what worked as definitions.
fn attack(request: &ParseRequest<'_>) -> ParseReply {
    let worked = what_works().into_iter();
    let definitions = worked.map(|name| Definition {
        name: name.to_owned(),
        kind: DefinitionKind::Function,
        line: 1,
        first_line: 1,
        end_line: 1,
        body_line: None,
        signature: String::new(),
        name_start: request.source.find(name).unwrap(),
        depth: 0,
    });
    ParseReply {
        analysis: Some(SyntaxAnalysis {
            definitions: definitions.collect(),
            references: Vec::new(),
            ..SyntaxAnalysis::default()
        }),
        ..ParseReply::default()
    }
}

fn pool(argument: Option<&'static str>) -> Arc<ParserPool> {
    let usual = ParserOptions::default();
    ParserPool::new(ParserOptions {
        argument: argument.unwrap_or(usual.argument),
        memory_bytes: 256 << 20,
        ..usual
    })
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

fn ask(pool: &Arc<ParserPool>, source: &str) -> Result<SyntaxAnalysis, ParseFailure> {
    let request = ParseRequest {
        language: Language::Rust,
        goal: ParseGoal::References,
        source,
        cpu_time: Duration::from_secs(10),
    };
    let reply = pool.parse(&request, soon())?;
    reply.analysis.ok_or(ParseFailure::Declined)
}

fn names(found: &SyntaxAnalysis) -> Vec<&str> {
    found
        .definitions
        .iter()
        .map(|one| one.name.as_str())
        .collect()
}

fn finds() {
    let pool = pool(None);
    for (language, source) in [
        (Language::Rust, include_str!("parsers.rs")),
        (Language::Python, include_str!("../../src/python/boot.py")),
        (Language::Go, "package a\n\nfunc B() { c.D() }\n"),
        (
            Language::Cpp,
            "class A { void b(); };\nvoid A::b() { c(); }\n",
        ),
        (Language::Bash, "a() {\n  b\n}\na\n"),
    ] {
        for goal in [
            ParseGoal::Definitions,
            ParseGoal::References,
            ParseGoal::Scopes,
        ] {
            let request = ParseRequest {
                language,
                goal,
                source,
                cpu_time: Duration::from_secs(20),
            };
            let here = parse_here(&request).analysis.unwrap();
            let there = pool.parse(&request, soon()).unwrap();
            assert!(there.cpu_time > Duration::ZERO);
            let there = there.analysis.unwrap();
            let scopes = goal == ParseGoal::Scopes;
            assert_eq!(here.definitions.is_empty(), scopes);
            assert_eq!(here.scopes, there.scopes, "{language:?}");
            assert_eq!(here.definitions, there.definitions, "{language:?}");
            assert_eq!(here.references, there.references, "{language:?}");
        }
    }
    assert_eq!(pool.idle_ids().len(), 1);
    assert_eq!(pool.confinement(), Some(ParserConfinement::Confined));
}

fn held() {
    let pool = pool(None);
    ask(&pool, "fn a() {}").unwrap();
    let [pid] = pool.idle_ids()[..] else {
        panic!("one parser");
    };
    assert_ne!(pid, std::process::id());
    assert_held(pid);
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let data = limits
        .lines()
        .find(|line| line.starts_with("Max data size"));
    assert!(data.unwrap().contains(&(256 << 20).to_string()), "{limits}");
}

fn taken_over() {
    let source = ATTEMPTS.join(" ");
    // Without what holds a parser every attempt works, or the second line would prove nothing.
    let free = ask(&pool(Some(UNHELD)), &source).unwrap();
    assert_eq!(names(&free), ATTEMPTS);
    let held = ask(&pool(Some(TAKEN_OVER)), &source).unwrap();
    assert!(held.definitions.is_empty(), "{:?}", names(&held));
    let _ = std::fs::remove_file("/tmp/llmc-attacker");
}

/// A source that the parser fails over, between two that it parses.
fn fails_over(source: &str) {
    let pool = pool(Some(HOSTILE));
    assert_eq!(names(&ask(&pool, "fn before() {}").unwrap()), ["before"]);
    let before = pool.idle_ids();
    assert_eq!(ask(&pool, source).unwrap_err(), ParseFailure::Crashed);
    assert!(pool.idle_ids().is_empty());
    assert_eq!(names(&ask(&pool, "fn after() {}").unwrap()), ["after"]);
    assert_ne!(pool.idle_ids(), before);
}

fn crash() {
    fails_over("ABORT fn a() {}");
    // Many times, since the number of processes is bounded.
    let pool = pool(Some(HOSTILE));
    for _ in 0..12 {
        assert_eq!(ask(&pool, "ABORT").unwrap_err(), ParseFailure::Crashed);
    }
    assert_eq!(names(&ask(&pool, "fn after() {}").unwrap()), ["after"]);
    // An idle one that ended for another reason is replaced, too.
    let [pid] = pool.idle_ids()[..] else {
        panic!("one parser");
    };
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let ended = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero()));
        // Its threads share the socket.
        status.map_or(true, |status| {
            status.contains("State:\tZ") && status.contains("Threads:\t1")
        })
    };
    while !ended() {
        std::thread::yield_now();
    }
    assert_eq!(names(&ask(&pool, "fn again() {}").unwrap()), ["again"]);
}

fn lie() {
    fails_over("LIE fn a() {}");
}

fn memory() {
    fails_over("MEMORY");
}

fn hang() {
    let pool = pool(Some(HOSTILE));
    let request = ParseRequest {
        language: Language::Rust,
        goal: ParseGoal::Definitions,
        source: "HANG",
        cpu_time: Duration::from_secs(1),
    };
    ask(&pool, "fn before() {}").unwrap();
    let started = Instant::now();
    let failed = pool.parse(&request, started + Duration::from_millis(300));
    assert_eq!(failed.unwrap_err(), ParseFailure::Crashed);
    assert!(started.elapsed() < Duration::from_secs(25));
    assert_eq!(names(&ask(&pool, "fn after() {}").unwrap()), ["after"]);
}

fn unfiltered() {
    let pool = pool(Some(UNFILTERED));
    let why = ParserConfinement::ProcessOnly("no filter here".to_owned());
    assert_eq!(pool.confinement(), None);
    assert_eq!(pool.check(), why);
    assert_eq!(names(&ask(&pool, "fn a() {}").unwrap()), ["a"]);
    assert_ne!(pool.idle_ids(), [std::process::id()]);
}

fn no_parser() {
    let pool = pool(Some("--list"));
    assert_eq!(
        ask(&pool, "fn a() {}").unwrap_err(),
        ParseFailure::Unavailable
    );
    assert!(matches!(pool.check(), ParserConfinement::Unavailable(_)));
}

fn idle() {
    let pool = ParserPool::new(ParserOptions {
        idle_timeout: Duration::from_millis(40),
        ..ParserOptions::default()
    });
    ask(&pool, "fn a() {}").unwrap();
    let end = soon();
    while !pool.idle_ids().is_empty() {
        assert!(Instant::now() < end);
        std::thread::yield_now();
    }
    assert_eq!(names(&ask(&pool, "fn b() {}").unwrap()), ["b"]);
}

fn full() {
    let pool = ParserPool::new(ParserOptions {
        argument: HOSTILE,
        workers: 1,
        ..ParserOptions::default()
    });
    let request = |source| ParseRequest {
        language: Language::Rust,
        goal: ParseGoal::Definitions,
        source,
        cpu_time: Duration::from_secs(1),
    };
    std::thread::scope(|scope| {
        let hanging =
            scope.spawn(|| pool.parse(&request("HANG"), Instant::now() + Duration::from_secs(2)));
        let mut found = Vec::new();
        // None is free until the first one is given up.
        while !hanging.is_finished() {
            found.push(pool.parse(
                &request("fn a() {}"),
                Instant::now() + Duration::from_millis(50),
            ));
        }
        assert!(
            found
                .iter()
                .any(|one| matches!(one, Err(ParseFailure::Unavailable)))
        );
        assert_eq!(hanging.join().unwrap().unwrap_err(), ParseFailure::Crashed);
    });
    assert_eq!(names(&ask(&pool, "fn a() {}").unwrap()), ["a"]);
}

/// The largest memory that this process has had, in MB.
fn peak_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<u64>()
        .unwrap()
        / 1024
}

fn hostile() {
    let pool = pool(None);
    let before = peak_mb();
    let size = 2 << 20;
    let filled = |part: &str| part.repeat(size / part.len());
    let mut bytes = 0;
    for (language, part) in [
        (Language::Rust, "("),
        (Language::Rust, "mod a{"),
        (Language::Rust, "a!{"),
        (Language::Python, "["),
        (Language::Python, "x=1;"),
        (Language::JavaScript, "{"),
        (Language::JavaScript, "`${"),
        (Language::C, "((*"),
        (Language::C, "]}"),
        (Language::Cpp, "a<"),
        (Language::Tsx, "<a>"),
        (Language::Ruby, "def a "),
        (Language::Php, "<?php ("),
        (Language::Bash, "$("),
        (Language::Bash, "<<A\n"),
    ] {
        let source = filled(part);
        bytes += source.len();
        let request = ParseRequest {
            language,
            goal: ParseGoal::References,
            source: &source,
            cpu_time: Duration::from_millis(300),
        };
        // Whether anything is found or the parser gives up does not matter.
        let _ = pool.parse(&request, soon());
    }
    assert!(bytes >= 30_000_000, "{bytes}");
    let grown = peak_mb() - before;
    assert!(grown < 200, "{grown} MB");
    assert_eq!(names(&ask(&pool, "fn after() {}").unwrap()), ["after"]);
}
