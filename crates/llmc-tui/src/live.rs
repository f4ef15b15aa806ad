//! The loop between keys, updates and the screen.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::TryRecvError;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use llmc_config::LoadedConfig;
use llmc_observe::Summary;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGWINCH};

use crate::changes::HistoryReader;
use crate::keys::Keyboard;
use crate::pager;
use crate::pages::{ActivitySource, read_page};
use crate::rerun::RepeatRunner;
use crate::screen::{Screen, TerminalError, is_terminal};
use crate::state::{Action, TuiState};
use crate::summary_text::SummaryContext;
use crate::theme::Theme;
use crate::watch::{WatchTarget, WatchUpdate};

/// The screen is drawn no more often than this, and updates wait no longer.
const FRAME_INTERVAL: Duration = Duration::from_millis(100);

/// How often a page that changes by itself is read.
const PAGE_INTERVAL: Duration = Duration::from_millis(1500);

/// Updates that are applied before keys are read again.
const MAX_UPDATES_PER_FRAME: usize = 64;

/// What the screen needs.
#[derive(Debug)]
pub struct TuiSetup {
    pub loaded: LoadedConfig,
    pub target: WatchTarget,
    pub theme: Theme,
    /// The operator's pager.
    pub pager: Option<std::ffi::OsString>,
    /// What the servers of the workspace are doing.
    pub activity: ActivitySource,
}

impl TuiSetup {
    fn watched(&self) -> String {
        match &self.target {
            WatchTarget::Telemetry { .. } => self.loaded.root.display().to_string(),
            WatchTarget::Server { address, .. } => address.to_string(),
        }
    }

    pub fn summary_context(&self) -> SummaryContext {
        SummaryContext {
            watched: self.watched(),
            span: self.target.span(),
            audit: self.audit(),
            copied: None,
            zone: TimeZone::system(),
        }
    }

    /// The token audit, when there is one.
    fn audit(&self) -> Option<PathBuf> {
        Some(self.loaded.csv_path()).filter(|path| path.is_file())
    }
}

/// How the screen ended.
#[derive(Debug)]
pub struct TuiExit {
    pub summary: Summary,
    pub context: SummaryContext,
    /// Whether a signal ended it rather than the person.
    pub interrupted: bool,
}

/// Shows the screen until the person or a signal ends it, and restores the terminal.
///
/// # Errors
/// There is no terminal, or it does not work.
pub fn run(setup: TuiSetup) -> Result<TuiExit, TerminalError> {
    let mut context = setup.summary_context();
    let signals = Signals::register()?;
    let mut screen = Screen::open()?;
    let mut state = TuiState::new(
        context.watched.clone(),
        context.span.clone(),
        context.zone.clone(),
        Timestamp::now(),
    );
    let mut runner = RepeatRunner::new(setup.loaded.clone());
    let looped = run_loop(&setup, &signals, &mut screen, &mut state, &mut runner);
    drop(screen);
    // After the screen: a cancelled call may take a moment.
    drop(runner);
    let interrupted = looped?;
    context.copied = state.copied();
    context.audit = setup.audit();
    Ok(TuiExit {
        summary: state.into_summary(),
        context,
        interrupted,
    })
}

fn run_loop(
    setup: &TuiSetup,
    signals: &Signals,
    screen: &mut Screen,
    state: &mut TuiState,
    runner: &mut RepeatRunner,
) -> Result<bool, TerminalError> {
    let updates = setup.target.watch()?;
    let mut keyboard = Keyboard::open()?;
    let mut history = HistoryReader::new();
    let mut drawn: Option<Instant> = None;
    let mut paged = Instant::now();
    let mut dirty = true;
    loop {
        for _ in 0..MAX_UPDATES_PER_FRAME {
            match updates.try_recv() {
                Ok(update) => state.apply(update),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) if state.failure.is_none() => {
                    state.apply(WatchUpdate::Failed(
                        "the watching thread has ended; start again".to_owned(),
                    ));
                }
                Err(TryRecvError::Disconnected) => break,
            }
            dirty = true;
        }
        if let Some(answer) = runner.answer() {
            state.show_answer(answer);
            dirty = true;
        }
        if let Some(update) = history.update() {
            state.apply_history(update);
            dirty = true;
        }
        if history.is_idle()
            && let Some(request) = state.history_wanted()
        {
            history.ask(request, &setup.target, runner);
        }
        if let Some(kind) = state.live_page()
            && paged.elapsed() >= PAGE_INTERVAL
        {
            state.show_page(read_page(kind, &setup.target, &setup.activity));
            paged = Instant::now();
            dirty = true;
        }
        dirty |= state.tick(Timestamp::now());
        let since_drawn = drawn.map_or(FRAME_INTERVAL, |drawn| drawn.elapsed());
        if dirty && since_drawn >= FRAME_INTERVAL {
            match screen.draw(state, setup.theme) {
                Err(_) if !is_terminal() => return Ok(true),
                drawn => drawn?,
            }
            drawn = Some(Instant::now());
            dirty = false;
        }
        let wait = if dirty {
            FRAME_INTERVAL.saturating_sub(since_drawn)
        } else {
            FRAME_INTERVAL
        };
        let Ok(keys) = keyboard.wait(wait) else {
            return Ok(true);
        };
        for key in keys {
            dirty = true;
            let action = state.key(key);
            if act(action, setup, signals, screen, state, runner)? {
                return Ok(false);
            }
        }
        dirty |= signals.resized.swap(false, Ordering::SeqCst);
        if signals.end.load(Ordering::SeqCst) != 0 || !is_terminal() {
            return Ok(true);
        }
    }
}

/// Does what a key asked for; returns whether to quit.
fn act(
    action: Option<Action>,
    setup: &TuiSetup,
    signals: &Signals,
    screen: &mut Screen,
    state: &mut TuiState,
    runner: &mut RepeatRunner,
) -> Result<bool, TerminalError> {
    match action {
        None => {}
        Some(Action::Quit) => return Ok(true),
        Some(Action::Copy(handle)) => screen.copy(&handle.to_string())?,
        Some(Action::Stop) => runner.cancel(),
        Some(Action::Show(kind)) => {
            state.show_page(read_page(kind, &setup.target, &setup.activity));
        }
        Some(Action::Run(call)) => {
            let tool = call.tool.name;
            match runner.start(call) {
                Ok(()) => state.show_running(tool),
                Err(reason) => state.notify(format!("{tool} was not run: {reason}")),
            }
        }
        Some(Action::OpenLog) => match setup.audit() {
            None => state.notify(
                "there is no token audit; mcp.observability.csv_token_audit_enabled = true keeps one",
            ),
            Some(file) => {
                let shown = screen.lend(|| pager::show(&file, setup.pager.clone()))?;
                // Ctrl-C was for the pager.
                let interrupt = usize::try_from(SIGINT).unwrap_or_default();
                let end = &signals.end;
                let _ = end.compare_exchange(interrupt, 0, Ordering::SeqCst, Ordering::SeqCst);
                if let Err(reason) = shown {
                    state.notify(crate::text::legible(&reason, 200));
                }
            }
        },
    }
    Ok(false)
}

struct Signals {
    /// The number of the signal that ends the screen; 0 without one.
    end: Arc<AtomicUsize>,
    resized: Arc<AtomicBool>,
}

impl Signals {
    fn register() -> std::io::Result<Signals> {
        let signals = Signals {
            end: Arc::default(),
            resized: Arc::default(),
        };
        for signal in [SIGTERM, SIGINT, SIGHUP] {
            let number = usize::try_from(signal).unwrap_or(1);
            signal_hook::flag::register_usize(signal, signals.end.clone(), number)?;
        }
        signal_hook::flag::register(SIGWINCH, signals.resized.clone())?;
        Ok(signals)
    }
}
