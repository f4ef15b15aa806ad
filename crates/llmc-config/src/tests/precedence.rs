//! Which layer wins, and what each value says about where it came from.

use super::{Workspace, check, lines, loaded};
use crate::{AgentBudget, Config, Mode, TokenProof, load};

#[test]
fn command_line_over_environment_over_file_over_default() {
    let file = "[mcp.limits]\nrate_limit_rps = 1\n";
    let env = [("LLMC_MCP__LIMITS__RATE_LIMIT_RPS", "2")];
    let set = ["mcp.limits.rate_limit_rps=3"];
    check("", &[], &[], "mcp.limits.rate_limit_rps = 10  # default");
    check(
        file,
        &[],
        &[],
        "mcp.limits.rate_limit_rps = 1  # llmc.toml:2",
    );
    check(
        file,
        &env,
        &[],
        "mcp.limits.rate_limit_rps = 2  # LLMC_MCP__LIMITS__RATE_LIMIT_RPS",
    );
    check(file, &env, &set, "mcp.limits.rate_limit_rps = 3  # --set");
    check(
        "",
        &[],
        &["mcp.server.port=1", "mcp.server.port=2"],
        "mcp.server.port = 2  # --set",
    );
    check(
        "",
        &[],
        &["--mcp.server.port=9000"],
        "mcp.server.port = 9000  # --port",
    );
    check(
        "",
        &[],
        &["--mcp.observability.log_level=debug"],
        "mcp.observability.log_level = \"debug\"  # --log-level",
    );
    check(
        "",
        &[],
        &["--mcp.server.port=9000", "mcp.server.port=9001"],
        "--port: mcp.server.port: differs from --set, which sets the same key",
    );
    check(
        "",
        &[],
        &["--mcp.server.prt=1"],
        "--prt: mcp.server.prt: unknown key; did you mean mcp.server.port?",
    );
}

#[test]
fn a_broken_lower_layer_is_an_error_even_when_overridden() {
    check(
        "[mcp.server]\nport = \"x\"",
        &[],
        &["mcp.server.port=1"],
        "llmc.toml:2: mcp.server.port: expected an integer, found string",
    );
}

#[test]
fn the_mode_follows_the_file() {
    let cases = [
        (
            "",
            "mcp.mode = \"hybrid\"  # default: no configuration file",
        ),
        (
            "# nothing\n",
            "mcp.mode = \"classic\"  # default: a configuration file without mcp.mode",
        ),
        (
            "[other]\nx = 1\n",
            "mcp.mode = \"classic\"  # default: a configuration file without mcp.mode",
        ),
        (
            "[mcp.code_execution]\nenabled = true\n",
            "mcp.mode = \"code_execution\"  # default: mcp.code_execution.enabled without mcp.mode",
        ),
        (
            "[mcp]\nmode = \"te\"\ncode_execution.enabled = true\n",
            "mcp.mode = \"te\"  # llmc.toml:2",
        ),
    ];
    for (toml, expect) in cases {
        check(toml, &[], &[], expect);
    }
    check(
        "",
        &[("LLMC_MCP_MODE", "te")],
        &[],
        "mcp.mode = \"te\"  # LLMC_MCP_MODE",
    );
    check(
        "",
        &[],
        &["--mcp.mode=classic"],
        "mcp.mode = \"classic\"  # --mode",
    );
    check(
        "",
        &[],
        &["mcp.code_execution.enabled=true"],
        "mcp.mode = \"code_execution\"  # default: mcp.code_execution.enabled without mcp.mode",
    );
    assert_eq!(Config::default().mcp.mode, Mode::Hybrid);
    assert_eq!(Config::default(), loaded("", &[], &[]).config);
}

#[test]
fn defaults_that_follow_from_other_keys() {
    check(
        "",
        &[],
        &[],
        "mcp.tools.denylist_reads = false  # default: exec profile unrestricted",
    );
    check(
        "",
        &[],
        &["mcp.exec.profile='restricted'"],
        "mcp.tools.denylist_reads = true  # default: exec profile restricted",
    );
    check(
        "",
        &[],
        &[],
        "mcp.rlm.allowed_model_prefixes = [\"ollama/\"]  # default: mcp.rlm.profile restricted",
    );
    check(
        "",
        &[],
        &["mcp.rlm.profile=unrestricted"],
        "mcp.rlm.allowed_model_prefixes = (unset)  # default",
    );
    check("", &[], &[], "rlm.sub_model = (unset)  # default");
    check(
        "",
        &[],
        &["rlm.model=ollama/a"],
        "rlm.sub_model = \"ollama/a\"  # default: same as rlm.model",
    );
}

#[test]
fn environment_values_come_bare_or_as_toml() {
    let roots = "LLMC_MCP__TOOLS__ALLOWED_ROOTS";
    let cases = [
        (
            roots,
            "/a,~/b",
            "mcp.tools.allowed_roots = [\"/a\", \"~/b\"]",
        ),
        (
            roots,
            " /a , /b c ",
            "mcp.tools.allowed_roots = [\"/a\", \"/b c\"]",
        ),
        (roots, "['/a,b']", "mcp.tools.allowed_roots = [\"/a,b\"]"),
        (roots, "", "mcp.tools.allowed_roots = []"),
        (
            "LLMC_MCP_ALLOWED_ROOTS",
            "/a,/b",
            "mcp.tools.allowed_roots = [\"/a\", \"/b\"]",
        ),
        (
            "LLMC_MCP_LOG_LEVEL",
            "warn",
            "mcp.observability.log_level = \"warn\"",
        ),
        ("LLMC_MCP__ENABLED", "false", "mcp.enabled = false"),
        (
            "LLMC_MCP__HANDLES__MAX_BYTES",
            "1_000",
            "mcp.handles.max_bytes = 1000",
        ),
        (
            "LLMC_RLM__PRICE_PER_MTOK_IN",
            "3",
            "rlm.price_per_mtok_in = 3.0",
        ),
        (
            "LLMC_RLM__MODEL",
            "openai/gpt-5",
            "rlm.model = \"openai/gpt-5\"",
        ),
        (
            "LLMC_MCP__TE__AGENTS__Claude__BUDGET_TOKENS",
            "7",
            "mcp.te.agents.Claude.budget_tokens = 7",
        ),
        (
            "LLMC_MCP__TE__AGENTS",
            "{a-b={budget_tokens=7}}",
            "mcp.te.agents.a-b.budget_tokens = 7",
        ),
        (
            "LLMC_MCP__AUTH__TOKENS",
            "[{name='ci', token_env='CI'}]",
            "mcp.auth.tokens[0].name = \"ci\"",
        ),
        (
            "LLMC_RLM__BASE_URL",
            "https://u:p@h/v1",
            "rlm.base_url = \"https://***@h/v1\"",
        ),
        (
            "LLMC_MCP__STORE__URL",
            "postgres://u:p/@a@h:1/d?sslmode=verify-full",
            "mcp.store.url = \"postgres://***@h:1/d?sslmode=verify-full\"",
        ),
        (
            "LLMC_MCP__STORE__ADMIN_URL",
            "postgres://h/d?user=u&password=p&connect_timeout=2",
            "mcp.store.admin_url = \"postgres://h/d?user=u&password=***&connect_timeout=2\"",
        ),
    ];
    for (name, value, expect) in cases {
        check("", &[(name, value)], &[], &format!("{expect}  # {name}"));
    }
}

#[test]
fn environment_names_that_set_nothing() {
    let cases = [
        (
            "LLMC_MCP__TOOLS__EXEC_TIMEOT",
            "no such key; did you mean LLMC_MCP__EXEC__WAIT_S?",
        ),
        (
            "LLMC_MCP__READ_ONLY",
            "no such key; did you mean LLMC_MCP__TOOLS__READ_ONLY?",
        ),
        (
            "LLMC_MCP__MODE__X",
            "no such key; did you mean LLMC_MCP__MODE?",
        ),
        (
            "LLMC_MCP__TOOLS",
            "names a table; set one of its keys, as LLMC_MCP__TOOLS__KEY",
        ),
        ("LLMC_RLM__", "no such key; did you mean LLMC_RLM__MODEL?"),
    ];
    for (name, expect) in cases {
        check("", &[(name, "3")], &[], &format!("{name}: {expect}"));
    }
    let env = [
        ("LLMC_MCP_MOED", "te"),
        ("LLMC_MCP_TOKEN", "s"),
        ("LLMC_OTHER", "x"),
        ("MCP__X", "y"),
    ];
    let warnings = loaded("", &env, &[]).warnings;
    assert_eq!(
        warnings,
        ["environment variable LLMC_MCP_MOED sets nothing"]
    );

    let token = "[[mcp.auth.tokens]]\nname = \"ci\"\ntoken_env = \"LLMC_MCP_TOKEN_CI\"";
    assert!(
        loaded(token, &[("LLMC_MCP_TOKEN_CI", "s")], &[])
            .warnings
            .is_empty()
    );
}

#[test]
fn short_and_long_names_must_agree() {
    let both = |short, long| [("LLMC_MCP_MODE", short), ("LLMC_MCP__MODE", long)];
    check(
        "",
        &both("te", "te"),
        &[],
        "mcp.mode = \"te\"  # LLMC_MCP__MODE",
    );
    check(
        "",
        &both("te", "hybrid"),
        &[],
        "LLMC_MCP_MODE: mcp.mode: differs from LLMC_MCP__MODE, which sets the same key; set one",
    );
}

#[test]
fn sets_take_toml_and_bare_words() {
    let cases = [
        ("mcp.mode=\"te\"", "mcp.mode = \"te\""),
        ("mcp.mode = 'te'", "mcp.mode = \"te\""),
        ("mcp.mode=te", "mcp.mode = \"te\""),
        (
            "mcp.server.tls_cert=/a=b.pem",
            "mcp.server.tls_cert = \"/a=b.pem\"",
        ),
        (
            "mcp.tools.run_cmd_allowlist=[\"ls\",\"cat\"]",
            "mcp.tools.run_cmd_allowlist = [\"ls\", \"cat\"]",
        ),
        (
            "mcp.tools.run_cmd_allowlist=ls,cat",
            "mcp.tools.run_cmd_allowlist = [\"ls\", \"cat\"]",
        ),
        ("mcp.te={timeout=5}", "mcp.te.timeout = 5"),
        (
            "mcp.te.agents.\"a=b\".budget_tokens=5",
            "mcp.te.agents.\"a=b\".budget_tokens = 5",
        ),
        ("rlm.max_budget_usd=1", "rlm.max_budget_usd = 1.0"),
    ];
    for (set, expect) in cases {
        check("", &[], &[set], &format!("{expect}  # --set"));
    }
    let cases = [
        (
            "mcp.mode",
            "--set: expected key.path=value, found \"mcp.mode\"",
        ),
        ("=3", "--set: expected key.path=value, found \"\""),
        (
            "other.x=3",
            "--set: other.x: unknown key; did you mean mcp.tools.read_only?",
        ),
        (
            "mcp.mode=true",
            "--set: mcp.mode: expected a string, found boolean",
        ),
        (
            "mcp.tools=true",
            "--set: mcp.tools: expected a table, found boolean",
        ),
        (
            "mcp.moed=te",
            "--set: mcp.moed: unknown key; did you mean mcp.mode?",
        ),
    ];
    for (set, expect) in cases {
        if set == "other.x=3" {
            let error = load(&Workspace::new("").inputs(&[], &[set]))
                .unwrap_err()
                .to_string();
            assert!(
                error.starts_with("--set: other.x: unknown key; did you mean "),
                "{error}"
            );
        } else {
            check("", &[], &[set], expect);
        }
    }
}

#[test]
fn tokens_of_a_higher_layer_replace_the_lower_ones() {
    let toml = "[[mcp.auth.tokens]]\nname = \"a\"\ntoken_env = \"A\"\n[[mcp.auth.tokens]]\nname = \"b\"\ntoken_env = \"B\"\ntools = []";
    let tokens = loaded(toml, &[], &[]).config.mcp.auth.tokens;
    assert_eq!(tokens.len(), 2);
    assert_eq!(tokens[0].proof, TokenProof::Env("A".to_owned()));
    assert_eq!(
        (tokens[0].tools.clone(), tokens[1].tools.clone()),
        (None, Some(Vec::new()))
    );
    check(
        toml,
        &[],
        &[],
        "mcp.auth.tokens[1].token_env = \"B\"  # llmc.toml:6",
    );
    check(
        toml,
        &[],
        &["mcp.auth.tokens=[]"],
        "mcp.auth.tokens = []  # default",
    );

    let digest = "AB".repeat(32);
    let set = format!(
        "mcp.auth.tokens=[{{name='c', sha256='{digest}', rate_limit_rps=2, read_only=true}}]"
    );
    let loaded = loaded(toml, &[], &[&set]);
    let token = &loaded.config.mcp.auth.tokens[0];
    let TokenProof::Sha256(proof) = &token.proof else {
        panic!("{token:?}")
    };
    assert_eq!(proof.as_bytes(), &[0xAB; 32]);
    assert_eq!((token.rate_limit_rps, token.read_only), (Some(2), true));
    assert_eq!(
        lines(&loaded)["mcp.auth.tokens[0].sha256"],
        "mcp.auth.tokens[0].sha256 = ***  # --set"
    );
    assert!(!format!("{loaded:?}").to_lowercase().contains("abab"));
}

#[test]
fn agents_merge_key_by_key() {
    let toml = "[mcp.te.agents.\"claude code\"]\nbudget_tokens = 500\nsession_budget_tokens = 9";
    let te = loaded(
        toml,
        &[],
        &["mcp.te.agents.'claude code'.session_budget_tokens=0"],
    )
    .config
    .mcp
    .te;
    let expect = AgentBudget {
        budget_tokens: Some(500),
        session_budget_tokens: Some(0),
    };
    assert_eq!(te.agents["claude code"], expect);
    assert_eq!(
        (te.budget_for("claude code"), te.budget_for("other")),
        (500, 2000)
    );
    assert_eq!(te.session_budget_for("claude code"), None);
    check(
        toml,
        &[],
        &[],
        "mcp.te.agents.\"claude code\".budget_tokens = 500  # llmc.toml:2",
    );
}

/// File, environment, `--set` flags, and the expected line.
type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a [&'a str], &'a str);

#[test]
fn an_old_name_sets_the_same_key() {
    let cases: [Case<'_>; 8] = [
        (
            "[mcp.tools]\nexec_timeout = 5",
            &[],
            &[],
            "mcp.exec.wait_s = 5  # llmc.toml:2",
        ),
        (
            "[mcp.tools]\nexec_timeout = 5",
            &[("LLMC_MCP__EXEC__WAIT_S", "6")],
            &[],
            "mcp.exec.wait_s = 6  # LLMC_MCP__EXEC__WAIT_S",
        ),
        (
            "[mcp.exec]\nwait_s = 5",
            &[("LLMC_MCP__TOOLS__EXEC_TIMEOUT", "6")],
            &[],
            "mcp.exec.wait_s = 6  # LLMC_MCP__TOOLS__EXEC_TIMEOUT",
        ),
        (
            "[mcp.exec]\nwait_s = 5\n[mcp.tools]\nexec_timeout = 6",
            &[],
            &[],
            "llmc.toml:4: mcp.tools.exec_timeout: sets mcp.exec.wait_s, as llmc.toml:2 does already; set one",
        ),
        (
            "",
            &[
                ("LLMC_MCP__EXEC__WAIT_S", "5"),
                ("LLMC_MCP__TOOLS__EXEC_TIMEOUT", "6"),
            ],
            &[],
            "LLMC_MCP__TOOLS__EXEC_TIMEOUT: mcp.exec.wait_s: differs from LLMC_MCP__EXEC__WAIT_S, which sets the same key; set one",
        ),
        (
            "",
            &[],
            &["mcp.code_execution.sandbox=python"],
            "mcp.code_execution.sandbox = \"python\"  # --set",
        ),
        (
            "[mcp.code_execution]\nsandbox = \"embedded\"",
            &[],
            &[],
            "llmc.toml:2: mcp.code_execution.sandbox: unknown value \"embedded\"; accepted: auto, python; the interpreter inside LLMC is gone: scripts run in the project's or the machine's python3, confined by the kernel",
        ),
        (
            "",
            &[],
            &["mcp.code_execution.sandbox=monty"],
            "--set: mcp.code_execution.sandbox: unknown value \"monty\"; accepted: auto, python; the interpreter inside LLMC is gone: scripts run in the project's or the machine's python3, confined by the kernel",
        ),
    ];
    for (toml, env, cli, expect) in cases {
        check(toml, env, cli, expect);
    }
}

#[test]
fn defaults_of_commands_follow_profile_and_wait() {
    let cases = [
        (
            "",
            "mcp.exec.on_timeout = \"background\"  # default: exec profile unrestricted
             mcp.exec.max_wait_s = 600  # default: at least mcp.exec.wait_s
             mcp.exec.network = true  # default: mcp.tools.allow_outbound_network",
        ),
        (
            "exec.wait_s = 900",
            "mcp.exec.max_wait_s = 900  # default: at least mcp.exec.wait_s",
        ),
        (
            "tools.allow_outbound_network = false",
            "mcp.exec.network = false  # default: mcp.tools.allow_outbound_network",
        ),
        (
            "exec.profile = \"restricted\"",
            "mcp.exec.on_timeout = \"kill\"  # default: exec profile restricted
             mcp.exec.network = false  # default: exec profile restricted",
        ),
    ];
    for (line, expect) in cases {
        check(&format!("[mcp]\n{line}"), &[], &[], expect);
    }
}
