//! What follows from several settings at once: defaults that depend on others, and contradictions.

use crate::choices::{AuthMode, ConfinementMode, ExecProfile, Mode, OnTimeout, RlmProfile};
use crate::config::{Config, NamedToken, TableFault, UpstreamConfig};
use crate::error::ConfigProblem;
use crate::merge::{
    MergedSettings, Setting, SettingMap, SettingSource, TOKENS, UPSTREAMS, example,
};
use crate::value::Value;

/// Programs that may be started in exec profile `restricted`; each has rules for its arguments.
const RESTRICTED_PROGRAMS: [&str; 13] = [
    "rg", "grep", "ls", "cat", "head", "tail", "wc", "stat", "file", "diff", "find", "sed", "git",
];

/// Gives their values to the settings whose defaults depend on others.
pub(crate) fn apply_rules(settings: &mut MergedSettings, has_file: bool) {
    let given = Config::from_settings(settings);
    let (mode, says) = if given.mcp.code_execution.enabled {
        (
            Mode::CodeExecution,
            "mcp.code_execution.enabled without mcp.mode",
        )
    } else if has_file {
        (Mode::Classic, "a configuration file without mcp.mode")
    } else {
        (Mode::Hybrid, "no configuration file")
    };
    fill(settings, "mcp.mode", word(mode.as_str()), says);

    let restricted = given.mcp.exec.profile == ExecProfile::Restricted;
    let (profile, programs, on_timeout) = if restricted {
        let names = RESTRICTED_PROGRAMS.map(str::to_owned);
        let programs = Value::List(names.into());
        ("exec profile restricted", Some(programs), OnTimeout::Kill)
    } else {
        let programs = example("mcp.tools.run_cmd_allowlist");
        ("exec profile unrestricted", programs, OnTimeout::Background)
    };
    fill(settings, "mcp.tools.run_cmd_allowlist", programs, profile);
    let denylist_reads = Some(Value::Bool(restricted));
    fill(
        settings,
        "mcp.tools.denylist_reads",
        denylist_reads,
        profile,
    );
    let on_timeout = word(on_timeout.as_str());
    fill(settings, "mcp.exec.on_timeout", on_timeout, profile);
    let keep_contents = Some(Value::Bool(!restricted));
    fill(
        settings,
        "mcp.observability.keep_contents",
        keep_contents,
        profile,
    );
    let (network, says) = if restricted {
        (false, profile)
    } else {
        let allowed = given.mcp.tools.allow_outbound_network;
        (allowed, "mcp.tools.allow_outbound_network")
    };
    fill(
        settings,
        "mcp.exec.network",
        Some(Value::Bool(network)),
        says,
    );
    // Unset, it reads as its usual value.
    let max_wait = given.mcp.exec.max_wait_s.max(given.mcp.exec.wait_s);
    let says = "at least mcp.exec.wait_s";
    fill(
        settings,
        "mcp.exec.max_wait_s",
        Some(Value::Int(max_wait)),
        says,
    );

    if given.mcp.rlm.profile == RlmProfile::Restricted {
        let path = "mcp.rlm.allowed_model_prefixes";
        fill(settings, path, example(path), "mcp.rlm.profile restricted");
    }
    if let Some(model) = given.rlm.model {
        fill(settings, "rlm.sub_model", word(&model), "same as rlm.model");
    }
}

/// Every contradiction between settings; `file` is the name of the configuration file in messages.
pub(crate) fn contradictions(settings: &MergedSettings, file: &str) -> Vec<ConfigProblem> {
    let tokens = settings.token_entries().into_iter();
    let tokens = tokens.map(|entry| NamedToken::try_from(entry).map(|token| token.name));
    let mut problems = row_problems(TOKENS, "token", settings.rows(TOKENS), tokens, file);
    let upstreams = settings.upstream_entries().into_iter();
    let upstreams = upstreams.map(|entry| UpstreamConfig::try_from(entry).map(|one| one.name));
    let rows = settings.rows(UPSTREAMS);
    problems.extend(row_problems(UPSTREAMS, "upstream", rows, upstreams, file));
    let mcp = Config::from_settings(settings).mcp;
    let is_set = |key: &str| settings.top.is_set(key);
    let mut report = |key: &str, message: &str| {
        let place = settings.top.source(key).describe(file);
        problems.push(ConfigProblem::new(place, key, message));
    };

    if mcp.auth.mode == AuthMode::None
        && !mcp.server.is_loopback()
        && !mcp.auth.allow_unauthenticated
    {
        let host = &mcp.server.host;
        let message = format!(
            "\"none\" on {host} lets anyone in; listen on loopback, use \"token\", \
             or set mcp.auth.allow_unauthenticated = true"
        );
        report("mcp.auth.mode", &message);
    }
    if mcp.server.tls_enabled && (mcp.server.tls_cert.is_none() || mcp.server.tls_key.is_none()) {
        let message = "needs mcp.server.tls_cert and mcp.server.tls_key";
        report("mcp.server.tls_enabled", message);
    }
    if !mcp.linux_ops.roots.enforce_roots && mcp.linux_roots() != ["/"] {
        let message = "false is accepted only with the roots [\"/\"]; name the roots instead";
        report("mcp.linux_ops.roots.enforce_roots", message);
    }
    let network = "mcp.tools.allow_outbound_network";
    if mcp.exec.profile == ExecProfile::Restricted {
        let asks_network = mcp.tools.allow_outbound_network && is_set(network);
        let not_restricted = [
            (
                !mcp.tools.denylist_reads,
                "mcp.tools.denylist_reads",
                "false",
            ),
            (asks_network, network, "true"),
            (mcp.exec.network, "mcp.exec.network", "true"),
            (
                mcp.exec.on_timeout == OnTimeout::Background,
                "mcp.exec.on_timeout",
                "\"background\"",
            ),
            (
                mcp.exec.confinement == ConfinementMode::Off,
                "mcp.exec.confinement",
                "\"off\"",
            ),
        ];
        for (_, key, value) in not_restricted.into_iter().filter(|(found, ..)| *found) {
            let message = format!("cannot be {value} with mcp.exec.profile = \"restricted\"");
            report(key, &message);
        }
    } else {
        if mcp.exec.confinement == ConfinementMode::Off && !mcp.exec.network {
            let own = is_set("mcp.exec.network").then_some("mcp.exec.network");
            let message = "false cannot be enforced with mcp.exec.confinement = \"off\"";
            report(own.unwrap_or(network), message);
        }
        if is_set(network) && mcp.exec.network != mcp.tools.allow_outbound_network {
            let message = format!("differs from {network}, which means the same; set one");
            report("mcp.exec.network", &message);
        }
    }
    if mcp.exec.max_wait_s < mcp.exec.wait_s {
        let message = format!("is less than mcp.exec.wait_s = {}", mcp.exec.wait_s);
        report("mcp.exec.max_wait_s", &message);
    }
    problems
}

/// What is allowed but likely not meant.
pub(crate) fn warnings(config: &Config) -> Vec<String> {
    let mut warnings = Vec::new();
    if config.mcp.tools.allowed_roots.is_empty() {
        warnings.push("mcp.tools.allowed_roots is empty: every path is refused".to_owned());
    }
    if config.mcp.auth.mode == AuthMode::None && !config.mcp.server.is_loopback() {
        let host = &config.mcp.server.host;
        warnings.push(format!(
            "mcp.auth.mode is none on {host}: anyone who reaches the address may call"
        ));
    }
    warnings
}

/// What is wrong with the tables of a list, each of which has a name of its own.
fn row_problems(
    list: &str,
    noun: &str,
    rows: &[SettingMap],
    names: impl Iterator<Item = Result<String, TableFault>>,
    file: &str,
) -> Vec<ConfigProblem> {
    let mut problems = Vec::new();
    let mut known = Vec::new();
    for (index, (name, values)) in names.zip(rows).enumerate() {
        let mut sources = values.0.values().map(|setting| &setting.source);
        let source = sources.find(|source| **source != SettingSource::Default);
        let place = source.map_or(String::new(), |source| source.describe(file));
        let mut report = |field: &str, message: &str| {
            let key = format!("{list}[{index}].{field}");
            problems.push(ConfigProblem::new(place.clone(), key, message));
        };
        match name {
            Err(TableFault(field, message)) => report(field, message),
            Ok(name) if known.contains(&name) => {
                report("name", &format!("\"{name}\" is the name of another {noun}"));
            }
            Ok(name) => known.push(name),
        }
    }
    problems
}

fn fill(
    settings: &mut MergedSettings,
    path: &'static str,
    value: Option<Value>,
    says: &'static str,
) {
    if settings.top.value(path).is_none() {
        let source = SettingSource::Rule(says);
        settings.top.0.insert(path, Setting { value, source });
    }
}

fn word(word: &str) -> Option<Value> {
    Some(Value::Text(word.to_owned()))
}
