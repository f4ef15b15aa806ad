//! What has been seen so far, summed up: for everybody, or for one principal.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::latency::Latency;
use super::{Histogram, SeenCall};

/// Seconds that one step of the series over time covers.
const STEP_S: i64 = 10;
/// Steps kept: an hour.
const STEPS: usize = 360;
/// Sessions kept; the one not seen for longest goes first.
const SESSIONS: usize = 200;
/// Calls kept for those who come to watch later.
const RECENT: usize = 50;

/// Counters, latencies, sessions, and the last hour in steps.
#[derive(Debug, Default)]
pub(super) struct View {
    all: Series,
    tools: BTreeMap<&'static str, Series>,
    te: Histogram,
    errors: BTreeMap<&'static str, u64>,
    sessions: BTreeMap<[String; 4], Session>,
    steps: VecDeque<(i64, Sums)>,
    recent: VecDeque<Arc<SeenCall>>,
}

#[derive(Debug, Default)]
struct Series {
    sums: Sums,
    latency: Latency,
    seconds: Histogram,
}

/// What is added up over calls.
#[derive(Debug, Default, Clone, Copy)]
struct Sums {
    calls: u64,
    errors: u64,
    tokens_in: u64,
    served: u64,
    withheld: u64,
    fetched_back: u64,
}

#[derive(Debug)]
struct Session {
    sums: Sums,
    first: Timestamp,
    last: Timestamp,
}

impl View {
    pub(super) fn add(&mut self, call: &Arc<SeenCall>, is_te: bool, now: Timestamp) {
        self.all.add(call);
        self.tools.entry(call.tool).or_default().add(call);
        if is_te {
            self.te.add(call.duration_ms / 1000.0);
        }
        if let Some(code) = call.error_code {
            *self.errors.entry(code).or_default() += 1;
        }
        self.session(call, now).add(call);
        self.step(now).add(call);
        self.recent.truncate(RECENT - 1);
        self.recent.push_front(call.clone());
    }

    fn session(&mut self, call: &SeenCall, now: Timestamp) -> &mut Sums {
        let key = [&call.principal, &call.session, &call.agent, &call.model].map(String::clone);
        if self.sessions.len() >= SESSIONS && !self.sessions.contains_key(&key) {
            let oldest = self.sessions.iter().min_by_key(|(_, session)| session.last);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.sessions.remove(&oldest);
            }
        }
        let session = self.sessions.entry(key).or_insert_with(|| Session {
            sums: Sums::default(),
            first: now,
            last: now,
        });
        session.last = now;
        &mut session.sums
    }

    fn step(&mut self, now: Timestamp) -> &mut Sums {
        let at = now.as_second().div_euclid(STEP_S) * STEP_S;
        // A clock that was set back must not make the series run backwards.
        let newest = self.steps.back().map_or(i64::MIN, |(at, _)| *at);
        if at > newest {
            if self.steps.len() >= STEPS {
                self.steps.pop_front();
            }
            self.steps.push_back((at, Sums::default()));
        }
        &mut self
            .steps
            .back_mut()
            .expect("just pushed, or there before")
            .1
    }

    /// For `get_metrics`.
    pub(super) fn document(&self) -> Value {
        let tools: Map<String, Value> = self
            .tools
            .iter()
            .map(|(name, series)| ((*name).to_owned(), series.document()))
            .collect();
        let mut document = self.all.document();
        document["errors_by_code"] = json!(self.errors);
        document["tokens"] = self.all.sums.tokens();
        document["tools"] = tools.into();
        document
    }

    /// For those who watch.
    pub(super) fn summary(&self, now: Timestamp) -> Value {
        let tools = self.tools.iter().map(|(name, series)| {
            let mut tool = series.document();
            tool["tool"] = (*name).into();
            tool["tokens"] = series.sums.tokens();
            tool
        });
        let mut sessions: Vec<_> = self.sessions.iter().collect();
        sessions.sort_by_key(|(_, session)| std::cmp::Reverse(session.last));
        let sessions = sessions.into_iter().map(|(key, session)| {
            let [principal, id, agent, model] = key;
            json!({
                "session": id, "agent": agent, "model": model, "principal": principal,
                "calls": session.sums.calls,
                "errors": session.sums.errors,
                "tokens": session.sums.tokens(),
                "first": format!("{:.0}", session.first),
                "last": format!("{:.0}", session.last),
            })
        });
        let oldest = now.as_second() - STEP_S * STEPS as i64;
        let steps = self.steps.iter().filter(|(at, _)| *at > oldest);
        let steps = steps.map(|(at, sums)| {
            json!({
                "at": at, "calls": sums.calls, "errors": sums.errors, "tokens": sums.tokens(),
            })
        });
        json!({
            "totals": {
                "calls": self.all.sums.calls,
                "errors": self.all.sums.errors,
                "tokens": self.all.sums.tokens(),
            },
            "latency_ms": self.all.latency.document(),
            "tools": tools.collect::<Vec<_>>(),
            "errors": self.errors.iter()
                .map(|(code, count)| json!({"code": code, "count": count}))
                .collect::<Vec<_>>(),
            "sessions": sessions.collect::<Vec<_>>(),
            "over_time": {"step_s": STEP_S, "steps": steps.collect::<Vec<_>>()},
            "recent": self.recent.iter().map(|call| &**call).collect::<Vec<_>>(),
        })
    }

    /// Totals alone, for a regular sign of life.
    pub(super) fn totals(&self) -> Value {
        json!({
            "calls": self.all.sums.calls,
            "errors": self.all.sums.errors,
            "tokens": self.all.sums.tokens(),
        })
    }

    /// In the text format of Prometheus.
    pub(super) fn prometheus(&self, out: &mut String) {
        use std::fmt::Write;
        let head = |out: &mut String, name: &str, kind: &str, help: &str| {
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
        };
        let name = "llmc_tool_duration_seconds";
        head(out, name, "histogram", "How long tool calls took.");
        for (tool, series) in &self.tools {
            series.seconds.write(out, name, &format!("tool=\"{tool}\""));
        }
        let name = "llmc_tool_calls_total";
        head(out, name, "counter", "Finished tool calls.");
        for (tool, series) in &self.tools {
            let _ = writeln!(out, "{name}{{tool=\"{tool}\"}} {}", series.sums.calls);
        }
        let name = "llmc_te_duration_seconds";
        head(out, name, "histogram", "How long Tool Envelope calls took.");
        self.te.write(out, name, "");
        let name = "llmc_tokens_total";
        head(out, name, "counter", "Tokens by where they went.");
        let sums = &self.all.sums;
        for (direction, tokens) in [
            ("in", sums.tokens_in),
            ("served", sums.served),
            ("withheld", sums.withheld),
            ("fetched_back", sums.fetched_back),
        ] {
            let _ = writeln!(out, "{name}{{direction=\"{direction}\"}} {tokens}");
        }
    }

    /// How often each code was answered.
    pub(super) fn errors(&self) -> &BTreeMap<&'static str, u64> {
        &self.errors
    }
}

impl Series {
    fn add(&mut self, call: &SeenCall) {
        self.sums.add(call);
        self.latency.add(call.duration_ms);
        self.seconds.add(call.duration_ms / 1000.0);
    }

    fn document(&self) -> Value {
        json!({
            "calls": self.sums.calls,
            "errors": self.sums.errors,
            "latency_ms": self.latency.document(),
        })
    }
}

impl Sums {
    fn add(&mut self, call: &SeenCall) {
        self.calls += 1;
        self.errors += u64::from(call.error_code.is_some());
        self.tokens_in += call.tokens_in;
        self.served += call.tokens_served;
        self.withheld += call.tokens_withheld;
        self.fetched_back += call.tokens_fetched_back;
    }

    fn tokens(&self) -> Value {
        json!({
            "in": self.tokens_in,
            "served": self.served,
            "withheld": self.withheld,
            "fetched_back": self.fetched_back,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(session: &str, code: Option<&'static str>) -> Arc<SeenCall> {
        Arc::new(SeenCall {
            ts: String::new(),
            correlation_id: String::new(),
            source: "http",
            principal: "ci".to_owned(),
            agent: "a".to_owned(),
            session: session.to_owned(),
            model: "m".to_owned(),
            tool: "read_file",
            status: "ok",
            error_code: code,
            duration_ms: 2.0,
            path: None,
            truncated: false,
            handle: None,
            tokens_in: 1,
            tokens_served: 10,
            tokens_withheld: 100,
            tokens_fetched_back: 0,
        })
    }

    #[test]
    fn calls_fall_into_steps_of_time() {
        let mut view = View::default();
        let at = |second| Timestamp::from_second(second).unwrap();
        for second in [1000, 1004, 1011, 1003] {
            view.add(&call("s", None), false, at(second));
        }
        let summary = view.summary(at(1012));
        let steps = summary["over_time"]["steps"].as_array().unwrap();
        let counts: Vec<_> = steps
            .iter()
            .map(|step| {
                (
                    step["at"].as_i64().unwrap(),
                    step["calls"].as_u64().unwrap(),
                )
            })
            .collect();
        assert_eq!(counts, [(1000, 2), (1010, 2)], "a clock set back adds on");
        assert_eq!(steps[0]["tokens"]["withheld"], 200);
        let later = view.summary(at(1010 + STEP_S * STEPS as i64));
        assert_eq!(later["over_time"]["steps"], json!([]), "an hour later");
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut view = View::default();
        for n in 0..3 * SESSIONS as i64 {
            let now = Timestamp::from_second(n * STEP_S).unwrap();
            view.add(&call(&n.to_string(), Some("NOT_FOUND")), true, now);
        }
        assert_eq!(view.sessions.len(), SESSIONS);
        assert_eq!(view.recent.len(), RECENT);
        assert_eq!(view.steps.len(), STEPS);
        let now = Timestamp::from_second(3 * SESSIONS as i64 * STEP_S).unwrap();
        let summary = view.summary(now);
        assert_eq!(summary["sessions"][0]["session"], "599", "newest first");
        assert_eq!(
            summary["errors"],
            json!([{"code": "NOT_FOUND", "count": 600}])
        );
        assert_eq!(summary["totals"]["calls"], 600);
    }
}
