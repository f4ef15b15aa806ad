//! `llmc tui` in a real terminal: what it shows, what it leaves behind.

use llmc_testkit::{TestScreen, TestWorkspace};
use rustix::process::Signal;
use serde_json::json;

use crate::workspace;

const FIXTURE: &str = "\
//- a.txt
one
";

fn start(workspace: &TestWorkspace, flags: &[&str]) -> TestScreen {
    let mut command = workspace.command();
    command.arg("tui").args(flags);
    TestScreen::start(command)
}

#[test]
fn a_call_of_another_process_appears_and_the_terminal_is_given_back() {
    let workspace = workspace(FIXTURE).with_env("TE_AGENT_ID", "reviewer");
    let mut tui = start(&workspace, &[]);
    tui.shows("no calls yet");
    assert!(tui.vt().alternate_screen());
    assert!(tui.is_raw());
    assert_eq!(
        workspace
            .llmc(["tool", "read_file", "--path", "a.txt"])
            .code,
        Some(0)
    );
    tui.shows("read_file");
    tui.shows("reviewer");
    workspace.llmc(["tool", "stat", "--path", "gone"]);
    tui.shows("NOT_FOUND");
    tui.press("/not_f\r\r");
    tui.shows("fetched back");
    tui.press("\x1b");
    tui.until("details gone", |tui| {
        !tui.vt().contents().contains("fetched back")
    });
    tui.press("q");
    let (text, code, _) = tui.ended();
    assert_eq!(code, Some(0));
    assert!(text.contains("calls    2, 1 error"), "{text}");
    assert!(text.contains("tokens   "), "{text}");
    assert!(
        text.contains("llmc tool stat --args '{\"path\":\"gone\"}'"),
        "{text}"
    );
}

#[test]
fn signals_and_interrupts_give_the_terminal_back_too() {
    let workspace = workspace(FIXTURE);
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut tui = start(&workspace, &[]);
        tui.shows("no calls yet:");
        tui.signal(signal);
        let (text, code, _) = tui.ended();
        assert_eq!(code, Some(130), "{signal:?}");
        assert!(text.contains("no calls yet; "), "{text}");
    }
    let mut tui = start(&workspace, &[]);
    tui.shows("no calls yet:");
    tui.press("\x03");
    assert_eq!(tui.ended().1, Some(0));
}

#[test]
fn a_terminal_that_went_away_ends_it() {
    let workspace = workspace(FIXTURE);
    let mut tui = start(&workspace, &[]);
    tui.shows("no calls yet:");
    tui.hang_up();
    assert_eq!(tui.wait(), Some(130));
}

#[test]
fn a_call_is_run_again_and_its_handle_copied() {
    let workspace = workspace(FIXTURE);
    workspace.write("big.txt", "line of text\n".repeat(5000));
    assert_eq!(
        workspace.llmc(["tool", "te_cat", "--path", "big.txt"]).code,
        Some(0)
    );
    let mut tui = start(&workspace, &[]);
    tui.shows("te_cat");
    tui.press("r");
    tui.shows("te_cat answered");
    tui.shows("# TE_BEGIN_META");
    tui.press("\x1b");
    tui.shows("Calls 2");
    tui.press("c");
    tui.shows("copied res_");
    let raw = tui.raw();
    assert!(
        raw.contains("\x1b]52;c;cmVz"),
        "asked the terminal for its clipboard"
    );
    // A tool that writes is not run before the user confirms.
    let made = workspace.llmc(["tool", "linux_fs_mkdirs", "--path", "made"]);
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    tui.shows("linux_fs_mkdirs");
    std::fs::remove_dir(workspace.path("made")).unwrap();
    tui.press("gr");
    tui.shows("Run this again?");
    tui.press("n");
    tui.shows("was not run");
    assert!(!workspace.path("made").exists());
    tui.press("r");
    tui.shows("Run this again?");
    tui.press("y");
    tui.shows("linux_fs_mkdirs answered");
    assert!(workspace.path("made").is_dir());
    tui.press("qq");
    let (text, code, _) = tui.ended();
    assert_eq!(code, Some(0));
    assert!(text.contains("copied handle      res_"), "{text}");
}

#[test]
fn the_audit_opens_in_the_pager_and_the_screen_comes_back() {
    let workspace = workspace(FIXTURE).with_env("PAGER", "cat");
    let mut tui = start(&workspace, &[]);
    tui.shows("no calls yet");
    tui.press("l");
    tui.shows("csv_token_audit_enabled");
    let audit = [
        "--set",
        "mcp.observability.csv_token_audit_enabled=true",
        "tool",
        "stat",
        "--path",
        "a.txt",
    ];
    assert_eq!(workspace.llmc(audit).code, Some(0));
    tui.shows("stat");
    tui.press("l");
    tui.wait_for_output("tokens_withheld,tokens_fetched_back");
    tui.shows("Totals");
    tui.until("the other screen", |tui| tui.vt().alternate_screen());
    tui.press("q");
    assert_eq!(tui.ended().1, Some(0));
}

#[test]
fn a_server_is_watched_over_http() {
    let workspace = workspace(FIXTURE);
    let server = workspace.serve(["--mode", "hybrid"]);
    server.tool("read_file", json!({"path": "a.txt"})).ok();
    let mut tui = start(&workspace, &["--url", &server.url]);
    tui.shows("since the server's start");
    tui.shows("read_file");
    server.tool("stat", json!({"path": "gone"}));
    tui.shows("NOT_FOUND");
    tui.shows("2 calls  1 error");
    tui.press("r");
    tui.shows("not recorded");
    let summary = workspace.llmc(["tui", "--summary", "--url", &server.url]);
    assert_eq!(summary.code, Some(0), "{}", summary.stderr);
    assert!(
        summary.stdout.contains("calls    2, 1 error"),
        "{}",
        summary.stdout
    );
    tui.press("\x1b");
    drop(server);
    tui.shows("is `llmc serve` running there?");
    tui.press("q");
    assert_eq!(tui.ended().1, Some(0));
    let gone = workspace.llmc(["tui", "--summary", "--url", "http://127.0.0.1:1"]);
    assert_eq!(gone.code, Some(70));
    assert!(gone.stderr.contains("does not answer"), "{}", gone.stderr);
}

#[test]
fn a_refused_token_is_reported() {
    let workspace = workspace(FIXTURE);
    let server = workspace.serve(["--mode", "hybrid"]);
    let mut command = workspace.command();
    command.args(["tui", "--summary", "--url", &server.url]);
    command.env("LLMC_MCP_TOKEN", "wrong-token-0123456789");
    let ended = llmc_testkit::TestProcess::start(command).finish();
    assert_eq!(ended.code, Some(70));
    assert!(
        ended.stderr.contains("refuses the token"),
        "{}",
        ended.stderr
    );
    assert!(!ended.stderr.contains("wrong-token"), "{}", ended.stderr);
}

#[test]
fn without_a_terminal_only_the_summary_is_there() {
    let workspace = workspace(FIXTURE);
    let ended = workspace.llmc(["tui"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""));
    assert!(ended.stderr.contains("--summary"), "{}", ended.stderr);
    let ended = workspace.llmc(["tui", "--summary"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stdout.contains("no calls yet"), "{}", ended.stdout);
    assert!(!workspace.path(".llmc").exists(), "looking makes nothing");
    workspace.llmc(["tool", "stat", "--path", "a.txt"]);
    let ended = workspace.llmc(["tui", "--summary", "--since", "all"]);
    assert!(
        ended.stdout.contains("calls    1, 0 errors"),
        "{}",
        ended.stdout
    );
    assert!(
        ended.stdout.is_ascii() && !ended.stdout.contains('\x1b'),
        "{}",
        ended.stdout
    );
    for (flags, says) in [
        (["--since", "yesterday"], "90m"),
        (["--url", "http://10.0.0.1:80"], "loopback"),
        (["--url", "https://127.0.0.1"], "https"),
        (["--url", "nonsense"], "http://127.0.0.1"),
        (["--set", "mcp.observability.enabled=false"], "not recorded"),
    ] {
        let ended = workspace.llmc(["tui", "--summary"].iter().chain(&flags));
        assert_eq!(ended.code, Some(2), "{flags:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(says), "{flags:?}: {}", ended.stderr);
    }
    let workspace = crate::workspace(FIXTURE);
    workspace.write(".llmc/te_telemetry.db", "no database at all\n".repeat(100));
    let ended = workspace.llmc(["tui", "--summary"]);
    assert_eq!(ended.code, Some(70));
    assert!(ended.stderr.contains("damaged"), "{}", ended.stderr);
}

#[test]
fn what_an_agent_wrote_does_not_act_on_the_terminal() {
    let workspace = workspace(FIXTURE).with_env("TE_AGENT_ID", "\x1b]0;owned\x07");
    let evil = json!({"path": "\u{1b}[2J\u{202e}\u{9b}31mx"}).to_string();
    // On a loaded machine a process that ends may not wait for its record.
    for _ in 0..5 {
        workspace.llmc(["tool", "stat", "--args", &evil]);
    }
    let mut tui = start(&workspace, &[]);
    tui.shows("NOT_FOUND");
    tui.press("q");
    let (_, code, raw) = tui.ended();
    assert_eq!(code, Some(0));
    assert!(raw.contains("owned"));
    assert!(!raw.contains("\x1b]0;") && !raw.contains('\u{202e}') && !raw.contains('\u{9b}'));
}

#[test]
fn no_color_is_respected() {
    let workspace = workspace(FIXTURE).with_env("NO_COLOR", "1");
    workspace.llmc(["tool", "stat", "--path", "gone"]);
    let mut tui = start(&workspace, &[]);
    tui.shows("NOT_FOUND");
    let screen = tui.vt();
    for (row, column) in (0..30).flat_map(|row| (0..120).map(move |column| (row, column))) {
        let cell = screen.cell(row, column).unwrap();
        assert_eq!(cell.fgcolor(), vt100::Color::Default, "{row}, {column}");
    }
    tui.press("q");
    assert_eq!(tui.ended().1, Some(0));
}

#[test]
fn another_size_is_filled() {
    let workspace = workspace(FIXTURE);
    workspace.llmc(["tool", "stat", "--path", "a.txt"]);
    let mut tui = start(&workspace, &[]);
    tui.shows("Sessions");
    tui.resize(12, 60);
    tui.until("only calls", |tui| {
        !tui.vt().contents().contains("Sessions")
    });
    tui.shows("stat");
    tui.press("\t\t");
    tui.shows("Sessions");
    tui.press("q");
    assert_eq!(tui.ended().1, Some(0));
}

#[test]
fn changes_are_listed_with_the_diff_of_the_selected_one() {
    let workspace = workspace(FIXTURE);
    let write = |content: &str| {
        let args = [
            "tool",
            "linux_fs_write",
            "--path",
            "a.txt",
            "--content",
            content,
        ];
        let wrote = workspace.llmc(args);
        assert_eq!(wrote.code, Some(0), "{}", wrote.stderr);
    };
    write("two\n");
    let server = workspace.serve(["--mode", "hybrid"]);
    for flags in [&[][..], &["--url", &server.url]] {
        let mut tui = start(&workspace, flags);
        tui.shows("Calls");
        tui.resize(24, 80);
        tui.press("h");
        tui.shows("by call");
        tui.shows("linux_fs_write");
        tui.shows("-one");
        tui.shows("+two");
        tui.press("b");
        tui.shows("by file");
        tui.press("q");
        assert_eq!(tui.ended().1, Some(0));
    }
}
