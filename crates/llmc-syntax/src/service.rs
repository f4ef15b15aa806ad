//! Where parsing happens: in a worker process, once the program has set one up.
//!
//! Grammars are C code. The program sets a [`ParseService`] that passes each source to a confined process and returns
//! plain data; a crash there costs one source. In a process without a service, such as a unit test or the worker itself,
//! [`parse_here`] runs the grammar.

use std::fmt;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::budget::{ParseBudget, ParseClock};
use crate::definitions::walk_source;
use crate::{Language, SyntaxAnalysis};

/// What is wanted of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParseGoal {
    /// What it defines, as far as the time allows.
    Definitions,
    /// What it defines and which names it uses, all of it.
    References,
    /// Its scopes and what they bind names to, and nothing else.
    Scopes,
}

#[derive(Debug, Clone, Copy)]
pub struct ParseRequest<'s> {
    pub language: Language,
    pub goal: ParseGoal,
    pub source: &'s str,
    /// CPU time that parsing may take.
    pub cpu_time: Duration,
}

#[derive(Debug, Clone, Default)]
pub struct ParseReply {
    /// `None` if the time did not suffice.
    pub analysis: Option<SyntaxAnalysis>,
    /// CPU time it took.
    pub cpu_time: Duration,
    /// Time until there was a process to parse it in.
    pub waited: Duration,
}

/// Why a source has no definitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParseFailure {
    /// This build has no grammar for the language, or the budget did not suffice.
    Declined,
    /// The parser crashed, hung or ran out of memory over it.
    Crashed,
    /// No parser could be started or was free in time.
    Unavailable,
}

impl fmt::Display for ParseFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Declined => {
                "this build has no grammar for it, or it exceeds the limits of parsing"
            }
            Self::Crashed => "the parser failed over it",
            Self::Unavailable => "no parser could be started",
        })
    }
}

/// Parses a source in another process, until the given time at the latest once there is a process.
pub type ParseService =
    dyn Fn(&ParseRequest<'_>, Instant) -> Result<ParseReply, ParseFailure> + Send + Sync;

static SERVICE: OnceLock<Box<ParseService>> = OnceLock::new();

/// Sets where this process parses; only the first call has an effect.
pub fn set_parse_service(
    service: impl Fn(&ParseRequest<'_>, Instant) -> Result<ParseReply, ParseFailure>
    + Send
    + Sync
    + 'static,
) {
    let _ = SERVICE.set(Box::new(service));
}

/// Parses in this process. For workers and tests: a crash of the grammar ends the process.
pub fn parse_here(request: &ParseRequest<'_>) -> ParseReply {
    let clock = ParseClock::start(request.cpu_time);
    let analysis = walk_source(request.language, request.source, request.goal, &clock);
    ParseReply {
        analysis,
        cpu_time: clock.used(),
        waited: Duration::ZERO,
    }
}

pub(crate) fn parse_within(
    language: Language,
    source: &str,
    goal: ParseGoal,
    budget: &mut ParseBudget,
) -> Result<SyntaxAnalysis, ParseFailure> {
    if !language.has_grammar() || !budget.take(source.len()) {
        return Err(ParseFailure::Declined);
    }
    let request = ParseRequest {
        language,
        goal,
        source,
        cpu_time: budget.cpu_time(),
    };
    let reply = match SERVICE.get() {
        Some(service) => service(&request, budget.deadline())?,
        None => parse_here(&request),
    };
    budget.spend(reply.cpu_time);
    budget.extend(reply.waited);
    reply.analysis.ok_or(ParseFailure::Declined)
}
