//! What is counted of requests, beside what the observer counts of calls, and both together for Prometheus.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::StatusCode;
use llmc_observe::prometheus::{escape_label, write_header};
use llmc_observe::{Histogram, lock};
use llmc_tools::{App, Truth};
use serde_json::{Value, json};

use super::refusal::Refused;

/// Counters of one server.
#[derive(Debug, Default)]
pub(super) struct Meter {
    state: Mutex<State>,
    in_progress: Arc<AtomicU64>,
    connections: Arc<AtomicU64>,
    streams: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct State {
    /// By route as it is declared, never as it was asked for: whoever asks must not make names.
    routes: BTreeMap<String, Route>,
    /// Refusals that no call was made for.
    errors: BTreeMap<&'static str, u64>,
    auth_failures: u64,
    rate_limited: u64,
}

#[derive(Debug, Default)]
struct Route {
    seconds: Histogram,
    answers: BTreeMap<u16, u64>,
}

/// Counted for as long as it lives.
#[derive(Debug)]
pub(super) struct Present(Arc<AtomicU64>);

impl Drop for Present {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Meter {
    pub(super) fn request(&self) -> Present {
        present(&self.in_progress)
    }

    pub(super) fn connection(&self) -> Present {
        present(&self.connections)
    }

    pub(super) fn stream(&self) -> Present {
        present(&self.streams)
    }

    pub(super) fn answered(
        &self,
        route: &str,
        status: StatusCode,
        refused: Option<Refused>,
        took: Duration,
    ) {
        let mut state = lock(&self.state);
        if !state.routes.contains_key(route) {
            state.routes.insert(route.to_owned(), Route::default());
        }
        if let Some(route) = state.routes.get_mut(route) {
            route.seconds.add(took.as_secs_f64());
            *route.answers.entry(status.as_u16()).or_default() += 1;
        }
        state.auth_failures += u64::from(status == StatusCode::UNAUTHORIZED);
        state.rate_limited += u64::from(status == StatusCode::TOO_MANY_REQUESTS);
        if let Some(refused) = refused.filter(|refused| !refused.counted) {
            *state.errors.entry(refused.code).or_default() += 1;
        }
    }

    /// What changes all the time, for those who watch.
    pub(super) fn gauges(&self) -> Value {
        let state = lock(&self.state);
        json!({
            "requests_in_progress": self.in_progress.load(Ordering::Relaxed),
            "connections": self.connections.load(Ordering::Relaxed),
            "watchers": self.streams.load(Ordering::Relaxed),
            "auth_failures": state.auth_failures,
            "rate_limited": state.rate_limited,
        })
    }

    /// Everything in the text format of Prometheus. Takes its time: the handle store is asked.
    pub(super) fn prometheus(&self, app: &App) -> String {
        let mut out = String::with_capacity(16 << 10);
        let mut errors = app.observer().prometheus(&mut out);
        let state = lock(&self.state);
        let name = "llmc_http_request_duration_seconds";
        write_header(
            &mut out,
            name,
            "histogram",
            "Time to the head of the answer.",
        );
        for (route, counted) in &state.routes {
            counted
                .seconds
                .write(&mut out, name, &format!("route=\"{route}\""));
        }
        let name = "llmc_http_requests_total";
        write_header(&mut out, name, "counter", "Answers by route and status.");
        for (route, counted) in &state.routes {
            for (status, count) in &counted.answers {
                let labels = format!("route=\"{route}\",status=\"{status}\"");
                let _ = writeln!(out, "{name}{{{labels}}} {count}");
            }
        }
        for (code, count) in &state.errors {
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
        let counters = [
            (
                "llmc_auth_failures_total",
                "Requests without a known token.",
                state.auth_failures,
            ),
            (
                "llmc_rate_limited_total",
                "Requests above a limit.",
                state.rate_limited,
            ),
            (
                "llmc_events_dropped_total",
                "Calls that were not recorded.",
                app.observer().dropped(),
            ),
        ];
        drop(state);
        for (name, help, value) in counters {
            write_header(&mut out, name, "counter", help);
            let _ = writeln!(out, "{name} {value}");
        }
        let usage = app.handles().ok().and_then(|store| store.usage().ok());
        let (handles, bytes) = usage.map_or((0, 0), |usage| (usage.count, usage.bytes));
        let gauges = [
            ("llmc_handle_store_handles", "Stored results.", handles),
            (
                "llmc_handle_store_bytes",
                "Bytes they take, compressed.",
                bytes,
            ),
            (
                "llmc_index_bytes",
                "Bytes of the code index.",
                app.index().bytes(),
            ),
            (
                "llmc_index_files_done",
                "Files that the present or last look at the tree has seen.",
                app.index().progress().done(),
            ),
            (
                "llmc_index_files_total",
                "Files that a first build has to see; 0 where they were not counted.",
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
                "Requests in work.",
                self.in_progress.load(Ordering::Relaxed),
            ),
        ];
        for (name, help, value) in gauges {
            write_header(&mut out, name, "gauge", help);
            let _ = writeln!(out, "{name} {value}");
        }
        let name = "llmc_confinement_info";
        write_header(
            &mut out,
            name,
            "gauge",
            "What holds the programs that tools start.",
        );
        let _ = writeln!(
            out,
            "{name}{{level=\"{}\",profile=\"{}\"}} 1",
            escape_label(&Truth::confinement(app)),
            app.config().mcp.exec.profile.as_str()
        );
        out
    }
}

fn present(count: &Arc<AtomicU64>) -> Present {
    count.fetch_add(1, Ordering::Relaxed);
    Present(count.clone())
}
