//! The ledger of each upstream: what its tool list would have cost, and where the tokens of its answers went.
//!
//! Every view reads these figures: metrics, the dashboard, the terminal view and `te analyze`. Which upstreams there are and
//! how long their lists are comes from the caller, since events name tools only.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write;

use llmc_envelope::HandleId;
use serde::{Deserialize, Serialize};

use crate::event::CallEvent;
use crate::prometheus::{escape_label, write_header};
use crate::summary::CallTotals;

/// Names that are counted; further ones are not, since every tool with a point in its name looks like one of an upstream.
const MAX_UPSTREAMS: usize = 500;
/// Conversations that are remembered. Beyond that number, those that are still active are counted a second time.
const MAX_CONVERSATIONS: usize = 10_000;
/// Handles whose upstream is remembered. Beyond that, what is fetched back of older ones is not in the ledger.
const MAX_HANDLES: usize = 10_000;
/// Bytes of an answer for one token, as an estimate.
const BYTES_PER_TOKEN: u64 = 4;

/// A configured upstream and what its list costs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UpstreamList {
    pub name: String,
    /// Tokens that a conversation is spared: of the tools that are not in this server's own list.
    pub tokens: u64,
}

/// The tokens of one upstream.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpstreamLedger {
    pub upstream: String,
    /// Tokens that its list would take of each conversation.
    pub list_tokens: u64,
    /// The same over all conversations that were counted.
    pub list_avoided: u64,
    #[serde(flatten)]
    pub totals: CallTotals,
    /// Tokens of answers that scripts read in the place of a model, estimated by their size.
    pub read_by_scripts: u64,
}

/// Calls in, ledgers out.
#[derive(Debug, Default)]
pub(crate) struct UpstreamLedgers {
    upstreams: BTreeMap<String, UpstreamLedger>,
    /// By server, principal and session.
    seen: HashSet<[String; 3]>,
    conversations: u64,
    handles: HashMap<HandleId, String>,
}

impl UpstreamLedgers {
    pub(crate) fn add(&mut self, call: &CallEvent) {
        if call.source == "mcp" {
            self.note_conversation(call);
        }
        if let Some(name) = upstream_of(&call.tool) {
            if !self.upstreams.contains_key(name) && self.upstreams.len() >= MAX_UPSTREAMS {
                return;
            }
            let ledger = self.upstreams.entry(name.to_owned()).or_default();
            ledger.totals.add(call);
            if call.source == "code" {
                let tokens = call.bytes_out / BYTES_PER_TOKEN;
                ledger.read_by_scripts = ledger.read_by_scripts.saturating_add(tokens);
            }
            if let Some(handle) = call.handle {
                if self.handles.len() >= MAX_HANDLES {
                    self.handles.clear();
                }
                self.handles.insert(handle, name.to_owned());
            }
        } else if call.tokens_fetched_back > 0
            && let Some(name) = call.handle.and_then(|handle| self.handles.get(&handle))
            && let Some(ledger) = self.upstreams.get_mut(name)
        {
            let fetched = &mut ledger.totals.tokens.fetched_back;
            *fetched = fetched.saturating_add(call.tokens_fetched_back);
        }
    }

    fn note_conversation(&mut self, call: &CallEvent) {
        let key = [&call.server, &call.principal, &call.session].map(String::clone);
        if self.seen.contains(&key) {
            return;
        }
        if self.seen.len() >= MAX_CONVERSATIONS {
            self.seen.clear();
        }
        self.seen.insert(key);
        self.conversations += 1;
    }

    /// One for each configured upstream, called or not, in that order.
    pub(crate) fn of(&self, lists: &[UpstreamList]) -> Vec<UpstreamLedger> {
        let ledgers = lists.iter().map(|list| UpstreamLedger {
            upstream: list.name.clone(),
            list_tokens: list.tokens,
            list_avoided: list.tokens.saturating_mul(self.conversations),
            ..self.upstreams.get(&list.name).cloned().unwrap_or_default()
        });
        ledgers.collect()
    }

    /// Appends the ledgers in the text format of Prometheus.
    pub(crate) fn prometheus(&self, out: &mut String, lists: &[UpstreamList]) {
        if lists.is_empty() {
            return;
        }
        let ledgers = self.of(lists);
        let name = "llmc_upstream_calls_total";
        write_header(out, name, "counter", "Finished calls of upstreams' tools.");
        for ledger in &ledgers {
            let upstream = escape_label(&ledger.upstream);
            let calls = ledger.totals.calls;
            let _ = writeln!(out, "{name}{{upstream=\"{upstream}\"}} {calls}");
        }
        let name = "llmc_upstream_list_tokens";
        let help = "Tokens that an upstream's tool list would take of each conversation.";
        write_header(out, name, "gauge", help);
        for ledger in &ledgers {
            let upstream = escape_label(&ledger.upstream);
            let _ = writeln!(
                out,
                "{name}{{upstream=\"{upstream}\"}} {}",
                ledger.list_tokens
            );
        }
        let name = "llmc_upstream_tokens_total";
        write_header(
            out,
            name,
            "counter",
            "Tokens of upstreams by where they went.",
        );
        for ledger in &ledgers {
            let upstream = escape_label(&ledger.upstream);
            for (direction, tokens) in ledger.directions() {
                let _ = writeln!(
                    out,
                    "{name}{{upstream=\"{upstream}\",direction=\"{direction}\"}} {tokens}"
                );
            }
        }
    }
}

impl UpstreamLedger {
    /// Where its tokens went, each with its name.
    pub fn directions(&self) -> [(&'static str, u64); 5] {
        let tokens = &self.totals.tokens;
        [
            ("list_avoided", self.list_avoided),
            ("served", tokens.served),
            ("withheld", tokens.withheld),
            ("fetched_back", tokens.fetched_back),
            ("read_by_scripts", self.read_by_scripts),
        ]
    }
}

/// The upstream that a recorded tool belongs to, if it may be one: `time` of `time.convert_time`.
fn upstream_of(tool: &str) -> Option<&str> {
    let (name, tool) = tool.split_once('.')?;
    let is_name = |text: &str| {
        !text.is_empty()
            && text
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    (is_name(name) && is_name(tool)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HANDLE: &str = "res_01ARZ3NDEKTSV4RRFFQ69G5FAV";

    fn call(
        source: &str,
        session: &str,
        tool: &str,
        change: impl FnOnce(&mut CallEvent),
    ) -> CallEvent {
        let mut call = CallEvent {
            source: source.to_owned(),
            session: session.to_owned(),
            tool: tool.to_owned(),
            ..CallEvent::default()
        };
        change(&mut call);
        call
    }

    fn lists() -> [UpstreamList; 2] {
        [("time", 250), ("browser", 3_000)].map(|(name, tokens)| UpstreamList {
            name: name.to_owned(),
            tokens,
        })
    }

    #[test]
    fn lists_are_avoided_in_every_conversation_and_answers_add_up() {
        let mut ledgers = UpstreamLedgers::default();
        let handle = HandleId::parse(HANDLE);
        for call in [
            call("mcp", "a", "execute_code", |_| ()),
            call("code", "a", "time.convert_time", |call| {
                call.bytes_out = 400
            }),
            call("mcp", "b", "time.convert_time", |call| {
                call.tokens_served = 20;
                call.tokens_withheld = 500;
                call.handle = handle;
            }),
            call("mcp", "b", "te_handle", |call| {
                call.tokens_fetched_back = 120;
                call.handle = handle;
            }),
            call("cli", "", "python3.11", |_| ()),
            call("cli", "c", "time.get_current_time", |call| {
                call.error_code = Some("UPSTREAM_FAILED".to_owned());
            }),
        ] {
            ledgers.add(&call);
        }
        let [time, browser] = ledgers.of(&lists()).try_into().unwrap();
        assert_eq!(
            (time.list_tokens, time.list_avoided),
            (250, 500),
            "two conversations"
        );
        assert_eq!((time.totals.calls, time.totals.errors), (3, 1));
        let tokens = time.totals.tokens;
        assert_eq!(
            (tokens.served, tokens.withheld, tokens.fetched_back),
            (20, 500, 120)
        );
        assert_eq!(time.read_by_scripts, 100);
        assert_eq!(
            (browser.totals.calls, browser.list_avoided),
            (0, 6_000),
            "never called"
        );
    }

    #[test]
    fn a_conversation_is_counted_once_whatever_it_calls() {
        let mut ledgers = UpstreamLedgers::default();
        for _ in 0..3 {
            ledgers.add(&call("mcp", "a", "read_file", |_| ()));
            ledgers.add(&call("http", "b", "read_file", |_| ()));
        }
        assert_eq!(
            ledgers.of(&lists())[0].list_avoided,
            250,
            "REST has no list"
        );
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut ledgers = UpstreamLedgers::default();
        for n in 0..MAX_CONVERSATIONS + 5 {
            ledgers.add(&call("mcp", &n.to_string(), &format!("u{n}.tool"), |_| ()));
        }
        assert_eq!(ledgers.upstreams.len(), MAX_UPSTREAMS);
        assert!(ledgers.seen.len() <= MAX_CONVERSATIONS);
        assert_eq!(ledgers.conversations, MAX_CONVERSATIONS as u64 + 5);
    }

    #[test]
    fn only_names_of_that_form_are_of_upstreams() {
        for (tool, name) in [
            ("time.convert_time", Some("time")),
            ("read_file", None),
            ("run_cmd ./a.sh", None),
            ("a..b", None),
            (".b", None),
        ] {
            assert_eq!(upstream_of(tool), name, "{tool}");
        }
    }
}
