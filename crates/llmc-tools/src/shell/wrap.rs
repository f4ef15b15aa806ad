//! What becomes of a command's output: untouched where it fits, an envelope and a handle where it does not.

use llmc_enrich::output::{self, Captured, Printed};
use llmc_enrich::sniff::Kind as FileKind;
use llmc_envelope::HandleId;
use llmc_envelope::cut::{Limits, cut};
use llmc_envelope::handles::{Draft, HandleStore};
use llmc_envelope::neutral::{Ansi, neutralise};
use llmc_envelope::te::ContentType;
use serde::{Deserialize, Serialize};

use super::spool::Spool;
use crate::answer::Facts;
use crate::te::{self, Frame};

/// Tokens left for the receipt.
const RECEIPT: usize = 100;
/// Lines above this many bytes are clipped where nothing is known about the output.
const LONG_LINE: usize = 400;

/// In which form the caller takes the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Shape {
    /// Untouched within the budget, an envelope above it.
    Fit,
    /// Always an envelope.
    Envelope,
    /// Untouched within the budget, its first lines above it.
    Plain,
    /// Untouched, up to what one answer can hold.
    Raw,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ending {
    /// The exit code, if it ended by itself.
    pub(crate) exit_code: Option<i32>,
    /// The signal, if one ended it.
    pub(crate) signal: Option<i32>,
}

impl Ending {
    /// Nothing to say.
    const OK: Ending = Ending {
        exit_code: Some(0),
        signal: None,
    };

    /// As a shell gives it.
    pub(crate) fn code(self) -> Option<i32> {
        self.exit_code.or(self.signal.map(|signal| 128 + signal))
    }

    /// `exit 2` or `signal 9`; nothing after a success.
    pub(crate) fn line(self) -> String {
        match (self.exit_code, self.signal) {
            (Some(0), _) => String::new(),
            (Some(code), _) => format!("exit {code}"),
            (None, Some(signal)) => format!("signal {signal}"),
            (None, None) => "ended".to_owned(),
        }
    }
}

/// What is to be done with an output.
pub(crate) struct Wish<'a> {
    pub(crate) argv: &'a [String],
    pub(crate) shape: Shape,
    pub(crate) budget: usize,
    pub(crate) principal: &'a str,
    /// What the caller must know besides.
    pub(crate) notes: Vec<String>,
    /// Whether the text says how the command ended; not where the exit code itself is handed on.
    pub(crate) say_ending: bool,
}

/// An output, ready to be answered with.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Wrapped {
    /// Whether this is an envelope.
    pub(crate) enriched: bool,
    /// The envelope, or what the command printed.
    pub(crate) stdout: String,
    /// What the command complained about, unless that is in the envelope.
    pub(crate) stderr: String,
    pub(crate) matches: Option<u64>,
    pub(crate) truncated: bool,
    pub(crate) handle: Option<HandleId>,
    pub(crate) withheld_bytes: u64,
    /// Bytes the command printed.
    pub(crate) raw_bytes: u64,
    /// How many lines are shown, and of how many, where the rest was cut off without an envelope.
    pub(crate) cut: Option<(u64, u64)>,
    /// What the caller must know besides, unless that is in the envelope.
    pub(crate) notes: Vec<String>,
}

/// Wraps an output. `store` opens the handle store when something must be kept; `source` reads a file that a line names.
pub(crate) fn wrap(
    wish: Wish<'_>,
    spool: &mut Spool,
    ending: Ending,
    store: &dyn Fn() -> Result<HandleStore, String>,
    source: impl FnMut(&str) -> Option<String>,
) -> Wrapped {
    let raw_bytes = spool.bytes();
    if let Some(wrapped) = untouched(&wish, spool, ending) {
        return Wrapped {
            raw_bytes,
            ..wrapped
        };
    }
    let mut notes = wish.notes;
    let kept = |spool: &mut Spool, notes: &mut Vec<String>| {
        let kept = keep(spool, wish.argv, wish.principal, store);
        kept.map_err(|why| notes.push(format!("the rest is not kept: {why}")))
            .ok()
    };
    spool.alarms.finish();
    let (mut stdout, mut stderr) = (spool.stdout.parts(), spool.stderr.parts());
    if wish.shape == Shape::Raw {
        return Wrapped {
            handle: kept(spool, &mut notes),
            withheld_bytes: raw_bytes
                .saturating_sub((stdout.head.len() + stderr.head.len()) as u64),
            stdout: stdout.head,
            stderr: stderr.head,
            truncated: true,
            raw_bytes,
            notes,
            ..Wrapped::default()
        };
    }
    if wish.shape == Shape::Plain {
        let text = plain(&stdout.head, &stderr.head, Ending::OK);
        let limits = Limits {
            tokens: wish.budget.saturating_sub(RECEIPT),
            line_bytes: LONG_LINE,
        };
        let shown = cut(&text, limits);
        return Wrapped {
            handle: kept(spool, &mut notes),
            withheld_bytes: raw_bytes.saturating_sub(shown.text.len() as u64),
            cut: Some((
                shown.kept.lines,
                spool.stdout.lines() + spool.stderr.lines(),
            )),
            stdout: shown.text.into_owned(),
            truncated: true,
            raw_bytes,
            notes,
            ..Wrapped::default()
        };
    }
    match output::long_log(wish.argv, &stdout.text(), &stderr.text()) {
        Some(Printed::Stdout) => stdout.survey = spool.stdout.survey(),
        Some(Printed::Stderr) => stderr.survey = spool.stderr.survey(),
        None => {}
    }
    let captured = Captured {
        argv: wish.argv,
        stdout: stdout.text(),
        stderr: stderr.text(),
        alarms: &spool.alarms,
        exit_code: ending.exit_code,
    };
    let told = output::tell(&captured, source, wish.budget);
    let mut found = told.found;
    let line = match wish.say_ending {
        true => ending.line(),
        false => String::new(),
    };
    if !line.is_empty() && !found.body.ends_with(&line) {
        if !found.body.is_empty() && !found.body.ends_with('\n') {
            found.body.push('\n');
        }
        found.body.push_str(&line);
        found.body.push('\n');
    }
    let handle = match found.truncated {
        true => kept(spool, &mut notes),
        false => None,
    };
    found.breadcrumbs.extend(notes);
    let matches = found.totals.matches;
    let frame = Frame {
        cmd: output::known(wish.argv).unwrap_or("run"),
        content_type: told.kind.map(content_type),
        handle,
        withheld_bytes: match found.truncated {
            true => raw_bytes.saturating_sub(found.body.len() as u64),
            false => 0,
        },
        ..Frame::default()
    };
    let (
        text,
        Facts {
            truncated,
            withheld_bytes,
            ..
        },
    ) = te::text(&found, frame);
    Wrapped {
        enriched: true,
        stdout: text,
        stderr: String::new(),
        matches,
        truncated,
        handle,
        withheld_bytes,
        raw_bytes,
        ..Wrapped::default()
    }
}

/// The output as it is, where that is what the caller gets.
fn untouched(wish: &Wish<'_>, spool: &Spool, ending: Ending) -> Option<Wrapped> {
    let (stdout, stderr) = spool.whole()?;
    let fits = match wish.shape {
        Shape::Raw => true,
        Shape::Envelope => false,
        Shape::Fit | Shape::Plain => fits(stdout, stderr, ending, wish.budget),
    };
    fits.then(|| Wrapped {
        stdout: String::from_utf8_lossy(stdout).into_owned(),
        stderr: String::from_utf8_lossy(stderr).into_owned(),
        notes: wish.notes.clone(),
        ..Wrapped::default()
    })
}

fn fits(stdout: &[u8], stderr: &[u8], ending: Ending, budget: usize) -> bool {
    // A token is at least one byte; far above the budget nothing need be counted.
    if stdout.len() + stderr.len() > budget.saturating_mul(64).max(4096) {
        return false;
    }
    let text = plain(
        &String::from_utf8_lossy(stdout),
        &String::from_utf8_lossy(stderr),
        ending,
    );
    llmc_tokens::fits(&text, budget)
}

/// Output, complaints and ending as one text.
pub(crate) fn plain(stdout: &str, stderr: &str, ending: Ending) -> String {
    let mut text = stdout.to_owned();
    for part in [stderr, ending.line().as_str()] {
        if !text.is_empty() && !text.ends_with('\n') && !part.is_empty() {
            text.push('\n');
        }
        text.push_str(part);
    }
    neutralise(&text, Ansi::Strip).into_owned()
}

/// Stores what the command printed, byte for byte.
fn keep(
    spool: &mut Spool,
    argv: &[String],
    principal: &str,
    store: &dyn Fn() -> Result<HandleStore, String>,
) -> Result<HandleId, String> {
    let draft = Draft::new(principal, "command").with("command", argv.join(" "));
    let said = |error: llmc_envelope::handles::Error| error.to_string();
    let mut writer = store()?.writer(draft).map_err(said)?;
    let written = spool.write_to(&mut writer);
    written.map_err(|error| error.to_string())?;
    writer.finish().map_err(said)
}

pub(crate) fn content_type(kind: FileKind) -> ContentType {
    match kind {
        FileKind::Code => ContentType::Code,
        FileKind::Json => ContentType::Json,
        FileKind::Yaml => ContentType::Yaml,
        FileKind::Toml => ContentType::Toml,
        FileKind::Csv => ContentType::Csv,
        FileKind::Log => ContentType::Log,
        FileKind::Markdown => ContentType::Markdown,
        FileKind::Text => ContentType::Text,
        FileKind::Binary => ContentType::Binary,
    }
}
