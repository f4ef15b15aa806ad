//! The `te` of a shell: the user's own command with the user's own rights, its output in an envelope.
//!
//! What an agent runs goes through the server and is confined there; a user who types `te grep x` could type `grep x`.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use llmc_enrich::output;
use llmc_exec::{ExitStatus, Stream, run_plain};
use llmc_host::{CancelToken, read_below_cwd};
use llmc_observe::{CallEvent, CallFilter, EnvelopeMode as Mode};

use super::condense::{CondenseRequest, OutputForm};
use super::document::{DocumentParts, document};
use super::execute::program_name;
use super::flags::Flags;
use super::folder::{stdin_has_input, with_folder};
use super::report;
use super::spool::Spool;
use super::te_output::{OutputOwner, TeOutput};
use crate::app::App;
use crate::catalog::te_handle::{about, bytes_at, piece};
use crate::cx::{Caller, Cx, Surface};
use crate::error::{Error, ErrorKind, Family, Result};
use crate::te::SOURCE_LIMIT;

/// How long the end waits for the record of the call to be written, on a machine that is very busy.
const MAX_RECORDING_TIME: Duration = Duration::from_secs(10);
/// How long recording waits for another process that has locked the telemetry.
const RECORDING_LOCK_TIMEOUT: Duration = Duration::from_millis(400);
/// What is read of a stored result at a time.
const PAGE: usize = 1 << 20;
/// What is looked at of a stream to guess its tokens.
const SAMPLE: usize = 64 << 10;
/// The exit code of a command that is not there, as shells have it.
const NOT_FOUND: i32 = 127;
/// The exit code of one that cannot be started.
const NOT_STARTED: i32 = 126;
/// The exit code of one whose reader went away: SIGPIPE.
const UNREAD: i32 = 128 + 13;

/// `te` in a shell.
pub struct Cli<'a> {
    app: Arc<App>,
    cx: Cx,
    out: &'a mut dyn Write,
    err: &'a mut dyn Write,
    /// Whether the output goes to a terminal.
    terminal: bool,
    started: Instant,
}

/// With which code `te` ends.
pub type CliAnswer = Result<u8>;

/// What is recorded of a call.
struct Served {
    cmd: String,
    mode: Mode,
    bytes_in: usize,
    bytes_out: u64,
    tokens_out: u64,
    withheld: u64,
    fetched_back: bool,
    truncated: bool,
    handle: Option<llmc_envelope::HandleId>,
    error: Option<&'static str>,
}

impl Served {
    /// A call without an answer.
    fn failed(cmd: String, error: &'static str) -> Served {
        Served {
            cmd,
            mode: Mode::Passthrough,
            bytes_in: 0,
            bytes_out: 0,
            tokens_out: 0,
            withheld: 0,
            fetched_back: false,
            truncated: false,
            handle: None,
            error: Some(error),
        }
    }
}

impl<'a> Cli<'a> {
    /// For one call.
    pub fn new(
        app: Arc<App>,
        out: &'a mut dyn Write,
        err: &'a mut dyn Write,
        terminal: bool,
    ) -> Cli<'a> {
        let caller = Arc::new(Caller::local(Surface::Cli, &app));
        Cli {
            cx: Cx::new(app.clone(), caller, CancelToken::default()),
            app,
            out,
            err,
            terminal,
            started: Instant::now(),
        }
    }

    /// Does what the flags say.
    ///
    /// # Errors
    /// A handle that is not there, or a store that cannot be read. A command that fails is no error.
    pub fn run(&mut self, flags: &Flags) -> CliAnswer {
        let done = match flags {
            Flags {
                handle: Some(handle),
                ..
            } => self.stored(handle, flags),
            Flags {
                list_handles: true, ..
            } => self.list(flags.json),
            Flags { stats: true, .. } => self.stats(flags.json),
            _ => self.command(flags),
        };
        match done {
            Err(Failed::Unread) => Ok(UNREAD as u8),
            Err(Failed::Other(error)) => {
                let cmd = match flags.command.is_empty() {
                    true => "handle".to_owned(),
                    false => program_name(&flags.command),
                };
                self.record(Served::failed(cmd, error.kind.code(Family::Te)));
                Err(error)
            }
            Ok(code) => Ok(code),
        }
    }

    fn command(&mut self, flags: &Flags) -> Result<u8, Failed> {
        let argv = &with_folder(&flags.command, stdin_has_input());
        let known = output::condenser_name(argv).is_some() && self.app.config().mcp.te.enabled;
        if !flags.json && (flags.raw || !known) {
            return self.pass_through(argv, flags.raw);
        }
        let state: Option<PathBuf> = self.app.stores().map(ToOwned::to_owned);
        let mut spool = Spool::new(state);
        // Complaints stay where a shell's user expects them, but for test runs, which print their results there.
        let apart = !flags.json && !output::is_test_run(argv);
        let mut complaints = Vec::new();
        let ended = run_plain(
            argv,
            Some(&mut |stream, bytes: &[u8]| {
                if stream == Stream::Stderr && apart {
                    return self.err.write_all(bytes);
                }
                if stream == Stream::Stderr && known && !output::is_test_run(argv) {
                    let room = PAGE.saturating_sub(complaints.len()).min(bytes.len());
                    complaints.extend_from_slice(&bytes[..room]);
                    return Ok(());
                }
                spool.push(stream, bytes);
                Ok(())
            }),
        );
        let status = match ended {
            Ok(status) => status,
            Err(error) => return self.not_started(argv, &error, flags),
        };
        let raw = flags.raw || !known;
        let form = if raw && spool.whole().is_some() {
            OutputForm::Raw
        } else {
            OutputForm::Envelope
        };
        let budget = self.budget();
        let request = CondenseRequest {
            argv,
            form,
            budget,
            whole_budget: budget,
            show_status: false,
        };
        let owner = OutputOwner {
            principal: &self.cx.caller().principal,
            command: &argv.join(" "),
            store: &|| Ok(self.app.handles().map_err(|error| error.message)?.clone()),
            rules: self.cx.read_rules(),
        };
        let source = |path: &str| String::from_utf8(read_below_cwd(path, SOURCE_LIMIT)?).ok();
        let mut output = TeOutput::new(&request, &mut spool, Some(status), &owner, source);
        if output.stderr.is_empty() {
            output.stderr = String::from_utf8_lossy(&complaints).into_owned();
        }
        let mode = match (output.enriched, flags.raw) {
            (true, _) => Mode::Enriched,
            (false, true) => Mode::Raw,
            (false, false) => Mode::Passthrough,
        };
        self.show(argv, flags.json, mode, &output)?;
        self.record(Served {
            cmd: program_name(argv),
            mode,
            bytes_in: argv.join(" ").len(),
            bytes_out: output.stdout.len() as u64,
            tokens_out: tokens_of(&output.stdout),
            withheld: output.withheld_bytes,
            fetched_back: false,
            truncated: output.truncated,
            handle: output.handle,
            error: None,
        });
        Ok(code(status))
    }

    fn show(
        &mut self,
        argv: &[String],
        json: bool,
        mode: Mode,
        output: &TeOutput,
    ) -> Result<(), Failed> {
        let mut text = match json {
            false => output.stdout.clone(),
            true => document(&DocumentParts {
                argv,
                mode,
                output,
                enrichment: None,
                latency: self.started.elapsed(),
                agent: &self.cx.caller().agent,
                budget_remaining: self
                    .remaining()
                    .map(|left| left.saturating_sub(tokens_of(&output.stdout))),
            })
            .to_string(),
        };
        if !text.ends_with('\n') {
            text.push('\n');
        }
        self.print(text.as_bytes())
    }

    /// A command that `te` knows nothing about, or is to leave alone.
    fn pass_through(&mut self, argv: &[String], raw: bool) -> Result<u8, Failed> {
        let (mut bytes, mut sample) = (0_u64, Vec::new());
        let ended = match self.terminal {
            // A terminal stays one for the command, with its colours and its keys.
            true => run_plain(argv, None),
            false => run_plain(
                argv,
                Some(&mut |stream, block: &[u8]| match stream {
                    Stream::Stderr => self.err.write_all(block),
                    Stream::Stdout => {
                        bytes += block.len() as u64;
                        let room = SAMPLE.saturating_sub(sample.len()).min(block.len());
                        sample.extend_from_slice(&block[..room]);
                        self.out.write_all(block).and_then(|()| self.out.flush())
                    }
                }),
            ),
        };
        let status = match ended {
            Ok(status) => status,
            Err(error) => return self.not_started(argv, &error, &Flags::default()),
        };
        let density = llmc_tokens::estimate(&sample).tokens as f64 / sample.len().max(1) as f64;
        self.record(Served {
            cmd: program_name(argv),
            mode: if raw { Mode::Raw } else { Mode::Passthrough },
            bytes_in: argv.join(" ").len(),
            bytes_out: bytes,
            tokens_out: (bytes as f64 * density) as u64,
            withheld: 0,
            fetched_back: false,
            truncated: false,
            handle: None,
            error: None,
        });
        Ok(code(status))
    }

    fn not_started(
        &mut self,
        argv: &[String],
        error: &io::Error,
        flags: &Flags,
    ) -> Result<u8, Failed> {
        let (why, code) = match error.kind() {
            io::ErrorKind::BrokenPipe => return Err(Failed::Unread),
            io::ErrorKind::NotFound => ("command not found".to_owned(), NOT_FOUND),
            _ => (error.to_string(), NOT_STARTED),
        };
        let kind = match code {
            NOT_FOUND => ErrorKind::NotFound,
            _ => ErrorKind::Internal,
        };
        self.record(Served::failed(program_name(argv), kind.code(Family::Te)));
        let message = format!("te: {}: {why}\n", argv[0]);
        if flags.json {
            let output = TeOutput {
                stderr: message,
                ..TeOutput::empty(Some(ExitStatus::Exited(code)))
            };
            self.show(argv, true, Mode::Passthrough, &output)?;
        } else {
            let _ = self.err.write_all(message.as_bytes());
        }
        Ok(code as u8)
    }

    /// A stored result, or one chunk of it, as it is.
    fn stored(&mut self, handle: &str, flags: &Flags) -> Result<u8, Failed> {
        let stop = CancelToken::default();
        let mut served = Served {
            cmd: "handle".to_owned(),
            mode: Mode::Raw,
            bytes_in: handle.len(),
            bytes_out: 0,
            tokens_out: 0,
            withheld: 0,
            fetched_back: true,
            truncated: false,
            handle: None,
            error: None,
        };
        if flags.chunk.is_some() || flags.json {
            let piece = match flags.chunk {
                Some(chunk) => piece(&self.cx, handle, chunk, &stop)?,
                None => piece(&self.cx, handle, 0, &stop)?,
            };
            served.handle = Some(piece.info.id);
            served.bytes_out = piece.bytes.len() as u64;
            served.tokens_out = llmc_tokens::estimate(&piece.bytes).tokens as u64;
            served.truncated = piece.chunks != Some(piece.number + 1);
            if flags.json {
                let argv = ["te", "--handle", handle].map(str::to_owned);
                let output = TeOutput {
                    stdout: String::from_utf8_lossy(&piece.bytes).into_owned(),
                    handle: served.handle,
                    truncated: served.truncated,
                    ..TeOutput::empty(Some(ExitStatus::SUCCESS))
                };
                self.show(&argv, true, Mode::Raw, &output)?;
            } else {
                self.print(&piece.bytes)?;
            }
        } else {
            let (info, _) = about(&self.cx, handle, &stop)?;
            served.handle = Some(info.id);
            let mut density = None;
            while served.bytes_out < info.total_bytes {
                let page = bytes_at(&self.cx, &info, served.bytes_out, PAGE)?;
                if page.is_empty() {
                    break;
                }
                let guess = llmc_tokens::estimate(&page).tokens as f64 / page.len() as f64;
                let density = *density.get_or_insert(guess);
                served.bytes_out += page.len() as u64;
                served.tokens_out = (served.bytes_out as f64 * density) as u64;
                self.print(&page)?;
            }
        }
        self.record(served);
        Ok(0)
    }

    fn list(&mut self, json: bool) -> Result<u8, Failed> {
        let store = self.app.handles()?;
        let list = store
            .list(&self.cx.caller().principal)
            .map_err(Error::from)?;
        let text = match json {
            false => report::handles(&list),
            true => report::handles_json(&list),
        };
        self.print(text.as_bytes())?;
        Ok(0)
    }

    fn stats(&mut self, json: bool) -> Result<u8, Failed> {
        let summary = self.app.telemetry()?.summary(&CallFilter::default());
        let summary = summary.map_err(report::unavailable)?;
        let text = match json {
            false => summary.stats_text(),
            true => format!("{}\n", summary.stats_json()),
        };
        self.print(text.as_bytes())?;
        Ok(0)
    }

    fn print(&mut self, bytes: &[u8]) -> Result<(), Failed> {
        let written = self.out.write_all(bytes).and_then(|()| self.out.flush());
        written.map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => Failed::Unread,
            _ => Error::new(ErrorKind::WriteFailed, format!("standard output: {error}")).into(),
        })
    }

    fn budget(&self) -> usize {
        let answer = self.app.config().mcp.te.budget_for(&self.cx.caller().agent);
        let budget = self.remaining().map_or(answer, |left| answer.min(left));
        crate::seal::body_room(usize::try_from(budget).unwrap_or(usize::MAX))
    }

    /// What is left of the session's budget, by the record of its calls.
    fn remaining(&self) -> Option<u64> {
        let caller = self.cx.caller();
        let all = self.app.config().mcp.te.session_budget_for(&caller.agent)?;
        let session = CallFilter {
            session: Some(caller.session.clone()),
            ..CallFilter::default()
        };
        let served = self
            .app
            .telemetry()
            .ok()
            .and_then(|telemetry| telemetry.summary(&session).ok())
            .map_or(0, |sum| sum.totals.tokens.served);
        Some(all.saturating_sub(served))
    }

    /// Writes the record of the call, which nothing waits for long.
    fn record(&self, served: Served) {
        if !self.app.config().mcp.observability.enabled {
            return;
        }
        let caller = self.cx.caller();
        let mut row = CallEvent {
            source: "cli".to_owned(),
            principal: caller.principal.clone(),
            agent: caller.agent.clone(),
            session: caller.session.clone(),
            model: caller.model.clone(),
            tool: served.cmd,
            mode: served.mode,
            bytes_in: served.bytes_in as u64,
            tokens_in: served.bytes_in as u64 / 4,
            bytes_out: served.bytes_out,
            tokens_served: served.tokens_out,
            duration_ms: self.started.elapsed().as_secs_f64() * 1000.0,
            truncated: served.truncated,
            handle: served.handle,
            error_code: served.error.map(str::to_owned),
            ..CallEvent::default()
        };
        row.estimate_withheld(served.withheld, served.fetched_back);
        let app = self.app.clone();
        let (done, wait) = channel();
        std::thread::spawn(move || {
            let written = app
                .telemetry_within(Some(RECORDING_LOCK_TIMEOUT))
                .and_then(|telemetry| telemetry.record(&row).map_err(report::unavailable));
            if let Err(error) = written {
                tracing::warn!(error = %error, "the call is not recorded");
            }
            let _ = done.send(());
        });
        let _ = wait.recv_timeout(MAX_RECORDING_TIME);
    }
}

/// Records a call of `te` whose flags cannot be read.
pub fn record_refused(app: &Arc<App>, error: &Error) {
    let (mut out, mut err) = (io::sink(), io::sink());
    let cli = Cli::new(app.clone(), &mut out, &mut err, false);
    cli.record(Served::failed("te".to_owned(), error.kind.code(Family::Te)));
}

/// Why a call ended early.
enum Failed {
    /// Standard output is closed.
    Unread,
    Other(Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        Failed::Other(error)
    }
}

/// What a text counts as in the record of calls.
fn tokens_of(text: &str) -> u64 {
    llmc_tokens::estimate(text.as_bytes()).tokens as u64
}

/// The exit code, as a shell gives it.
fn code(status: ExitStatus) -> u8 {
    status
        .shell_code()
        .and_then(|code| u8::try_from(code & 0xff).ok())
        .unwrap_or(1)
}
