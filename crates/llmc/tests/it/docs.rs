//! The reference pages in `docs/` are what the program says of itself. `UPDATE_DOCS=1` writes them anew.

use std::path::Path;

use llmc_testkit::TestWorkspace;

use crate::workspace;

/// Compares a page with the checked-in one, or replaces that.
fn check(name: &str, page: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs")
        .join(name);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, page).unwrap();
        return;
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = there.lines().zip(page.lines()).find(|(a, b)| a != b);
    assert!(
        there == page,
        "docs/{name} is out of date; UPDATE_DOCS=1 cargo test -p llmc --test it docs writes it anew\nfirst difference: {differs:?}"
    );
}

#[test]
fn tools() {
    check("tools.md", &llmc_tools::docs::tools_markdown());
}

#[test]
fn errors() {
    check("errors.md", &llmc_tools::docs::errors_markdown());
}

#[test]
fn config() {
    check("config.md", &llmc_config::reference_markdown());
}

#[test]
fn cli() {
    let workspace = workspace("//- a\n");
    let mut page = String::from(
        "# Command line\n\nGenerated from `llmc help`. Logs and errors go to standard error; exit codes are in [errors.md](errors.md).\n",
    );
    describe(&workspace, &[], &mut page);
    assert!(page.contains("## `llmc config show`"), "{page}");
    check("cli.md", &page);
}

/// One verb's help, and that of the verbs below it.
fn describe(workspace: &TestWorkspace, verbs: &[&str], page: &mut String) {
    let help = workspace.llmc(["help"].iter().chain(verbs));
    assert_eq!(help.code, Some(0), "{verbs:?}: {}", help.stderr);
    let name = ["llmc"].iter().chain(verbs).copied().collect::<Vec<_>>();
    let text: Vec<&str> = help.stdout.lines().map(str::trim_end).collect();
    page.push_str(&format!(
        "\n## `{}`\n\n```text\n{}\n```\n",
        name.join(" "),
        text.join("\n").trim()
    ));
    let below = text.iter().skip_while(|line| **line != "Commands:").skip(1);
    for line in below.take_while(|line| line.starts_with("  ")) {
        let verb = line.split_whitespace().next().unwrap();
        if verb != "help" {
            describe(workspace, &[verbs, &[verb]].concat(), page);
        }
    }
}
