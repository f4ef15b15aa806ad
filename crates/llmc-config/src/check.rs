//! What follows from several keys at once: defaults that depend on other keys, and contradictions.

use crate::choices::{AuthMode, Confinement, ExecProfile, Mode, OnTimeout};
use crate::error::Problem;
use crate::settings::{Setting, Settings, Source, example};
use crate::table::RESTRICTED_PROGRAMS;
use crate::types::{Config, NamedToken};
use crate::value::Value;

/// Gives their values to the keys whose defaults depend on other keys.
pub(crate) fn follow_rules(settings: &mut Settings, has_file: bool) {
    let (mode, says) = if is(settings, "mcp.code_execution.enabled", &Value::Bool(true)) {
        (
            Mode::CodeExecution,
            "mcp.code_execution.enabled without mcp.mode",
        )
    } else if has_file {
        (Mode::Classic, "a configuration file without mcp.mode")
    } else {
        (Mode::Hybrid, "no configuration file")
    };
    fill(
        settings,
        "mcp.mode",
        Some(Value::Text(mode.as_str().to_owned())),
        says,
    );

    let restricted = is(
        settings,
        "mcp.exec.profile",
        &word(ExecProfile::Restricted.as_str()),
    );
    let says = if restricted {
        "exec profile restricted"
    } else {
        "exec profile unrestricted"
    };
    let programs = "mcp.tools.run_cmd_allowlist";
    let list = if restricted {
        let names = RESTRICTED_PROGRAMS.iter().map(|name| (*name).to_owned());
        Some(Value::List(names.collect()))
    } else {
        example(programs)
    };
    fill(settings, programs, list, says);
    fill(
        settings,
        "mcp.tools.denylist_reads",
        Some(Value::Bool(restricted)),
        says,
    );
    let on_timeout = if restricted {
        OnTimeout::Kill
    } else {
        OnTimeout::Background
    };
    fill(
        settings,
        "mcp.exec.on_timeout",
        Some(word(on_timeout.as_str())),
        says,
    );
    let network = "mcp.tools.allow_outbound_network";
    let (network, says) = if restricted {
        (Some(Value::Bool(false)), says)
    } else {
        (settings.top.value(network).cloned(), network)
    };
    fill(settings, "mcp.exec.network", network, says);
    let max_wait = match (
        example("mcp.exec.max_wait_s"),
        settings.top.value("mcp.exec.wait_s"),
    ) {
        (Some(Value::Int(usual)), Some(Value::Int(wait))) => Some(Value::Int(usual.max(*wait))),
        (usual, _) => usual,
    };
    fill(
        settings,
        "mcp.exec.max_wait_s",
        max_wait,
        "at least mcp.exec.wait_s",
    );

    if is(settings, "mcp.rlm.profile", &word("restricted")) {
        let path = "mcp.rlm.allowed_model_prefixes";
        fill(settings, path, example(path), "mcp.rlm.profile restricted");
    }
    let model = settings.top.value("rlm.model").cloned();
    if model.is_some() {
        fill(settings, "rlm.sub_model", model, "same as rlm.model");
    }
}

/// Every contradiction between keys; `file` is the name of the configuration file in messages.
pub(crate) fn contradictions(settings: &Settings, file: &str) -> Vec<Problem> {
    let mut found = token_problems(settings, file);
    let mcp = Config::from_settings(settings).mcp;
    let mut say = |key: &str, message: String| {
        found.push(Problem::new(
            settings.top.source(key).describe(file),
            key,
            message,
        ));
    };

    if mcp.auth.mode == AuthMode::None
        && !mcp.server.is_loopback()
        && !mcp.auth.allow_unauthenticated
    {
        let host = &mcp.server.host;
        say(
            "mcp.auth.mode",
            format!(
                "\"none\" on {host} lets anyone in; listen on loopback, use \"token\", \
                 or set mcp.auth.allow_unauthenticated = true"
            ),
        );
    }
    if mcp.server.tls_enabled && (mcp.server.tls_cert.is_none() || mcp.server.tls_key.is_none()) {
        say(
            "mcp.server.tls_enabled",
            "needs mcp.server.tls_cert and mcp.server.tls_key".to_owned(),
        );
    }
    if !mcp.linux_ops.roots.enforce_roots && mcp.linux_roots() != ["/"] {
        say(
            "mcp.linux_ops.roots.enforce_roots",
            "false is accepted only with the roots [\"/\"]; name the roots instead".to_owned(),
        );
    }
    if mcp.exec.profile == ExecProfile::Restricted {
        if !mcp.tools.denylist_reads {
            say(
                "mcp.tools.denylist_reads",
                "cannot be false with mcp.exec.profile = \"restricted\"".to_owned(),
            );
        }
        let network = "mcp.tools.allow_outbound_network";
        let asked = mcp.tools.allow_outbound_network && settings.top.is_set(network);
        for (asked, network) in [(asked, network), (mcp.exec.network, "mcp.exec.network")] {
            if asked {
                say(
                    network,
                    "cannot be true with mcp.exec.profile = \"restricted\"".to_owned(),
                );
            }
        }
        if mcp.exec.on_timeout == OnTimeout::Background {
            say(
                "mcp.exec.on_timeout",
                "cannot be \"background\" with mcp.exec.profile = \"restricted\"".to_owned(),
            );
        }
        if mcp.exec.confinement == Confinement::Off {
            say(
                "mcp.exec.confinement",
                "cannot be \"off\" with mcp.exec.profile = \"restricted\"".to_owned(),
            );
        }
    }
    let network = if settings.top.is_set("mcp.exec.network") {
        "mcp.exec.network"
    } else {
        "mcp.tools.allow_outbound_network"
    };
    let unrestricted = mcp.exec.profile == ExecProfile::Unrestricted;
    if unrestricted && mcp.exec.confinement == Confinement::Off && !mcp.exec.network {
        say(
            network,
            "false cannot be enforced with mcp.exec.confinement = \"off\"".to_owned(),
        );
    }
    if unrestricted
        && settings.top.is_set("mcp.tools.allow_outbound_network")
        && mcp.exec.network != mcp.tools.allow_outbound_network
    {
        say(
            "mcp.exec.network",
            "differs from mcp.tools.allow_outbound_network, which means the same; set one"
                .to_owned(),
        );
    }
    if mcp.exec.max_wait_s < mcp.exec.wait_s {
        say(
            "mcp.exec.max_wait_s",
            format!("is less than mcp.exec.wait_s = {}", mcp.exec.wait_s),
        );
    }
    found
}

/// What is allowed but likely not meant.
pub(crate) fn warnings(config: &Config) -> Vec<String> {
    let mut warnings = Vec::new();
    if config.mcp.tools.allowed_roots.is_empty() {
        warnings.push("mcp.tools.allowed_roots is empty: every path is refused".to_owned());
    }
    let anyone = config.mcp.auth.mode == AuthMode::None && !config.mcp.server.is_loopback();
    if anyone {
        let host = &config.mcp.server.host;
        warnings.push(format!(
            "mcp.auth.mode is none on {host}: whoever reaches it may call"
        ));
    }
    warnings
}

fn token_problems(settings: &Settings, file: &str) -> Vec<Problem> {
    let mut found = Vec::new();
    let mut names = Vec::new();
    for (index, row) in settings.tokens.iter().enumerate() {
        let set = row.0.values().map(|setting| &setting.source);
        let source = set.into_iter().find(|source| **source != Source::Default);
        let place = source.map_or(String::new(), |source| source.describe(file));
        let mut say = |field: &str, message: String| {
            let key = format!("mcp.auth.tokens[{index}].{field}");
            found.push(Problem::new(place.clone(), key, message));
        };
        match NamedToken::from_row(row) {
            Err((field, message)) => say(field, message.to_owned()),
            Ok(token) if names.contains(&token.name) => {
                say(
                    "name",
                    format!("\"{}\" is the name of another token", token.name),
                );
            }
            Ok(token) => names.push(token.name),
        }
    }
    found
}

fn fill(settings: &mut Settings, path: &'static str, value: Option<Value>, says: &'static str) {
    if settings.top.value(path).is_none() {
        settings.top.0.insert(
            path,
            Setting {
                value,
                source: Source::Rule(says),
            },
        );
    }
}

fn is(settings: &Settings, path: &str, value: &Value) -> bool {
    settings.top.value(path) == Some(value)
}

fn word(word: &str) -> Value {
    Value::Text(word.to_owned())
}
