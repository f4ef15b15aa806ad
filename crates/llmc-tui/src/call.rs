//! Calls and summaries as they are shown: nothing in their texts controls a terminal.

use std::cmp::Reverse;

use llmc_observe::{CallEvent, Summary};
use llmc_tools::{Effect, catalog};
use serde_json::Value;

use crate::text::{label, legible};

/// Characters of a name that are shown.
const MAX_NAME_CHARS: usize = 80;
/// Characters of what a call was about that are shown.
const MAX_ABOUT_CHARS: usize = 2000;

/// One finished call in the list. Its names are legible; `args` and `path` are not and are shown through `about` only.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ListedCall {
    pub(crate) event: CallEvent,
    /// Its arguments in brief, or its path.
    pub(crate) about: String,
}

impl ListedCall {
    pub(crate) fn new(event: CallEvent) -> ListedCall {
        ListedCall {
            about: about(&event),
            event: legible_event(event),
        }
    }

    /// `ok`, `ok, cut`, or the error's code.
    pub(crate) fn status(&self) -> &str {
        match &self.event.error_code {
            Some(code) => code,
            None if self.event.truncated => "ok, cut",
            None => "ok",
        }
    }

    /// Whether the tool may change files: all but those that only read.
    pub(crate) fn may_change_files(&self) -> bool {
        // Telemetry puts the program after the tool.
        let name = self.event.tool.split(' ').next().unwrap_or_default();
        catalog::find(name).is_none_or(|tool| tool.effect != Effect::Reads)
    }

    /// Whether one of its texts contains this one, which is in lower case.
    pub(crate) fn matches(&self, wanted: &str) -> bool {
        let event = &self.event;
        let texts = [
            &event.tool,
            &event.source,
            &event.agent,
            &event.session,
            &event.model,
            &self.about,
        ];
        let contains = |text: &str| text.to_lowercase().contains(wanted);
        wanted.is_empty()
            || contains(self.status())
            || texts.into_iter().any(|text| contains(text))
            || (event.handle).is_some_and(|handle| contains(&handle.to_string()))
    }
}

/// What a call was about: its arguments in brief, or its path.
pub(crate) fn about(event: &CallEvent) -> String {
    let text = match (&event.args, &event.path) {
        (Some(args), _) => brief_args(args),
        (None, Some(path)) => path.clone(),
        (None, None) => String::new(),
    };
    legible(&text, MAX_ABOUT_CHARS)
}

/// The same summary, legible, with the most called tools and the most frequent errors first.
pub(crate) fn legible_summary(mut summary: Summary) -> Summary {
    for tool in &mut summary.tools {
        make_legible(&mut tool.tool);
    }
    for error in &mut summary.errors {
        make_legible(&mut error.code);
    }
    for session in &mut summary.sessions {
        make_legible(&mut session.session);
        make_legible(&mut session.agent);
        make_legible(&mut session.model);
    }
    for ledger in &mut summary.upstreams {
        make_legible(&mut ledger.upstream);
    }
    summary.recent = summary.recent.into_iter().map(legible_event).collect();
    summary.tools.sort_by_key(|tool| Reverse(tool.totals.calls));
    summary.errors.sort_by_key(|error| Reverse(error.count));
    summary
        .sessions
        .sort_by_key(|session| Reverse(session.last));
    summary
}

fn legible_event(mut event: CallEvent) -> CallEvent {
    for name in [
        &mut event.source,
        &mut event.agent,
        &mut event.session,
        &mut event.model,
        &mut event.tool,
    ] {
        make_legible(name);
    }
    if let Some(code) = &mut event.error_code {
        make_legible(code);
    }
    event
}

fn make_legible(name: &mut String) {
    *name = label(name, MAX_NAME_CHARS);
}

/// Arguments in brief: `path=a.txt max_lines=20`. Text that is no JSON object stays as it is.
fn brief_args(args: &str) -> String {
    let Ok(Value::Object(args)) = serde_json::from_str(args) else {
        return args.to_owned();
    };
    let pairs = args.iter().map(|(key, value)| match value {
        Value::String(text) => format!("{key}={text}"),
        value => format!("{key}={value}"),
    });
    pairs.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_shown_in_brief() {
        for (args, brief) in [
            (
                r#"{"path":"a b.txt","max_lines":20,"all":true}"#,
                "path=a b.txt max_lines=20 all=true",
            ),
            (r#"{"edits":[{"old":"x"}]}"#, r#"edits=[{"old":"x"}]"#),
            ("{}", ""),
            ("", ""),
            (r#"{"path":"cut o…"#, r#"{"path":"cut o…"#),
        ] {
            assert_eq!(brief_args(args), brief);
        }
    }

    #[test]
    fn names_from_outside_are_made_legible() {
        let call = ListedCall::new(CallEvent {
            agent: "a\u{1b}[2J".to_owned(),
            path: Some("p\r".to_owned()),
            error_code: Some("NOT_FOUND".to_owned()),
            ..CallEvent::default()
        });
        assert_eq!(call.event.agent, "a\\x1b[2J");
        assert_eq!((call.status(), call.about.as_str()), ("NOT_FOUND", "p\\r"));
    }
}
