//! The loop between keys, news and the screen.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::TryRecvError;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use llmc_config::Loaded;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGWINCH};

use crate::again::Runner;
use crate::feed::{Feed, News};
use crate::keys::Keyboard;
use crate::pager;
use crate::picture::Picture;
use crate::screen::{Failed, Screen, usable};
use crate::state::{Action, State};
use crate::summary::Context;
use crate::theme::Theme;

/// The screen is drawn no more often than this, and news waits no longer.
const FRAME: Duration = Duration::from_millis(100);

/// News taken in before the next look at the keys.
const AT_ONCE: usize = 64;

/// What the screen needs.
#[derive(Debug)]
pub struct Setup {
    /// The configuration of the workspace.
    pub loaded: Loaded,
    /// What is watched.
    pub feed: Feed,
    /// How it looks.
    pub theme: Theme,
    /// The operator's pager.
    pub pager: Option<std::ffi::OsString>,
}

impl Setup {
    fn place(&self) -> String {
        match &self.feed {
            Feed::Store { .. } => self.loaded.root.display().to_string(),
            Feed::Server { address, .. } => address.to_string(),
        }
    }

    /// What the summary tells besides the picture.
    pub fn context(&self) -> Context {
        Context {
            place: self.place(),
            span: self.feed.span(),
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

/// How it ended.
#[derive(Debug)]
pub struct Ended {
    /// What was seen.
    pub picture: Picture,
    /// For the summary.
    pub context: Context,
    /// Whether a signal ended it rather than the person.
    pub interrupted: bool,
}

/// Shows the screen until the person or a signal ends it; the terminal is then as it was.
///
/// # Errors
/// There is no terminal, or it does not work.
pub fn run(setup: Setup) -> Result<Ended, Failed> {
    let mut context = setup.context();
    let signals = Signals::register()?;
    let mut screen = Screen::take()?;
    let mut state = State::new(
        context.place.clone(),
        context.span.clone(),
        context.zone.clone(),
        Timestamp::now(),
    );
    let mut runner = Runner::new(setup.loaded.clone());
    let looped = run_loop(&setup, &signals, &mut screen, &mut state, &mut runner);
    drop(screen);
    // After the screen: a call that was told to stop may take a moment.
    drop(runner);
    let interrupted = looped?;
    context.copied = state.copied();
    context.audit = setup.audit();
    Ok(Ended {
        picture: state.into_picture(),
        context,
        interrupted,
    })
}

fn run_loop(
    setup: &Setup,
    signals: &Signals,
    screen: &mut Screen,
    state: &mut State,
    runner: &mut Runner,
) -> Result<bool, Failed> {
    let news = setup.feed.watch()?;
    let mut keyboard = Keyboard::open()?;
    let mut drawn: Option<Instant> = None;
    let mut dirty = true;
    loop {
        for _ in 0..AT_ONCE {
            match news.try_recv() {
                Ok(told) => state.news(told),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) if state.trouble.is_none() => {
                    state.news(News::Trouble(
                        "nothing is watched any more; start again".to_owned(),
                    ));
                }
                Err(TryRecvError::Disconnected) => break,
            }
            dirty = true;
        }
        if let Some(answered) = runner.answer() {
            state.answered(answered);
            dirty = true;
        }
        dirty |= state.tick(Timestamp::now());
        let rested = drawn.map_or(FRAME, |drawn| drawn.elapsed());
        if dirty && rested >= FRAME {
            match screen.draw(state, setup.theme) {
                Err(_) if !usable() => return Ok(true),
                drawn => drawn?,
            }
            drawn = Some(Instant::now());
            dirty = false;
        }
        let wait = if dirty {
            FRAME.saturating_sub(rested)
        } else {
            FRAME
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
        if signals.end.load(Ordering::SeqCst) != 0 || !usable() {
            return Ok(true);
        }
    }
}

/// Does what a key asked for; whether that is the end.
fn act(
    action: Option<Action>,
    setup: &Setup,
    signals: &Signals,
    screen: &mut Screen,
    state: &mut State,
    runner: &mut Runner,
) -> Result<bool, Failed> {
    match action {
        None => {}
        Some(Action::Quit) => return Ok(true),
        Some(Action::Copy(handle)) => screen.copy(&handle.to_string())?,
        Some(Action::Stop) => runner.cancel(),
        Some(Action::Run(again)) => {
            let tool = again.tool.name;
            match runner.start(again) {
                Ok(()) => state.runs(tool),
                Err(why) => state.say(format!("{tool} was not run: {why}")),
            }
        }
        Some(Action::OpenLog) => match setup.audit() {
            None => state.say(
                "there is no token audit; mcp.observability.csv_token_audit_enabled = true keeps one",
            ),
            Some(file) => {
                let shown = screen.lend(|| pager::show(&file, setup.pager.clone()))?;
                // Ctrl-C was for the pager.
                let interrupt = usize::try_from(SIGINT).unwrap_or_default();
                let end = &signals.end;
                let _ = end.compare_exchange(interrupt, 0, Ordering::SeqCst, Ordering::SeqCst);
                if let Err(why) = shown {
                    state.say(crate::text::legible(&why, 200));
                }
            }
        },
    }
    Ok(false)
}

/// What was signalled.
struct Signals {
    /// The number of the signal that asks for an end.
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
