//! Every class of mistake, and what is said about it.

use super::{Workspace, check, load_trusted};
use crate::load;

#[test]
fn unknown_keys_name_the_nearest_one() {
    let cases = [
        (
            "[mcp.tools]\n\nexec_timeot = 3\n",
            "llmc.toml:3: mcp.tools.exec_timeot: unknown key; did you mean mcp.exec.wait_s?",
        ),
        (
            "[mcp]\nread_only = true\n",
            "llmc.toml:2: mcp.read_only: unknown key; did you mean mcp.tools.read_only?",
        ),
        (
            "[mcp.tols]\nread_only = true\n",
            "llmc.toml:2: mcp.tols.read_only: unknown key; did you mean mcp.tools.read_only?",
        ),
        (
            "[rlm]\nmodle = \"x\"\n",
            "llmc.toml:2: rlm.modle: unknown key; did you mean rlm.model?",
        ),
        (
            "mcp.linux_ops.roots = { enforce_root = true }",
            "llmc.toml:1: mcp.linux_ops.roots.enforce_root: unknown key; did you mean mcp.linux_ops.roots.enforce_roots?",
        ),
        (
            "[mcp]\n\"tools.read_only\" = true",
            "llmc.toml:2: mcp.\"tools.read_only\": unknown key; did you mean mcp.tools.read_only?",
        ),
        (
            "[[mcp.auth.tokens]]\nname = \"a\"\nsha265 = \"x\"",
            "llmc.toml:3: mcp.auth.tokens[0].sha265: unknown key; did you mean mcp.auth.tokens[].sha256?",
        ),
        (
            "[mcp.te.agents.\"a.b\"]\nbudget = 3",
            "llmc.toml:2: mcp.te.agents.\"a.b\".budget: unknown key; did you mean mcp.te.agents.*.budget_tokens?",
        ),
        (
            "[mcp.empty]",
            "llmc.toml:1: mcp.empty: unknown key; did you mean mcp.mode?",
        ),
    ];
    for (toml, expect) in cases {
        check(toml, &[], &[], expect);
    }
}

#[test]
fn wrong_types_and_ranges_tell_what_is_right() {
    let cases = [
        (
            "enabled = \"yes\"",
            "mcp.enabled: expected true or false, found string",
        ),
        (
            "enabled = 1",
            "mcp.enabled: expected true or false, found integer",
        ),
        (
            "config_version = \"v1\"",
            "mcp.config_version: unknown value \"v1\"; accepted: v0",
        ),
        (
            "mode = \"fast\"",
            "mcp.mode: unknown value \"fast\"; accepted: classic, hybrid, code_execution, te",
        ),
        ("mode = 3", "mcp.mode: expected a string, found integer"),
        ("mode.x = 3", "mcp.mode: expected a string, found table"),
        ("tools = true", "mcp.tools: expected a table, found boolean"),
        (
            "tools.exec_timeout = \"30\"",
            "mcp.tools.exec_timeout: expected an integer, found string",
        ),
        (
            "tools.exec_timeout = 1.5",
            "mcp.tools.exec_timeout: expected an integer, found float",
        ),
        (
            "tools.exec_timeout = 0",
            "mcp.tools.exec_timeout: must be from 1 to 86400, found 0",
        ),
        (
            "tools.exec_timeout = -1",
            "mcp.tools.exec_timeout: must be from 1 to 86400, found -1",
        ),
        (
            "server.port = 65536",
            "mcp.server.port: must be from 0 to 65535, found 65536",
        ),
        (
            "server.host = \"a b\"",
            "mcp.server.host: must be an IP address or a host name",
        ),
        (
            "limits.rate_limit_rps = 0",
            "mcp.limits.rate_limit_rps: must be at least 1, found 0",
        ),
        (
            "limits.rate_limit_rps = -5",
            "mcp.limits.rate_limit_rps: must be at least 1, found -5",
        ),
        (
            "te.session_budget_tokens = -1",
            "mcp.te.session_budget_tokens: must be at least 0, found -1",
        ),
        (
            "tools.allowed_roots = \"/\"",
            "mcp.tools.allowed_roots: expected an array of strings, found string",
        ),
        (
            "tools.run_cmd_allowlist = [\"ls\", 3]",
            "mcp.tools.run_cmd_allowlist: expected an array of strings, found integer at position 1",
        ),
        (
            "tools.allowed_roots = [\"\"]",
            "mcp.tools.allowed_roots: position 0: must be a path that is not empty and has no NUL in it",
        ),
        (
            "tools.denylist_globs = [\"*.pem\", \"[a\"]",
            "mcp.tools.denylist_globs: position 1: \"[a\" is not a glob: unclosed character class; missing ']'",
        ),
        (
            "exec.path = \"/usr/bin:tools\"",
            "mcp.exec.path: must be \"auto\" or absolute folders joined by :",
        ),
        (
            "auth.header = \"X Token\"",
            "mcp.auth.header: must be an HTTP header name",
        ),
        (
            "auth.token_env = \"s3cr3t!\"",
            "mcp.auth.token_env: must be the name of an environment variable, not the token itself",
        ),
        (
            "auth.tokens = 3",
            "mcp.auth.tokens: expected an array of tables, found integer",
        ),
        (
            "auth.tokens = [3]",
            "mcp.auth.tokens[0]: expected a table, found integer",
        ),
        (
            "te.agents = 3",
            "mcp.te.agents: expected a table, found integer",
        ),
        (
            "te.agents.a = 3",
            "mcp.te.agents.a: expected a table, found integer",
        ),
        (
            "te.agents.a.budget_tokens = 0",
            "mcp.te.agents.a.budget_tokens: must be at least 1, found 0",
        ),
        (
            "observability.metrics_path = \"metrics\"",
            "mcp.observability.metrics_path: must be a URL path that starts with /",
        ),
        (
            "observability.log_level = \"loud\"",
            "mcp.observability.log_level: unknown value \"loud\"; accepted: error, warn, info, debug, trace",
        ),
        (
            "rag.embedding.base_url = \"file:///x\"",
            "mcp.rag.embedding.base_url: must be a URL that starts with http:// or https://",
        ),
        (
            "docker.data_volume = \"\"",
            "mcp.docker.data_volume: must be a path that is not empty and has no NUL in it",
        ),
    ];
    for (line, expect) in cases {
        check(
            &format!("[mcp]\n{line}"),
            &[],
            &[],
            &format!("llmc.toml:2: {expect}"),
        );
    }
    let cases = [
        (
            "max_budget_usd = -1",
            "rlm.max_budget_usd: must be a finite number of at least 0, found -1",
        ),
        (
            "max_budget_usd = nan",
            "rlm.max_budget_usd: must be a finite number of at least 0, found NaN",
        ),
        (
            "max_budget_usd = \"1\"",
            "rlm.max_budget_usd: expected a number, found string",
        ),
        (
            "model = \"gpt\"",
            "rlm.model: must be provider/model with provider ollama, openai, anthropic",
        ),
        (
            "model = \"acme/x\"",
            "rlm.model: must be provider/model with provider ollama, openai, anthropic",
        ),
        (
            "model = \"ollama/../openai/x\"",
            "rlm.model: must be provider/model with provider ollama, openai, anthropic",
        ),
    ];
    for (line, expect) in cases {
        check(
            &format!("[rlm]\n{line}"),
            &[],
            &[],
            &format!("llmc.toml:2: {expect}"),
        );
    }
}

#[test]
fn contradictions_are_refused() {
    let digest = "0".repeat(64);
    let cases = [
        (
            "server.host = \"0.0.0.0\"\nauth.mode = \"none\"".to_owned(),
            "llmc.toml:3: mcp.auth.mode: \"none\" on 0.0.0.0 lets anyone in; listen on loopback, use \"token\", \
             or set mcp.auth.allow_unauthenticated = true",
        ),
        (
            "server.tls_enabled = true".to_owned(),
            "llmc.toml:2: mcp.server.tls_enabled: needs mcp.server.tls_cert and mcp.server.tls_key",
        ),
        (
            "linux_ops.roots.enforce_roots = false".to_owned(),
            "llmc.toml:2: mcp.linux_ops.roots.enforce_roots: false is accepted only with the roots [\"/\"]; name the roots instead",
        ),
        (
            "linux_ops.roots.enforce_roots = false\nlinux_ops.roots.allowed_roots = [\"/\", \"/home\"]".to_owned(),
            "llmc.toml:2: mcp.linux_ops.roots.enforce_roots: false is accepted only with the roots [\"/\"]; name the roots instead",
        ),
        (
            "exec.profile = \"restricted\"\ntools.denylist_reads = false\nexec.confinement = \"off\"".to_owned(),
            "llmc.toml:3: mcp.tools.denylist_reads: cannot be false with mcp.exec.profile = \"restricted\"
             llmc.toml:4: mcp.exec.confinement: cannot be \"off\" with mcp.exec.profile = \"restricted\"",
        ),
        (
            "exec.confinement = \"off\"\ntools.allow_outbound_network = false".to_owned(),
            "llmc.toml:3: mcp.tools.allow_outbound_network: false cannot be enforced with mcp.exec.confinement = \"off\"",
        ),
        (
            "exec.network = true\ntools.allow_outbound_network = false".to_owned(),
            "llmc.toml:2: mcp.exec.network: differs from mcp.tools.allow_outbound_network, which means the same; set one",
        ),
        (
            "exec.confinement = \"off\"\nexec.network = false".to_owned(),
            "llmc.toml:3: mcp.exec.network: false cannot be enforced with mcp.exec.confinement = \"off\"",
        ),
        (
            "exec.profile = \"restricted\"\nexec.network = true\nexec.on_timeout = \"background\"".to_owned(),
            "llmc.toml:3: mcp.exec.network: cannot be true with mcp.exec.profile = \"restricted\"
             llmc.toml:4: mcp.exec.on_timeout: cannot be \"background\" with mcp.exec.profile = \"restricted\"",
        ),
        (
            "exec.wait_s = 20\nexec.max_wait_s = 10".to_owned(),
            "llmc.toml:3: mcp.exec.max_wait_s: is less than mcp.exec.wait_s = 20",
        ),
        (
            "auth.tokens = [{ name = \"a\", token_env = \"A\" }, { name = \"a\", token_env = \"B\" }]".to_owned(),
            "llmc.toml:2: mcp.auth.tokens[1].name: \"a\" is the name of another token",
        ),
        (
            format!("auth.tokens = [{{ name = \"a\", token_env = \"A\", sha256 = \"{digest}\" }}]"),
            "llmc.toml:2: mcp.auth.tokens[0].token_env: give either token_env or sha256, not both",
        ),
        (
            "auth.tokens = [{ name = \"a\" }]".to_owned(),
            "llmc.toml:2: mcp.auth.tokens[0].token_env: missing; give either token_env or sha256",
        ),
        (
            "auth.tokens = [{ token_env = \"A\" }]".to_owned(),
            "llmc.toml:2: mcp.auth.tokens[0].name: missing; every token needs a name",
        ),
        (
            "auth.tokens = [{ name = \"a\", sha256 = \"abc\" }]".to_owned(),
            "llmc.toml:2: mcp.auth.tokens[0].sha256: must be 64 hexadecimal digits",
        ),
        ("[[mcp.auth.tokens]]".to_owned(), "mcp.auth.tokens[0].token_env: missing; give either token_env or sha256"),
        ("[[mcp.upstream]]".to_owned(), "mcp.upstream[0].name: missing; every upstream needs a name"),
        (
            "upstream = [{ name = \"a\" }]".to_owned(),
            "llmc.toml:2: mcp.upstream[0].command: missing; give either command or url",
        ),
        (
            "upstream = [{ name = \"a\", command = \"x\", url = \"https://x\" }]".to_owned(),
            "llmc.toml:2: mcp.upstream[0].url: give either command or url, not both",
        ),
        (
            "upstream = [{ name = \"a\", url = \"https://x\", confine = false }]".to_owned(),
            "llmc.toml:2: mcp.upstream[0].confine: belongs to an upstream with a command",
        ),
        (
            "upstream = [{ name = \"a\", command = \"x\", token_file = \"t\" }]".to_owned(),
            "llmc.toml:2: mcp.upstream[0].token_file: belongs to an upstream with a url",
        ),
        (
            "upstream = [{ name = \"a\", command = \"x\" }, { name = \"a\", url = \"https://x\" }]".to_owned(),
            "llmc.toml:2: mcp.upstream[1].name: \"a\" is the name of another upstream",
        ),
        (
            "upstream = [{ name = \"aio\", command = \"x\" }]".to_owned(),
            "llmc.toml:2: mcp.upstream[0].name: is a function of the module of tools; choose another",
        ),
        (
            "upstream = [{ name = \"Git-Hub\", command = \"x\" }]".to_owned(),
            "llmc.toml:2: mcp.upstream[0].name: must be a lower-case letter and at most 29 letters, digits or _, and not reserved in Python",
        ),
        (
            "upstream = [{ name = \"a\", command = \"x\", env = [\"=secret\"] }]".to_owned(),
            "llmc.toml:2: mcp.upstream[0].env: position 0: must be NAME=value, or the NAME of an environment variable",
        ),
        (
            "upstream = [{ name = \"a\", url = \"https://x\", headers_env = [\"Authorization: secret\"] }]".to_owned(),
            "llmc.toml:2: mcp.upstream[0].headers_env: position 0: must be Header=VARIABLE: an HTTP header and an environment variable",
        ),
    ];
    for (lines, expect) in cases {
        check(&format!("[mcp]\n{lines}"), &[], &[], expect);
    }
}

#[test]
fn what_is_safe_is_accepted() {
    let cases = [
        "server.host = \"0.0.0.0\"\nauth.mode = \"none\"\nauth.allow_unauthenticated = true",
        "server.host = \"[::1]\"\nauth.mode = \"none\"",
        "server.host = \"localhost\"\nauth.mode = \"none\"",
        "server.host = \"127.8.9.1\"\nauth.mode = \"none\"",
        "linux_ops.roots = { enforce_roots = false, allowed_roots = [\"/\"] }",
        "linux_ops.roots.enforce_roots = false\ntools.allowed_roots = [\"/\"]",
        "server = { tls_enabled = true, tls_cert = \"c\", tls_key = \"k\", port = 0 }",
    ];
    for lines in cases {
        let workspace = Workspace::new(&format!("[mcp]\n{lines}"));
        let result = load_trusted(&workspace.inputs(&[], &[]));
        assert!(result.is_ok(), "{lines}: {}", result.err().unwrap());
    }
}

#[test]
fn an_open_door_is_a_warning_where_it_is_allowed() {
    let sets = [
        "mcp.server.host=0.0.0.0",
        "mcp.auth={mode='none', allow_unauthenticated=true}",
    ];
    let loaded = load(&Workspace::new("").inputs(&[], &sets)).unwrap();
    assert_eq!(
        loaded.warnings,
        ["mcp.auth.mode is none on 0.0.0.0: anyone who reaches the address may call"]
    );
}

#[test]
fn broken_toml_names_file_and_line() {
    for (toml, line) in [
        ("[mcp]\nmode = \"te\"\nx = = 3\n", 3),
        ("[mcp]\nmode = \"te\"\nmode = \"te\"", 3),
        ("[mcp", 1),
    ] {
        let workspace = Workspace::new(toml);
        let error = load(&workspace.inputs(&[], &[])).unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("llmc.toml:{line}: broken TOML: ")),
            "{error}"
        );
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn editors_of_other_systems_do_not_shift_lines() {
    let expect = "llmc.toml:3: mcp.mode: expected a string, found integer";
    check("\u{feff}[mcp]\r\n# note\r\nmode = 3\r\n", &[], &[], expect);
}

#[test]
fn all_problems_are_reported_at_once() {
    check(
        "[mcp]\nmoed = \"te\"\n[mcp.server]\nport = -1",
        &[("LLMC_MCP__LIMITS__RATE_LIMIT_RPS", "many"), ("LLMC_RLM__MODLE", "x")],
        &["mcp.enabled=maybe", "--mcp.server.host=a b"],
        "llmc.toml:2: mcp.moed: unknown key; did you mean mcp.mode?
         llmc.toml:4: mcp.server.port: must be from 0 to 65535, found -1
         LLMC_MCP__LIMITS__RATE_LIMIT_RPS: mcp.limits.rate_limit_rps: expected an integer in TOML syntax
         LLMC_RLM__MODLE: no such key; did you mean LLMC_RLM__MODEL?
         --set: mcp.enabled: expected true or false in TOML syntax
         --host: mcp.server.host: must be an IP address or a host name",
    );
}

#[test]
fn messages_never_repeat_a_secret() {
    let toml = "[[mcp.auth.tokens]]\nname = \"a\"\nsha256 = \"hunter2\"\n[[mcp.auth.tokens]]\nname = \"b\"\ntoken_env = \"hunter2!\"";
    let workspace = Workspace::new(toml);
    let error = load(&workspace.inputs(&[("LLMC_MCP_TOKEN", "hunter2")], &[])).unwrap_err();
    assert!(!error.to_string().contains("hunter2"), "{error}");
    let sets = ["mcp.auth.tokens[0].sha256=hunter2"];
    let error = load(&Workspace::new("").inputs(&[], &sets)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "--set: expected key.path=value, found \"mcp.auth.tokens[0].sha256\""
    );
}

#[test]
fn mangled_files_are_errors_and_never_panics() {
    let toml = "[mcp]\nmode = 'te'\nte.agents.'a b' = { budget_tokens = 3 }\n[[mcp.auth.tokens]]\nname = \"ü\"\ntools = [1]\n[rlm]\nmax_budget_usd = 1e3\n";
    let mut broken = 0;
    for (index, _) in toml.char_indices() {
        for replacement in [
            "", "[", "]]", "=", ".", "'", "\"", "\n", "\0", "{", "9", "é",
        ] {
            let rest = toml[index..].chars().skip(1).collect::<String>();
            let mangled = format!("{}{replacement}{rest}", &toml[..index]);
            let mut problems = Vec::new();
            crate::layers::file(
                &mangled,
                "llmc.toml",
                crate::layer_reader::FileRole::User,
                &mut problems,
            );
            let lines = mangled.lines().count() + 1;
            for problem in &problems {
                let line: usize = problem
                    .place
                    .strip_prefix("llmc.toml:")
                    .unwrap()
                    .parse()
                    .unwrap();
                assert!((1..=lines).contains(&line), "{problem} in {mangled}");
            }
            broken += usize::from(!problems.is_empty());
        }
    }
    assert!(broken > 1_000, "{broken}");
}
