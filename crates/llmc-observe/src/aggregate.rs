//! Adds calls up as they come in, in bounded memory.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use jiff::Timestamp;
use llmc_envelope::HandleId;

use crate::event::CallEvent;
use crate::latency::Latency;
use crate::prometheus::{Histogram, write_header};
use crate::summary::{
    CallTotals, ErrorCount, LatencyQuantiles, OverTime, SessionSummary, Summary, TimeStep,
    ToolSummary,
};
use crate::upstreams::{UpstreamLedgers, UpstreamList};

/// Tools and error codes that are counted under their own names; telemetry may come from another program.
const MAX_NAMES: usize = 200;
/// The name for all others.
const OTHERS: &str = "(others)";
/// Sessions that are kept; the one that called least recently goes first.
const MAX_SESSIONS: usize = 200;
const MAX_RECENT_CALLS: usize = 50;
const MAX_SLOWEST_CALLS: usize = 8;

/// Calls in, a [`Summary`] out.
#[derive(Debug)]
pub struct Aggregator {
    max_names: usize,
    all: Series,
    tools: BTreeMap<String, Series>,
    te_seconds: Histogram,
    errors: BTreeMap<String, u64>,
    /// By principal, session, agent and model.
    sessions: BTreeMap<[String; 4], SessionSummary>,
    steps: VecDeque<TimeStep>,
    recent: VecDeque<Arc<CallEvent>>,
    slowest: Vec<Arc<CallEvent>>,
    last_handle: Option<HandleId>,
    upstreams: UpstreamLedgers,
}

#[derive(Debug, Default)]
struct Series {
    totals: CallTotals,
    latency: Latency,
    seconds: Histogram,
}

impl Series {
    fn add(&mut self, call: &CallEvent) {
        self.totals.add(call);
        self.latency.add(call.duration_ms);
        self.seconds.add(call.duration_ms / 1000.0);
    }
}

impl Default for Aggregator {
    fn default() -> Aggregator {
        Aggregator::with_max_names(MAX_NAMES)
    }
}

impl Aggregator {
    /// Seconds that one step of the series over time covers.
    pub const STEP_SECONDS: i64 = 10;
    /// Steps that are kept: an hour.
    pub const MAX_STEPS: usize = 360;

    /// Counts any number of names; for a pass over a file that ends.
    pub(crate) fn unbounded() -> Aggregator {
        Aggregator::with_max_names(usize::MAX)
    }

    fn with_max_names(max_names: usize) -> Aggregator {
        Aggregator {
            max_names,
            all: Series::default(),
            tools: BTreeMap::new(),
            te_seconds: Histogram::default(),
            errors: BTreeMap::new(),
            sessions: BTreeMap::new(),
            steps: VecDeque::new(),
            recent: VecDeque::new(),
            slowest: Vec::new(),
            last_handle: None,
            upstreams: UpstreamLedgers::default(),
        }
    }

    pub fn add(&mut self, call: &Arc<CallEvent>) {
        self.add_under(&call.tool, call);
    }

    /// Counts a call under another name than its tool's, to group by something else.
    pub(crate) fn add_under(&mut self, name: &str, call: &Arc<CallEvent>) {
        self.all.add(call);
        let name = name_within(&self.tools, name, self.max_names);
        self.tools.entry(name).or_default().add(call);
        if call.is_te {
            self.te_seconds.add(call.duration_ms / 1000.0);
        }
        if let Some(code) = &call.error_code {
            let name = name_within(&self.errors, code, self.max_names);
            *self.errors.entry(name).or_default() += 1;
        }
        self.add_to_session(call);
        self.add_to_step(call);
        self.recent.truncate(MAX_RECENT_CALLS - 1);
        self.recent.push_front(call.clone());
        self.note_slow(call);
        self.last_handle = call.handle.or(self.last_handle);
        self.upstreams.add(call);
    }

    fn add_to_session(&mut self, call: &CallEvent) {
        let key = [&call.principal, &call.session, &call.agent, &call.model].map(String::clone);
        if self.sessions.len() >= MAX_SESSIONS && !self.sessions.contains_key(&key) {
            let oldest = self.sessions.iter().min_by_key(|(_, session)| session.last);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.sessions.remove(&oldest);
            }
        }
        let session = self.sessions.entry(key).or_insert_with(|| SessionSummary {
            session: call.session.clone(),
            agent: call.agent.clone(),
            model: call.model.clone(),
            principal: call.principal.clone(),
            totals: CallTotals::default(),
            first: call.time,
            last: call.time,
        });
        session.last = session.last.max(call.time);
        session.totals.add(call);
    }

    fn add_to_step(&mut self, call: &CallEvent) {
        let at = call.time.as_second().div_euclid(Self::STEP_SECONDS) * Self::STEP_SECONDS;
        // A clock that was set back must not make the series run backwards.
        if self.steps.back().is_none_or(|newest| newest.at < at) {
            if self.steps.len() >= Self::MAX_STEPS {
                self.steps.pop_front();
            }
            self.steps.push_back(TimeStep {
                at,
                totals: CallTotals::default(),
            });
        }
        if let Some(step) = self.steps.back_mut() {
            step.totals.add(call);
        }
    }

    fn note_slow(&mut self, call: &Arc<CallEvent>) {
        let at = (self.slowest).partition_point(|slow| slow.duration_ms >= call.duration_ms);
        if at < MAX_SLOWEST_CALLS {
            self.slowest.truncate(MAX_SLOWEST_CALLS - 1);
            self.slowest.insert(at, call.clone());
        }
    }

    pub(crate) fn totals(&self) -> CallTotals {
        self.all.totals
    }

    /// Everything so far, with the ledger of each of these upstreams; of the series over time the hour before `now`.
    pub fn summary_with(&self, now: Timestamp, lists: &[UpstreamList]) -> Summary {
        Summary {
            upstreams: self.upstreams.of(lists),
            ..self.summary(now)
        }
    }

    /// Everything so far but ledgers; of the series over time the hour before `now`.
    pub fn summary(&self, now: Timestamp) -> Summary {
        let tools = self.tools.iter().map(|(tool, series)| ToolSummary {
            tool: tool.clone(),
            totals: series.totals,
            latency_ms: series.latency.quantiles(),
        });
        let errors = self.errors.iter().map(|(code, count)| ErrorCount {
            code: code.clone(),
            count: *count,
        });
        let mut sessions: Vec<_> = self.sessions.values().cloned().collect();
        sessions.sort_by_key(|session| Reverse(session.last));
        let oldest = now.as_second() - Self::STEP_SECONDS * Self::MAX_STEPS as i64;
        let steps = self.steps.iter().filter(|step| step.at > oldest);
        let events = |calls: &mut dyn Iterator<Item = &Arc<CallEvent>>| {
            calls.map(|call| CallEvent::clone(call)).collect()
        };
        Summary {
            totals: self.all.totals,
            latency_ms: self.all.latency.quantiles(),
            tools: tools.collect(),
            errors: errors.collect(),
            sessions,
            over_time: OverTime {
                step_s: Self::STEP_SECONDS,
                steps: steps.copied().collect(),
            },
            recent: events(&mut self.recent.iter()),
            slowest: events(&mut self.slowest.iter()),
            last_handle: self.last_handle,
            upstreams: Vec::new(),
        }
    }

    /// Appends the metrics in the text format of Prometheus; returns the errors by code, which the server adds to.
    pub(crate) fn prometheus(
        &self,
        out: &mut String,
        lists: &[UpstreamList],
    ) -> BTreeMap<String, u64> {
        use std::fmt::Write;
        let name = "llmc_tool_duration_seconds";
        write_header(out, name, "histogram", "How long tool calls took.");
        for (tool, series) in &self.tools {
            series.seconds.write(out, name, &format!("tool=\"{tool}\""));
        }
        let name = "llmc_tool_calls_total";
        write_header(out, name, "counter", "Finished tool calls.");
        for (tool, series) in &self.tools {
            let _ = writeln!(out, "{name}{{tool=\"{tool}\"}} {}", series.totals.calls);
        }
        let name = "llmc_te_duration_seconds";
        write_header(out, name, "histogram", "How long Tool Envelope calls took.");
        self.te_seconds.write(out, name, "");
        let name = "llmc_tokens_total";
        write_header(out, name, "counter", "Tokens by where they went.");
        let tokens = &self.all.totals.tokens;
        for (direction, tokens) in [
            ("in", tokens.input),
            ("served", tokens.served),
            ("withheld", tokens.withheld),
            ("fetched_back", tokens.fetched_back),
        ] {
            let _ = writeln!(out, "{name}{{direction=\"{direction}\"}} {tokens}");
        }
        self.upstreams.prometheus(out, lists);
        self.errors.clone()
    }
}

impl Latency {
    fn quantiles(&self) -> LatencyQuantiles {
        LatencyQuantiles {
            p50: self.quantile(0.50),
            p95: self.quantile(0.95),
            p99: self.quantile(0.99),
        }
    }
}

/// The name to count under: its own, or that of all others when there are too many.
fn name_within<T>(known: &BTreeMap<String, T>, name: &str, max_names: usize) -> String {
    if known.len() < max_names || known.contains_key(name) {
        name.to_owned()
    } else {
        OTHERS.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(second: i64, change: impl FnOnce(&mut CallEvent)) -> Arc<CallEvent> {
        let mut call = CallEvent {
            time: Timestamp::from_second(second).unwrap(),
            tool: "read_file".to_owned(),
            duration_ms: 2.0,
            tokens_in: 1,
            tokens_served: 10,
            tokens_withheld: 100,
            ..CallEvent::default()
        };
        change(&mut call);
        Arc::new(call)
    }

    fn aggregate(calls: impl IntoIterator<Item = Arc<CallEvent>>) -> Aggregator {
        let mut aggregator = Aggregator::default();
        for call in calls {
            aggregator.add(&call);
        }
        aggregator
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn calls_add_up() {
        let calls = [(100, "stat", 4.0), (101, "cat", 900.0), (115, "stat", 2.0)];
        let aggregator = aggregate(calls.map(|(second, tool, ms)| {
            call(second, |call| {
                call.tool = tool.to_owned();
                call.duration_ms = ms;
                call.error_code = (tool == "cat").then(|| "NOT_FOUND".to_owned());
            })
        }));
        let summary = aggregator.summary(at(120));
        assert_eq!((summary.totals.calls, summary.totals.errors), (3, 1));
        assert_eq!(summary.totals.net_saved(), 300);
        assert_eq!(summary.totals.saved_percent().unwrap().round(), 91.0);
        let tools: Vec<_> = summary.tools.iter().map(|tool| &tool.tool).collect();
        assert_eq!(tools, ["cat", "stat"]);
        assert_eq!(summary.tools[1].latency_ms.p95, Some(4.0));
        assert_eq!(summary.errors[0].code, "NOT_FOUND");
        assert_eq!(summary.slowest[0].tool, "cat");
        assert_eq!(summary.recent[0].tool, "stat", "newest first");
    }

    #[test]
    fn calls_fall_into_steps_of_time() {
        let aggregator = aggregate([1000, 1004, 1011, 1003].map(|second| call(second, |_| ())));
        let summary = aggregator.summary(at(1012));
        let counts: Vec<_> = (summary.over_time.steps.iter())
            .map(|step| (step.at, step.totals.calls))
            .collect();
        assert_eq!(counts, [(1000, 2), (1010, 2)], "a clock set back adds on");
        assert_eq!(summary.over_time.steps[0].totals.tokens.withheld, 200);
        let hour = Aggregator::STEP_SECONDS * Aggregator::MAX_STEPS as i64;
        let later = aggregator.summary(at(1010 + hour));
        assert_eq!(later.over_time.steps, [], "an hour later");
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let calls = (0..2000).map(|n| {
            call(n * Aggregator::STEP_SECONDS, |call| {
                call.tool = format!("tool{n}");
                call.session = n.to_string();
                call.error_code = Some(format!("E{n}"));
                call.duration_ms = n as f64;
                call.tokens_served = u64::MAX;
            })
        });
        let aggregator = aggregate(calls);
        let summary = aggregator.summary(at(1999 * Aggregator::STEP_SECONDS));
        assert_eq!(summary.totals.calls, 2000);
        assert_eq!(summary.tools.len(), MAX_NAMES + 1);
        assert_eq!(summary.tools[0].tool, OTHERS);
        assert_eq!(summary.tools[0].totals.calls, 1800);
        assert_eq!(summary.errors.len(), MAX_NAMES + 1);
        assert_eq!(summary.sessions.len(), MAX_SESSIONS);
        assert_eq!(summary.sessions[0].session, "1999", "latest first");
        assert_eq!(summary.over_time.steps.len(), Aggregator::MAX_STEPS);
        assert_eq!(summary.recent.len(), MAX_RECENT_CALLS);
        assert_eq!(summary.slowest.len(), MAX_SLOWEST_CALLS);
        assert_eq!(summary.slowest[0].duration_ms, 1999.0);
    }

    #[test]
    fn a_summary_survives_its_json_form() {
        let aggregator = aggregate([call(1000, |call| {
            call.error_code = Some("TIMEOUT".to_owned());
            call.handle = HandleId::parse("res_01ARZ3NDEKTSV4RRFFQ69G5FAV");
        })]);
        let mut summary = aggregator.summary(at(1000));
        let json = serde_json::to_value(&summary).unwrap();
        assert_eq!(json["totals"]["tokens"]["in"], 1);
        assert_eq!(json["recent"][0]["status"], "error");
        assert_eq!(json["recent"][0]["ts"], "1970-01-01T00:16:40.000Z");
        assert_eq!(json["sessions"][0]["last"], "1970-01-01T00:16:40Z");
        summary.slowest.clear();
        summary.last_handle = None;
        assert_eq!(serde_json::from_value::<Summary>(json).unwrap(), summary);
    }
}
