//! Settings files as people have them: what an edit makes of each, and what it refuses.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a panic is how a test fails, and tests look at files from outside"
)]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use llmc_clients::{
    Client, EditPlan, Error, NameConflict, ServerEntry, SettingsChange, SettingsFormat,
    SettingsScope,
};
use proptest::prelude::*;

fn entry() -> ServerEntry {
    let args = ["mcp", "--root", "/w \"x\""].map(str::to_owned);
    ServerEntry::new("llmc", "/usr/bin/llmc".into(), args.into()).unwrap()
}

struct File {
    _base: tempfile::TempDir,
    path: PathBuf,
}

/// A settings file with this text.
fn file(text: &str) -> File {
    let base = tempfile::tempdir().unwrap();
    let path = base.path().canonicalize().unwrap().join("settings");
    fs::write(&path, text).unwrap();
    File { _base: base, path }
}

fn plan(
    client: Client,
    path: &Path,
    change: SettingsChange,
    others: NameConflict,
) -> Result<EditPlan, Error> {
    EditPlan::new(path, client.format(), SettingsScope::User, &change, others)
}

fn install(client: Client, path: &Path) -> Result<EditPlan, Error> {
    plan(
        client,
        path,
        SettingsChange::Install(entry()),
        NameConflict::Refuse,
    )
}

fn uninstall(client: Client, path: &Path) -> Result<EditPlan, Error> {
    plan(
        client,
        path,
        SettingsChange::Uninstall(entry()),
        NameConflict::Refuse,
    )
}

/// Installs, and checks what every successful edit keeps: a copy of what was there, and no second change.
fn installed(client: Client, before: &str) -> String {
    let file = file(before);
    let applied = install(client, &file.path).unwrap().apply().unwrap();
    assert_eq!(
        fs::read_to_string(applied.backup.unwrap()).unwrap(),
        before,
        "kept aside"
    );
    let again = install(client, &file.path).unwrap();
    assert!(again.is_unchanged(), "{client}: {}", again.diff());
    fs::read_to_string(&file.path).unwrap()
}

#[test]
fn every_client_gets_its_own_format() {
    let alone = |client: Client| EditPlan::standalone(client.format(), &entry()).unwrap();
    let json = |servers: &str, kind: &str| {
        format!(
            "{{\n  \"{servers}\": {{\n    \"llmc\": {{\n{kind}      \"command\": \"/usr/bin/llmc\",\n      \"args\": [\"mcp\", \"--root\", \"/w \\\"x\\\"\"]\n    }}\n  }}\n}}\n"
        )
    };
    let typed = "      \"type\": \"stdio\",\n";
    for client in Client::ALL {
        let expected = match client {
            Client::ClaudeCode => json("mcpServers", typed),
            Client::VsCode => json("servers", typed),
            Client::Zed => json("context_servers", ""),
            Client::Codex => "[mcp_servers.llmc]\ncommand = \"/usr/bin/llmc\"\nargs = [\"mcp\", \"--root\", '/w \"x\"']\n".into(),
            Client::Continue => "# Written by `llmc install continue`; the lines `command` and `args` are renewed by it.\nname: llmc\nversion: 0.0.1\nschema: v1\nmcpServers:\n  - name: llmc\n    type: stdio\n    command: \"/usr/bin/llmc\"\n    args: [\"mcp\", \"--root\", \"/w \\\"x\\\"\"]\n".into(),
            _ => json("mcpServers", ""),
        };
        assert_eq!(alone(client), expected, "{client}");
    }
}

#[test]
fn a_missing_file_is_made_with_its_folders_and_taken_away_again() {
    for client in Client::ALL {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().canonicalize().unwrap().join("a/b/settings");
        let nothing = uninstall(client, &path).unwrap();
        assert!(nothing.is_unchanged(), "{client}");
        let applied = install(client, &path).unwrap().apply().unwrap();
        assert!(applied.backup.is_none(), "there was nothing to keep");
        let alone = EditPlan::standalone(client.format(), &entry()).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), alone);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let applied = uninstall(client, &path).unwrap().apply().unwrap();
        assert_eq!(fs::read_to_string(applied.backup.unwrap()).unwrap(), alone);
        match client.format() {
            SettingsFormat::YamlFile => assert!(!path.exists()),
            _ => assert!(!fs::read_to_string(&path).unwrap().contains("llmc")),
        }
        let folder = path.parent().unwrap().read_dir().unwrap();
        let unfinished = folder.filter(|entry| {
            let name = entry.as_ref().unwrap().file_name();
            name.to_string_lossy().contains("llmc-new")
        });
        assert_eq!(unfinished.count(), 0, "nothing half-made is left");
    }
}

#[test]
fn comments_order_and_spacing_stay_in_json() {
    let before = r#"// my settings
{
    "theme": "dark", /* not light */
    "context_servers": {
        // the old one
        "other": { "command": "npx", "args": ["-y", "other"], "env": {"KEY": "1"} }, // keep
    },
    "last": [1,  2,   3], // odd spacing
}
// the end
"#;
    let after = installed(Client::Zed, before);
    assert_eq!(
        after,
        r#"// my settings
{
    "theme": "dark", /* not light */
    "context_servers": {
        // the old one
        "other": { "command": "npx", "args": ["-y", "other"], "env": {"KEY": "1"} }, // keep
        "llmc": {
            "command": "/usr/bin/llmc",
            "args": ["mcp", "--root", "/w \"x\""],
        },
    },
    "last": [1,  2,   3], // odd spacing
}
// the end
"#
    );
    let file = file(&after);
    uninstall(Client::Zed, &file.path).unwrap().apply().unwrap();
    assert_eq!(fs::read_to_string(&file.path).unwrap(), before);
}

#[test]
fn strict_json_stays_strict() {
    for before in [
        "{}",
        "{ }\n",
        "{\"a\":1}",
        "{\n\t\"mcpServers\": {\n\t\t\"x\": {\"command\": \"y\"}\n\t}\n}",
        "{\"mcpServers\":{}}",
        "{\r\n  \"mcpServers\": {\r\n  }\r\n}\r\n",
        "\u{feff}{\n  \"a\": \"\\u00e9\"\n}\n",
        "",
        " \n\n",
    ] {
        let after = installed(Client::Cursor, before);
        let text = after.trim_start_matches('\u{feff}');
        let value: serde_json::Value = serde_json::from_str(text).unwrap();
        let written = &value["mcpServers"]["llmc"];
        assert_eq!(written["command"], "/usr/bin/llmc", "{before:?}: {after}");
        assert_eq!(written["args"][2], "/w \"x\"");
        assert_eq!(
            after.starts_with('\u{feff}'),
            before.starts_with('\u{feff}')
        );
        if before.contains("\r\n") {
            assert_eq!(
                after.matches('\n').count(),
                after.matches("\r\n").count(),
                "line ends as they were: {after:?}"
            );
        }
        if before.contains("{\n\t") {
            assert!(
                after.contains("\n\t\t\"llmc\": {\n\t\t\t\"command\""),
                "{after}"
            );
        }
    }
}

#[test]
fn our_own_entry_is_renewed_and_what_the_user_added_stays() {
    let before = r#"{
  "mcpServers": {
    "llmc": {
      // mine
      "command": "/old/llmc",
      "args": ["mcp"],
      "env": { "TE_AGENT_ID": "me" },
      "disabled": true
    }
  }
}"#;
    let after = installed(Client::Cline, before);
    assert_eq!(
        after,
        before
            .replace("/old/llmc", "/usr/bin/llmc")
            .replace("[\"mcp\"]", "[\"mcp\", \"--root\", \"/w \\\"x\\\"\"]")
    );
    let before = "[mcp_servers.llmc]\n# mine\ncommand = \"llmc\" # by PATH\nargs = [\"mcp\"]\nstartup_timeout_sec = 20\n";
    assert_eq!(
        installed(Client::Codex, before),
        before
            .replace("\"llmc\" #", "\"/usr/bin/llmc\" #")
            .replace("[\"mcp\"]", "[\"mcp\", \"--root\", '/w \"x\"']")
    );
    let alone = EditPlan::standalone(Client::Continue.format(), &entry()).unwrap();
    let before = alone.replace("/usr/bin", "/old") + "    env:\n      TE_AGENT_ID: me\n# mine\n";
    assert_eq!(
        installed(Client::Continue, &before),
        before.replace("/old", "/usr/bin")
    );
}

#[test]
fn toml_keeps_everything_else() {
    let before = r#"# my codex
model = "o5"   # the large one

[mcp_servers.docs]
command = "npx"
args = [
  "-y", # yes
  "docs",
]

# projects I trust
[projects."/home/me/x"]
trust_level = "trusted"

[[hooks]]
name = "a"
"#;
    let after = installed(Client::Codex, before);
    let mut lines = before.lines();
    for line in after.lines() {
        if lines.clone().next() == Some(line) {
            lines.next();
        }
    }
    assert_eq!(lines.next(), None, "every line is there, in order: {after}");
    assert!(after.contains("[mcp_servers.llmc]\ncommand"), "{after}");
    let file = file(&after);
    uninstall(Client::Codex, &file.path)
        .unwrap()
        .apply()
        .unwrap();
    assert_eq!(fs::read_to_string(&file.path).unwrap(), before);
    let inline = "mcp_servers = { docs = { command = \"x\" } }\n";
    let after = installed(Client::Codex, inline);
    assert!(after.starts_with("mcp_servers = { docs = { command = \"x\" }"));
    assert!(after.contains("llmc = { command = "), "{after}");
}

#[test]
fn somebody_elses_entry_of_the_name_is_not_touched() {
    let rows = [
        (
            Client::Cursor,
            "{\"mcpServers\": {\"llmc\": {\"command\": \"npx\", \"args\": [\"mcp\"], \"env\": {\"K\": \"secret\"}}}}",
            "npx",
        ),
        (
            Client::Cursor,
            "{\"mcpServers\": {\"llmc\": {\"url\": \"https://x.example/mcp\"}}}",
            "https://x.example/mcp",
        ),
        (
            Client::Cursor,
            "{\"mcpServers\": {\"llmc\": 7}}",
            "no command",
        ),
        (
            Client::VsCode,
            "{\"servers\": {\"ll\\u006dc\": {\"command\": \"x\"}}}",
            "x",
        ),
        (
            Client::Codex,
            "[mcp_servers.llmc]\ncommand = \"npx\"\nargs = [\"mcp\"]\n",
            "npx",
        ),
        (Client::Codex, "mcp_servers.llmc = \"x\"\n", "no command"),
        (
            Client::Continue,
            "name: llmc\nmcpServers:\n  - name: llmc\n    command: npx\n",
            "not written by",
        ),
    ];
    for (client, before, starts) in rows {
        let file = file(before);
        for tried in [install(client, &file.path), uninstall(client, &file.path)] {
            let error = tried.unwrap_err();
            assert!(matches!(error, Error::NameTaken { .. }), "{error}");
            let text = error.to_string();
            assert!(text.contains(starts) && !text.contains("secret"), "{text}");
        }
        assert_eq!(fs::read_to_string(&file.path).unwrap(), before);
        // Replaced on request.
        let forced = plan(
            client,
            &file.path,
            SettingsChange::Install(entry()),
            NameConflict::Replace,
        );
        let applied = forced.unwrap().apply().unwrap();
        assert_eq!(fs::read_to_string(applied.backup.unwrap()).unwrap(), before);
        assert!(install(client, &file.path).unwrap().is_unchanged());
    }
}

#[test]
fn broken_and_unexpected_files_are_left_alone() {
    let deep = "{\"a\":".repeat(3000) + "1" + &"}".repeat(3000);
    let rows: &[(Client, &[u8], &str)] = &[
        (Client::Cursor, b"{\n  \"mcpServers\": {\n", "line"),
        (Client::Cursor, b"{\"a\": 1 \"b\": 2}", "line 1, column"),
        (Client::Cursor, b"{'a': 1}", "line 1"),
        (Client::Cursor, b"{a: 1}", "line 1"),
        (Client::Cursor, b"{} {}", "line 1"),
        (Client::Cursor, b"[]", "does not hold an object"),
        (Client::Cursor, b"\"text\"", "does not hold an object"),
        (
            Client::Cursor,
            b"{\"mcpServers\": []}",
            "`mcpServers` is not an object",
        ),
        (
            Client::Cursor,
            b"{\"mcpServers\": null}",
            "`mcpServers` is not an object",
        ),
        (
            Client::Cursor,
            b"{\"mcpServers\": {}, \"mcpServers\": {}}",
            "twice",
        ),
        (
            Client::Cursor,
            b"{\"mcpServers\": {\"llmc\": 1, \"llmc\": 2}}",
            "twice",
        ),
        (Client::Cursor, b"\xff\xfe{}", "not UTF-8"),
        (Client::Cursor, deep.as_bytes(), "nesting"),
        (Client::Codex, b"[a\n", "line 1"),
        (Client::Codex, b"x = 1\ny = \n", "line 2"),
        (Client::Codex, b"a = 1\na = 2\n", "line 2"),
        (
            Client::Codex,
            b"mcp_servers = 3\n",
            "`mcp_servers` is not a table",
        ),
        (
            Client::Codex,
            b"[[mcp_servers]]\nname = \"x\"\n",
            "`mcp_servers` is not a table",
        ),
    ];
    for (client, bytes, says) in rows {
        let file = file("");
        fs::write(&file.path, bytes).unwrap();
        for tried in [install(*client, &file.path), uninstall(*client, &file.path)] {
            let error = tried.unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
            assert!(error.contains("settings"), "names the file: {error}");
        }
        assert_eq!(&fs::read(&file.path).unwrap(), bytes);
        let around = file.path.parent().unwrap().read_dir().unwrap();
        assert_eq!(around.count(), 1, "nothing beside it");
    }
}

#[test]
fn links_stay_links() {
    let file = file("{\n}\n");
    let link = file.path.with_file_name("link");
    symlink("settings", &link).unwrap();
    fs::set_permissions(&file.path, fs::Permissions::from_mode(0o640)).unwrap();
    let applied = install(Client::Gemini, &link).unwrap().apply().unwrap();
    assert_eq!(applied.file, file.path);
    assert!(link.is_symlink());
    assert!(fs::read_to_string(&file.path).unwrap().contains("llmc"));
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&file.path), 0o640, "as it was");
    assert_eq!(mode(&applied.backup.unwrap()), 0o640, "no more than it was");
    fs::remove_file(&file.path).unwrap();
    let error = install(Client::Gemini, &link).unwrap_err();
    assert!(matches!(error, Error::DanglingLink { .. }), "{error}");
    assert!(link.is_symlink() && !file.path.exists());
    fs::remove_file(&link).unwrap();
    symlink("link", &link).unwrap();
    let error = install(Client::Gemini, &link).unwrap_err();
    assert!(matches!(error, Error::Unreadable { .. }), "a loop: {error}");
}

#[test]
fn a_read_only_file_is_not_replaced() {
    let file = file("{}");
    fs::set_permissions(&file.path, fs::Permissions::from_mode(0o444)).unwrap();
    let plan = install(Client::Windsurf, &file.path).unwrap();
    assert!(!plan.diff().is_empty(), "it can be looked at");
    assert!(matches!(plan.check_writable(), Err(Error::ReadOnly { .. })));
    assert!(matches!(plan.apply(), Err(Error::ReadOnly { .. })));
    assert_eq!(fs::read_to_string(&file.path).unwrap(), "{}");
    assert_eq!(file.path.parent().unwrap().read_dir().unwrap().count(), 1);
}

#[test]
fn what_is_no_file_is_refused() {
    let base = tempfile::tempdir().unwrap();
    let error = install(Client::Cursor, base.path()).unwrap_err();
    assert!(matches!(error, Error::NotAFile { .. }), "{error}");
    let pipe = base.path().join("pipe");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let error = install(Client::Cursor, &pipe).unwrap_err();
    assert!(matches!(error, Error::NotAFile { .. }), "{error}");
    let file = base.path().join("file");
    fs::write(&file, "{}").unwrap();
    let error = install(Client::Cursor, &file.join("below")).unwrap_err();
    assert!(matches!(error, Error::Unreadable { .. }), "{error}");
    let huge = base.path().join("huge");
    fs::File::create(&huge).unwrap().set_len(1 << 40).unwrap();
    let error = install(Client::Cursor, &huge).unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
}

#[test]
fn a_change_by_another_program_is_not_lost() {
    let file = file("{}");
    let plan = install(Client::ClaudeCode, &file.path).unwrap();
    fs::write(&file.path, "{\"theirs\": 1}").unwrap();
    let error = plan.apply().unwrap_err();
    assert!(matches!(error, Error::Changed { .. }), "{error}");
    assert_eq!(fs::read_to_string(&file.path).unwrap(), "{\"theirs\": 1}");
    assert_eq!(file.path.parent().unwrap().read_dir().unwrap().count(), 1);
    // Nor one that comes where there was no file.
    fs::remove_file(&file.path).unwrap();
    let plan = install(Client::ClaudeCode, &file.path).unwrap();
    fs::write(&file.path, "{}").unwrap();
    assert!(matches!(plan.apply(), Err(Error::Changed { .. })));
}

#[test]
fn backups_do_not_replace_each_other() {
    let file = file("{}");
    let mut backups = Vec::new();
    for _ in 0..3 {
        backups.extend(
            install(Client::Cursor, &file.path)
                .unwrap()
                .apply()
                .unwrap()
                .backup,
        );
        backups.extend(
            uninstall(Client::Cursor, &file.path)
                .unwrap()
                .apply()
                .unwrap()
                .backup,
        );
    }
    assert_eq!(backups.len(), 6);
    assert_eq!(fs::read_to_string(&backups[0]).unwrap(), "{}");
    backups.sort();
    backups.dedup();
    assert_eq!(backups.len(), 6);
}

/// A JSON object in a hand-written layout.
fn written() -> impl Strategy<Value = String> {
    let scalar = prop_oneof![
        Just("null".to_owned()),
        any::<i32>().prop_map(|n| n.to_string()),
        "[a-z/*{}\\[\\], é\"\\\\]{0,12}".prop_map(|text| serde_json::json!(text).to_string()),
    ];
    let gap = prop_oneof![
        4 => Just(String::new()),
        2 => Just(" ".to_owned()),
        2 => Just("\n  ".to_owned()),
        1 => Just("// a \"comment\" {\n".to_owned()),
        1 => Just("/* , } */".to_owned()),
    ];
    let value = scalar.prop_recursive(3, 24, 4, move |inner| {
        let gap = gap.clone();
        let item = (gap.clone(), inner, gap).prop_map(|(a, value, b)| format!("{a}{value}{b}"));
        prop_oneof![
            prop::collection::vec(item.clone(), 0..4)
                .prop_map(|items| format!("[{}]", items.join(","))),
            prop::collection::vec(("[a-f]{1,3}", item), 0..4).prop_map(|fields| {
                let mut seen = std::collections::BTreeSet::new();
                let fields: Vec<String> = fields
                    .into_iter()
                    .filter(|(key, _)| seen.insert(key.clone()))
                    .map(|(key, value)| format!("\"{key}\":{value}"))
                    .collect();
                format!("{{{}}}", fields.join(","))
            }),
        ]
    });
    (value.clone(), value, any::<bool>()).prop_map(|(a, b, servers)| match servers {
        true => format!("{{\"a\": {a}, \"mcpServers\": {{\"b\": {b}}}}}\n"),
        false => format!("{{\"a\": {a},\n \"b\": {b}}}"),
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever else is in the file, the entry goes in and out without a trace in the rest.
    #[test]
    fn any_settings_survive_an_installation(before in written()) {
        let file = file(&before);
        let plan = install(Client::Cursor, &file.path).unwrap();
        prop_assert!(!plan.is_unchanged());
        plan.apply().unwrap();
        prop_assert!(install(Client::Cursor, &file.path).unwrap().is_unchanged());
        let between = fs::read_to_string(&file.path).unwrap();
        uninstall(Client::Cursor, &file.path).unwrap().apply().unwrap();
        let after = fs::read_to_string(&file.path).unwrap();
        if before.contains("mcpServers") {
            let solid = |text: &str| text.split_whitespace().collect::<String>();
            prop_assert_eq!(solid(&after), solid(&before), "{}", between);
        }
    }
}
