//! `history`: what calls changed in the workspace, and one change as a diff.

use std::borrow::Cow;

use llmc_envelope::cut::{CutLimits, cut_ends};
use llmc_envelope::receipt::Receipt;
use llmc_history::{ChangeAction, EntryFilter, EntryId};
use llmc_host::names;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::args::{Count, bounded};
use crate::cx::{Cx, Form};
use crate::error::{ErrorKind, Result};
use crate::history_keeper::{HistoryRequest, history_path};
use crate::history_text::{ListedChange, ListedEntry, diff_of};
use crate::render::{AnswerRoom, Fitted, Render, Rendition, Rest, RestExtent};
use crate::tool::{Effect, Tool};

pub(super) struct HistoryTool;

/// List changes of the workspace; with entry, its diff.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    #[schemars(extend("x-help" = "such as h12"))]
    entry: Option<String>,
    path: Option<String>,
    /// this, or an id
    session: Option<String>,
    #[schemars(extend("x-unlisted" = true))]
    limit: Option<Count<20, 1, 500>>,
}

/// Entries, newest first; of a single one what it changed.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct HistoryOutput {
    entries: Vec<ListedEntry>,
    #[schemars(extend("x-help" = "whether there are older ones"))]
    more: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-help" = "of the entry that was asked for"))]
    changes: Option<Vec<ListedChange>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-help" = "what a script did"))]
    steps: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    diff: Option<String>,
    #[serde(skip)]
    path: Option<String>,
    #[serde(skip)]
    notes: Vec<String>,
}

impl Tool for HistoryTool {
    const NAME: &'static str = "history";
    const EFFECT: Effect = Effect::Reads;
    const ERRORS: &'static [ErrorKind] = &[
        ErrorKind::NotFound,
        ErrorKind::InvalidPath,
        ErrorKind::Unavailable,
    ];
    const KEYWORDS: &'static str = "changes log entries what changed diff before after";
    type Args = Args;
    type Output = HistoryOutput;

    async fn run(cx: &Cx, args: Args) -> Result<HistoryOutput> {
        cx.blocking(move |cx, stop| {
            let limit = usize::try_from(bounded("limit", args.limit)?).unwrap_or(1);
            let request = HistoryRequest::of(cx);
            let path = args.path.map(|path| history_path(cx, &path)).transpose()?;
            let shown = path.as_ref().map(|path| names::escape(path));
            let Some(entry) = args.entry else {
                let filter = EntryFilter {
                    viewer: request.viewer.clone(),
                    path,
                    session: args.session.map(|session| request.session(session)),
                    // One more, to know whether there are more.
                    limit: limit + 1,
                    ..EntryFilter::default()
                };
                let found = cx.app().history()?.list(&filter)?;
                let entries = found.iter().take(limit).map(ListedEntry::of).collect();
                return Ok(HistoryOutput {
                    entries,
                    more: found.len() > limit,
                    changes: None,
                    steps: None,
                    diff: None,
                    path: shown,
                    notes: Vec::new(),
                });
            };
            let id: EntryId = entry.parse()?;
            let history = cx.app().history()?;
            let mut detail = history.show(id, &request.viewer)?;
            if let Some(path) = &path {
                detail.changes.retain(|change| {
                    let is_below = |at: &[u8]| {
                        at.strip_prefix(path.as_slice())
                            .is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
                    };
                    let from = match &change.action {
                        ChangeAction::Moved { from } => Some(from),
                        _ => None,
                    };
                    is_below(&change.path) || from.is_some_and(|from| is_below(from))
                });
            }
            let diff = diff_of(history, &detail, stop)?;
            let mut notes = Vec::new();
            if diff.odd > 0 {
                notes.push("not all UTF-8, odd bytes shown as \u{fffd}".to_owned());
            }
            Ok(HistoryOutput {
                entries: vec![ListedEntry::of(&detail.entry)],
                more: false,
                changes: Some(detail.changes.iter().map(ListedChange::of).collect()),
                steps: (!detail.steps.is_empty()).then_some(detail.steps),
                diff: Some(diff.text),
                path: shown,
                notes,
            })
        })
        .await
    }
}

impl HistoryOutput {
    fn notes(&self) -> Vec<String> {
        let more = self
            .more
            .then_some("older entries follow: limit shows more");
        let more = more.map(str::to_owned);
        self.notes.iter().cloned().chain(more).collect()
    }

    fn text(&self) -> Cow<'static, str> {
        let mut lines: Vec<String> = self.entries.iter().map(ListedEntry::line).collect();
        if let Some(changes) = &self.changes {
            lines.extend(
                self.steps
                    .iter()
                    .flatten()
                    .map(|step| format!("step: {step}")),
            );
            lines.extend(changes.iter().map(ListedChange::line));
        } else if lines.is_empty() {
            return Cow::Borrowed("no changes recorded");
        }
        let mut text = lines.join("\n");
        if let Some(diff) = self.diff.as_ref().filter(|diff| !diff.is_empty()) {
            text.push('\n');
            text.push_str(diff);
        }
        Cow::Owned(text)
    }
}

impl Render for HistoryOutput {
    fn render(&self, room: &AnswerRoom<'_>) -> Result<Rendition<'_>> {
        if room.form() == Form::Data {
            let mut rendition = Rendition {
                path: self.path.clone(),
                ..Rendition::data()
            };
            if room.is_in_script() {
                rendition.printed = Some(self.text().into_owned());
                rendition.notes = self.notes();
            }
            return Ok(rendition);
        }
        let text = self.text();
        let cut = room.fit(text.len(), |tokens| {
            let cut = cut_ends(&text, CutLimits::tokens(tokens));
            if cut.is_whole() {
                Fitted::Whole(cut)
            } else {
                Fitted::Cut(cut)
            }
        });
        let truncated = !cut.is_whole();
        let mut receipt = Receipt::new();
        if truncated {
            receipt = receipt.cut(cut.kept, cut.left, cut.clipped).rest();
        }
        let withheld_bytes = cut.left.bytes;
        let extent = RestExtent::of_cut(&text, &cut);
        let body = cut.text.trim_end_matches('\n').to_owned();
        Ok(Rendition {
            withheld_bytes: Some(withheld_bytes),
            notes: self.notes(),
            path: self.path.clone(),
            ..Rendition::text(body, receipt)
                .truncated(truncated)
                .rest(truncated.then(|| Rest::text("history", text.as_ref()).extent(extent)))
        })
    }
}
