//! What is recorded about calls, and the one aggregation that every view reads.
//!
//! Owns the event of a finished call, the telemetry file, the token audit, the metrics in memory and their summaries.
//! It must not know tools, MCP or HTTP: the caller passes names, sizes and an error code as plain text.
//!
//! The three types to know are [`CallEvent`] (one finished call), [`Aggregator`] (calls in, [`Summary`] out) and
//! [`Observer`] (takes events off the path of a call and writes them everywhere). The parts:
//!
//! - [`CallEvent`], [`UncountedCall`]: a finished call, with and without its tokens counted
//! - [`Aggregator`], [`Summary`], [`ToolSummary`], [`SessionSummary`], [`CallTotals`]: calls added up in bounded memory; the
//!   dashboard, `/api`, `get_metrics`, Prometheus, `te analyze` and the terminal view read these
//! - [`UpstreamLedger`]: tokens of each upstream: of its list, and of its answers
//! - [`Observer`]: the queue and the threads behind it
//! - [`Telemetry`], [`TelemetryFollower`]: one row per call in SQLite or PostgreSQL, written, queried, and followed by other processes
//! - [`CallReader`]: recorded calls searched, one with its content, savings, sessions
//! - [`WorkspaceFeed`]: summaries and events of all servers of a workspace, read from its telemetry
//! - [`CallContent`], [`SecretNames`]: what of a call's texts is kept, and what never is
//! - [`TelemetryAnalysis`]: `te analyze`
//! - [`SharedAudit`]: the token audit of all servers of a team
//! - [`CsvLog`]: CSV files that several servers append to
//! - [`mask_secrets`]: hides what looks like a secret before it is recorded
//! - [`Histogram`], [`prometheus`]: Prometheus text
#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod aggregate;
mod analysis;
mod audit;
mod content;
mod csv_log;
mod event;
mod latency;
mod live;
mod lock;
mod mask;
mod observer;
pub mod prometheus;
mod shared_audit;
mod summary;
mod telemetry;
mod telemetry_thread;
mod upstreams;
mod workspace_feed;

pub use aggregate::Aggregator;
pub use analysis::{GroupBy, TelemetryAnalysis};
pub use content::{CallContent, ContentText, SecretNames};
pub use csv_log::CsvLog;
pub use event::{CallEvent, EnvelopeMode, UncountedCall};
pub use live::CallScope;
pub use lock::lock;
pub use mask::mask_secrets;
pub use observer::{AuditOptions, Observer, ObserverOptions};
pub use prometheus::Histogram;
pub use shared_audit::{AuditRow, SharedAudit};
pub use summary::{
    CallTotals, ErrorCount, LatencyQuantiles, OverTime, SessionSummary, Summary, TimeStep,
    TokenCounts, ToolSummary,
};
pub use telemetry::{
    CallDetail, CallFilter, CallPage, CallQuery, CallReader, Error, SavingsGroup, SavingsReport,
    SessionActivity, TELEMETRY_VERSION, Telemetry, TelemetryFollower, TelemetryLocation,
    TelemetryOptions,
};
pub use upstreams::{UpstreamLedger, UpstreamList};
pub use workspace_feed::WorkspaceFeed;
