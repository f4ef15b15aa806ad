//! Counters of requests, and Prometheus text of these and of the observer's counters of calls.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::StatusCode;
use llmc_observe::prometheus::{escape_label, write_header};
use llmc_observe::{Histogram, lock};
use llmc_tools::{App, ConfinementSummary};
use serde_json::{Value, json};

use super::error::ErrorRecord;

/// Counters of one server.
#[derive(Debug, Default)]
pub(super) struct HttpMetrics {
    counters: Mutex<Counters>,
    in_progress: Arc<AtomicU64>,
    connections: Arc<AtomicU64>,
    streams: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct Counters {
    /// By route as declared, never by path as requested: clients must not create names.
    routes: BTreeMap<String, RouteCounters>,
    /// Errors of requests that made no call.
    errors: BTreeMap<&'static str, u64>,
    auth_failures: u64,
    rate_limited: u64,
}

#[derive(Debug, Default)]
struct RouteCounters {
    seconds: Histogram,
    answers: BTreeMap<u16, u64>,
}

/// Counted in a gauge until it is dropped.
#[derive(Debug)]
pub(super) struct GaugeGuard(Arc<AtomicU64>);

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl HttpMetrics {
    pub(super) fn request(&self) -> GaugeGuard {
        gauge_guard(&self.in_progress)
    }

    pub(super) fn connection(&self) -> GaugeGuard {
        gauge_guard(&self.connections)
    }

    pub(super) fn stream(&self) -> GaugeGuard {
        gauge_guard(&self.streams)
    }

    /// Event streams that are open.
    pub(super) fn open_streams(&self) -> u64 {
        self.streams.load(Ordering::Relaxed)
    }

    pub(super) fn answered(
        &self,
        route: &str,
        status: StatusCode,
        record: Option<ErrorRecord>,
        took: Duration,
    ) {
        let mut counters = lock(&self.counters);
        if !counters.routes.contains_key(route) {
            counters
                .routes
                .insert(route.to_owned(), RouteCounters::default());
        }
        if let Some(route) = counters.routes.get_mut(route) {
            route.seconds.add(took.as_secs_f64());
            *route.answers.entry(status.as_u16()).or_default() += 1;
        }
        counters.auth_failures += u64::from(status == StatusCode::UNAUTHORIZED);
        counters.rate_limited += u64::from(status == StatusCode::TOO_MANY_REQUESTS);
        if let Some(record) = record.filter(|record| !record.counted) {
            *counters.errors.entry(record.code).or_default() += 1;
        }
    }

    /// Current values, for `/api`.
    pub(super) fn gauges(&self) -> Value {
        let counters = lock(&self.counters);
        json!({
            "requests_in_progress": self.in_progress.load(Ordering::Relaxed),
            "connections": self.connections.load(Ordering::Relaxed),
            "watchers": self.streams.load(Ordering::Relaxed),
            "auth_failures": counters.auth_failures,
            "rate_limited": counters.rate_limited,
        })
    }

    /// Everything in the text format of Prometheus. Blocks: the handle store is read.
    pub(super) fn prometheus(&self, app: &App) -> String {
        let mut out = String::with_capacity(16 << 10);
        let mut errors = (app.observer()).prometheus(&mut out, app.upstream_lists());
        let counters = lock(&self.counters);
        let name = "llmc_http_request_duration_seconds";
        write_header(
            &mut out,
            name,
            "histogram",
            "Time to the head of the answer.",
        );
        for (route, counted) in &counters.routes {
            counted
                .seconds
                .write(&mut out, name, &format!("route=\"{route}\""));
        }
        let name = "llmc_http_requests_total";
        write_header(&mut out, name, "counter", "Answers by route and status.");
        for (route, counted) in &counters.routes {
            for (status, count) in &counted.answers {
                let labels = format!("route=\"{route}\",status=\"{status}\"");
                let _ = writeln!(out, "{name}{{{labels}}} {count}");
            }
        }
        for (code, count) in &counters.errors {
            *errors.entry((*code).to_owned()).or_default() += count;
        }
        let name = "llmc_errors_total";
        write_header(
            &mut out,
            name,
            "counter",
            "Failed calls and refused requests by code.",
        );
        for (code, count) in &errors {
            let _ = writeln!(out, "{name}{{code=\"{code}\"}} {count}");
        }
        let totals = [
            (
                "llmc_auth_failures_total",
                "Requests without a known token.",
                counters.auth_failures,
            ),
            (
                "llmc_rate_limited_total",
                "Requests above a limit.",
                counters.rate_limited,
            ),
            (
                "llmc_events_dropped_total",
                "Calls that were not recorded.",
                app.observer().dropped(),
            ),
        ];
        drop(counters);
        for (name, help, value) in totals {
            write_header(&mut out, name, "counter", help);
            let _ = writeln!(out, "{name} {value}");
        }
        let usage = app.handles().ok().and_then(|store| store.usage().ok());
        let (handles, bytes) = usage.map_or((0, 0), |usage| (usage.count, usage.bytes));
        let gauges = [
            ("llmc_handle_store_handles", "Stored results.", handles),
            (
                "llmc_handle_store_bytes",
                "Bytes of stored results, compressed.",
                bytes,
            ),
            (
                "llmc_index_bytes",
                "Bytes of the code index.",
                app.index().bytes(),
            ),
            (
                "llmc_index_files_done",
                "Files that the current or last scan of the tree has read.",
                app.index().progress().done(),
            ),
            (
                "llmc_index_files_total",
                "Files that a first build has to read; 0 if they were not counted.",
                app.index().progress().total(),
            ),
            (
                "llmc_uptime_seconds",
                "Seconds since the start.",
                app.started().elapsed().as_secs(),
            ),
            (
                "llmc_http_connections",
                "Open connections.",
                self.connections.load(Ordering::Relaxed),
            ),
            (
                "llmc_http_requests_in_progress",
                "Requests in progress.",
                self.in_progress.load(Ordering::Relaxed),
            ),
        ];
        for (name, help, value) in gauges {
            write_header(&mut out, name, "gauge", help);
            let _ = writeln!(out, "{name} {value}");
        }
        let name = "llmc_server_info";
        write_header(
            &mut out,
            name,
            "gauge",
            "Which server these figures are of; telemetry, audit and ids of processes name it.",
        );
        let _ = writeln!(
            out,
            "{name}{{server=\"{}\",version=\"{}\"}} 1",
            escape_label(app.server_id()),
            env!("CARGO_PKG_VERSION")
        );
        let name = "llmc_confinement_info";
        write_header(
            &mut out,
            name,
            "gauge",
            "What confines the programs that tools start.",
        );
        let _ = writeln!(
            out,
            "{name}{{level=\"{}\",profile=\"{}\"}} 1",
            escape_label(ConfinementSummary::confinement(app)),
            app.config().mcp.exec.profile.as_str()
        );
        out
    }
}

fn gauge_guard(count: &Arc<AtomicU64>) -> GaugeGuard {
    count.fetch_add(1, Ordering::Relaxed);
    GaugeGuard(count.clone())
}
