//! The entry that is written into a client's settings.

use std::path::Path;

/// How a client starts the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerEntry {
    name: String,
    pub command: String,
    pub args: Vec<String>,
}

/// A name that not every client accepts.
#[derive(Debug, thiserror::Error)]
#[error(
    "`{0}` is not a valid server name: letters, digits, - and _, at most 64, beginning with a letter or digit"
)]
pub struct InvalidServerName(String);

impl ServerEntry {
    /// An entry under a name that every client accepts.
    ///
    /// # Errors
    /// The name has characters that some client rejects.
    pub fn new(
        name: &str,
        command: String,
        args: Vec<String>,
    ) -> Result<ServerEntry, InvalidServerName> {
        let fine = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let first = name.starts_with(|c: char| c.is_ascii_alphanumeric());
        if !first || name.len() > 64 || !name.chars().all(fine) {
            return Err(InvalidServerName(name.to_owned()));
        }
        Ok(ServerEntry {
            name: name.to_owned(),
            command,
            args,
        })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether an existing entry starts the same server: `llmc` by its file name, or the same command, with the verb `mcp`.
    pub(crate) fn recognises(&self, command: Option<&str>, args: &[&str]) -> bool {
        let named = |command: &str| {
            command == self.command
                || Path::new(command)
                    .file_name()
                    .is_some_and(|name| name == "llmc")
        };
        command.is_some_and(named) && args.contains(&"mcp")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        for good in ["llmc", "llmc-2", "A_b", "0"] {
            assert!(ServerEntry::new(good, String::new(), Vec::new()).is_ok());
        }
        let long = "x".repeat(65);
        for bad in ["", "-x", "a.b", "a b", "a\"b", "ä", "a/b", "../x", &long] {
            assert!(
                ServerEntry::new(bad, String::new(), Vec::new()).is_err(),
                "{bad:?}"
            );
        }
    }

    #[test]
    fn an_entry_is_recognised_by_program_and_purpose() {
        let entry =
            ServerEntry::new("llmc", "/opt/llmc-wrapper".into(), vec!["mcp".into()]).unwrap();
        assert!(entry.recognises(Some("/usr/bin/llmc"), &["mcp", "--root", "/w"]));
        assert!(entry.recognises(Some("llmc"), &["--mode", "te", "mcp"]));
        assert!(entry.recognises(Some("/opt/llmc-wrapper"), &["mcp"]));
        assert!(!entry.recognises(Some("npx"), &["llmc", "mcp"]));
        assert!(!entry.recognises(Some("llmc"), &["serve"]));
        assert!(!entry.recognises(None, &["mcp"]));
    }
}
