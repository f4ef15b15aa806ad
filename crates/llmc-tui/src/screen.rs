//! The terminal: set up, drawn on, lent to a pager, and always restored.

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

use crate::state::TuiState;
use crate::theme::Theme;
use crate::view::draw;

#[derive(Debug, thiserror::Error)]
pub enum TerminalError {
    /// Standard output is a pipe or a file, or the terminal is dumb.
    #[error("this is no terminal; `llmc tui --summary` prints the same as text")]
    NoTerminal,
    #[error("the terminal does not work: {0}")]
    Io(#[from] std::io::Error),
}

/// Whether the terminal is set up for the screen.
static ACTIVE: AtomicBool = AtomicBool::new(false);

/// A terminal set up for the screen, restored on drop.
pub(crate) struct Screen {
    terminal: ManuallyDrop<Terminal<CrosstermBackend<Stdout>>>,
}

impl Screen {
    pub(crate) fn open() -> Result<Screen, TerminalError> {
        if !is_terminal() || std::env::var_os("TERM").is_some_and(|term| term == "dumb") {
            return Err(TerminalError::NoTerminal);
        }
        restore_on_panic();
        set_up()?;
        Ok(Screen {
            terminal: new_terminal()?,
        })
    }

    pub(crate) fn draw(&mut self, state: &TuiState, theme: Theme) -> std::io::Result<()> {
        self.terminal
            .draw(|frame| draw(state, theme, frame))
            .map(drop)
    }

    /// Asks the terminal to put this into the clipboard; one that cannot ignores the request.
    pub(crate) fn copy(&mut self, text: &str) -> std::io::Result<()> {
        execute!(stdout(), CopyToClipboard::to_clipboard_from(text))
    }

    /// Restores the terminal while another program uses it.
    pub(crate) fn lend<T>(&mut self, work: impl FnOnce() -> T) -> std::io::Result<T> {
        restore();
        let done = work();
        set_up()?;
        // A new one, so that everything is drawn again.
        self.terminal = new_terminal()?;
        Ok(done)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// It is never dropped: that would complain on standard error when the terminal is gone, which panics when standard error
/// is that terminal. [`restore`] does what its drop would do.
fn new_terminal() -> std::io::Result<ManuallyDrop<Terminal<CrosstermBackend<Stdout>>>> {
    Terminal::new(CrosstermBackend::new(stdout())).map(ManuallyDrop::new)
}

/// Whether there still is a terminal; one that was hung up is none any more.
pub(crate) fn is_terminal() -> bool {
    stdout().is_terminal()
}

fn set_up() -> std::io::Result<()> {
    ACTIVE.store(true, Ordering::SeqCst);
    let set_up = enable_raw_mode().and_then(|()| execute!(stdout(), EnterAlternateScreen, Hide));
    if set_up.is_err() {
        restore();
    }
    set_up
}

fn restore() {
    if !ACTIVE.swap(false, Ordering::SeqCst) {
        return;
    }
    // Each step, whatever fails: a half restored terminal is worse than a lost message.
    let _ = execute!(stdout(), LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
    let _ = stdout().flush();
}

/// A panic on this thread ends the screen, so the terminal is restored before the message is printed. One on another
/// thread is reported by the thread that waits for it; its message would only garble the screen.
fn restore_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let own = std::thread::current().id();
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if std::thread::current().id() == own {
                restore();
            }
            if !ACTIVE.load(Ordering::SeqCst) {
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
    fn a_panic_restores_the_terminal_before_it_is_printed() {
        let name = "screen::tests::a_panic_restores_the_terminal_before_it_is_printed";
        if std::env::var_os(INSIDE).is_some() {
            let _screen = Screen::open().unwrap();
            let other = std::thread::spawn(|| panic!("of another thread"));
            assert!(other.join().is_err());
            panic!("of this thread");
        }
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", name, "--nocapture"])
            .env(INSIDE, "1");
        let (text, code, raw) = llmc_testkit::TestScreen::start(command).ended();
        assert_eq!(code, Some(101));
        assert!(raw.contains("\x1b[?1049h"), "was set up");
        assert!(text.contains("of this thread"), "{text}");
        assert!(
            !raw.contains("of another thread"),
            "would garble the screen: {text}"
        );
    }
}
