//! `llmc history` and `llmc undo`: what calls changed, and taking it back.

use std::io::IsTerminal;
use std::process::ExitCode;

use jiff::Timestamp;
use llmc_envelope::neutral::{Ansi, neutralise};
use llmc_tools::{CallOutcome, ErrorKind, Form, catalog};
use serde_json::{Map, Value};

use super::colour::Paint;
use super::pager::page;
use super::{Failure, confirm, print, tool};
use crate::cli::{Common, HistoryArgs, HistoryVerb, UndoArgs};

pub(super) fn run(
    common: &Common,
    list: &HistoryArgs,
    verb: Option<HistoryVerb>,
) -> Result<ExitCode, Failure> {
    let (args, json) = match verb {
        Some(HistoryVerb::Show { entry, path, json }) => {
            let args = arguments([
                ("entry", Some(entry.into())),
                ("path", path.map(Value::from)),
            ]);
            (args, json)
        }
        None => {
            let args = arguments([
                ("path", list.path.clone().map(Value::from)),
                ("session", list.session.clone().map(Value::from)),
                ("limit", Some(list.limit.into())),
            ]);
            (args, list.json)
        }
    };
    let outcome = call(common, "history", args)?;
    let Some(found) = data(&outcome, json) else {
        return Ok(exit_code(&outcome));
    };
    if json {
        print(&found.to_string())?;
    } else {
        page(&history_text(&found, Timestamp::now()))?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn undo(common: &Common, args: &UndoArgs) -> Result<ExitCode, Failure> {
    let chosen = |path: Option<&str>| {
        arguments([
            ("entry", args.entry.clone().map(Value::from)),
            ("session", args.session.clone().map(Value::from)),
            ("to", args.to.clone().map(Value::from)),
            ("path", path.map(Value::from)),
            ("dry_run", args.dry_run.then_some(true.into())),
            ("atomic", args.atomic.then_some(true.into())),
        ])
    };
    let outcome = call(common, "undo", chosen(args.path.as_deref()))?;
    let Some(done) = data(&outcome, args.json) else {
        return Ok(exit_code(&outcome));
    };
    if args.json {
        print(&done.to_string())?;
    } else {
        print(&undo_text(&done))?;
        if std::io::stdin().is_terminal() && !args.dry_run {
            undo_shared(common, &done, &chosen)?;
        }
    }
    let conflicts = done["conflicts"].as_array().map_or(0, Vec::len);
    Ok(match conflicts {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::from(ErrorKind::Conflict.row().exit),
    })
}

/// Asks about each file that another writer may have changed.
fn undo_shared(
    common: &Common,
    done: &Value,
    chosen: &dyn Fn(Option<&str>) -> Map<String, Value>,
) -> Result<(), Failure> {
    // What the first undo chose by itself is no longer the newest.
    let undone = texts(&done["undone"]);
    let range = match (
        undone.iter().min_by_key(number),
        undone.iter().max_by_key(number),
    ) {
        (Some(first), Some(last)) => format!("{first}..{last}"),
        _ => return Ok(()),
    };
    for path in texts(&done["shared"]) {
        let question = format!("{path} may hold another writer's change as well; undo it too?");
        if !confirm(&question, "name it with --path")? {
            continue;
        }
        let mut args = chosen(Some(path));
        if !args.contains_key("session") && !args.contains_key("to") {
            args.insert("entry".to_owned(), range.clone().into());
        }
        let outcome = call(common, "undo", args)?;
        if let Some(done) = data(&outcome, false) {
            print(&undo_text(&done))?;
        }
    }
    Ok(())
}

fn number(entry: &&&str) -> u64 {
    entry.trim_start_matches('h').parse().unwrap_or(0)
}

/// Those arguments that were given.
fn arguments<const N: usize>(given: [(&str, Option<Value>); N]) -> Map<String, Value> {
    let given = given.into_iter();
    given
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect()
}

fn call(common: &Common, name: &str, args: Map<String, Value>) -> Result<CallOutcome, Failure> {
    let Some(tool) = catalog::find(name) else {
        return Err(Failure::new(
            ErrorKind::UnknownTool,
            format!("no tool {name}"),
        ));
    };
    tool::call(common, tool, args, Form::Data)
}

/// The document of a call; an error is reported.
fn data(outcome: &CallOutcome, json: bool) -> Option<Value> {
    match &outcome.result {
        Ok(answer) => Some(answer.data().into_owned()),
        Err(error) => {
            let body = json.then(|| error.rest_body(outcome.family(), &outcome.correlation_id));
            tool::report(error, body);
            None
        }
    }
}

fn exit_code(outcome: &CallOutcome) -> ExitCode {
    match &outcome.result {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => ExitCode::from(error.kind.row().exit),
    }
}

/// Entries as lines; of a single one its changes and their diff.
fn history_text(found: &Value, now: Timestamp) -> String {
    let paint = Paint::stdout();
    let entries = found["entries"].as_array().map_or(&[][..], Vec::as_slice);
    let mut out = String::new();
    for entry in entries {
        out.push_str(&entry_line(entry, paint, now));
        out.push('\n');
    }
    if entries.is_empty() {
        out.push_str("no changes recorded\n");
    }
    for step in texts(&found["steps"]) {
        out.push_str(&format!("  step: {}\n", shown(step)));
    }
    for change in found["changes"].as_array().into_iter().flatten() {
        out.push_str(&format!("  {}\n", change_line(change, paint)));
    }
    if let Some(diff) = found["diff"].as_str().filter(|diff| !diff.is_empty()) {
        out.push('\n');
        out.push_str(&paint.diff(&shown(diff)));
    }
    if found["more"] == true {
        out.push_str("older entries follow: -n shows more\n");
    }
    out
}

fn entry_line(entry: &Value, paint: Paint, now: Timestamp) -> String {
    let text = |key: &str| shown(entry[key].as_str().unwrap_or_default());
    let by = match entry["source"].as_str() {
        Some("outside") => "outside".to_owned(),
        Some("undo") => format!(
            "{} undid {}",
            text("agent"),
            texts(&entry["undoes"]).join(", ")
        ),
        _ => format!("{} {}({})", text("agent"), text("tool"), text("args")),
    };
    let mut counts: Vec<String> = [
        ("created", "created", "32"),
        ("changed", "changed", "33"),
        ("deleted", "deleted", "31"),
        ("moved", "moved", "36"),
        ("not_kept", "not kept", "35"),
        ("ignored", "ignored not recorded", "2"),
    ]
    .iter()
    .filter_map(|(key, word, style)| {
        let count = entry[*key].as_u64().filter(|count| *count > 0)?;
        Some(paint.styled(&format!("{count} {word}"), style))
    })
    .collect();
    if entry["shared"] == true {
        counts.push(paint.styled("shared", "35"));
    }
    if let Some(by) = entry["undone_by"].as_str() {
        counts.push(paint.styled(&format!("undone by {by}"), "2"));
    }
    if let Some(why) = entry["not_undoable"].as_str() {
        counts.push(paint.styled(&format!("not undoable: {}", shown(why)), "31"));
    }
    format!(
        "{} {} {by}: {}",
        paint.styled(&format!("{:<5}", text("entry")), "1"),
        paint.styled(
            &format!("{:>10}", age(entry["time_iso"].as_str(), now)),
            "2"
        ),
        counts.join(", ")
    )
}

fn change_line(change: &Value, paint: Paint) -> String {
    let text = |key: &str| shown(change[key].as_str().unwrap_or_default());
    let action = text("action");
    let style = match action.as_str() {
        "created" => "32",
        "deleted" => "31",
        "moved" => "36",
        _ => "33",
    };
    let mut line = paint.styled(&action, style);
    if let Some(from) = change["from"].as_str() {
        line.push_str(&format!(" {} to", shown(from)));
    }
    line.push_str(&format!(" {}", text("path")));
    let (before, after) = (&change["before"], &change["after"]);
    if before["kind"] != after["kind"] && before.is_object() && after.is_object() {
        let kind = |state: &Value| state["kind"].as_str().unwrap_or_default().to_owned();
        line.push_str(&format!(", {} became {}", kind(before), kind(after)));
    } else if let (Some(was), Some(is)) = (before["mode"].as_str(), after["mode"].as_str())
        && was != is
    {
        line.push_str(&format!(", mode {was} to {is}"));
    }
    for state in [before, after] {
        if let Some(why) = state["not_kept"].as_str() {
            line.push_str(&format!(", not kept: {why}"));
            break;
        }
    }
    if change["shared"] == true {
        line.push_str(", shared");
    }
    line
}

fn undo_text(done: &Value) -> String {
    let paint = Paint::stdout();
    let restored = texts(&done["restored"]);
    let undone = texts(&done["undone"]).join(", ");
    let paths = if restored.len() == 1 { "path" } else { "paths" };
    let count = restored.len();
    let mut out = match (done["entry"].as_str(), done["dry_run"] == true) {
        (_, true) => format!("would undo {undone}: {count} {paths}\n"),
        (Some(entry), _) => format!(
            "undid {undone} as {}: {count} {paths} restored\n",
            paint.styled(entry, "1")
        ),
        (None, _) => format!("undid nothing of {undone}\n"),
    };
    for path in restored {
        out.push_str(&format!("  {}\n", shown(path)));
    }
    for conflict in done["conflicts"].as_array().into_iter().flatten() {
        let text = |key: &str| shown(conflict[key].as_str().unwrap_or_default());
        out.push_str(&format!(
            "{} {}: {}; kept as it is\n",
            paint.styled("CONFLICT", "1;31"),
            text("path"),
            text("why")
        ));
    }
    for path in texts(&done["shared"]) {
        out.push_str(&format!(
            "{} {}: another writer was active; --path undoes it all the same\n",
            paint.styled("shared", "35"),
            shown(path)
        ));
    }
    for left in done["not_kept"].as_array().into_iter().flatten() {
        let text = |key: &str| shown(left[key].as_str().unwrap_or_default());
        out.push_str(&format!(
            "not undoable: {}: {}\n",
            text("path"),
            text("why")
        ));
    }
    if let Some(command) = done["git_command"].as_str() {
        out.push_str(&format!(
            "HEAD has moved since; git's own state is left alone. To have it back: {}\n",
            shown(command)
        ));
    }
    out
}

/// The strings of a list.
fn texts(list: &Value) -> Vec<&str> {
    let list = list.as_array().into_iter().flatten();
    list.filter_map(Value::as_str).collect()
}

/// Text that cannot act on the terminal.
fn shown(text: &str) -> String {
    neutralise(text, Ansi::Show).into_owned()
}

/// How long ago, as people say it; the date of what is older than a week.
fn age(time_iso: Option<&str>, now: Timestamp) -> String {
    let Some(time) = time_iso.and_then(|time| time.parse::<Timestamp>().ok()) else {
        return String::new();
    };
    let seconds = now.as_second().saturating_sub(time.as_second()).max(0);
    match seconds {
        0..60 => format!("{seconds} s ago"),
        60..3_600 => format!("{} min ago", seconds / 60),
        3_600..86_400 => format!("{} h ago", seconds / 3_600),
        86_400..604_800 => format!("{} d ago", seconds / 86_400),
        _ => time.strftime("%Y-%m-%d").to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_age_is_in_the_unit_that_people_use() {
        let now: Timestamp = "2026-01-10T00:00:00Z".parse().unwrap();
        for (time, said) in [
            ("2026-01-09T23:59:30Z", "30 s ago"),
            ("2026-01-09T23:50:00Z", "10 min ago"),
            ("2026-01-09T20:00:00Z", "4 h ago"),
            ("2026-01-05T00:00:00Z", "5 d ago"),
            ("2025-12-24T00:00:00Z", "2025-12-24"),
            // A clock that was set back.
            ("2026-01-11T00:00:00Z", "0 s ago"),
            ("nonsense", ""),
        ] {
            assert_eq!(age(Some(time), now), said, "{time}");
        }
    }

    #[test]
    fn an_entry_cannot_act_on_the_terminal() {
        let entry = json!({
            "entry": "h1", "time_iso": "2026-01-09T23:59:30Z", "source": "call", "agent": "a\u{1b}[2J",
            "tool": "run_cmd", "args": "printf '\u{1b}]0;x\u{7}'", "changed": 1,
        });
        let now: Timestamp = "2026-01-10T00:00:00Z".parse().unwrap();
        let text = history_text(&json!({"entries": [entry], "more": false}), now);
        assert!(
            !text.contains("\u{1b}[2J") && !text.contains("\u{1b}]"),
            "{text:?}"
        );
        assert!(text.contains("1 changed"), "{text}");
    }
}
