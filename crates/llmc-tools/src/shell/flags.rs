//! The flags of `te`, which end where the command begins.

use crate::error::{Error, Result};

/// What `te` was asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Flags {
    /// Print the answer as JSON.
    pub json: bool,
    /// Leave the output as it is.
    pub raw: bool,
    /// Print a stored result.
    pub handle: Option<String>,
    /// One chunk of it.
    pub chunk: Option<i64>,
    /// Print what is stored.
    pub list_handles: bool,
    /// Print what was served and saved.
    pub stats: bool,
    /// Run the command on a copy-on-write view and print what it would change.
    pub preview: bool,
    /// Run the command on a base and as it is, and print what differs.
    pub compare: bool,
    /// What to compare with.
    pub base: Option<String>,
    /// Print how to use it.
    pub help: bool,
    /// Print the version.
    pub version: bool,
    /// The command and its arguments.
    pub command: Vec<String>,
}

impl Flags {
    /// Reads the words after `te`.
    ///
    /// # Errors
    /// An unknown flag, a value that is missing or no number, or flags that exclude each other.
    pub fn parse(words: &[String]) -> Result<Flags> {
        let mut flags = Flags::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let (name, glued) = match word.split_once('=') {
                Some((name, value)) if name.starts_with("--") => (name, Some(value.to_owned())),
                _ => (word.as_str(), None),
            };
            let mut value = || {
                let value = glued.clone().or_else(|| words.next().cloned());
                value.ok_or_else(|| Error::bad_args(format!("{name} needs a value")))
            };
            match name {
                "--json" => flags.json = true,
                "--raw" => flags.raw = true,
                "--list-handles" => flags.list_handles = true,
                "--stats" => flags.stats = true,
                "--help" | "-h" => flags.help = true,
                "--version" | "-V" => flags.version = true,
                "--preview" => flags.preview = true,
                "--compare" => flags.compare = true,
                "--base" => flags.base = Some(value()?),
                "--handle" => flags.handle = Some(value()?),
                "--chunk" => {
                    let text = value()?;
                    let number = text.parse();
                    flags.chunk = Some(number.map_err(|_| {
                        Error::bad_args(format!("--chunk: {text:?} is not a whole number"))
                    })?);
                }
                "--" => {
                    flags.command = words.cloned().collect();
                    break;
                }
                _ if word.starts_with('-') && word.len() > 1 => {
                    return Err(Error::bad_args(format!("unknown flag {name}")).hint(
                        "te's own flags are --json, --raw, --preview, --compare, --base, --handle, --chunk, --list-handles and --stats; the command's follow it",
                    ));
                }
                _ => {
                    flags.command.push(word.clone());
                    flags.command.extend(words.by_ref().cloned());
                }
            }
        }
        flags.checked()
    }

    fn checked(self) -> Result<Flags> {
        if self.help || self.version {
            return Ok(self);
        }
        let asked = [
            self.handle.is_some(),
            self.list_handles,
            self.stats,
            !self.command.is_empty(),
        ];
        let asked = asked.iter().filter(|asked| **asked).count();
        if asked > 1 {
            return Err(Error::bad_args(
                "give one of a command, --handle, --list-handles and --stats",
            ));
        }
        if asked == 0 {
            return Err(Error::bad_args("give a command").hint("te grep -rn TODO src; te --help"));
        }
        if self.base.is_some() && !self.compare {
            return Err(Error::bad_args("--base needs --compare"));
        }
        let views = u8::from(self.preview) + u8::from(self.compare);
        if views + u8::from(self.raw) > 1 {
            return Err(Error::bad_args(
                "give one of --preview, --compare and --raw",
            ));
        }
        if views > 0 && self.command.is_empty() {
            return Err(Error::bad_args("--preview and --compare need a command"));
        }
        if self.chunk.is_some() && self.handle.is_none() {
            return Err(Error::bad_args("--chunk needs --handle"));
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Flags> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Flags::parse(&words)
    }

    #[test]
    fn flags_end_at_the_command() {
        let flags = parse("--json grep -i --raw x").unwrap();
        assert!(flags.json && !flags.raw);
        assert_eq!(flags.command, ["grep", "-i", "--raw", "x"]);
        assert_eq!(parse("-- --odd").unwrap().command, ["--odd"]);
        let flags = parse("--handle=res_1 --chunk -1").unwrap();
        assert_eq!(
            (flags.handle.as_deref(), flags.chunk),
            (Some("res_1"), Some(-1))
        );
        let flags = parse("--compare --base HEAD~1 make -k --base x").unwrap();
        assert!(flags.compare && !flags.preview);
        assert_eq!(flags.base.as_deref(), Some("HEAD~1"));
        assert_eq!(flags.command, ["make", "-k", "--base", "x"]);
        for bad in [
            "",
            "--jsno grep",
            "--handle",
            "--handle x grep",
            "--chunk 1 ls",
            "--chunk x --handle y",
            "--stats --list-handles",
            "--preview",
            "--preview --compare ls",
            "--preview --raw ls",
            "--base HEAD ls",
            "--compare --stats",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
