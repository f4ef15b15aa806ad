//! Other MCP servers behind this one: what a `[[mcp.upstream]]` means.

use std::fmt::Write;
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::config::TableFault;
use crate::declarations::UpstreamEntry;

/// Names that scripts have for other things in the module of tools.
const TAKEN_NAMES: [&str; 4] = ["aio", "error_code", "help", "search"];

/// One `[[mcp.upstream]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamConfig {
    /// No two upstreams share one; scripts call `tools.NAME.tool(…)`.
    pub name: String,
    pub launch: UpstreamLaunch,
    /// The tools that are offered, by the names the server gives them; `*` stands for any characters.
    pub tools: Vec<String>,
    /// The tools that are listed to MCP clients.
    pub promoted: Vec<String>,
    /// Seconds without a call after which it is stopped.
    pub idle_s: u64,
}

/// How an upstream is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UpstreamLaunch {
    /// A program that speaks MCP over its standard input and output.
    Command(UpstreamCommand),
    /// A server that speaks Streamable HTTP.
    Http(UpstreamHttp),
}

/// A program that is started when one of its tools is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamCommand {
    pub command: String,
    pub args: Vec<String>,
    /// `NAME=value`, or `NAME` for the value that the server itself has.
    pub env: Vec<String>,
    /// As written; `/` when unset.
    pub cwd: Option<String>,
    /// Whether it is confined like commands.
    pub confine: bool,
    /// `None` for what commands have.
    pub network: Option<bool>,
    pub extra_write: Vec<String>,
}

/// A server at an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamHttp {
    pub url: String,
    /// `Header=VARIABLE`.
    pub headers_env: Vec<String>,
    /// A file with a bearer token, as written.
    pub token_file: Option<String>,
}

impl UpstreamConfig {
    pub fn idle(&self) -> Duration {
        Duration::from_secs(self.idle_s)
    }

    /// Sixteen digits that stand for what is started or connected to: the command with its arguments, or the address.
    pub fn identity(&self) -> String {
        let mut digest = Sha256::new();
        let parts: Vec<&str> = match &self.launch {
            UpstreamLaunch::Command(command) => ["command", &command.command]
                .into_iter()
                .chain(command.args.iter().map(String::as_str))
                .collect(),
            UpstreamLaunch::Http(http) => vec!["url", &http.url],
        };
        for part in parts {
            // Lengths keep one argument from passing for several.
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part.as_bytes());
        }
        let digest: [u8; 32] = digest.finalize().into();
        digest[..8].iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }

    /// Whether the operator's list has this tool, by the name the server gives it.
    pub fn offers(&self, tool: &str) -> bool {
        self.tools.iter().any(|pattern| matches(pattern, tool))
    }

    /// Whether the tool is listed to MCP clients.
    pub fn promotes(&self, tool: &str) -> bool {
        self.promoted.iter().any(|pattern| matches(pattern, tool))
    }
}

/// Whether a text fits a pattern in which `*` stands for any characters.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let Some(last) = parts.next_back() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

impl TryFrom<UpstreamEntry> for UpstreamConfig {
    type Error = TableFault;

    fn try_from(entry: UpstreamEntry) -> Result<Self, TableFault> {
        let name = entry
            .name
            .ok_or(TableFault("name", "missing; every upstream needs a name"))?;
        if TAKEN_NAMES.contains(&name.as_str()) {
            return Err(TableFault(
                "name",
                "is a function of the module of tools; choose another",
            ));
        }
        let launch = match (entry.command, entry.url) {
            (Some(_), Some(_)) => {
                return Err(TableFault("url", "give either command or url, not both"));
            }
            (None, None) => {
                return Err(TableFault("command", "missing; give either command or url"));
            }
            (Some(command), None) => {
                for (given, key) in [
                    (!entry.headers_env.is_empty(), "headers_env"),
                    (entry.token_file.is_some(), "token_file"),
                ] {
                    if given {
                        return Err(TableFault(key, "belongs to an upstream with a url"));
                    }
                }
                UpstreamLaunch::Command(UpstreamCommand {
                    command,
                    args: entry.args,
                    env: entry.env,
                    cwd: entry.cwd,
                    confine: entry.confine,
                    network: entry.network,
                    extra_write: entry.extra_write,
                })
            }
            (None, Some(url)) => {
                for (given, key) in [
                    (!entry.args.is_empty(), "args"),
                    (!entry.env.is_empty(), "env"),
                    (entry.cwd.is_some(), "cwd"),
                    (!entry.confine, "confine"),
                    (entry.network.is_some(), "network"),
                    (!entry.extra_write.is_empty(), "extra_write"),
                ] {
                    if given {
                        return Err(TableFault(key, "belongs to an upstream with a command"));
                    }
                }
                UpstreamLaunch::Http(UpstreamHttp {
                    url,
                    headers_env: entry.headers_env,
                    token_file: entry.token_file,
                })
            }
        };
        Ok(Self {
            name,
            launch,
            tools: entry.tools,
            promoted: entry.promoted,
            idle_s: entry.idle_s,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_star_stands_for_any_characters() {
        for (pattern, text, fits) in [
            ("*", "", true),
            ("*", "read_file", true),
            ("read_*", "read_file", true),
            ("read_*", "write_file", false),
            ("*_file", "read_file", true),
            ("*_file", "read_files", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c", false),
            ("ab*ba", "aba", false),
            ("read", "read", true),
            ("read", "reads", false),
        ] {
            assert_eq!(matches(pattern, text), fits, "{pattern} {text}");
        }
    }
}
