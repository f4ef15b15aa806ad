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
        for word in ["install", "where-used", "uninstall"] {
            assert!(script.stdout.contains(word), "{shell}: {word}");
        }
        if shell == "bash" {
            workspace.write("script", format!(
                "{}\nCOMP_WORDS=(llmc install cur); COMP_CWORD=2\n_llmc llmc cur install\necho \"${{COMPREPLY[@]}}\"\n",
                script.stdout
            ));
            let mut bash = workspace.command_of("bash");
            bash.arg("script");
            let ended = llmc_testkit::TestProcess::start(bash).finish();
            assert_eq!((ended.stdout.trim(), ended.stderr.as_str()), ("cursor", ""));
        }
    }
    assert_eq!(workspace.llmc(["completions", "csh"]).code, Some(2));
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
