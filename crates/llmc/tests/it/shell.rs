//! The program in a shell: help for every verb, completions, manual pages, colour, exit codes.

use llmc_testkit::{TestScreen, TestWorkspace};

use crate::workspace;

/// Every verb with those below it, as `help` lists them.
fn verbs(workspace: &TestWorkspace, above: &[String], found: &mut Vec<Vec<String>>) {
    let words = ["help".to_owned()].into_iter().chain(above.to_vec());
    let help = workspace.llmc(words);
    let below = help
        .stdout
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1);
    for line in below.take_while(|line| line.starts_with("  ")) {
        let verb = line.split_whitespace().next().unwrap();
        // Long descriptions go on in further lines, indented more.
        if verb != "help" && !line.starts_with("   ") {
            let verb = [above, &[verb.to_owned()]].concat();
            verbs(workspace, &verb, found);
            found.push(verb);
        }
    }
}

#[test]
fn every_verb_has_help_with_examples_that_parse() {
    let workspace = workspace("//- a\n");
    let mut found = Vec::new();
    verbs(&workspace, &[], &mut found);
    assert!(found.len() > 25, "{found:?}");
    for verb in found {
        let help = workspace.llmc(verb.iter().map(String::as_str).chain(["--help"]));
        assert_eq!((help.code, help.stderr.as_str()), (Some(0), ""), "{verb:?}");
        let text = help.stdout.to_lowercase();
        assert!(
            text.contains("examples:") || text.contains("usage: llmc tool"),
            "{verb:?}: {text}"
        );
        // An example names the verb it is an example of.
        let examples = text.split("examples:").nth(1).unwrap_or(&text);
        assert!(
            examples.contains(verb.last().unwrap()) || verb.last().unwrap() == "te",
            "{verb:?}: {examples}"
        );
    }
}

#[test]
fn completions_are_scripts_that_their_shells_accept() {
    let workspace = workspace("//- a\n");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = workspace.llmc(["completions", shell]);
        assert_eq!((script.code, script.stderr.as_str()), (Some(0), ""));
        for word in [
            "install",
            "where-used",
            "uninstall",
            "linux_search_content",
            "context-lines",
        ] {
            assert!(script.stdout.contains(word), "{shell}: {word}");
        }
    }
    assert_eq!(workspace.llmc(["completions", "csh"]).code, Some(2));
}

/// What Tab makes of a line, with the cursor at its end.
const COMPLETED: [(&str, &str); 7] = [
    ("llmc install cur", "cursor"),
    ("llmc unin", "uninstall"),
    ("llmc tool linux_search_c", "linux_search_content"),
    (
        "llmc tool linux_search_content --context",
        "--context-lines",
    ),
    ("llmc tool linux_fs_write --mode a", "append"),
    ("llmc mcp --mode hy", "hybrid"),
    ("llmc tool read_file --path a.t", "a.txt"),
];

#[test]
fn tools_and_their_arguments_are_completed() {
    let workspace = workspace("//- a.txt\n");
    let script = workspace.llmc(["completions", "bash"]).stdout;
    for (line, expected) in COMPLETED {
        let words: Vec<&str> = line.split(' ').collect();
        let [.., before, last] = words[..] else {
            panic!("{line}");
        };
        let position = words.len() - 1;
        workspace.write(
            "script",
            format!(
                "{script}\nCOMP_WORDS=({line}); COMP_CWORD={position}\n_llmc llmc {last} {before}\necho \"${{COMPREPLY[@]}}\"\n"
            ),
        );
        let mut bash = workspace.command_of("bash");
        bash.arg("script");
        let ended = llmc_testkit::TestProcess::start(bash).finish();
        assert_eq!(
            (ended.stdout.trim(), ended.stderr.as_str()),
            (expected, ""),
            "{line}"
        );
    }
}

#[test]
fn help_shows_only_the_flags_that_matter() {
    let workspace = workspace("//- a\n");
    let help = |args: &[&str]| workspace.llmc([args, &["--help"]].concat()).stdout;
    let flags = [
        "--config",
        "--root",
        "--mode",
        "--host",
        "--port",
        "--log-level",
        "--set",
    ];
    for (verb, shown) in [
        (&[][..], &["--config", "--root", "--log-level", "--set"][..]),
        (&["serve"], &flags),
        (
            &["mcp"],
            &["--config", "--root", "--mode", "--log-level", "--set"],
        ),
        (&["undo"], &["--config", "--root", "--log-level", "--set"]),
        (
            &["rag", "search"],
            &["--config", "--root", "--log-level", "--set"],
        ),
        (&["init"], &["--config", "--root"]),
        (&["uninstall"], &["--root"]),
        (&["completions"], &[]),
        (&["man"], &[]),
        (
            &["tool", "stat"],
            &["--config", "--root", "--log-level", "--set"],
        ),
    ] {
        let text = help(verb);
        let options = text.split("Examples:").next().unwrap();
        let found: Vec<&str> = flags
            .into_iter()
            .filter(|flag| {
                options
                    .lines()
                    .any(|line| line.trim_start().starts_with(&format!("{flag} ")))
            })
            .collect();
        assert_eq!(found, shown, "{verb:?}: {text}");
    }
    // Hidden is not refused.
    let ended = workspace.llmc(["tool", "stat", "--path", "a", "--port", "1", "--mode", "te"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

#[test]
fn flags_of_a_tool_are_described() {
    let workspace = workspace("//- a\n");
    let help = workspace
        .llmc(["tool", "linux_search_content", "--help"])
        .stdout;
    let words: Vec<&str> = help.split_whitespace().collect();
    let help = words.join(" ");
    for text in [
        "--pattern <TEXT> * What to look for",
        "--file-glob <TEXT> Only files whose names match (such as *.py)",
        "Lines around each match (0 makes snippet the line alone; default 3; 0 to 10)",
        "* required",
    ] {
        assert!(help.contains(text), "{text}: {help}");
    }
    let list = workspace.llmc(["tool", "--help"]).stdout;
    assert!(
        list.contains("  read_file              Read a file"),
        "{list}"
    );
}

/// Words that are no verbs, and the command line that each means.
const MEANT: [(&str, &str); 13] = [
    ("start", "`llmc serve`"),
    ("setup", "`llmc install`"),
    ("remove", "`llmc uninstall`"),
    ("grep", "`llmc te grep …`"),
    ("validate", "`llmc config check`"),
    ("search", "`llmc rag search`"),
    ("rollback", "`llmc undo`"),
    ("run", "`llmc te`"),
    ("list_tools", "`llmc tools`"),
    ("read_file", "`llmc tool read_file`"),
    ("serach", "`llmc rag search`"),
    ("instal", "'install'"),
    ("hstory", "'history'"),
];

#[test]
fn verbs_that_do_not_exist_are_understood() {
    let workspace = workspace("//- a\n");
    for (word, meant) in MEANT {
        let ended = workspace.llmc([word, "x", "--flag"]);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{word}");
        let tip = ended.stderr.lines().find(|line| line.contains("tip:"));
        assert!(
            tip.is_some_and(|tip| tip.contains(meant)),
            "{word}: {}",
            ended.stderr
        );
    }
    // Nothing is made up, and a word below another verb is not taken for one of these.
    for args in [&["frobnicate"][..], &["rag", "start"]] {
        let ended = workspace.llmc(args);
        assert_eq!(ended.code, Some(2));
        assert!(
            !ended.stderr.contains("`llmc "),
            "{args:?}: {}",
            ended.stderr
        );
    }
}

#[test]
fn there_is_a_manual_page_for_every_verb() {
    let workspace = workspace("//- a\n");
    let page = workspace.llmc(["man"]);
    assert!(page.stdout.contains(".TH llmc 1"), "{}", page.stdout);
    assert!(page.stdout.contains("Exit codes"), "{}", page.stdout);
    assert_eq!(workspace.llmc(["man", "pages/man1"]).code, Some(0));
    for name in [
        "llmc.1",
        "llmc-mcp.1",
        "llmc-install.1",
        "llmc-rag-search.1",
    ] {
        assert!(
            workspace.read(format!("pages/man1/{name}")).contains(".SH"),
            "{name}"
        );
    }
    assert_eq!(workspace.llmc(["man", "a"]).code, Some(74), "a is a file");
}

#[test]
fn colour_is_for_terminals_and_can_be_refused() {
    let workspace = workspace("//- .git/HEAD\nref\n");
    let shown = |name: &str| {
        let mut command = workspace.command();
        command.arg("install").env(name, "1");
        let (_, code, raw) = TestScreen::start(command).ended();
        assert_eq!(code, Some(0));
        raw.contains('\x1b')
    };
    assert!(shown("X"));
    assert!(!shown("NO_COLOR"));
    assert!(
        !workspace.llmc(["install"]).stdout.contains('\x1b'),
        "a pipe"
    );
    let mut forced = workspace.command();
    forced.args(["install"]).env("CLICOLOR_FORCE", "1");
    let forced = llmc_testkit::TestProcess::start(forced).finish();
    assert!(forced.stdout.contains('\x1b'));
}

/// The codes of SPEC §4 that a shell can meet: a code, then the arguments that lead to it.
const EXIT_CODES: &str = r#"
0 --version
0 tool stat --path a.txt
0 config check
2 frobnicate
2 mcp --no-such-flag
2 --set mcp.no_such_key=1 mcp
2 mcp --config off.toml
2 config check --config bad.toml
2 config check --set mcp.tools.red_only=true
2 install emacs
2 tool no_such_tool
2 tool read_file
2 tool read_file --no-such-flag x
2 tool read_file --path a.txt --max-lines many
2 tool read_file --path a.txt --max-lines 0
2 tool read_file --path a.txt --max-lines -1
2 tool read_file --args {
2 tool read_file --args []
2 tool read_file --args {"path":"a.txt","path":"b"}
2 tool read_file --args {"path":"a.txt","x":1}
2 tool linux_search_content --root . --pattern (
2 tool te_grep --pattern (
3 tool read_file --path gone
3 tool read_file --path d
3 tool list_dir --path a.txt
3 tool linux_handle_read --handle res_00000000000000000000000000
3 tool te_handle --handle res_01J00000000000000000000000
4 tool read_file --path /etc/passwd
4 tool run_cmd --argv no-such-program
4 tool linux_fs_write --path llmc.toml --content x
4 --set mcp.tools.read_only=true tool linux_fs_delete --path a.txt
4 --set mcp.tools.read_only=true tool linux_fs_mkdirs --path e
5 tool run_cmd --args {"argv":["sleep","20"],"timeout":1}
5 --set mcp.tools.read_timeout=1 tool linux_fs_read --path huge --max-lines 1
6 tool linux_fs_write --path a.txt --content x --expected-sha256 00000000
6 tool linux_fs_edit --path a.txt --old-text two --new-text x
6 tool linux_fs_mkdirs --path d --exist-ok false
6 tool linux_fs_move --source a.txt --target d
6 tool linux_fs_move --source a.txt --target d/x
7 tool read_file --path long --json
7 tool linux_fs_read --path long
"#;

#[test]
fn exit_codes() {
    let workspace = workspace(
        "//- .git/HEAD\nref\n//- a.txt\none\n//- d/x\n//- bad.toml\n[mcp\n//- off.toml\n[mcp]\nenabled = false\n",
    );
    workspace.write("long", "x".repeat(9 << 20));
    crate::huge(&workspace, "huge");
    for row in EXIT_CODES.trim().lines() {
        let (code, args) = row.split_once(' ').unwrap();
        let code: i32 = code.parse().unwrap();
        let ended = workspace.llmc(args.split(' '));
        assert_eq!(
            ended.code,
            Some(code),
            "{args}: {}{}",
            ended.stdout,
            ended.stderr
        );
        // A failing call reports on standard error alone, as text, or with --json as the REST body.
        if code != 0 {
            assert_eq!(ended.stdout, "", "{args}");
            let starts = ["llmc: ", "error: ", "{\"code\""];
            assert!(
                starts.iter().any(|start| ended.stderr.starts_with(start)),
                "{args}: {}",
                ended.stderr
            );
        }
    }
    assert_eq!(workspace.read("a.txt"), "one\n");
    // A misspelt tool names the right one.
    let ended = workspace.llmc(["tool", "read_fiel"]);
    assert!(ended.stderr.contains("read_file"), "{ended:?}");
}
