//! Every setting there is, declared once, in reading order: what people change first comes first.
//!
//! `spec.rs` explains the form. The reference page, the template, the parser, the environment names and the structs of
//! [`Config`](crate::Config) all come from here. `security` marks the keys that a workspace's own file sets only with the
//! user's trust.

use std::collections::BTreeMap;

use crate::choices::{
    AuthMode, CachePolicy, ConfigVersion, ConfinementMode, DefaultScope, EmbeddingProvider,
    ExecProfile, LogFormat, LogLevel, Mode, OnTimeout, RlmProfile, ScriptBackend,
};
use crate::config::{NamedToken, UpstreamConfig};
use crate::spec::{
    choice, count, flag, int, list, map, number, positive, seconds, settings, tables, text, unset,
};
use crate::value::TextShape::{
    Any, DatabaseUrl, EnvName, Glob, HeaderName, HeaderVariable, Host, ModelName, NotEmpty, Path,
    Route, SearchPath, Sha256, TenantName, UpstreamName, Url, Variable,
};

/// Names of files that hold secrets, matched on the last part of the path.
const SECRET_FILES: &[&str] = &[
    "**/.env",
    "**/*.pem",
    "**/id_rsa*",
    "**/*credential*",
    "**/*token*",
];
const LOOPBACK_NAMES: &[&str] = &["localhost", "127.0.0.1", "::1"];
const LOCAL_OLLAMA: &str = "http://127.0.0.1:11434";

settings! {
    /// The server as a whole.
    #[table("mcp")]
    pub struct McpConfig {
        /// Whether `llmc mcp` and `llmc serve` start at all.
        enabled: bool = flag(true),
        /// Version of this file's layout.
        config_version: ConfigVersion = choice(ConfigVersion::V0),
        /// Which tools are listed to MCP clients.
        mode: Mode = choice(Mode::Hybrid).short_env("LLMC_MCP_MODE").rule(
            "`hybrid` without a configuration file, `classic` with one, `code_execution` when `mcp.code_execution.enabled`",
        ),
        /// Sends results a second time as `structuredContent`.
        structured_content: bool = flag(false),
        /// Other MCP servers whose tools scripts can call.
        upstream: Vec<UpstreamConfig> = tables().security(),
        tools: ToolsConfig,
        linux_ops: LinuxOpsConfig,
        exec: ExecConfig,
        locks: LocksConfig,
        observability: ObservabilityConfig,
        hybrid: HybridConfig,
        code_execution: CodeExecutionConfig,
        te: TeConfig,
        handles: HandlesConfig,
        history: HistoryConfig,
        rag: RagConfig,
        rlm: RlmPolicyConfig,
        server: ServerConfig,
        auth: AuthConfig,
        limits: RequestLimitsConfig,
        session: SessionConfig,
        resources: ResourcesConfig,
        store: StoreConfig,
        docker: DockerConfig,
    }

    /// What the tools may touch and run, and for how long.
    #[table("mcp.tools")]
    pub struct ToolsConfig {
        /// Folders the tools may reach, relative to the workspace root; an empty list denies everything.
        allowed_roots: Vec<String> = list(Path, &["."]).short_env("LLMC_MCP_ALLOWED_ROOTS").security(),
        /// Refuses every tool that writes or runs.
        read_only: bool = flag(false).security(),
        /// Lists and allows the tools that start programs.
        enable_run_cmd: bool = flag(true).security(),
        /// Programs that may be started, `*` for any; not a security boundary (kernel confinement is one).
        run_cmd_allowlist: Vec<String> = list(NotEmpty, &["*"]).rule(
            "`rg grep ls cat head tail wc stat file diff find sed git` in exec profile `restricted`, else `[\"*\"]`",
        ).security(),
        /// Lets started programs use the network; `false` is enforced by the kernel or refuses to start.
        allow_outbound_network: bool = flag(true).security(),
        /// Seconds one file call or request body may take.
        read_timeout: u64 = seconds(10),
        /// Seconds after which an idle connection is closed.
        idle_timeout: u64 = seconds(60),
        /// Seconds after which a silent background process is ended; 0 means never.
        proc_idle_timeout: u64 = int(0..=2_592_000, 3600),
        /// Lets `linux_proc_kill` end any process of the same user.
        kill_any: bool = flag(false).security(),
        /// File names taken for secrets, matched on the last part of a path in any case.
        denylist_globs: Vec<String> = list(Glob, SECRET_FILES).security(),
        /// Refuses to read such files; `rlm_query` always refuses.
        denylist_reads: bool = flag(false).rule("`true` in exec profile `restricted`, else `false`")
            .security(),
    }

    /// Settings of the `linux_*` tools alone.
    #[table("mcp.linux_ops")]
    pub struct LinuxOpsConfig {
        roots: LinuxRootsConfig,
    }

    /// Other roots for the `linux_*` tools alone.
    #[table("mcp.linux_ops.roots")]
    pub struct LinuxRootsConfig {
        /// Roots for `linux_*` tools in place of `mcp.tools.allowed_roots`.
        allowed_roots: Option<Vec<String>> = unset(list(Path, &["."])).security(),
        /// Holds `linux_*` tools to their roots; `false` only with roots `["/"]`.
        enforce_roots: bool = flag(true).security(),
    }

    /// How the programs that tools start are confined.
    #[table("mcp.exec")]
    pub struct ExecConfig {
        /// `restricted` refuses interpreters and launchers, checks arguments, has no network and needs full confinement.
        profile: ExecProfile = choice(ExecProfile::Unrestricted)
            .security(),
        /// Kernel confinement of started programs: `auto` uses what the kernel offers, `full` requires all of it, `off` uses none.
        confinement: ConfinementMode = choice(ConfinementMode::Auto)
            .security(),
        /// The operator's own rules on programs and their arguments (`docs/policy.md`), kept outside the roots.
        policy_file: Option<String> = unset(text(Path, "~/.config/llmc/policy.toml")).security(),
        /// Where programs are looked up: `auto` (the project's, yours, the usual tool folders) or folders joined by `:`.
        path: String = text(SearchPath, "auto").security(),
        /// Seconds a call waits for a command, unless it says otherwise.
        wait_s: u64 = seconds(50).formerly("mcp.tools.exec_timeout").security(),
        /// The longest wait a call may ask for, in seconds.
        max_wait_s: u64 = seconds(600).rule("`600`, or `wait_s` if that is more").security(),
        /// What happens to a command that is still running after the wait.
        on_timeout: OnTimeout = choice(OnTimeout::Background)
            .rule("`kill` in exec profile `restricted`, else `background`")
            .security(),
        /// Folders and files beside the roots that commands may write.
        extra_write: Vec<String> = list(Path, &[]).security(),
        /// Files and folders that commands may read although they are hidden or lie in the host's `/tmp` or `/run`.
        extra_read: Vec<String> = list(Path, &[]).security(),
        /// Sockets of the host that commands may connect to.
        sockets: Vec<String> = list(Path, &[]).security(),
        /// Files and folders of the home directory that commands cannot see.
        hidden: Option<Vec<String>> = unset(list(Path, &["~/.ssh", "~/.aws"]))
            .rule("the places where credentials are usually stored").security(),
        /// Writes to tool caches such as `~/.cargo`: into a private layer, into the caches themselves, or refused.
        caches: CachePolicy = choice(CachePolicy::Private).security(),
        /// How large the private layer of one principal may grow, in bytes, before the next start recreates it.
        cache_max_bytes: u64 = positive(10_737_418_240).security(),
        /// Environment variables that commands inherit although they look like secrets. `LLMC_*` is never passed on.
        env: Vec<String> = list(EnvName, &[]).security(),
        /// Bytes of memory that all processes of a command may use together.
        max_memory: Option<u64> = unset(positive(8_589_934_592))
            .rule("three quarters of the machine's memory").security(),
        /// Processes and threads that a command may have.
        max_processes: u64 = positive(2_048).security(),
        /// Bytes that commands may keep in `/tmp`, and in `/dev/shm`.
        max_tmp: Option<u64> = unset(positive(1_073_741_824))
            .rule("a quarter of the machine's memory").security(),
        /// Whether commands have a network.
        network: bool = flag(true)
            .rule("`false` in exec profile `restricted`, else as `mcp.tools.allow_outbound_network`")
            .security(),
    }

    /// Locks that keep agents from writing over each other.
    #[table("mcp.locks")]
    pub struct LocksConfig {
        /// Seconds after which an abandoned lock is free again.
        lease_s: u64 = int(1..=3_600, 30),
    }

    /// Logs, metrics and the token audit.
    #[table("mcp.observability")]
    pub struct ObservabilityConfig {
        /// Switches everything in this table except the logs.
        enabled: bool = flag(true),
        /// The least severe line written to stderr.
        log_level: LogLevel = choice(LogLevel::Info).short_env("LLMC_MCP_LOG_LEVEL"),
        /// How log lines are written; `auto` is text on a terminal and JSON elsewhere.
        log_format: LogFormat = choice(LogFormat::Auto),
        /// Puts the correlation id into log lines.
        include_correlation_id: bool = flag(true),
        /// Counts calls in memory, for `get_metrics` and the dashboard.
        metrics_enabled: bool = flag(true),
        /// Serves the metrics to Prometheus.
        metrics_prometheus_enabled: bool = flag(true),
        /// The route it reads them from.
        metrics_path: String = text(Route, "/metrics"),
        /// Appends one CSV row a call; with a shared store, writes one row of it before each answer.
        csv_token_audit_enabled: bool = flag(false).security(),
        /// The file for these rows, relative to the workspace root.
        csv_path: String = text(Path, "./artifacts/token_audit.csv").security(),
        /// Days telemetry is kept; 0 keeps it forever.
        retention_days: u64 = count(0),
        /// Keeps the start of each call's arguments and answer in telemetry, for the dashboard; secrets are masked.
        keep_contents: bool = flag(true).rule("`false` in exec profile `restricted`, else `true`")
            .security(),
    }

    /// What mode `hybrid` lists.
    #[table("mcp.hybrid")]
    pub struct HybridConfig {
        /// Tools listed beside `read_file`, `list_dir` and `init`.
        promoted_tools: Vec<String> = list(
            NotEmpty,
            &["linux_fs_write", "linux_fs_edit", "run_cmd"],
        ),
        /// Lists `execute_code` too.
        include_execute_code: bool = flag(true),
        /// Start warns when the listed schemas have more characters than this.
        bootstrap_budget_warning: u64 = count(15_000),
    }

    /// The interpreter behind `execute_code`.
    #[table("mcp.code_execution")]
    pub struct CodeExecutionConfig {
        /// Selects mode `code_execution` when `mcp.mode` is not set.
        enabled: bool = flag(false),
        /// Scripts run in the project's or the machine's Python, confined by the kernel; both values mean that.
        sandbox: ScriptBackend = choice(ScriptBackend::Auto).security(),
        /// Seconds one script may run, without the time of its tool calls.
        timeout: u64 = seconds(120),
        /// Mebibytes one script may use.
        max_memory_mb: u64 = positive(256),
        /// Tool calls one script may make.
        max_tool_calls: u64 = count(1000),
        /// Bytes of output kept from one script.
        max_output_bytes: u64 = positive(1_048_576),
        /// Tools that a script may call only with the user's approval, asked through the MCP client.
        ask: Vec<String> = list(NotEmpty, &[]).security(),
    }

    /// The Tool Envelope: budgets for answers, and the `te` program.
    #[table("mcp.te")]
    pub struct TeConfig {
        /// Runs commands through the Tool Envelope.
        enabled: bool = flag(true),
        /// The `te` program, relative to the workspace root; empty means this executable.
        script_path: String = text(Any, "").security(),
        /// Asks the `te` program for JSON.
        json_mode: bool = flag(true),
        /// Seconds the `te` program may run.
        timeout: u64 = seconds(30),
        /// Runs the command directly when `te` itself fails.
        passthrough_on_failure: bool = flag(true),
        /// Tokens one answer may have.
        budget_tokens: u64 = positive(2000),
        /// Tokens a session may be served before answers shrink to their receipts; 0 means no limit.
        session_budget_tokens: u64 = count(0),
        /// Lists only the seven core commands in mode `te`.
        core_only: bool = flag(false),
        /// Budgets by agent id.
        agents: BTreeMap<String, AgentBudget> = map(),
    }

    /// Budgets for one agent, by its id.
    #[table("mcp.te.agents.*")]
    pub struct AgentBudget {
        /// As `mcp.te.budget_tokens`, for this agent.
        budget_tokens: Option<u64> = unset(positive(4000)),
        /// As `mcp.te.session_budget_tokens`, for this agent.
        session_budget_tokens: Option<u64> = unset(count(200_000)),
    }

    /// Where the part of an answer that did not fit is kept.
    #[table("mcp.handles")]
    pub struct HandlesConfig {
        /// Hours a handle is kept.
        ttl_hours: u64 = int(1..=87_600, 24),
        /// Bytes kept for all handles; the oldest go first.
        max_bytes: u64 = positive(268_435_456),
    }

    /// What calls changed in the workspace, kept so that it can be seen and undone.
    #[table("mcp.history")]
    pub struct HistoryConfig {
        /// Records changes and keeps what files held before them.
        enabled: bool = flag(true).security(),
        /// Bytes kept for all contents; the oldest entries go first.
        max_bytes: u64 = positive(1_073_741_824).security(),
        /// Days an entry is kept.
        keep_days: u64 = int(1..=36_500, 30).security(),
        /// The largest file whose content is kept, in bytes.
        max_file_bytes: u64 = positive(67_108_864).security(),
    }

    /// Code retrieval.
    #[table("mcp.rag")]
    pub struct RagConfig {
        /// Adds snippets to `/invoke_agent` answers.
        jit_context_enabled: bool = flag(true),
        /// Where a search looks unless the call sets it.
        default_scope: DefaultScope = choice(DefaultScope::Repo),
        /// The most snippets a search may ask for.
        top_k: u64 = int(1..=1_000, 3),
        /// The most tokens of snippets a search may ask for.
        token_budget: u64 = positive(600),
        embedding: EmbeddingConfig,
    }

    /// Vectors beside lexical retrieval.
    #[table("mcp.rag.embedding")]
    pub struct EmbeddingConfig {
        /// Where vectors come from; `builtin` and `none` keep retrieval local.
        provider: EmbeddingProvider = choice(EmbeddingProvider::Builtin).security(),
        /// The embedding model, as its provider names it.
        model: Option<String> = unset(text(NotEmpty, "nomic-embed-text")).security(),
        /// The embedding provider's address, when it is not the usual one.
        base_url: Option<String> = unset(text(Url, LOCAL_OLLAMA)).security(),
    }

    /// What recursive analysis may read and reach.
    #[table("mcp.rlm")]
    pub struct RlmPolicyConfig {
        /// Offers `rlm_query`.
        enabled: bool = flag(true).security(),
        /// `restricted` keeps to loopback and `allowed_hosts`; `unrestricted` reaches any host.
        profile: RlmProfile = choice(RlmProfile::Restricted).security(),
        /// Offers `rlm_query` over HTTP as well as stdio.
        allow_http: bool = flag(false).security(),
        /// Lets a query name a file.
        allow_path: bool = flag(true).security(),
        /// Lets that be an absolute path, within the roots.
        allow_absolute_paths: bool = flag(false).security(),
        /// Files it never reads, beside those of `mcp.tools.denylist_globs`.
        denylist_globs: Vec<String> = list(Glob, SECRET_FILES).security(),
        /// Bytes read from a file unless the query sets it.
        default_max_bytes: u64 = positive(262_144).security(),
        /// Seconds a query may take unless the query sets it.
        default_timeout_s: u64 = seconds(300).security(),
        /// Lets a query name another model.
        allow_model_override: bool = flag(false).security(),
        /// Models that may be used, by the start of `provider/model`; an empty list allows none.
        allowed_model_prefixes: Option<Vec<String>> = unset(list(NotEmpty, &["ollama/"]))
            .rule("`[\"ollama/\"]` in profile `restricted`, any model in `unrestricted`").security(),
        /// Hosts that profile `restricted` may reach beside loopback.
        allowed_hosts: Vec<String> = list(NotEmpty, &[]).security(),
        /// Returns a partial answer when time or money runs out.
        allow_partial: bool = flag(false),
    }

    /// The models of recursive analysis and what they may cost.
    #[table("rlm")]
    pub struct RlmConfig {
        /// The model that leads an analysis.
        model: Option<String> = unset(text(ModelName, "ollama/qwen3:8b")).security(),
        /// The model it asks about parts.
        sub_model: Option<String> = unset(text(ModelName, "ollama/qwen3:8b")).rule("`rlm.model`")
            .security(),
        /// The address of `rlm.model`'s provider, when it is not the usual one.
        base_url: Option<String> = unset(text(Url, LOCAL_OLLAMA)).security(),
        /// How deep analyses may start analyses.
        max_depth: u32 = int(0..=8, 1).security(),
        /// Texts of up to this many tokens are answered in one call.
        direct_tokens: u64 = int(0..=1_000_000, 16_000),
        /// Characters of a longer text that the first prompt shows, two thirds from its start and a third from its end.
        preview_chars: u32 = int(0..=10_000, 900),
        /// Dollars per million tokens sent to `rlm.model`, or to a model without a known price.
        price_per_mtok_in: Option<f64> = unset(number(3.0)).security(),
        /// Dollars per million tokens received from it.
        price_per_mtok_out: Option<f64> = unset(number(15.0)).security(),
        /// Tokens one query may spend, sub-calls included.
        token_budget: u64 = positive(1_000_000).security(),
        /// The most dollars one query may ask for.
        max_budget_usd: f64 = number(100.0).security(),
    }

    /// The HTTP listener.
    #[table("mcp.server")]
    pub struct ServerConfig {
        /// The address to listen on.
        host: String = text(Host, "127.0.0.1").security(),
        /// The port; 0 takes a free one.
        port: u16 = int(0..=65_535, 8080).security(),
        /// Serves HTTPS; needs `tls_cert` and `tls_key`.
        tls_enabled: bool = flag(false).security(),
        /// Certificate chain in PEM.
        tls_cert: Option<String> = unset(text(Path, "~/.config/llmc/cert.pem")).security(),
        /// Its private key in PEM.
        tls_key: Option<String> = unset(text(Path, "~/.config/llmc/key.pem")).secret().security(),
        /// Trusts the forwarding headers of a reverse proxy, for the client address in logs.
        trust_proxy: bool = flag(false).security(),
        /// Names a request may ask for in its Host header.
        allowed_hosts: Vec<String> = list(NotEmpty, LOOPBACK_NAMES).security(),
        /// Origins a browser may call from: a host name for any scheme and port, or a full origin.
        allowed_origins: Vec<String> = list(NotEmpty, LOOPBACK_NAMES).security(),
    }

    /// Who may call over HTTP.
    #[table("mcp.auth")]
    pub struct AuthConfig {
        /// `none` needs a loopback `host` or `allow_unauthenticated`.
        mode: AuthMode = choice(AuthMode::Token).security(),
        /// The header with the token, beside `Authorization: Bearer`.
        header: String = text(HeaderName, "X-LLMC-Token").security(),
        /// The environment variable with the main token.
        token_env: String = text(EnvName, "LLMC_MCP_TOKEN").security(),
        /// Permits `mode = "none"` on any address.
        allow_unauthenticated: bool = flag(false).security(),
        /// Named tokens beside the main one.
        tokens: Vec<NamedToken> = tables().security(),
    }

    /// Further tokens, each with its own name and rights.
    #[table("mcp.auth.tokens[]")]
    pub(crate) struct TokenEntry {
        /// The name it has in logs; required, each one once.
        name: Option<String> = unset(text(NotEmpty, "ci")),
        /// The environment variable with the token; either this or `sha256`.
        token_env: Option<String> = unset(text(EnvName, "LLMC_TOKEN_CI")),
        /// The SHA-256 digest of the token.
        sha256: Option<String> = unset(text(
            Sha256,
            "0000000000000000000000000000000000000000000000000000000000000000",
        ))
        .secret(),
        /// Refuses this token every tool that writes or runs.
        read_only: bool = flag(false),
        /// The only tools it may call; unset means all.
        tools: Option<Vec<String>> = unset(list(NotEmpty, &["read_file", "rag_search"])),
        /// As `mcp.limits.rate_limit_rps`, for this token.
        rate_limit_rps: Option<u64> = unset(positive(5)),
    }

    /// Another MCP server behind this one; a program to start, or an address.
    #[table("mcp.upstream[]")]
    pub(crate) struct UpstreamEntry {
        /// Scripts call its tools as `tools.NAME.tool(…)`; required, each one once.
        name: Option<String> = unset(text(UpstreamName, "github")),
        /// The program that speaks MCP over its standard input and output; either this or `url`.
        command: Option<String> = unset(text(NotEmpty, "npx")),
        /// Its arguments.
        args: Vec<String> = list(Any, &[]),
        /// Its environment beside that of commands: `NAME=value`, or `NAME` to pass on the server's own.
        env: Vec<String> = list(Variable, &[]).secret(),
        /// The folder it starts in; `.` is the workspace, unset is `/`, where agents plant nothing.
        cwd: Option<String> = unset(text(Path, "server")),
        /// The address of a server that speaks Streamable HTTP.
        url: Option<String> = unset(text(Url, "https://example.com/mcp")),
        /// Headers whose values are in environment variables: `Header=VARIABLE`.
        headers_env: Vec<String> = list(HeaderVariable, &[]),
        /// A file with the token that is sent as `Authorization: Bearer`.
        token_file: Option<String> = unset(text(Path, "~/.config/example/token")),
        /// The tools that are offered; `*` stands for any characters.
        tools: Vec<String> = list(NotEmpty, &["*"]),
        /// The tools that MCP clients are listed, each at its price in tokens.
        promoted: Vec<String> = list(NotEmpty, &[]),
        /// Seconds without a call after which it is stopped.
        idle_s: u64 = seconds(300),
        /// Confines it like commands; `false` gives it the user's own rights.
        confine: bool = flag(true),
        /// Whether it may use the network; unset, as commands may.
        network: Option<bool> = unset(flag(true)),
        /// Further folders it may write.
        extra_write: Vec<String> = list(Path, &[]),
    }

    /// Limits for each caller over HTTP.
    #[table("mcp.limits")]
    pub struct RequestLimitsConfig {
        /// Requests a second, sustained.
        rate_limit_rps: u64 = positive(10),
        /// Requests at once.
        rate_limit_burst: u64 = positive(20),
        /// Requests in progress.
        concurrency_per_token: u64 = positive(8),
        /// Bytes of a request body.
        max_request_bytes: u64 = positive(262_144),
        /// Bytes of all headers of a request.
        max_header_bytes: u64 = positive(16_384),
    }

    /// The identity of callers that give none.
    #[table("mcp.session")]
    pub struct SessionConfig {
        /// The agent, in telemetry and budgets, of callers that give none; `unknown` takes the MCP client's name.
        default_agent_id: String = text(NotEmpty, "unknown"),
        /// Its model, in telemetry.
        default_model: String = text(NotEmpty, "unknown"),
    }

    /// Documents offered as MCP resources.
    #[table("mcp.resources")]
    pub struct ResourcesConfig {
        /// Files offered as `llmc://docs/<file name>`; a missing one is a warning, except for the default names.
        sidecars: Vec<String> = list(Path, &["DOCS/agents.core.min.md", "DOCS/contracts.env.min.md"]),
    }

    /// The database that several servers share.
    #[table("mcp.store")]
    pub struct StoreConfig {
        /// `postgres://user:password@host/database` of the store that servers share; empty keeps all on this machine.
        url: String = text(DatabaseUrl, "").security(),
        /// Whose rows this server reads and writes; tenants of one database do not see each other's.
        tenant: String = text(TenantName, "default").security(),
        /// The role that creates the tables, when it is not that of `url`.
        admin_url: String = text(DatabaseUrl, "").security(),
        /// Connections that this server opens at most.
        max_connections: u64 = int(1..=500, 8).security(),
        /// Seconds that tokens of the database still count when the database cannot be reached.
        token_grace_s: u64 = int(0..=86_400, 60).security(),
    }

    /// Where state is kept, for containers.
    #[table("mcp.docker")]
    pub struct DockerConfig {
        /// State directory in place of `llmc` in the git directory, or `.llmc` in a workspace without git.
        data_volume: Option<String> = unset(text(Path, "/data/llmc")).security(),
        /// Keeps telemetry on disk; `false` keeps it in memory.
        persist_telemetry: bool = flag(true),
        /// Keeps the token audit on disk; `false` keeps it in memory.
        persist_token_audit: bool = flag(true),
    }
}
