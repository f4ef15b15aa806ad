//! Adds calls up as they come in, in bounded memory.

use std::collections::{BTreeMap, VecDeque};

use jiff::Timestamp;
use llmc_envelope::HandleId;
use llmc_tools::Latency;

use crate::picture::{Picture, STEP_S, STEPS, SessionLine, Slow, Step, Sums, ToolLine, note_slow};
use crate::seen::Seen;

/// Different tools and errors that are told apart; a store may come from anywhere.
const NAMES: usize = 200;
/// Sessions that are kept; the one not seen for longest goes first.
const SESSIONS: usize = 200;
/// Where the rest is counted.
const OTHERS: &str = "(others)";

/// The sums so far.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    all: Series,
    tools: BTreeMap<String, Series>,
    errors: BTreeMap<String, u64>,
    /// By session, agent and model.
    sessions: BTreeMap<[String; 3], (Sums, Timestamp)>,
    steps: VecDeque<Step>,
    slowest: Vec<Slow>,
    last_handle: Option<HandleId>,
    last: Option<Box<Seen>>,
}

#[derive(Debug, Default)]
struct Series {
    sums: Sums,
    latency: Latency,
}

impl Series {
    fn add(&mut self, call: &Seen) {
        self.sums.add(call);
        self.latency.add(call.ms);
    }

    fn quantiles(&self) -> [Option<f64>; 2] {
        [0.50, 0.95].map(|share| self.latency.quantile(share))
    }
}

impl Tally {
    pub(crate) fn add(&mut self, call: &Seen) {
        self.all.add(call);
        let name = room_for(&self.tools, &call.tool);
        self.tools.entry(name).or_default().add(call);
        if let Some(code) = &call.error {
            let name = room_for(&self.errors, code);
            *self.errors.entry(name).or_default() += 1;
        }
        self.session(call);
        self.step(call);
        note_slow(&mut self.slowest, call);
        self.last_handle = call.handle.or(self.last_handle);
        self.last = Some(Box::new(call.clone()));
    }

    fn session(&mut self, call: &Seen) {
        let key = [&call.session, &call.agent, &call.model].map(String::clone);
        if self.sessions.len() >= SESSIONS && !self.sessions.contains_key(&key) {
            let oldest = self.sessions.iter().min_by_key(|(_, (_, last))| *last);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.sessions.remove(&oldest);
            }
        }
        let (sums, last) = self
            .sessions
            .entry(key)
            .or_insert((Sums::default(), call.time));
        sums.add(call);
        *last = (*last).max(call.time);
    }

    fn step(&mut self, call: &Seen) {
        let at = call.time.as_second().div_euclid(STEP_S) * STEP_S;
        // A clock that was set back must not make the series run backwards.
        if self.steps.back().is_none_or(|newest| newest.at < at) {
            if self.steps.len() >= STEPS {
                self.steps.pop_front();
            }
            self.steps.push_back(Step {
                at,
                served: 0,
                withheld: 0,
            });
        }
        if let Some(step) = self.steps.back_mut() {
            step.served = step.served.saturating_add(call.served);
            step.withheld = step.withheld.saturating_add(call.withheld);
        }
    }

    pub(crate) fn picture(&self) -> Picture {
        let tools = self.tools.iter().map(|(tool, series)| ToolLine {
            tool: tool.clone(),
            sums: series.sums,
            latency: series.quantiles(),
        });
        let sessions = self.sessions.iter().map(|(key, (sums, last))| {
            let [session, agent, model] = key.clone();
            SessionLine {
                session,
                agent,
                model,
                sums: *sums,
                last: *last,
            }
        });
        let mut picture = Picture {
            sums: self.all.sums,
            latency: self.all.quantiles(),
            tools: tools.collect(),
            errors: self.errors.clone().into_iter().collect(),
            sessions: sessions.collect(),
            steps: self.steps.iter().copied().collect(),
            slowest: self.slowest.clone(),
            last_handle: self.last_handle,
            last: self.last.clone(),
        };
        picture.sort();
        picture
    }
}

/// The name to count under: its own, or that of the rest when there are too many.
fn room_for<T>(known: &BTreeMap<String, T>, name: &str) -> String {
    if known.len() < NAMES || known.contains_key(name) {
        name.to_owned()
    } else {
        OTHERS.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::tests::call;

    #[test]
    fn calls_add_up() {
        let mut tally = Tally::default();
        for (second, tool, ms) in [
            (100, "stat", 4.0),
            (101, "read_file", 900.0),
            (115, "stat", 2.0),
        ] {
            tally.add(&call(second, tool, |call| {
                call.ms = ms;
                call.served = 10;
                call.withheld = 90;
                call.error = (tool == "read_file").then(|| "NOT_FOUND".to_owned());
            }));
        }
        let picture = tally.picture();
        assert_eq!((picture.sums.calls, picture.sums.errors), (3, 1));
        assert_eq!(picture.sums.saved(), 270);
        assert_eq!(picture.sums.saved_percent(), Some(90.0));
        assert_eq!(picture.tools[0].tool, "stat", "most called first");
        assert_eq!(picture.errors, [("NOT_FOUND".to_owned(), 1)]);
        assert_eq!(picture.slowest[0].tool, "read_file");
        let steps: Vec<_> = picture
            .steps
            .iter()
            .map(|step| (step.at, step.served))
            .collect();
        assert_eq!(steps, [(100, 20), (110, 10)]);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut tally = Tally::default();
        for n in 0..2000 {
            tally.add(&call(n * STEP_S, &format!("tool{n}"), |call| {
                call.session = n.to_string();
                call.error = Some(format!("E{n}"));
                call.ms = n as f64;
                call.served = u64::MAX;
            }));
        }
        let picture = tally.picture();
        assert_eq!(picture.sums.calls, 2000);
        assert_eq!(picture.tools.len(), NAMES + 1);
        assert_eq!(picture.tools[0].tool, OTHERS);
        assert_eq!(picture.errors.len(), NAMES + 1);
        assert_eq!(picture.sessions.len(), SESSIONS);
        assert_eq!(picture.sessions[0].session, "1999");
        assert_eq!(picture.steps.len(), STEPS);
        let slowest: Vec<_> = picture.slowest.iter().map(|slow| slow.ms).collect();
        assert_eq!(slowest, [1999.0, 1998.0, 1997.0, 1996.0, 1995.0]);
    }
}
