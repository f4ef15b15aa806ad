//! The command line: verbs, flags and the text of `--help`.

mod common_flags;
mod meanings;
mod rag;
mod token;
mod upstream;

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use llmc_clients::{Client, SettingsScope};
use llmc_server::http::Listen;
use llmc_tui::{ServerAddress, Since};

pub(crate) use common_flags::command;
pub(crate) use meanings::suggest;
pub(crate) use rag::RagVerb;
pub(crate) use token::{AddTokenArgs, TokenVerb};
pub(crate) use upstream::{UpstreamAddArgs, UpstreamImportArgs, UpstreamVerb, UpstreamWrite};

/// A lean MCP server for coding agents: files, search and more at a tenth of the usual context cost.
#[derive(Debug, Parser)]
#[command(
    name = "llmc",
    version,
    after_help = "Examples:\n  llmc install claude-code          add this server to a client; --all: to every client here\n  llmc doctor                       what works on this machine, and what confines commands\n  llmc dashboard                    what agents are doing, in a browser\n  llmc history                      what agents changed; `llmc undo` takes it back\n  llmc tool read_file --path src/main.rs --max-lines 20\n\nExit codes: 0 ok, 2 bad arguments or configuration, 3 not there, 4 refused, 5 time limit,\n6 conflict, 7 too large, 70 internal, 74 write failed, 130 cancelled (all: docs/errors.md)."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// Flags every verb takes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "Common options")]
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
    /// Add this server to an MCP client's settings
    ///
    /// Adds or updates one entry in the client's own file and keeps everything else, comments included. Shows the
    /// difference, asks, and keeps a backup beside the file. The flags --root, --config, --mode, --log-level and --set
    /// become part of the entry. Without CLIENT: lists all clients and whether the entry is installed.
    ///
    /// Where the file also starts Desktop Commander or server-filesystem, removing that entry is offered in the same way.
    #[command(
        after_help = "Examples:\n  llmc install                              all clients, their files, installed or not\n  llmc install --all                        every client found on this machine\n  llmc install claude-code                  for every project, asks before it writes\n  llmc install cursor --scope project --yes\n  llmc install claude-desktop --root ~/work/project --mode te\n  llmc install codex --print                only the entry, to paste"
    )]
    Install(InstallArgs),
    /// Remove this server from an MCP client's settings
    ///
    /// Removes the entry that `llmc install` wrote and keeps everything else. Shows the difference, asks, and keeps a
    /// backup beside the file.
    #[command(
        after_help = "Examples:\n  llmc uninstall zed\n  llmc uninstall --all                      every client that has the entry\n  llmc uninstall cursor --scope user --dry-run"
    )]
    Uninstall(UninstallArgs),
    /// Check the installation and run escape tests against the sandbox
    ///
    /// Reports which confinement this kernel offers and which of it the configuration uses, then runs escape tests: this
    /// executable, confined like any command, attempts each escape. Exit code 4 if one succeeds or required confinement
    /// is missing.
    #[command(
        after_help = "Examples:\n  llmc doctor\n  llmc doctor --set 'mcp.exec.profile=\"restricted\"'\n  llmc doctor --store\n  llmc doctor --json"
    )]
    Doctor {
        /// Check nothing but the database of mcp.store.url
        #[arg(long)]
        store: bool,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Serve MCP over standard input and output
    ///
    /// What Claude Desktop, Claude Code, Codex, Cursor, Continue and Cline start. Logs go to standard error.
    #[command(
        after_help = "Examples:\n  llmc mcp --root ~/work/project\n  llmc mcp --mode te --log-level warn\n  echo '{\"jsonrpc\":\"2.0\",\"method\":\"tools/list\",\"id\":1}' | llmc mcp"
    )]
    Mcp,
    /// Serve HTTP: MCP at /mcp, REST, metrics and a dashboard
    ///
    /// Listens on mcp.server.host and port by default. The token is that of LLMC_MCP_TOKEN; without one, and
    /// only on loopback, it is made and kept in the file `token` of the state directory (`llmc state`).
    #[command(
        after_help = "Examples:\n  llmc serve --port 8080\n  llmc serve --listen unix:/run/user/1000/llmc.sock\n  curl -H \"X-LLMC-Token: $(cat $(llmc state)/token)\" http://127.0.0.1:8080/api/summary"
    )]
    Serve {
        /// Listen on a socket file instead of an address: unix:PATH
        #[arg(long, value_name = "unix:PATH")]
        listen: Option<Listen>,
    },
    /// Show what agents are doing, in a browser
    ///
    /// Prints a link that signs a browser in once, and opens it where there is a display. The page comes from a running
    /// `llmc serve` of this workspace, else from a server for it alone, which is started in the background, listens on
    /// 127.0.0.1 and ends half an hour after the last page is closed.
    #[command(
        after_help = "Examples:\n  llmc dashboard\n  llmc dashboard --no-open --root ~/work/project"
    )]
    Dashboard(DashboardArgs),
    /// Watch calls, tokens and savings live in the terminal
    ///
    /// Reads the record that every server and shell call of this workspace keeps, and changes nothing in it. Quitting
    /// prints a summary: calls, tokens, savings, the slowest calls, errors, and what to do next.
    ///
    /// Keys: q quit, Tab and arrows move, Enter details, / filter, p pause, a agents, s savings, h changes, ? all keys.
    /// NO_COLOR is respected.
    #[command(
        after_help = "Examples:\n  llmc tui                                 this workspace, the last 24 hours\n  llmc tui --since 90m\n  llmc tui --url http://127.0.0.1:8080     a running `llmc serve`, since its start\n  llmc tui --summary > report.txt          no screen, only the summary\n\nWith --url the token is that of LLMC_MCP_TOKEN, else the one in this workspace's state directory (`llmc state`)."
    )]
    Tui(TuiArgs),
    /// List what calls changed in the workspace, or show one change as a diff
    ///
    /// Every call that changes files leaves an entry: the agent, the tool, and the files before and after. Changes from
    /// outside are listed too.
    #[command(
        args_conflicts_with_subcommands = true,
        after_help = "Examples:\n  llmc history\n  llmc history --path src/main.rs\n  llmc history show h12\n  llmc history --json -n 500"
    )]
    History {
        #[command(flatten)]
        list: HistoryArgs,
        #[command(subcommand)]
        verb: Option<HistoryVerb>,
    },
    /// Take back what calls changed
    ///
    /// Without an entry: the newest call that is not undone yet. A file that was changed since is left as it is and
    /// reported; the undo itself becomes an entry and can be undone. Git's own state is never touched. Exit code 6 if
    /// something was left because it changed since.
    #[command(
        after_help = "Examples:\n  llmc undo --dry-run               what the newest entry's undo would do\n  llmc undo h12\n  llmc undo h3..h7 --path src       several entries, below one folder\n  llmc undo --to 30m --atomic       all calls of the last 30 minutes, or none"
    )]
    Undo(UndoArgs),
    /// List the tools with their cost in tokens
    #[command(after_help = "Examples:\n  llmc tools\n  llmc tools --mode te --schemas")]
    Tools {
        /// Also print the schemas as models receive them
        #[arg(long)]
        schemas: bool,
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
    /// Run a command and print a condensed form of its output
    ///
    /// The Tool Envelope on the command line, also installed as `te`; see `llmc te --help`.
    #[command(
        disable_help_flag = true,
        after_help = "Examples:\n  llmc te grep -rn TODO src\n  llmc te --json cargo test\n  llmc te --handle res_01J… --chunk 1\n  llmc te analyze --since 24h\n  llmc te rag where are tokens counted"
    )]
    Te {
        /// TE flags, then the command and its arguments; or analyze
        #[arg(
            trailing_var_arg = true,
            allow_hyphen_values = true,
            value_name = "[FLAGS] COMMAND"
        )]
        words: Vec<String>,
    },
    /// Build, watch and query the code index
    #[command(
        subcommand,
        after_help = "Examples:\n  llmc rag index\n  llmc rag search 'where are sessions closed'\n  llmc rag where-used Pool::take"
    )]
    Rag(RagVerb),
    /// Analyse a file that is too large for a model's context
    #[command(
        subcommand,
        after_help = "Examples:\n  llmc rlm query 'Which requests failed, and why?' --file logs/app.log"
    )]
    Rlm(RlmVerb),
    /// Write a short llmc.toml fitted to this repository (the same as `config init`)
    ///
    /// Sets mode hybrid and shows the settings that people change first in comments. With --full it explains every
    /// setting, and also writes the two sidecar documents with the build and test commands found. Existing files are
    /// kept unless --force is given.
    #[command(after_help = INIT_EXAMPLES)]
    Init(InitArgs),
    /// Show, write or check the configuration
    #[command(
        subcommand,
        after_help = "Examples:\n  llmc config show\n  llmc config check --config other.toml\n  llmc config init --print"
    )]
    Config(ConfigVerb),
    /// Accept the security keys of this workspace's llmc.toml
    ///
    /// The file comes with the repository, so its security keys are ignored until you accept the file here. Shows them with
    /// their values, asks, and records a hash of the file outside the workspace. When the file changes, the question comes
    /// again. In CI and containers LLMC_TRUST=HASH takes the place of the record; HASH is what `sha256sum llmc.toml` prints.
    #[command(
        after_help = "Examples:\n  llmc trust                        show, ask, record\n  llmc trust --show                 the security keys, whether they count, and the hash\n  llmc trust --revoke"
    )]
    Trust(TrustArgs),
    /// Allow commands of this workspace to write, read or reach more
    ///
    /// Shows what will be allowed, asks, and records it outside the workspace, where commands cannot write. It is in force
    /// for commands that start afterwards, also those of servers that run already. Without flags: lists what is allowed.
    /// The same for all workspaces belongs into your own configuration (mcp.exec.extra_write and the keys beside it).
    ///
    /// A git directory is allowed under guard: what could run a program in your own shell is kept out of it.
    #[command(
        after_help = "Examples:\n  llmc allow --write ~/shared/reports\n  llmc allow --write ~/work/main/.git    the repository of a linked working tree\n  llmc allow --read ~/.config/gh --env GH_TOKEN\n  llmc allow                            what is allowed here\n  llmc allow --remove --env GH_TOKEN"
    )]
    Allow(AllowArgs),
    /// Print where this workspace's state is kept.
    #[command(
        after_help = "Examples:\n  llmc state\n  du -sh \"$(llmc state)\"       how much room it takes"
    )]
    State,
    /// Check whether a running server is healthy
    ///
    /// For containers and service managers: exit code 0 and what the server says, or 1 and why not. Needs no token.
    /// Without --url it asks at mcp.server.port of this machine.
    #[command(
        after_help = "Examples:\n  llmc health\n  llmc health --port 8080\n  llmc health --url unix:/run/user/1000/llmc.sock\n  llmc health --url https://127.0.0.1:8443   with the certificate of mcp.server.tls_cert"
    )]
    Health {
        /// Which server: http://127.0.0.1:PORT (loopback only) or unix:PATH
        #[arg(long, value_name = "URL")]
        url: Option<ServerAddress>,
    },
    /// Put other MCP servers behind this one
    ///
    /// Scripts call their tools as tools.NAME.tool(…), and their lists cost a conversation nothing. `add` writes your
    /// configuration, starts the server once and records its tools; a tool that changes later is withheld until you accept
    /// the change.
    #[command(
        subcommand,
        after_help = "Examples:\n  llmc upstream add time -- uvx mcp-server-time\n  llmc upstream list\n  llmc upstream accept time"
    )]
    Upstream(UpstreamVerb),
    /// Work on the database that several servers share
    ///
    /// mcp.store.url names it; without that, everything is kept in the state directory and there is nothing to do.
    #[command(
        subcommand,
        after_help = "Examples:\n  llmc store migrate\n  llmc store audit > audit.csv"
    )]
    Store(StoreVerb),
    /// Tokens that the servers of a team accept
    ///
    /// They are kept in the database of mcp.store.url, as digests, and count on every server that uses it. Tokens of one
    /// machine are settings: mcp.auth.tokens.
    #[command(
        subcommand,
        after_help = "Examples:\n  llmc token add ann --expires 90d\n  llmc token list\n  llmc token revoke ann"
    )]
    Token(TokenVerb),
    /// Work on this repository
    #[command(
        subcommand,
        hide = true,
        after_help = "Examples:\n  llmc repo validate"
    )]
    Repo(RepoVerb),
    /// Print shell completions
    #[command(
        after_help = "Examples:\n  llmc completions bash > ~/.local/share/bash-completion/completions/llmc\n  llmc completions zsh > ~/.zfunc/_llmc\n  llmc completions fish > ~/.config/fish/completions/llmc.fish"
    )]
    Completions {
        /// For which shell
        shell: Shell,
    },
    /// Print the manual page, or write one for each verb
    #[command(after_help = "Examples:\n  llmc man | man -l -\n  llmc man ~/.local/share/man/man1")]
    Man {
        /// Write llmc.1, llmc-mcp.1 and so on into this folder
        folder: Option<PathBuf>,
    },
}

const INIT_EXAMPLES: &str =
    "Examples:\n  llmc init\n  llmc init --full --print | less\n  llmc init --force";

/// What is allowed, or taken back.
#[derive(Debug, Clone, Args)]
pub(crate) struct AllowArgs {
    /// A folder or file that commands may write; a git directory they may use
    #[arg(long, value_name = "PATH")]
    pub(crate) write: Vec<PathBuf>,
    /// A file or folder that commands may read although it is hidden from them
    #[arg(long, value_name = "PATH")]
    pub(crate) read: Vec<PathBuf>,
    /// A host that commands may reach (recorded; networks are not limited to lists yet)
    #[arg(long, value_name = "HOST")]
    pub(crate) host: Vec<String>,
    /// A socket that commands may connect to
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Vec<PathBuf>,
    /// A variable that commands inherit from the server
    #[arg(long, value_name = "NAME")]
    pub(crate) env: Vec<String>,
    /// Take back what the other flags name
    #[arg(long)]
    pub(crate) remove: bool,
    /// Allow without asking
    #[arg(long, short)]
    pub(crate) yes: bool,
}

/// Which configuration file is changed, and how.
#[derive(Debug, Clone, Args)]
pub(crate) struct TrustArgs {
    /// Show the security keys, the hash and whether the file is trusted; change nothing
    #[arg(long, conflicts_with_all = ["revoke", "yes"])]
    pub(crate) show: bool,
    /// Withdraw what was accepted for this file
    #[arg(long, conflicts_with = "yes")]
    pub(crate) revoke: bool,
    /// Accept without asking
    #[arg(long, short)]
    pub(crate) yes: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct InstallArgs {
    /// Which client; without it, all are listed
    #[arg(value_parser = clients())]
    pub(crate) client: Option<Client>,
    /// Every client found on this machine
    #[arg(long, conflicts_with_all = ["client", "print", "file"])]
    pub(crate) all: bool,
    /// Print the entry as a complete file and write nothing
    #[arg(long, conflicts_with = "dry_run")]
    pub(crate) print: bool,
    /// With --yes: also remove the entries of other file servers without asking
    #[arg(long)]
    pub(crate) retire: bool,
    #[command(flatten)]
    pub(crate) edit: EntryEdit,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct UninstallArgs {
    /// Which client
    #[arg(value_parser = clients(), required_unless_present = "all")]
    pub(crate) client: Option<Client>,
    /// Every client that has the entry
    #[arg(long, conflicts_with_all = ["client", "file"])]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) edit: EntryEdit,
}

/// How an entry in a client's settings is changed.
#[derive(Debug, Clone, Args)]
pub(crate) struct EntryEdit {
    /// Show the difference and write nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Write without asking
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Replace or remove an entry of the same name that starts another program
    #[arg(long)]
    pub(crate) force: bool,
    /// Whose settings: user or project [default: what serves the open project]
    #[arg(long, value_name = "SCOPE", value_parser = scopes())]
    pub(crate) scope: Option<SettingsScope>,
    /// The entry's name
    #[arg(long, default_value = "llmc")]
    pub(crate) name: String,
    /// The program that the entry starts [default: this one]
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) command: Option<String>,
    /// The settings file, when it is not in its default place
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
}

fn clients() -> impl TypedValueParser<Value = Client> {
    PossibleValuesParser::new(Client::ALL.map(Client::id)).try_map(|id| id.parse::<Client>())
}

fn scopes() -> impl TypedValueParser<Value = SettingsScope> {
    PossibleValuesParser::new(["user", "project"]).try_map(|word| word.parse::<SettingsScope>())
}

#[derive(Debug, Clone, Args)]
pub(crate) struct HistoryArgs {
    /// Only changes at or below this path
    #[arg(long)]
    pub(crate) path: Option<String>,
    /// Only calls of this session
    #[arg(long)]
    pub(crate) session: Option<String>,
    /// How many entries
    #[arg(short = 'n', long, value_name = "N", default_value_t = 50)]
    pub(crate) limit: u32,
    /// Print the tool's document
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum HistoryVerb {
    /// Show what one entry changed, as a diff
    #[command(
        after_help = "Examples:\n  llmc history show h12\n  llmc history show h12 --path src"
    )]
    Show {
        /// The entry, such as h12
        entry: String,
        /// Only changes at or below this path
        #[arg(long)]
        path: Option<String>,
        /// Print the tool's document
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Clone, Args)]
pub(crate) struct UndoArgs {
    /// An entry (h12) or a range (h3..h7)
    #[arg(conflicts_with_all = ["session", "to"])]
    pub(crate) entry: Option<String>,
    /// All calls of this session
    #[arg(long, conflicts_with = "to")]
    pub(crate) session: Option<String>,
    /// All calls since a time: 2026-01-02T03:04:05Z, or 10m, 2h, 1d ago
    #[arg(long, value_name = "TIME")]
    pub(crate) to: Option<String>,
    /// Only what is at or below this path, also where another writer was active
    #[arg(long)]
    pub(crate) path: Option<String>,
    /// Show what would happen and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// All or nothing: undo nothing if a file was changed since
    #[arg(long)]
    pub(crate) atomic: bool,
    /// Print the tool's document
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct DashboardArgs {
    /// Print the link only
    #[arg(long)]
    pub(crate) no_open: bool,
    /// Serve the page here until it is idle; what the link's server is started with
    #[arg(long, hide = true)]
    pub(crate) serve: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct TuiArgs {
    /// Watch this server instead: http://127.0.0.1:PORT (loopback only) or unix:PATH
    #[arg(long, value_name = "URL", conflicts_with = "since")]
    pub(crate) url: Option<ServerAddress>,
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
    #[command(
        after_help = "Examples:\n  llmc config show\n  llmc config show --set mcp.exec.wait_s=300 | grep wait_s"
    )]
    Show,
    /// Write a short llmc.toml, or with --full one with every setting
    #[command(after_help = INIT_EXAMPLES)]
    Init(InitArgs),
    /// Validate the configuration and print the token cost of each mode
    #[command(
        after_help = "Examples:\n  llmc config check\n  llmc config check --config other.toml"
    )]
    Check,
}

#[derive(Debug, Subcommand)]
pub(crate) enum StoreVerb {
    /// Create the tables in the database
    ///
    /// Servers do it themselves if they may. Connects as mcp.store.admin_url if that is set, and then also creates the role
    /// of mcp.store.url if it does not exist and gives it the rights that servers need. Exit code 75 if the database cannot
    /// be used.
    #[command(
        after_help = "Examples:\n  llmc store migrate\n  LLMC_MCP__STORE__ADMIN_URL=postgres://postgres:PASSWORD@db/llmc llmc store migrate"
    )]
    Migrate,
    /// Print the token audit of all servers as CSV
    ///
    /// Its columns are those of the file that one machine writes, and the server. A call whose status is "started" has not
    /// ended, or its server was killed. Exit code 75 if the database cannot be used.
    #[command(after_help = "Examples:\n  llmc store audit > audit.csv")]
    Audit,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RlmVerb {
    /// Answer a task about a file with a model that searches it by code
    ///
    /// The model is rlm.model; mcp.rlm decides where data may be sent (profile restricted, the default: this machine only).
    /// Progress goes to standard error, the answer to standard output. Ctrl-C stops the analysis and its costs.
    #[command(
        after_help = "Examples:\n  llmc rlm query 'Which requests failed, and why?' --file logs/app.log\n  llmc rlm query 'What does it do?' --file src/big.rs --model ollama/qwen3:8b --json\n  journalctl -b | llmc rlm query 'When did the disk fill up?' --file -\n  llmc rlm query 'Why?' --file a.log --trace run.jsonl\n  llmc rlm query 'Why?' --file a.log --replay run.jsonl"
    )]
    Query(RlmArgs),
}

#[derive(Debug, Args)]
pub(crate) struct RlmArgs {
    /// The question or task
    pub(crate) task: String,
    /// The file it is about; - reads standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// provider/model in place of rlm.model; the egress policy still applies
    #[arg(long)]
    pub(crate) model: Option<String>,
    /// Dollars it may cost [default: 1.0]
    #[arg(long, value_name = "USD", allow_negative_numbers = true)]
    pub(crate) budget_usd: Option<f64>,
    /// Turns it may take, 1 to 10 [default: 5]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) max_turns: Option<i64>,
    /// Largest file it reads [default: mcp.rlm.default_max_bytes]
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true)]
    pub(crate) max_bytes: Option<i64>,
    /// Seconds it may take in all [default: mcp.rlm.default_timeout_s]
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    pub(crate) timeout_s: Option<i64>,
    /// Language of the file, when its name does not show it
    #[arg(long)]
    pub(crate) language: Option<String>,
    /// Record requests, replies and executed code
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Replace every text in the trace by its size and hash
    #[arg(long, requires = "trace")]
    pub(crate) redact: bool,
    /// Answer from a trace, without any provider
    #[arg(long, value_name = "FILE", conflicts_with_all = ["trace", "model"])]
    pub(crate) replay: Option<PathBuf>,
    /// Print the tool's document
    #[arg(long)]
    pub(crate) json: bool,
    /// Print progress line by line even when standard error is no terminal
    #[arg(long)]
    pub(crate) progress: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RepoVerb {
    /// The same as `config check`
    #[command(after_help = "Examples:\n  llmc repo validate")]
    Validate,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct InitArgs {
    /// Print the file instead of writing it
    #[arg(long)]
    pub(crate) print: bool,
    /// Replace an existing file
    #[arg(long)]
    pub(crate) force: bool,
    /// Explain every setting, and write the sidecar documents in DOCS/
    #[arg(long)]
    pub(crate) full: bool,
}
