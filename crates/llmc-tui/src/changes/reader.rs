//! Asks for entries: a running server over HTTP, or the workspace itself. Neither counts as a call.

use std::sync::mpsc::{Receiver, Sender, channel};

use llmc_tools::{Caller, HistoryQuery, Surface};

use super::{EntryPage, EntryText, HistoryAnswer, HistoryRequest, HistoryUpdate};
use crate::rerun::RepeatRunner;
use crate::text::legible;
use crate::watch::{ServerAddress, WatchTarget, fetch};

/// Entries of one page.
const PAGE_ENTRIES: usize = 100;

/// Asks one thing at a time, without keeping the screen waiting.
pub(crate) struct HistoryReader {
    waiting: bool,
    send: Sender<HistoryUpdate>,
    updates: Receiver<HistoryUpdate>,
}

impl HistoryReader {
    pub(crate) fn new() -> HistoryReader {
        let (send, updates) = channel();
        HistoryReader {
            waiting: false,
            send,
            updates,
        }
    }

    /// Whether the next request can be made.
    pub(crate) fn is_idle(&self) -> bool {
        !self.waiting
    }

    pub(crate) fn ask(
        &mut self,
        request: HistoryRequest,
        target: &WatchTarget,
        runner: &mut RepeatRunner,
    ) {
        self.waiting = true;
        let send = self.send.clone();
        let failed = request.clone();
        let asked = match target {
            WatchTarget::Server { address, token } => {
                ask_server(request, address.clone(), token.clone(), send)
            }
            WatchTarget::Telemetry { .. } => ask_workspace(request, runner, send),
        };
        if let Err(reason) = asked {
            let _ = self.send.send(HistoryUpdate {
                request: failed,
                answer: Err(legible(&reason, 400)),
            });
        }
    }

    pub(crate) fn update(&mut self) -> Option<HistoryUpdate> {
        let update = self.updates.try_recv().ok()?;
        self.waiting = false;
        Some(update)
    }
}

#[cfg(test)]
impl HistoryReader {
    /// Waits for the answer.
    pub(crate) fn wait(&mut self) -> HistoryUpdate {
        let time = std::time::Duration::from_secs(60);
        let update = self.updates.recv_timeout(time).expect("an answer");
        self.waiting = false;
        update
    }
}

fn ask_server(
    request: HistoryRequest,
    address: ServerAddress,
    token: Option<String>,
    send: Sender<HistoryUpdate>,
) -> Result<(), String> {
    let thread = std::thread::Builder::new().name("llmc-history".to_owned());
    let work = move || {
        let path = match &request {
            HistoryRequest::Newest => format!("/api/history?limit={PAGE_ENTRIES}"),
            HistoryRequest::Before(id) => format!("/api/history?limit={PAGE_ENTRIES}&before={id}"),
            HistoryRequest::Show(id) => format!("/api/history/{id}"),
        };
        let fetched = fetch(&address, token.as_deref(), &path).map_err(|error| error.to_string());
        let answer = fetched.and_then(|text| parse(&request, &text));
        let _ = send.send(HistoryUpdate { request, answer });
    };
    let started = thread.spawn(work);
    started.map(drop).map_err(|error| error.to_string())
}

fn ask_workspace(
    request: HistoryRequest,
    runner: &mut RepeatRunner,
    send: Sender<HistoryUpdate>,
) -> Result<(), String> {
    let (app, runtime) = runner.open()?;
    let app = app.clone();
    runtime.spawn_blocking(move || {
        let caller = Caller::local(Surface::Cli, &app);
        let page = |before| {
            let query = HistoryQuery {
                before,
                limit: PAGE_ENTRIES,
                ..HistoryQuery::default()
            };
            app.history_page(&caller, &query)
        };
        let found = match &request {
            HistoryRequest::Newest => page(None),
            HistoryRequest::Before(id) => page(Some(id.clone())),
            HistoryRequest::Show(id) => app.history_entry(&caller, id),
        };
        let found = found.map_err(|error| legible(&error.message, 400));
        let answer = found.and_then(|document| parse(&request, &document.to_string()));
        let _ = send.send(HistoryUpdate { request, answer });
    });
    Ok(())
}

pub(super) fn parse(request: &HistoryRequest, text: &str) -> Result<HistoryAnswer, String> {
    let answer = match request {
        HistoryRequest::Newest | HistoryRequest::Before(_) => {
            serde_json::from_str::<EntryPage>(text).map(HistoryAnswer::Page)
        }
        HistoryRequest::Show(_) => {
            EntryText::parse(text).map(|text| HistoryAnswer::Entry(Box::new(text)))
        }
    };
    answer
        .map_err(|_| "the history came in another form; is the server another version?".to_owned())
}
