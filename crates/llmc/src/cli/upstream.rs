//! The verbs of `llmc upstream`.

use clap::{Args, Subcommand};
use llmc_clients::{Client, SettingsScope};

use super::{clients, scopes};

#[derive(Debug, Subcommand)]
pub(crate) enum UpstreamVerb {
    /// Add a server, start it once and record its tools
    ///
    /// Shows the change of the configuration file and asks. The server is confined like commands, with the environment
    /// of commands and what --env gives.
    #[command(
        after_help = "Examples:\n  llmc upstream add time -- uvx mcp-server-time\n  llmc upstream add github --env GITHUB_TOKEN -- npx -y @modelcontextprotocol/server-github"
    )]
    Add(Box<UpstreamAddArgs>),
    /// Move the servers of a client's settings behind this one
    ///
    /// Adds them to your configuration, starts each once and records its tools, then takes it out of the client's settings.
    /// Shows every change, asks, and keeps backups. A server that does not start stays with the client.
    #[command(
        after_help = "Examples:\n  llmc upstream import claude-code\n  llmc upstream import cursor --scope project --dry-run"
    )]
    Import(UpstreamImportArgs),
    /// Remove a server and the record of its tools
    #[command(after_help = "Examples:\n  llmc upstream remove time")]
    Remove {
        /// Its name
        name: String,
        #[command(flatten)]
        write: UpstreamWrite,
    },
    /// List the servers with the tokens of their lists, direct and through this server
    #[command(after_help = "Examples:\n  llmc upstream list")]
    List,
    /// Start a server and compare its tools with those you accepted
    ///
    /// Exit code 6 if something differs, 9 if the server does not answer.
    #[command(after_help = "Examples:\n  llmc upstream test time")]
    Test {
        /// Its name
        name: String,
    },
    /// Show what changed in a server's tools since you accepted them, and accept it
    #[command(
        after_help = "Examples:\n  llmc upstream accept time\n  llmc upstream accept time --show"
    )]
    Accept {
        /// Its name
        name: String,
        /// Show the changes and accept nothing
        #[arg(long, conflicts_with = "yes")]
        show: bool,
        /// Accept without asking
        #[arg(long, short)]
        yes: bool,
    },
}

#[derive(Debug, Clone, Args)]
pub(crate) struct UpstreamAddArgs {
    /// Scripts call its tools as tools.NAME.tool(…)
    pub(crate) name: String,
    /// The program and its arguments, after --
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
    /// The address of a server that speaks Streamable HTTP
    #[arg(long, conflicts_with_all = ["command", "env", "cwd", "no_confine", "no_network", "extra_write"])]
    pub(crate) url: Option<String>,
    /// A header whose value is in an environment variable; repeatable
    #[arg(long, value_name = "HEADER=VARIABLE", requires = "url")]
    pub(crate) header: Vec<String>,
    /// A file with the token for Authorization: Bearer
    #[arg(long, value_name = "FILE", requires = "url")]
    pub(crate) token_file: Option<String>,
    /// A variable of its environment: NAME=value, or NAME to pass on yours; repeatable
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub(crate) env: Vec<String>,
    /// The folder it starts in; . is the workspace [default: /]
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<String>,
    /// Give it your own rights instead of those of commands
    #[arg(long)]
    pub(crate) no_confine: bool,
    /// Keep it off the network
    #[arg(long)]
    pub(crate) no_network: bool,
    /// A further folder it may write; repeatable
    #[arg(long, value_name = "DIR")]
    pub(crate) extra_write: Vec<String>,
    /// Offer only these of its tools; `*` stands for any characters; repeatable
    #[arg(long, value_name = "TOOL")]
    pub(crate) tools: Vec<String>,
    /// List this tool to MCP clients; repeatable
    #[arg(long, value_name = "TOOL")]
    pub(crate) promote: Vec<String>,
    #[command(flatten)]
    pub(crate) write: UpstreamWrite,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct UpstreamImportArgs {
    /// Which client
    #[arg(value_parser = clients())]
    pub(crate) client: Client,
    /// Whose settings: user or project [default: what serves the open project]
    #[arg(long, value_name = "SCOPE", value_parser = scopes())]
    pub(crate) scope: Option<SettingsScope>,
    /// Leave the servers in the client's settings, too
    #[arg(long)]
    pub(crate) keep: bool,
    #[command(flatten)]
    pub(crate) write: UpstreamWrite,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct UpstreamWrite {
    /// Write the workspace's llmc.toml instead of your own configuration
    #[arg(long)]
    pub(crate) project: bool,
    /// Show the change and write nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Write without asking
    #[arg(long, short)]
    pub(crate) yes: bool,
}
