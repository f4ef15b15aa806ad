//! The command line: verbs, flags, and the words of `--help`.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use llmc_server::http::Listen;
use llmc_tui::{Address, Since};

/// A lean MCP server for coding agents: files, search and more at a tenth of the usual context cost.
#[derive(Debug, Parser)]
#[command(
    name = "llmc",
    version,
    propagate_version = true,
    after_help = "Examples:\n  llmc mcp                          what an MCP client starts\n  llmc serve                        the same over HTTP, with a dashboard\n  llmc tui                          calls, tokens and savings as they happen\n  llmc tools                        the tools and what each costs in tokens\n  llmc tool read_file --path src/main.rs --max-lines 20\n  llmc config init                  write a commented llmc.toml\n\nExit codes: 0 ok, 2 bad arguments or configuration, 3 not there, 4 refused, 5 time limit, 6 conflict, 7 too large,\n70 internal, 74 write failed, 130 cancelled (docs/errors.md has all)."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// Flags every verb takes.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Common {
    /// Configuration file [default: LLMC_CONFIG, then llmc.toml in the workspace]
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) config: Option<PathBuf>,
    /// Workspace [default: nearest folder upwards with .git, else this one]
    #[arg(long, value_name = "DIR", global = true)]
    pub(crate) root: Option<PathBuf>,
    /// Which tools are listed: classic, hybrid, code_execution or te
    #[arg(long, global = true)]
    pub(crate) mode: Option<String>,
    /// Address to listen on
    #[arg(long, global = true)]
    pub(crate) host: Option<String>,
    /// Port to listen on
    #[arg(long, global = true)]
    pub(crate) port: Option<String>,
    /// error, warn, info, debug or trace
    #[arg(long, value_name = "LEVEL", global = true)]
    pub(crate) log_level: Option<String>,
    /// Set any configuration key, in TOML syntax; repeatable
    #[arg(long = "set", value_name = "KEY=VALUE", global = true)]
    pub(crate) sets: Vec<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Serve MCP over standard input and output
    ///
    /// What Claude Desktop, Claude Code, Codex, Cursor, Continue and Cline start. Logs go to standard error.
    Mcp,
    /// Serve HTTP: MCP at /mcp, REST, metrics and a dashboard
    ///
    /// Listens on mcp.server.host and port unless told otherwise. The token is that of LLMC_MCP_TOKEN; without one, and
    /// only on loopback, it is made and kept in .llmc/token.
    #[command(
        after_help = "Examples:\n  llmc serve --port 8080\n  llmc serve --listen unix:/run/user/1000/llmc.sock\n  curl -H \"X-LLMC-Token: $(cat .llmc/token)\" http://127.0.0.1:8080/api/summary"
    )]
    Serve {
        /// Listen on a socket file instead of an address: unix:PATH
        #[arg(long, value_name = "unix:PATH")]
        listen: Option<Listen>,
    },
    /// Call any tool from the shell
    ///
    /// Flags are the tool's own arguments; `llmc tool NAME --help` lists them.
    #[command(
        disable_help_flag = true,
        after_help = "Examples:\n  llmc tool list_dir --path .\n  llmc tool linux_search_content --root . --pattern TODO --json\n  llmc tool stat --args '{\"path\": \"Cargo.toml\"}'"
    )]
    Tool {
        /// NAME, then its arguments as flags or as --args JSON; --json prints the REST body
        #[arg(
            trailing_var_arg = true,
            allow_hyphen_values = true,
            value_name = "NAME [FLAGS]"
        )]
        words: Vec<String>,
    },
    /// Run a command and show what matters of its output
    ///
    /// The Tool Envelope on the command line, also installed as `te`; `llmc te --help` tells the rest.
    #[command(disable_help_flag = true)]
    Te {
        /// TE flags, then the command and its arguments; or analyze
        #[arg(
            trailing_var_arg = true,
            allow_hyphen_values = true,
            value_name = "[FLAGS] COMMAND"
        )]
        words: Vec<String>,
    },
    /// List the tools with their cost in tokens
    Tools {
        /// Also print what a model is sent
        #[arg(long)]
        schemas: bool,
    },
    /// Check the installation and try what really holds commands
    ///
    /// Says what this kernel gives, what the configuration makes of it, and proves it: this executable, run inside the
    /// boundary like any command, tries to get out. Exit code 4 if something escapes or a demand is not met.
    Doctor {
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Build, watch and ask the code index
    #[command(subcommand)]
    Rag(RagVerb),
    /// Watch calls, tokens and savings live in the terminal
    ///
    /// Reads the record that every server and shell call of this workspace keeps, and changes nothing in it. Quitting
    /// prints a summary: calls, tokens, savings, the slowest calls, errors, and what to do next.
    ///
    /// Keys: q quit, Tab and arrows move, Enter details, / filter, p pause, c copy the handle (OSC 52), r run the call
    /// again (asks unless it only looks), l open the token audit in $PAGER, ? help. NO_COLOR is respected.
    #[command(
        after_help = "Examples:\n  llmc tui                                 this workspace, the last 24 hours\n  llmc tui --since 90m\n  llmc tui --url http://127.0.0.1:8080     a running `llmc serve`, since its start\n  llmc tui --summary > report.txt          no screen, only the summary\n\nWith --url the token is that of LLMC_MCP_TOKEN, else .llmc/token of this workspace."
    )]
    Tui(TuiArgs),
    /// Show, write or check the configuration
    #[command(subcommand)]
    Config(ConfigVerb),
    /// Write a commented llmc.toml (the same as `config init`)
    Init(InitArgs),
    /// Work on this repository
    #[command(subcommand)]
    Repo(RepoVerb),
}

#[derive(Debug, Clone, Args)]
pub(crate) struct TuiArgs {
    /// Watch this server instead: http://127.0.0.1:PORT (loopback only) or unix:PATH
    #[arg(long, value_name = "URL", conflicts_with = "since")]
    pub(crate) url: Option<Address>,
    /// Print the summary and end; needs no terminal
    #[arg(long)]
    pub(crate) summary: bool,
    /// How far to look back: 90m, 24h, 7d, or all
    #[arg(long, value_name = "SPAN", default_value = "24h")]
    pub(crate) since: Since,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigVerb {
    /// Print every key with its value and where the value comes from
    Show,
    /// Write a commented llmc.toml and the two sidecar documents
    Init(InitArgs),
    /// Validate the configuration and say what the mode costs
    Check,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RagVerb {
    /// Bring the index up to date with the files
    Index,
    /// Keep the index up to date until interrupted
    Watch,
    /// Find code and documentation by meaning, name or pasted error
    #[command(
        after_help = "Examples:\n  llmc rag search 'where are sessions closed'\n  llmc rag search parse_header -k 1 --json\n  cargo test 2>&1 | tail -20 | llmc rag search -"
    )]
    Search {
        /// The question; - reads it from standard input
        #[arg(required = true)]
        query: Vec<String>,
        /// How many snippets
        #[arg(short, value_name = "N", allow_negative_numbers = true)]
        k: Option<i64>,
        /// repo, docs or both
        #[arg(long)]
        scope: Option<String>,
        /// Tokens of all snippets together
        #[arg(long, value_name = "N", allow_negative_numbers = true)]
        budget_tokens: Option<i64>,
        /// Print the tool's document
        #[arg(long)]
        json: bool,
    },
    /// List the uses of a symbol
    WhereUsed {
        /// A name: take, Pool::take or src/pool.rs#Pool::take
        symbol: String,
        /// Steps from user to user
        #[arg(long, value_name = "N")]
        depth: Option<i64>,
        /// Print the tool's document
        #[arg(long)]
        json: bool,
    },
    /// List what calls a symbol, or what it calls
    Lineage {
        /// A name: take, Pool::take or src/pool.rs#Pool::take
        symbol: String,
        /// callers or callees
        #[arg(long)]
        direction: Option<String>,
        /// Steps from symbol to symbol
        #[arg(long, value_name = "N")]
        depth: Option<i64>,
        /// Print the tool's document
        #[arg(long)]
        json: bool,
    },
    /// Show all about a symbol or a file
    Inspect {
        /// A name, or a path
        what: String,
        /// Print the tool's document
        #[arg(long)]
        json: bool,
    },
    /// Say what to read for a question, and in which order
    Plan {
        /// The question; - reads it from standard input
        #[arg(required = true)]
        query: Vec<String>,
        /// Print the tool's document
        #[arg(long)]
        json: bool,
    },
    /// Show what the index holds
    Stats {
        /// Print the tool's document
        #[arg(long)]
        json: bool,
    },
    /// Check every byte of the index
    Doctor,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RepoVerb {
    /// The same as `config check`
    Validate,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct InitArgs {
    /// Print the file instead of writing it
    #[arg(long)]
    pub(crate) print: bool,
    /// Replace a file that is there
    #[arg(long)]
    pub(crate) force: bool,
}
