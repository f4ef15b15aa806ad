//! Pages over the panels: what agents are doing now, savings, and a call with its arguments and answer.
//!
//! Their data has the form of the server's `/api`, whether a server sent it or it was read from the workspace.

use std::fmt;
use std::time::Duration;

use llmc_observe::{CallReader, CallScope, UpstreamList};
use serde_json::{Value, json};

use crate::text::{count, grouped, label, legible, short, span};
use crate::watch::{WatchTarget, fetch};

/// Days that the page on savings shows.
const SAVINGS_DAYS: u64 = 30;
/// Groups of each kind on it.
const MAX_GROUPS: usize = 12;
/// Lines of an answer.
const MAX_ANSWER_LINES: usize = 2000;
const MAX_LINE_CHARS: usize = 500;

/// Tells what the servers of the workspace are doing, in the form of `/api/activity`.
pub struct ActivitySource(Box<dyn Fn() -> Value>);

impl ActivitySource {
    pub fn new(read: impl Fn() -> Value + 'static) -> ActivitySource {
        ActivitySource(Box::new(read))
    }
}

impl fmt::Debug for ActivitySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ActivitySource")
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PageKind {
    Agents,
    Savings,
    /// A recorded call, by its number.
    Call(i64),
}

/// Text over the panels.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Page {
    pub(crate) kind: PageKind,
    pub(crate) title: &'static str,
    pub(crate) lines: Vec<String>,
}

/// Reads a page; what cannot be read is said on it.
pub(crate) fn read_page(kind: PageKind, target: &WatchTarget, activity: &ActivitySource) -> Page {
    let (title, lines) = match kind {
        PageKind::Agents => (
            "Agents now: Esc closes",
            read(target, "/api/activity", |_, _| Ok((activity.0)())).map(|data| agents(&data)),
        ),
        PageKind::Savings => (
            "Savings of 30 days: Esc closes",
            read(target, "/api/savings", |reader, upstreams| {
                let back = Duration::from_secs(SAVINGS_DAYS * 24 * 3600);
                let report = reader.savings(back, 0, CallScope::All, upstreams);
                report.map(|report| json!(report))
            })
            .map(|data| savings(&data)),
        ),
        PageKind::Call(seq) => (
            "Arguments and answer: Esc closes",
            read(target, &format!("/api/calls/{seq}"), |reader, _| {
                Ok(content(reader.show(seq, CallScope::All)?))
            })
            .map(|data| call(&data)),
        ),
    };
    Page {
        kind,
        title,
        lines: lines.unwrap_or_else(|error| vec![legible(&error, MAX_LINE_CHARS)]),
    }
}

/// From the server that is watched, or from the workspace's telemetry.
fn read(
    target: &WatchTarget,
    path: &str,
    from_telemetry: impl FnOnce(&CallReader, &[UpstreamList]) -> Result<Value, llmc_observe::Error>,
) -> Result<Value, String> {
    match target {
        WatchTarget::Telemetry {
            location,
            upstreams,
            ..
        } => {
            let reader = CallReader::new(location.clone());
            from_telemetry(&reader, upstreams).map_err(|error| error.to_string())
        }
        WatchTarget::Server { address, token } => {
            let body = fetch(address, token.as_deref(), path).map_err(|error| error.to_string())?;
            serde_json::from_str(&body).map_err(|_| "the server's answer is no JSON".to_owned())
        }
    }
}

fn content(detail: Option<llmc_observe::CallDetail>) -> Value {
    let content = detail.and_then(|detail| detail.content);
    match content {
        Some([(args, args_cut), (answer, answer_cut)]) => json!({"contents": {
            "args": args, "args_cut": args_cut, "answer": answer, "answer_cut": answer_cut,
        }}),
        None => json!({"contents": null}),
    }
}

fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value[key].as_array().into_iter().flatten()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_default()
}

fn agents(data: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    for server in list(data, "servers") {
        let id = text(server, "id");
        if let Some(error) = server["error"].as_str() {
            lines.push(label(&format!("server {id}: {error}"), MAX_LINE_CHARS));
            continue;
        }
        let up = span(number(server, "uptime_s") as f64 * 1000.0);
        lines.push(label(
            &format!(
                "{}, process {}, up {up}",
                text(server, "kind"),
                number(server, "pid")
            ),
            80,
        ));
        for call in list(server, "calls") {
            let took = span(number(call, "elapsed_ms") as f64);
            let (agent, tool, args) = (text(call, "agent"), text(call, "tool"), text(call, "args"));
            lines.push(label(
                &format!("  now   {agent}: {tool}, {took}  {args}"),
                160,
            ));
        }
        for process in list(server, "processes").filter(|process| process["running"] == true) {
            let (id, command) = (text(process, "id"), text(process, "command"));
            lines.push(label(&format!("  runs  {id}  {command}"), 160));
        }
        let own = list(data, "sessions").filter(|session| text(session, "server") == id);
        lines.extend(own.map(session));
    }
    if lines.is_empty() {
        lines.push("no server is running in this workspace".to_owned());
    }
    let ids: Vec<&str> = list(data, "servers")
        .map(|server| text(server, "id"))
        .collect();
    let unlisted = list(data, "sessions").filter(|session| !ids.contains(&text(session, "server")));
    let (ended, elsewhere): (Vec<_>, Vec<_>) =
        unlisted.partition(|session| is_of_this_machine(text(session, "server")));
    for (heading, sessions) in [
        ("ended", ended),
        ("on another machine, or ended", elsewhere),
    ] {
        if !sessions.is_empty() {
            lines.extend([String::new(), heading.to_owned()]);
            lines.extend(sessions.into_iter().map(session));
        }
    }
    lines
}

/// Whether a server is named by its process; one that shares a database is named by its machine.
fn is_of_this_machine(server: &str) -> bool {
    let process = server.split_once('-').map(|(process, _)| process);
    process.is_some_and(|process| process.bytes().all(|byte| byte.is_ascii_digit()))
}

fn session(session: &Value) -> String {
    let last = &session["last_call"];
    let name = match session["client"].as_str() {
        Some(client) => client,
        None => text(session, "agent"),
    };
    let errors = match number(session, "errors") {
        0 => String::new(),
        errors => format!(", {}", count(errors, "error")),
    };
    let line = format!(
        "        {name}: {}{errors}, {} served, {} withheld; last {} {}",
        count(number(session, "calls"), "call"),
        short(number(&session["tokens"], "served")),
        short(number(&session["tokens"], "withheld")),
        text(last, "tool"),
        text(last, "error_code"),
    );
    label(line.trim_end(), 160)
}

fn savings(data: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    for (key, title) in [
        ("days", "By day"),
        ("clients", "By client"),
        ("tools", "By tool"),
    ] {
        lines.push(format!(
            "{title:<26}{:>14}{:>12}{:>8}{:>8}",
            "kept out", "served", "share", "calls"
        ));
        let mut groups: Vec<&Value> = list(data, key).collect();
        if key == "days" {
            groups.reverse();
        }
        for group in groups.into_iter().take(MAX_GROUPS) {
            let tokens = &group["tokens"];
            let served = number(tokens, "served");
            let kept = number(tokens, "withheld").saturating_sub(number(tokens, "fetched_back"));
            let share = match kept.saturating_add(served) {
                0 => "–".to_owned(),
                all => format!("{:.0} %", kept as f64 / all as f64 * 100.0),
            };
            let name = label(text(group, "name"), 24);
            let whole = |number: u64| grouped(i64::try_from(number).unwrap_or(i64::MAX));
            lines.push(format!(
                "  {name:<24}{:>14}{:>12}{share:>8}{:>8}",
                whole(kept),
                short(served),
                short(number(group, "calls"))
            ));
        }
        lines.push(String::new());
    }
    lines.extend(upstreams(data));
    lines
}

/// The ledger of each upstream.
fn upstreams(data: &Value) -> Vec<String> {
    let mut ledgers = list(data, "upstreams").peekable();
    if ledgers.peek().is_none() {
        return Vec::new();
    }
    let mut lines = vec![format!(
        "{:<20}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}",
        "By upstream", "list", "served", "withheld", "fetched", "scripts", "calls"
    )];
    lines.extend(ledgers.map(|ledger| {
        let tokens = &ledger["tokens"];
        format!(
            "  {:<18}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}",
            label(text(ledger, "upstream"), 17),
            short(number(ledger, "list_avoided")),
            short(number(tokens, "served")),
            short(number(tokens, "withheld")),
            short(number(tokens, "fetched_back")),
            short(number(ledger, "read_by_scripts")),
            short(number(ledger, "calls")),
        )
    }));
    lines.push("  list: tokens of its tool list that conversations did not take".to_owned());
    lines.push("  scripts: tokens of answers that scripts read in a model's place".to_owned());
    lines
}

fn call(data: &Value) -> Vec<String> {
    let contents = &data["contents"];
    if contents.is_null() {
        return vec![
            "arguments and answer of this call are not kept (mcp.observability.keep_contents), or no longer"
                .to_owned(),
        ];
    }
    let mut lines = Vec::new();
    for (title, key) in [
        ("Arguments", "args"),
        ("Answer, as the model read it", "answer"),
    ] {
        let is_cut = contents[format!("{key}_cut")] == true;
        let cut = if is_cut { " (the start)" } else { "" };
        lines.push(format!("{title}{cut}"));
        let all = text(contents, key).lines().take(MAX_ANSWER_LINES);
        lines.extend(all.map(|line| format!("  {}", legible(line, MAX_LINE_CHARS))));
        lines.push(String::new());
    }
    lines
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn agents_page() -> Page {
        let data = json!({
            "servers": [
                {"id": "12-a", "kind": "stdio", "pid": 12, "uptime_s": 65, "processes": [
                    {"id": "p_1", "command": "cargo watch", "running": true},
                    {"id": "p_2", "command": "over", "running": false},
                ], "calls": [{"agent": "ann", "tool": "run_cmd", "args": "{\"command\":\"make\"}", "elapsed_ms": 1500}]},
                {"id": "13-b", "error": "server 13-b does not answer"},
            ],
            "sessions": [
                {"server": "12-a", "agent": "ann", "client": "editor 1.2\u{1b}[2J", "calls": 3, "errors": 1,
                 "tokens": {"served": 12_345, "withheld": 5}, "last_call": {"tool": "te_grep", "error_code": null}},
                {"server": "9-c", "agent": "bob", "client": null, "calls": 1, "errors": 0,
                 "tokens": {"served": 1, "withheld": 0}, "last_call": {"tool": "stat", "error_code": "NOT_FOUND"}},
                {"server": "web1-k3f9xq", "agent": "eve", "client": null, "calls": 1, "errors": 0,
                 "tokens": {"served": 1, "withheld": 0}, "last_call": {"tool": "stat", "error_code": null}},
            ],
        });
        Page {
            kind: PageKind::Agents,
            title: "Agents now",
            lines: agents(&data),
        }
    }

    #[test]
    fn agents_are_listed_with_what_they_do() {
        assert_eq!(
            agents_page().lines,
            [
                "stdio, process 12, up 65.0 s",
                "  now   ann: run_cmd, 1.5 s  {\"command\":\"make\"}",
                "  runs  p_1  cargo watch",
                "        editor 1.2\\x1b[2J: 3 calls, 1 error, 12.3k served, 5 withheld; last te_grep",
                "server 13-b: server 13-b does not answer",
                "",
                "ended",
                "        bob: 1 call, 1 served, 0 withheld; last stat NOT_FOUND",
                "",
                "on another machine, or ended",
                "        eve: 1 call, 1 served, 0 withheld; last stat",
            ]
        );
    }

    #[test]
    fn savings_fit_eighty_columns() {
        let group = |name: &str| json!({"name": name, "calls": 12, "tokens": {"served": 100, "withheld": 400, "fetched_back": 100}});
        let data = json!({
            "days": [group("2026-01-01"), group("2026-01-02")],
            "clients": [group(&"x".repeat(200))],
            "tools": [],
            "upstreams": [{"upstream": "x".repeat(40), "list_avoided": 12_345, "calls": 3, "read_by_scripts": 900,
                "tokens": {"served": 1, "withheld": 2, "fetched_back": 3}}],
        });
        let lines = savings(&data);
        assert!(
            lines.iter().all(|line| line.chars().count() <= 74),
            "{lines:#?}"
        );
        assert!(
            lines[1].contains("2026-01-02") && lines[1].contains("75 %"),
            "{lines:#?}"
        );
        let ledger = lines.iter().find(|line| line.contains("12.3k")).unwrap();
        let cells: Vec<&str> = ledger.split_whitespace().skip(1).collect();
        assert_eq!(cells, ["12.3k", "1", "2", "3", "900", "3"], "{lines:#?}");
    }

    #[test]
    fn a_call_shows_what_the_model_read() {
        let data = json!({"contents": {"args": "{}", "args_cut": false, "answer": "one\n\u{1b}[2J", "answer_cut": true}});
        let lines = call(&data);
        assert!(lines.contains(&"Answer, as the model read it (the start)".to_owned()));
        assert!(lines.contains(&"  one".to_owned()) && lines.contains(&"  \\x1b[2J".to_owned()));
        assert!(call(&json!({"contents": null}))[0].contains("not kept"));
    }
}
