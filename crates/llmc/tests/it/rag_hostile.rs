//! Hostile questions and files, asked of a server.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::{Duration, Instant};

use llmc_envelope::te::parse;
use llmc_testkit::{McpClient, TestProcess, TestWorkspace};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::rag::{SHOP, document, ready, refused};
use crate::{classic, workspace};

const ASKING: [&str; 4] = ["rag_search", "rag_query", "rag_search_enriched", "rag_plan"];

#[test]
fn every_kind_of_question() {
    let workspace = workspace(SHOP);
    let fresh = classic(&workspace);
    // While there is no index, and when there is one.
    for mut client in [fresh, ready(&workspace)] {
        for query in ["", "   \t\n", "\u{0}\u{1}\u{2}", "?!…", "🙂🙃", "\u{feff}"] {
            for tool in ASKING {
                let (code, text) = refused(&mut client, tool, json!({"query": query}));
                assert_eq!(code, "BAD_ARGS", "{tool} {query:?}: {text}");
                assert!(text.contains("no words"), "{tool} {query:?}: {text}");
            }
            let (is_error, text) = client.call_tool("te_rag", json!({"query": query}));
            assert!(is_error && text.contains("no words"), "{text}");
        }
        let blob: String = (0..100_000_u32)
            .map(|n| char::from_u32(0x20 + n.wrapping_mul(2_654_435_761) % 0x2000).unwrap())
            .collect();
        let long = "take an idle connection ".repeat(5000);
        for query in [&long, &blob, &"x".repeat(100_000), &"a_".repeat(50_000)] {
            for tool in ASKING.iter().chain(&["te_rag"]) {
                // A single word of this length is data, not a search term.
                let (is_error, text) = client.call_tool(tool, json!({"query": query}));
                let fine = match is_error {
                    true => text.contains("no words"),
                    false => *query != long || text.contains("src/pool.rs#L"),
                };
                assert!(fine, "{tool}: {}", &text[..200.min(text.len())]);
            }
        }
        for wrong in [json!(7), json!(["x"]), json!({"x": 1}), Value::Null] {
            let (code, text) = refused(&mut client, "rag_search", json!({"query": wrong}));
            assert_eq!(code, "BAD_ARGS", "{text}");
        }
        let found = document(
            &mut client,
            "rag_search",
            json!({"query": "takes an idle connection or opens one"}),
        );
        assert_eq!(found["snippets"][0]["symbol"], "Pool::take", "it goes on");
    }
}

#[test]
fn undefined_and_ambiguous_symbols() {
    let workspace = workspace(SHOP);
    workspace.write(
        "src/queue.rs",
        "pub struct Queue;\n\nimpl Queue {\n    pub fn take(&mut self) -> u8 {\n        2\n    }\n}\n",
    );
    let mut client = ready(&workspace);
    let both = json!(["src/pool.rs#Pool::take", "src/queue.rs#Queue::take"]);
    for tool in ["rag_where_used", "rag_lineage", "inspect"] {
        let found = document(&mut client, tool, json!({"symbol": "take"}));
        assert_eq!(found["ambiguous"], both, "{tool}: {found}");
        let one = document(&mut client, tool, json!({"symbol": both[1]}));
        assert!(one.get("ambiguous").is_none(), "{tool}: {one}");
        let (code, text) = refused(&mut client, tool, json!({"symbol": "Pool::tak"}));
        assert_eq!(code, "NOT_FOUND", "{tool}");
        assert!(text.contains("did you mean take"), "{tool}: {text}");
        let (code, text) = refused(&mut client, tool, json!({"symbol": " "}));
        assert_eq!(code, "BAD_ARGS", "{tool}: {text}");
    }
    let explained = parse(&client.text("te_explain", json!({"symbol": "take"}))).unwrap();
    assert!(
        explained.body.contains("src/pool.rs#Pool::take")
            && explained.body.contains("src/queue.rs#Queue::take"),
        "{}",
        explained.body
    );
}

/// A server without root's rights: as root, permissions would mean nothing.
fn as_unprivileged_user(workspace: &TestWorkspace) -> McpClient {
    let mut command = workspace.command_of("unshare");
    command
        .args(["--user", "--map-user=1000", "--map-group=1000"])
        .arg(workspace.program())
        .args(["mcp", "--mode", "classic"]);
    McpClient::new(TestProcess::start(command))
}

#[test]
fn strange_files_are_passed_over_with_and_without_an_index() {
    let workspace = workspace(SHOP);
    workspace.write("src/closed.rs", "pub fn behind_closed_doors() {}\n");
    let closed = workspace.path("src/closed.rs");
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o000)).unwrap();
    let huge = std::fs::File::create(workspace.path("src/huge.rs")).unwrap();
    huge.set_len(500 << 20).unwrap();
    std::fs::write(
        workspace.path("src/blob.rs"),
        b"fn in_a_blob() {}\0\xff\xfe",
    )
    .unwrap();
    symlink("..", workspace.path("src/around")).unwrap();
    symlink("itself", workspace.path("src/itself")).unwrap();
    symlink(workspace.outside(""), workspace.path("src/out")).unwrap();
    symlink(workspace.outside("canary"), workspace.path("src/canary.rs")).unwrap();
    symlink("nowhere.rs", workspace.path("src/dangling.rs")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        workspace.path("src/pipe.rs"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .unwrap();
    let mut client = as_unprivileged_user(&workspace);
    let id = client.send_request("ping", json!({}));
    if client.process().has_ended() {
        // This machine has no user namespaces.
        client = classic(&workspace);
    } else {
        let _ = client.answer(&id.into());
        client.initialize("2025-11-25");
    }
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        for query in ["behind_closed_doors", "canary do not leak", "in_a_blob"] {
            let found = document(&mut client, "rag_search", json!({"query": query}));
            workspace.assert_no_leak(&found.to_string());
            for snippet in found["snippets"].as_array().unwrap() {
                let src = snippet["src"].as_str().unwrap();
                let strange = ["closed", "canary", "blob", "around", "out/", "huge", "pipe"];
                assert!(!strange.iter().any(|name| src.contains(name)), "{found}");
            }
        }
        let found = document(
            &mut client,
            "rag_search",
            json!({"query": "takes an idle connection or opens one"}),
        );
        assert_eq!(found["snippets"][0]["symbol"], "Pool::take", "{found}");
        if found["index"] == "ready" {
            break;
        }
        assert!(Instant::now() < end, "{found}");
    }
    let stats = document(&mut client, "rag_stats", json!({}));
    assert_eq!(stats["not_indexed"]["too large"], 1, "{stats}");
    assert_eq!(stats["not_indexed"]["binary"], 1, "{stats}");
}

/// The processes that this one has started to parse sources.
fn parsers_of(server: u32) -> Vec<u32> {
    workers_of(server, "__parser")
}

/// The processes that a server has started with this hidden argument.
pub(crate) fn workers_of(server: u32, argument: &str) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_worker = |id: &u32| {
        let read = |name: &str| std::fs::read_to_string(format!("/proc/{id}/{name}"));
        let parent = format!("PPid:\t{server}\n");
        read("status").is_ok_and(|status| status.contains(&parent))
            && read("cmdline").is_ok_and(|line| line.contains(argument))
    };
    ids.filter(is_worker).collect()
}

/// Whether a parser is confined and in the middle of a source: it has used some CPU time since.
pub(crate) fn is_parsing(id: u32) -> bool {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/{id}/{name}"));
    let confined = read("status").is_ok_and(|status| status.contains("Seccomp:\t2"));
    let stat = read("stat").unwrap_or_default();
    let mut fields = stat.rsplit(") ").next().unwrap_or_default().split(' ');
    let ticks = fields.nth(11).and_then(|ticks| ticks.parse::<u64>().ok());
    confined && ticks.unwrap_or(0) >= 10
}

#[test]
fn a_file_that_kills_the_parser_is_left_to_windows() {
    let workspace = workspace("//- notes.md\n# Notes\n");
    // Long enough to be met in the middle of it.
    let long: String = (0..40_000)
        .map(|n| format!("fn deadly_{n}(a: u8) -> u8 {{ a }}\n"))
        .collect();
    workspace.write("src/deadly.rs", long);
    let mut command = workspace.command();
    command.args(["rag", "index"]);
    let child = TestProcess::start(command);
    let id = u32::try_from(child.pid().as_raw_nonzero().get()).unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    let parser = loop {
        if let Some(parser) = parsers_of(id).into_iter().find(|id| is_parsing(*id)) {
            break parser;
        }
        assert!(Instant::now() < end, "{}", child.stderr());
    };
    let parser = rustix::process::Pid::from_raw(i32::try_from(parser).unwrap()).unwrap();
    rustix::process::kill_process(parser, Signal::ABORT).unwrap();
    // The server goes on.
    assert_eq!(child.wait().code, Some(0));
    let mut client = ready(&workspace);
    let stats = document(&mut client, "rag_stats", json!({}));
    assert_eq!(stats["parser_crashed_on"], json!(["src/deadly.rs"]));
    let found = document(
        &mut client,
        "rag_search",
        json!({"query": "deadly_777", "k": 1}),
    );
    assert_eq!(found["snippets"][0]["kind"], "text", "{found}");
    let text = found["snippets"][0]["text"].as_str().unwrap();
    assert!(text.contains("fn deadly_777("), "{found}");
    // Another text is parsed again.
    workspace.write("src/deadly.rs", "fn deadly_no_more() {}\n");
    let end = Instant::now() + Duration::from_secs(30);
    let inspect = json!({"symbol": "deadly_no_more"});
    while client.call_tool("inspect", inspect.clone()).0 {
        assert!(Instant::now() < end);
    }
    let stats = document(&mut client, "rag_stats", json!({}));
    assert!(stats.get("parser_crashed_on").is_none(), "{stats}");
}

#[test]
fn sources_are_parsed_in_confined_processes_started_late() {
    let workspace = workspace(SHOP);
    let long: String = (0..2_000)
        .map(|n| format!("pub fn item_{n}(a: u8) -> u8 {{\n    a\n}}\n"))
        .collect();
    workspace.write("src/long.rs", long);
    for (tool, path, found) in [
        ("te_cat", "src/long.rs", "definitions"),
        ("read_file", "src/long.rs::item_77", "fn item_77("),
    ] {
        let mut client = classic(&workspace);
        let server = u32::try_from(client.process().pid().as_raw_nonzero().get()).unwrap();
        assert!(parsers_of(server).is_empty());
        let (failed, answer) = client.call_tool(tool, json!({"path": path}));
        assert!(!failed && answer.contains(found), "{answer}");
        let parsers = parsers_of(server);
        assert_eq!(parsers.len(), 1);
        let status = || std::fs::read_to_string(format!("/proc/{}/status", parsers[0]));
        assert!(status().unwrap().contains("Seccomp:\t2"));
        // It ends with the server.
        assert_eq!(client.finish().code, Some(0));
        let end = Instant::now() + Duration::from_secs(60);
        while status().is_ok_and(|status| status.contains("Seccomp:\t2")) {
            assert!(Instant::now() < end);
        }
    }
}

#[test]
fn a_definition_in_a_file_that_is_not_parsed_says_why() {
    let workspace = workspace(SHOP);
    workspace.write("src/huge.rs", "pub fn item() {}\n".repeat((3 << 20) / 17));
    let mut client = classic(&workspace);
    let (failed, answer) = client.call_tool("read_file", json!({"path": "src/huge.rs::item"}));
    assert!(
        failed && answer.contains("src/huge.rs are not known"),
        "{answer}"
    );
    assert!(answer.contains("limits of parsing"), "{answer}");
}

/// A value of `/proc/ID/status` in MB; 0 for a process that has ended.
fn status_mb(id: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(name));
    let kb = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kb.unwrap_or(0) / 1024
}

#[test]
fn hostile_sources_do_not_take_the_servers_memory() {
    let workspace = workspace(SHOP);
    // Syntax trees of these take up to three hundred times their source. The first two are parsed one after the other, each
    // in a process that ends afterwards; the others show that no kind takes more.
    let (large, small) = (520 << 10, 48 << 10);
    for (n, (name, part, size)) in [
        ("rs", "a!{", large),
        ("cpp", "a<", large),
        ("rs", "(", small),
        ("rs", "mod a{", small),
        ("py", "[", small),
        ("py", "x=1;", small),
        ("js", "{", small),
        ("js", "`${", small),
        ("c", "((*", small),
        ("c", "]}", small),
        ("tsx", "<a>", small),
        ("rb", "def a ", small),
        ("php", "<?php (", small),
        ("sh", "$(", small),
        ("sh", "<<A\n", small),
    ]
    .into_iter()
    .enumerate()
    {
        // Longer lines would make it data that is not parsed.
        let line = format!("{}\n", part.repeat(60 / part.len()));
        let source = line.repeat(size / line.len());
        workspace.write(format!("src/hostile_{n}.{name}"), source);
    }
    let mut client = classic(&workspace);
    let server = u32::try_from(client.process().pid().as_raw_nonzero().get()).unwrap();
    let (failed, answer) = client.call_tool("rag_search", json!({"query": "idle connection"}));
    assert!(!failed, "{answer}");
    let end = Instant::now() + Duration::from_secs(120);
    let (mut together, mut largest) = (0, 0);
    loop {
        let stats = document(&mut client, "rag_stats", json!({}));
        let mut now = status_mb(server, "VmRSS:");
        for parser in parsers_of(server) {
            largest = largest.max(status_mb(parser, "VmHWM:"));
            now += status_mb(parser, "VmRSS:");
        }
        together = together.max(now);
        if stats["state"] == "ready" {
            break;
        }
        assert!(Instant::now() < end, "{stats}");
        std::thread::sleep(Duration::from_millis(10));
    }
    let server = status_mb(server, "VmHWM:");
    assert!(largest > 60, "{largest} MB: none of them is hostile");
    assert!(server > 0 && server < 200, "{server} MB");
    // One large tree, within the limit of a parser (768 MiB), and the rest: two at once would be more.
    assert!(together < 950, "{together} MB with all parsers");
}
