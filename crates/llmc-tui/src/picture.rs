//! All calls added up, as they are shown.

use jiff::Timestamp;
use serde::Deserialize;

use crate::seen::Seen;
use crate::text::label;

/// Seconds that one step of the series over time covers.
pub(crate) const STEP_S: i64 = 10;
/// Steps shown: an hour.
pub(crate) const STEPS: usize = 360;
/// The slowest calls that are told.
const SLOWEST: usize = 5;

/// Everything but the calls themselves.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Picture {
    /// All calls.
    pub sums: Sums,
    /// Half of the calls were no slower, and nineteen in twenty; in milliseconds.
    pub latency: [Option<f64>; 2],
    /// Per tool, most called first.
    pub tools: Vec<ToolLine>,
    /// How often each error was answered, most often first.
    pub errors: Vec<(String, u64)>,
    /// Per session, the latest first.
    pub sessions: Vec<SessionLine>,
    /// Tokens over the last hour, oldest first; steps without calls are missing.
    pub steps: Vec<Step>,
    /// The slowest calls, slowest first.
    pub slowest: Vec<Slow>,
    /// The handle seen last.
    pub last_handle: Option<llmc_envelope::HandleId>,
    /// The call seen last.
    pub last: Option<Box<Seen>>,
}

/// What is added up over calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sums {
    /// How many.
    pub calls: u64,
    /// How many failed.
    pub errors: u64,
    /// Tokens of arguments.
    pub tokens_in: u64,
    /// Tokens of answers.
    pub served: u64,
    /// Tokens left out.
    pub withheld: u64,
    /// Tokens left out first and then asked for after all.
    pub fetched_back: u64,
}

impl Sums {
    /// Adds a call.
    pub fn add(&mut self, call: &Seen) {
        self.calls += 1;
        self.errors += u64::from(call.error.is_some());
        // What a file says may be anything; a sum must not stop the show.
        for (sum, tokens) in [
            (&mut self.tokens_in, call.tokens_in),
            (&mut self.served, call.served),
            (&mut self.withheld, call.withheld),
            (&mut self.fetched_back, call.fetched_back),
        ] {
            *sum = sum.saturating_add(tokens);
        }
    }

    /// Tokens that nobody had to read: left out and never asked for.
    pub fn saved(&self) -> i64 {
        let clamp = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        clamp(self.withheld) - clamp(self.fetched_back)
    }

    /// The share of these in what would have been read without the envelope, in percent.
    pub fn saved_percent(&self) -> Option<f64> {
        let saved = self.saved() as f64;
        let all = self.served as f64 + saved;
        (all > 0.0 && saved >= 0.0).then(|| saved / all * 100.0)
    }
}

/// One tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolLine {
    /// Its name.
    pub tool: String,
    /// Its calls.
    pub sums: Sums,
    /// As [`Picture::latency`].
    pub latency: [Option<f64>; 2],
}

/// One agent in one session.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionLine {
    /// The session.
    pub session: String,
    /// The agent.
    pub agent: String,
    /// Its model.
    pub model: String,
    /// Its calls.
    pub sums: Sums,
    /// When it called last.
    pub last: Timestamp,
}

/// Tokens within one step of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// The second it begins, since 1970.
    pub at: i64,
    /// Tokens of answers.
    pub served: u64,
    /// Tokens left out.
    pub withheld: u64,
}

/// One of the slowest calls.
#[derive(Debug, Clone, PartialEq)]
pub struct Slow {
    /// The tool.
    pub tool: String,
    /// What it was about.
    pub about: String,
    /// How long it took.
    pub ms: f64,
    /// When.
    pub time: Timestamp,
}

/// Lets a call into the slowest ones if it is one of them.
pub(crate) fn note_slow(slowest: &mut Vec<Slow>, call: &Seen) {
    let at = slowest.partition_point(|slow| slow.ms >= call.ms);
    if at >= SLOWEST {
        return;
    }
    slowest.truncate(SLOWEST - 1);
    slowest.insert(
        at,
        Slow {
            tool: call.tool.clone(),
            about: call.about.clone(),
            ms: call.ms,
            time: call.time,
        },
    );
}

/// The body of a server's `/api/summary`, as far as it is shown.
#[derive(Debug, Deserialize)]
pub(crate) struct Summary {
    totals: Counts,
    latency_ms: Quantiles,
    tools: Vec<Tool>,
    errors: Vec<Code>,
    sessions: Vec<Session>,
    over_time: OverTime,
    pub(crate) recent: Vec<crate::seen::Event>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Counts {
    calls: u64,
    errors: u64,
    tokens: Tokens,
}

#[derive(Debug, Deserialize)]
struct Tokens {
    r#in: u64,
    served: u64,
    withheld: u64,
    fetched_back: u64,
}

#[derive(Debug, Deserialize)]
struct Quantiles {
    p50: Option<f64>,
    p95: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct Tool {
    tool: String,
    #[serde(flatten)]
    counts: Counts,
    latency_ms: Quantiles,
}

#[derive(Debug, Deserialize)]
struct Code {
    code: String,
    count: u64,
}

#[derive(Debug, Deserialize)]
struct Session {
    session: String,
    agent: String,
    model: String,
    #[serde(flatten)]
    counts: Counts,
    last: Timestamp,
}

#[derive(Debug, Deserialize)]
struct OverTime {
    steps: Vec<TimeStep>,
}

#[derive(Debug, Deserialize)]
struct TimeStep {
    at: i64,
    tokens: Tokens,
}

impl Counts {
    pub(crate) fn sums(&self) -> Sums {
        Sums {
            calls: self.calls,
            errors: self.errors,
            tokens_in: self.tokens.r#in,
            served: self.tokens.served,
            withheld: self.tokens.withheld,
            fetched_back: self.tokens.fetched_back,
        }
    }
}

impl Summary {
    /// What a server adds up; which calls were slow and last is for who watches to know.
    pub(crate) fn picture(self) -> Picture {
        let name = |text: &str| label(text, 80);
        let quantiles = |latency: &Quantiles| [latency.p50, latency.p95];
        let tools = self.tools.iter().map(|tool| ToolLine {
            tool: name(&tool.tool),
            sums: tool.counts.sums(),
            latency: quantiles(&tool.latency_ms),
        });
        let sessions = self.sessions.iter().map(|session| SessionLine {
            session: name(&session.session),
            agent: name(&session.agent),
            model: name(&session.model),
            sums: session.counts.sums(),
            last: session.last,
        });
        let steps = self.over_time.steps.iter().map(|step| Step {
            at: step.at,
            served: step.tokens.served,
            withheld: step.tokens.withheld,
        });
        let mut picture = Picture {
            sums: self.totals.sums(),
            latency: quantiles(&self.latency_ms),
            tools: tools.collect(),
            errors: (self.errors.iter())
                .map(|error| (name(&error.code), error.count))
                .collect(),
            sessions: sessions.collect(),
            steps: steps.collect(),
            ..Picture::default()
        };
        picture.sort();
        picture
    }
}

impl Picture {
    /// Most called tools and most frequent errors first.
    pub(crate) fn sort(&mut self) {
        self.tools
            .sort_by_key(|line| std::cmp::Reverse(line.sums.calls));
        self.errors
            .sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        self.sessions
            .sort_by_key(|line| std::cmp::Reverse(line.last));
    }
}
