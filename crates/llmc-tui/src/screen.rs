//! The terminal: taken, drawn on, lent to a pager, and always given back.

use std::io::{IsTerminal, Stdout, Write, stdout};
use std::mem::ManuallyDrop;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::clipboard::CopyToClipboard;
use crossterm::cursor::{Hide, Show};
use crossterm::execute;
use crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;

use crate::state::State;
use crate::theme::Theme;
use crate::view::draw;

/// The screen cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    /// Standard output is a pipe or a file, or the terminal can do nothing.
    #[error("this is no terminal; `llmc tui --summary` prints the same as text")]
    NoTerminal,
    /// The terminal, or the thread that watches, does not work.
    #[error("the terminal does not work: {0}")]
    Io(#[from] std::io::Error),
}

/// Whether the terminal is in our hands.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// A terminal in our hands; given back when this goes.
pub(crate) struct Screen {
    terminal: ManuallyDrop<Terminal<CrosstermBackend<Stdout>>>,
}

impl Screen {
    pub(crate) fn take() -> Result<Screen, Failed> {
        if !usable() || std::env::var_os("TERM").is_some_and(|term| term == "dumb") {
            return Err(Failed::NoTerminal);
        }
        give_back_on_panic();
        take_over()?;
        let screen = Screen { terminal: blank()? };
        Ok(screen)
    }

    pub(crate) fn draw(&mut self, state: &State, theme: Theme) -> std::io::Result<()> {
        self.terminal
            .draw(|frame| draw(state, theme, frame))
            .map(drop)
    }

    /// Asks the terminal to put this into the clipboard; one that cannot ignores it.
    pub(crate) fn copy(&mut self, text: &str) -> std::io::Result<()> {
        execute!(stdout(), CopyToClipboard::to_clipboard_from(text))
    }

    /// Lends the terminal to something else.
    pub(crate) fn lend<T>(&mut self, to: impl FnOnce() -> T) -> std::io::Result<T> {
        give_back();
        let done = to();
        take_over()?;
        // A new one, which knows nothing of what was drawn before.
        self.terminal = blank()?;
        Ok(done)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

/// A terminal that nothing was drawn on yet. It is never dropped: that would complain on standard error when the terminal
/// is gone, which panics when standard error is that terminal. What it owns is given back here.
fn blank() -> std::io::Result<ManuallyDrop<Terminal<CrosstermBackend<Stdout>>>> {
    Terminal::new(CrosstermBackend::new(stdout())).map(ManuallyDrop::new)
}

/// Whether there still is a terminal: one that was hung up is none any more.
pub(crate) fn usable() -> bool {
    stdout().is_terminal()
}

fn take_over() -> std::io::Result<()> {
    TAKEN.store(true, Ordering::SeqCst);
    let taken = enable_raw_mode().and_then(|()| execute!(stdout(), EnterAlternateScreen, Hide));
    if taken.is_err() {
        give_back();
    }
    taken
}

fn give_back() {
    if !TAKEN.swap(false, Ordering::SeqCst) {
        return;
    }
    // One after the other, whatever fails: a terminal that is half given back is worse than a message lost.
    let _ = execute!(stdout(), LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
    let _ = stdout().flush();
}

/// A panic on this thread ends the screen, so the terminal comes first and the message after it. One on another thread
/// is told by whoever waits for that thread; its message would only tear the screen.
fn give_back_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let ours = std::thread::current().id();
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if std::thread::current().id() == ours {
                give_back();
            }
            if !TAKEN.load(Ordering::SeqCst) {
                before(info);
            }
        }));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Set for the process that panics.
    const INSIDE: &str = "LLMC_TUI_TEST_INSIDE";

    #[test]
    fn a_panic_gives_the_terminal_back_before_it_is_told() {
        let name = "screen::tests::a_panic_gives_the_terminal_back_before_it_is_told";
        if std::env::var_os(INSIDE).is_some() {
            let _screen = Screen::take().unwrap();
            let other = std::thread::spawn(|| panic!("of another thread"));
            assert!(other.join().is_err());
            panic!("of this thread");
        }
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", name, "--nocapture"])
            .env(INSIDE, "1");
        let (text, code, raw) = llmc_testkit::Screen::start(command).ended();
        assert_eq!(code, Some(101));
        assert!(raw.contains("\x1b[?1049h"), "was taken");
        assert!(text.contains("of this thread"), "{text}");
        assert!(
            !raw.contains("of another thread"),
            "would tear the screen: {text}"
        );
    }
}
