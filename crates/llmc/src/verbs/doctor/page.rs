//! What `llmc doctor` found, for people and for programs.

use std::fmt::Write;

use llmc_exec::{LayerStore, ProbeResult};
use serde_json::{Value, json};

use super::{DatabaseFinding, Findings, interpreters};
use crate::verbs::colour::Paint;

/// Room for the words on the left.
const LEFT: usize = 15;
/// Columns of the name of a probe.
const PROBE_COLUMNS: usize = 40;

pub(super) fn text(found: &Findings) -> String {
    let (app, mcp) = (&found.app, &found.app.config().mcp);
    let mut out = format!(
        "llmc {} on {}, uid {}{}\n\n",
        env!("CARGO_PKG_VERSION"),
        found.kernel,
        found.uid,
        if found.uid == 0 { " (root)" } else { "" }
    );
    let mut row = |name: &str, value: String| {
        let line = format!("{name:<LEFT$}{value}");
        let _ = writeln!(out, "{}", line.trim_end());
    };
    row("executable", found.executable.clone());
    row("workspace", app.root().display().to_string());
    row("configuration", configuration(found));
    let (tools, tokens) = found.listed;
    let mode = mcp.mode.as_str();
    row(
        "mode",
        format!("{mode}: {tools} tools, a list of {tokens} tokens in every conversation"),
    );
    row("state", state(found));
    for (name, value) in stores(found) {
        row("", format!("{name}: {value}"));
    }
    for line in found.database.iter().flat_map(database) {
        row("store", line);
    }
    row("history", found.history.clone());
    for warning in &found.warnings {
        row("warning", warning.clone());
    }
    row("", String::new());
    row("commands", found.confinement.to_string());
    row("kernel offers", offered(found));
    row("enforced", enforced(found));
    row("limits by", found.limits_by.to_owned());
    let programs: Vec<String> = found
        .programs
        .iter()
        .map(|program| format!("{} = {}", program.name, program.path.display()))
        .collect();
    // Without an allowlist any program may run, as the row above says.
    if !programs.is_empty() {
        row("programs", programs.join(", "));
        row("interpreters", or_none(interpreters(found).join(", ")));
    }
    row(
        "tool chains",
        or_none(working_tool_chains(found).join(", ")),
    );
    row("home", or_none(layers(found).join(", ")));
    row("scripts", found.scripts.clone());
    row("parsing", found.parsers.to_owned());
    for missing in &found.unresolved {
        row("not found", format!("{}: {}", missing.name, missing.why));
    }
    row("", String::new());
    let colour = Paint::stdout().is_on();
    for probe in &found.probes {
        let (word, detail) = result_words(&probe.result);
        let word = match colour {
            true => format!("\u{1b}[{}m{word}\u{1b}[0m", paint(&probe.result)),
            false => word.to_owned(),
        };
        let detail = match detail {
            "" => String::new(),
            detail => format!(" ({detail})"),
        };
        let _ = writeln!(out, "{:<PROBE_COLUMNS$}{word}{detail}", probe.what);
    }
    out.push('\n');
    for problem in &found.problems {
        let _ = writeln!(out, "problem: {problem}");
    }
    let away = found
        .database
        .iter()
        .filter_map(|found| found.state.as_ref().err());
    for error in away.clone() {
        let _ = writeln!(out, "problem: {error}; {}", error.hint());
    }
    if found.problems.is_empty() && away.count() == 0 {
        out.push_str("everything that the configuration requires is in force\n");
    }
    out
}

pub(super) fn document(found: &Findings) -> String {
    let mcp = &found.app.config().mcp;
    let loaded = found.app.loaded();
    let stores: Vec<Value> = found
        .stores
        .iter()
        .map(|store| {
            json!({
                "name": store.name, "bytes": store.bytes, "damage": store.damage,
            })
        })
        .collect();
    let programs: Vec<Value> = found
        .programs
        .iter()
        .map(|program| json!({"name": program.name, "path": program.path}))
        .collect();
    let unresolved: Vec<Value> = found
        .unresolved
        .iter()
        .map(|missing| json!({"name": missing.name, "why": missing.why}))
        .collect();
    let probes: Vec<Value> = found
        .probes
        .iter()
        .map(|probe| {
            let (word, detail) = result_words(&probe.result);
            json!({"probe": probe.what, "result": word, "detail": detail})
        })
        .collect();
    let tool_chains: Vec<Value> = found
        .tool_chains
        .iter()
        .map(|tool| {
            let (works, says) = match &tool.version {
                Ok(version) => (true, version),
                Err(why) => (false, why),
            };
            json!({"name": tool.name, "program": tool.program, "works": works, "says": says})
        })
        .collect();
    let database = found.database.as_ref().map(database_document);
    let settings = found.app.command_settings();
    let document = json!({
        "ok": found.problems.is_empty() && database.as_ref().is_none_or(|database| database["problem"].is_null()),
        "version": env!("CARGO_PKG_VERSION"),
        "kernel": found.kernel,
        "uid": found.uid,
        "executable": found.executable,
        "workspace": loaded.root,
        "configuration": loaded.file,
        "mode": {"name": mcp.mode.as_str(), "tools": found.listed.0, "tokens": found.listed.1},
        "state": {
            "dir": loaded.state_dir(),
            "writable": found.unusable.is_none(),
            "stores": stores,
            "history": found.history,
        },
        "store": database,
        "commands": {
            "summary": found.confinement.to_string(),
            "profile": found.confinement.profile,
            "confinement": mcp.exec.confinement.as_str(),
            "kernel_gives": found.offered.map(|level| level.to_string()),
            "missing": found.offered.map(|level| level.missing()),
            "enforced": found.level.map(|level| level.to_string()),
            "limits_by": found.limits_by,
            "programs": programs,
            "interpreters": interpreters(found),
            "unresolved": unresolved,
            "any_program": settings.allowlist.iter().any(|name| name == "*"),
            "search_path": settings.search_path,
            "tool_chains": tool_chains,
            "home": layers(found),
            "write_roots": settings.write_roots,
            "extra_write": settings.extra_write,
            "network": settings.network,
        },
        "scripts": found.scripts,
        "parsing": found.parsers,
        "probes": probes,
        "warnings": found.warnings,
        "problems": found.problems,
    });
    format!("{document:#}\n")
}

fn configuration(found: &Findings) -> String {
    let file = match found.app.loaded().file {
        Some(_) => found.app.loaded().file_label(),
        None => "no llmc.toml",
    };
    let set: Vec<String> = found
        .sources
        .iter()
        .map(|(count, place)| match count {
            1 => format!("1 key set {place}"),
            _ => format!("{count} keys set {place}"),
        })
        .collect();
    match set.is_empty() {
        true => format!("{file}; defaults only"),
        false => format!("{file}; {}", set.join(", ")),
    }
}

fn state(found: &Findings) -> String {
    let dir = found.app.loaded().state_dir();
    let dir = dir.display();
    match &found.unusable {
        None => format!("{dir}, writable"),
        Some(why) => format!("{dir}: {why}"),
    }
}

fn database_document(found: &DatabaseFinding) -> Value {
    match &found.state {
        Ok(report) => json!({
            "address": found.address, "tenant": found.tenant, "server": report.server, "role": report.role,
            "schema": report.schema, "encrypted": report.is_encrypted,
            "round_trip_ms": report.round_trip.as_secs_f64() * 1000.0, "problem": null, "hint": null,
        }),
        Err(error) => json!({
            "address": found.address, "tenant": found.tenant, "problem": error.to_string(), "hint": error.hint(),
        }),
    }
}

/// The shared database alone, as one document.
pub(super) fn store_document(found: Option<&DatabaseFinding>) -> String {
    let ok = found.is_none_or(DatabaseFinding::is_usable);
    format!(
        "{:#}\n",
        json!({"ok": ok, "store": found.map(database_document)})
    )
}

/// The shared database alone, in words.
pub(super) fn store_text(found: Option<&DatabaseFinding>) -> String {
    let Some(found) = found else {
        return "mcp.store.url is not set: everything is kept in the state directory\n".to_owned();
    };
    let mut lines = database(found);
    match &found.state {
        Ok(_) => lines.push("the database can be used".to_owned()),
        Err(error) => lines.push(format!("problem: {error}; {}", error.hint())),
    }
    lines.join("\n") + "\n"
}

/// The shared database and what is known of it.
fn database(found: &DatabaseFinding) -> Vec<String> {
    let address = format!("{}, tenant {}", found.address, found.tenant);
    let Ok(report) = &found.state else {
        return vec![address];
    };
    let schema = match report.schema {
        Some(schema) => format!("schema {schema}"),
        None => "no tables yet; the first server creates them".to_owned(),
    };
    let connection = match report.is_encrypted {
        true => "encrypted",
        false => "not encrypted",
    };
    let milliseconds = report.round_trip.as_secs_f64() * 1000.0;
    let (server, role) = (&report.server, &report.role);
    vec![
        address,
        format!("{server}, role {role}, {schema}, {connection}, {milliseconds:.1} ms a round trip"),
    ]
}

fn stores(found: &Findings) -> Vec<(&str, String)> {
    let list = found.stores.iter();
    list.map(|store| {
        let size = match store.bytes {
            bytes @ 0..10_000 => format!("{bytes} bytes"),
            bytes @ 10_000..10_000_000 => format!("{} kB", bytes / 1000),
            bytes => format!("{} MB", bytes / 1_000_000),
        };
        let state = store.damage.as_deref().unwrap_or("sound");
        (store.name.as_str(), format!("{size}, {state}"))
    })
    .collect()
}

fn offered(found: &Findings) -> String {
    let Some(level) = found.offered else {
        return "nothing".to_owned();
    };
    match level.missing()[..] {
        [] => format!("{level} (full)"),
        ref missing => format!("{level}; not full: lacks {}", missing.join(", ")),
    }
}

fn enforced(found: &Findings) -> String {
    match found.level {
        None => "no command runs".to_owned(),
        Some(level) if level.to_string() == "none" => {
            "nothing: mcp.exec.confinement is off".to_owned()
        }
        Some(level) => level.to_string(),
    }
}

/// Each tool chain that starts confined, with what it calls itself.
fn working_tool_chains(found: &Findings) -> Vec<String> {
    let tools = found.tool_chains.iter();
    tools
        .filter_map(|tool| {
            let version = tool.version.as_ref().ok()?;
            let number = version
                .split(|c: char| c.is_whitespace() || "\",()".contains(c))
                .map(|word| word.trim_start_matches(['v', 'g', 'o']))
                .find(|word| word.starts_with(|c: char| c.is_ascii_digit()));
            Some(format!("{} {}", tool.name, number.unwrap_or(version)))
        })
        .collect()
}

/// How commands write to the user's folders.
fn layers(found: &Findings) -> Vec<String> {
    let layers = found.layers.iter();
    layers
        .map(|layer| {
            let how = match layer.store {
                Some(LayerStore::Disk) => "private layer in the state directory",
                Some(LayerStore::DiskRenewed) => {
                    "private layer in the state directory, recreated (the old one was unusable or above mcp.exec.cache_max_bytes)"
                }
                Some(LayerStore::Memory) => "private layer in memory",
                Some(LayerStore::MemoryBecauseFull) => "private layer in memory (the disk is full)",
                None => "read-only",
            };
            format!("{}: {how}", layer.path.display())
        })
        .chain(found.layers.first().map(|_| {
            let (mega, bytes) = (1_000_000, found.layer_bytes);
            let most = found.layer_max_bytes / mega;
            format!("{} MB written of at most {most} MB", bytes / mega)
        }))
        .collect()
}

fn result_words(result: &ProbeResult) -> (&'static str, &str) {
    match result {
        ProbeResult::Held(layer) => ("held", layer),
        ProbeResult::Escaped => ("ESCAPED", "though the level says that it cannot"),
        ProbeResult::Open(why) => ("not enforced", why),
        ProbeResult::Untried(why) => ("not tried", why),
    }
}

fn paint(result: &ProbeResult) -> &'static str {
    match result {
        ProbeResult::Held(_) => "32",
        ProbeResult::Escaped => "1;31",
        ProbeResult::Open(_) | ProbeResult::Untried(_) => "33",
    }
}

fn or_none(text: String) -> String {
    match text.is_empty() {
        true => "none".to_owned(),
        false => text,
    }
}
