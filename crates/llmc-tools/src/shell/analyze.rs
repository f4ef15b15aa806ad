//! `te analyze`: where tokens go, what was saved for good, and what would be worth condensing next.

use std::fmt::Write;

use llmc_envelope::telemetry::{Filter, Group, Mode, Recorded, Telemetry, Totals};
use serde::Serialize;

use super::report::{net_saved, unavailable};
use crate::error::Result;

/// How many of each list are told.
const LISTED: usize = 8;
/// Answers below this many tokens save nothing worth looking at.
const WORTHWHILE: u64 = 200;

/// Everything that is told.
#[derive(Debug, Serialize)]
pub struct Analysis {
    /// All calls together.
    pub all: Sum,
    /// By what the groups are.
    pub by: &'static str,
    /// Most tokens served first.
    pub groups: Vec<Named>,
    /// The calls that took longest.
    pub slowest: Vec<Recorded>,
    /// Commands that serve much and withhold little.
    pub least_saving: Vec<Named>,
    /// Commands whose output passes through untouched, most tokens first: what to condense next.
    pub candidates: Vec<Named>,
}

/// Totals, and what they come to.
#[derive(Debug, Clone, Serialize)]
pub struct Sum {
    /// The totals.
    #[serde(flatten)]
    pub totals: Totals,
    /// Withheld, without what was fetched back after all.
    pub net_saved: i64,
}

/// Totals under a name.
#[derive(Debug, Clone, Serialize)]
pub struct Named {
    /// The command, agent, source or session.
    pub name: String,
    /// Its calls.
    #[serde(flatten)]
    pub sum: Sum,
}

impl From<Totals> for Sum {
    fn from(totals: Totals) -> Sum {
        Sum {
            net_saved: net_saved(&totals),
            totals,
        }
    }
}

/// Looks at the calls that pass the filter.
///
/// # Errors
/// The telemetry cannot be read.
pub fn analyze(telemetry: &Telemetry, by: Group, filter: &Filter) -> Result<Analysis> {
    let named = |group, filter: &Filter| -> Result<Vec<Named>> {
        let groups = telemetry.by(group, filter).map_err(unavailable)?;
        let named = groups.into_iter().map(|(name, totals)| Named {
            name,
            sum: totals.into(),
        });
        Ok(named.collect())
    };
    let commands = named(Group::Cmd, filter)?;
    let mut least_saving: Vec<Named> = commands
        .into_iter()
        .filter(|named| named.sum.totals.tokens_served >= WORTHWHILE)
        .collect();
    least_saving.sort_by(|a, b| share(&a.sum).total_cmp(&share(&b.sum)));
    least_saving.truncate(LISTED);
    let untouched = Filter {
        mode: Some(Mode::Passthrough),
        ..filter.clone()
    };
    let mut candidates = named(Group::Cmd, &untouched)?;
    candidates.retain(|named| named.sum.totals.tokens_served >= WORTHWHILE);
    candidates.truncate(LISTED);
    Ok(Analysis {
        all: telemetry.summary(filter).map_err(unavailable)?.into(),
        by: by.as_str(),
        groups: named(by, filter)?,
        slowest: telemetry.slowest(LISTED, filter).map_err(unavailable)?,
        least_saving,
        candidates,
    })
}

/// The part of the output that was saved.
fn share(sum: &Sum) -> f64 {
    let all = sum.totals.tokens_served + sum.totals.tokens_withheld;
    sum.net_saved as f64 / all.max(1) as f64
}

impl Analysis {
    /// For people.
    pub fn text(&self) -> String {
        let mut out = super::report::stats(&self.all.totals);
        let table = |out: &mut String, title: &str, rows: &[Named]| {
            if rows.is_empty() {
                return;
            }
            let _ = writeln!(
                out,
                "\n{title:<28}{:>7}{:>10}{:>11}{:>9}{:>11}{:>10}",
                "calls", "served", "withheld", "fetched", "net saved", "p95 ms"
            );
            for row in rows {
                let name = match row.name.as_str() {
                    "" => "(none)".to_owned(),
                    name => name.chars().take(26).collect(),
                };
                let sum = &row.sum.totals;
                let _ = writeln!(
                    out,
                    "{name:<28}{:>7}{:>10}{:>11}{:>9}{:>11}{:>10.1}",
                    sum.calls,
                    sum.tokens_served,
                    sum.tokens_withheld,
                    sum.tokens_fetched_back,
                    row.sum.net_saved,
                    sum.p95_ms
                );
            }
        };
        table(&mut out, &format!("by {}", self.by), &self.groups);
        table(&mut out, "least saving", &self.least_saving);
        table(&mut out, "candidates for enrichment", &self.candidates);
        if !self.slowest.is_empty() {
            out.push_str("\nslowest calls\n");
        }
        for call in &self.slowest {
            let _ = writeln!(
                out,
                "{:>10.1} ms  {:<24}  {}",
                call.row.latency_ms,
                call.row.cmd.chars().take(24).collect::<String>(),
                call.time.strftime("%F %T"),
            );
        }
        out
    }
}
