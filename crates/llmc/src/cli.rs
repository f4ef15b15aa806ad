//! The command line: verbs, flags, and the words of `--help`.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// A lean MCP server for coding agents: files, search and more at a tenth of the usual context cost.
#[derive(Debug, Parser)]
#[command(
    name = "llmc",
    version,
    propagate_version = true,
    after_help = "Examples:\n  llmc mcp                          what an MCP client starts\n  llmc tools                        the tools and what each costs in tokens\n  llmc tool read_file --path src/main.rs --max-lines 20\n  llmc config init                  write a commented llmc.toml\n\nExit codes: 0 ok, 2 bad arguments or configuration, 3 not there, 4 refused, 5 time limit, 6 conflict, 7 too large,\n70 internal, 74 write failed, 130 cancelled (docs/errors.md has all)."
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
    /// Show, write or check the configuration
    #[command(subcommand)]
    Config(ConfigVerb),
    /// Write a commented llmc.toml (the same as `config init`)
    Init(InitArgs),
    /// Work on this repository
    #[command(subcommand)]
    Repo(RepoVerb),
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
