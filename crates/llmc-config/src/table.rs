//! The list of keys. Order is reading order: what people change first comes first, in the reference and the template.

use crate::choices::{
    AuthMode, CachePolicy, Confinement, EmbeddingProvider, ExecProfile, LogFormat, LogLevel, Mode,
    OnTimeout, RlmProfile, Scope, ScriptBackend,
};
use crate::keys::{Initial, Key};
use crate::value::Kind::{self, Bool, Float, Globs, Map, OneOf, Paths, Tables, Text, Texts};
use crate::value::{MAX, Shape};

/// A key with a fixed default in TOML syntax.
const fn key(path: &'static str, kind: Kind, initial: &'static str, doc: &'static str) -> Key {
    Key::new(path, kind, Initial::Toml(initial), doc)
}

/// A key that has no value until someone gives it one.
const fn unset(path: &'static str, kind: Kind, example: &'static str, doc: &'static str) -> Key {
    Key::new(path, kind, Initial::Unset { example }, doc)
}

/// A key whose default follows from other keys.
const fn rule(
    path: &'static str,
    kind: Kind,
    example: &'static str,
    says: &'static str,
    doc: &'static str,
) -> Key {
    Key::new(path, kind, Initial::Rule { example, says }, doc)
}

/// Any whole number.
const COUNT: Kind = Kind::Int { min: 0, max: MAX };
/// A whole number for which zero would make no sense.
const POSITIVE: Kind = Kind::Int { min: 1, max: MAX };
/// A time limit in seconds, at most a day.
const SECONDS: Kind = Kind::Int {
    min: 1,
    max: 86_400,
};
const PATH: Kind = Text(Shape::Path);
const NAME: Kind = Text(Shape::Name);
/// Names of files that hold secrets, matched on the last part of the path.
const SECRET_FILES: &str =
    r#"["**/.env", "**/*.pem", "**/id_rsa*", "**/*credential*", "**/*token*"]"#;
/// Programs that may be started where nothing is restricted.
pub(crate) const UNRESTRICTED_PROGRAMS: &str =
    r#"["bash", "sh", "rg", "grep", "cat", "ls", "python", "pip"]"#;
/// Programs that may be started in exec profile `restricted`; each has rules for its arguments.
pub(crate) const RESTRICTED_PROGRAMS: &[&str] = &[
    "rg", "grep", "ls", "cat", "head", "tail", "wc", "stat", "file", "diff", "find", "sed", "git",
];
const LOOPBACK: &str = r#"["localhost", "127.0.0.1", "::1"]"#;

/// Every table with one sentence on what it is for, in the order of [`KEYS`].
pub static SECTIONS: &[(&str, &str)] = &[
    ("mcp", "The server as a whole."),
    (
        "mcp.tools",
        "What the tools may touch and run, and for how long.",
    ),
    (
        "mcp.linux_ops.roots",
        "Other roots for the `linux_*` tools alone.",
    ),
    ("mcp.exec", "How the programs that tools start are held."),
    (
        "mcp.locks",
        "Locks that keep agents from writing over each other.",
    ),
    ("mcp.observability", "Logs, metrics and the token audit."),
    ("mcp.hybrid", "What mode `hybrid` lists."),
    (
        "mcp.code_execution",
        "The interpreter behind `execute_code`.",
    ),
    (
        "mcp.te",
        "The Tool Envelope: budgets for answers, and the `te` program.",
    ),
    ("mcp.te.agents.*", "Budgets for one agent, by its id."),
    (
        "mcp.handles",
        "Where the part of an answer that did not fit is kept.",
    ),
    ("mcp.rag", "Code retrieval."),
    ("mcp.rag.embedding", "Vectors beside lexical retrieval."),
    ("mcp.rlm", "What recursive analysis may read and reach."),
    (
        "rlm",
        "The models of recursive analysis and what they may cost.",
    ),
    ("mcp.server", "The HTTP listener."),
    ("mcp.auth", "Who may call over HTTP."),
    (
        "mcp.auth.tokens[]",
        "Further tokens, each with its own name and rights.",
    ),
    ("mcp.limits", "Limits for each caller over HTTP."),
    (
        "mcp.session",
        "Who a caller is taken for when it does not say.",
    ),
    ("mcp.resources", "Documents offered as MCP resources."),
    ("mcp.docker", "Where state is kept, for containers."),
];

/// Every key there is.
#[rustfmt::skip] // One row a line where it fits, to be read as the table it is.
pub static KEYS: &[Key] = &[
    key("mcp.enabled", Bool, "true", "Whether `llmc mcp` and `llmc serve` start at all."),
    key("mcp.config_version", OneOf(&["v0"]), r#""v0""#, "Version of this file's layout."),
    rule(
        "mcp.mode",
        OneOf(Mode::NAMES),
        r#""hybrid""#,
        "`hybrid` without a configuration file, `classic` with one, `code_execution` when `mcp.code_execution.enabled`",
        "Which tools are listed to MCP clients.",
    )
    .short("LLMC_MCP_MODE"),
    key("mcp.structured_content", Bool, "false", "Sends results a second time as `structuredContent`."),
    // Tools.
    key(
        "mcp.tools.allowed_roots",
        Paths,
        r#"["."]"#,
        "Folders the tools may reach, relative to the workspace root; an empty list denies everything.",
    )
    .short("LLMC_MCP_ALLOWED_ROOTS"),
    key("mcp.tools.read_only", Bool, "false", "Refuses every tool that writes or runs."),
    key("mcp.tools.enable_run_cmd", Bool, "true", "Lists and allows the tools that start programs."),
    rule(
        "mcp.tools.run_cmd_allowlist",
        Texts,
        UNRESTRICTED_PROGRAMS,
        "`rg grep ls cat head tail wc stat file diff find sed git` in exec profile `restricted`, else as here",
        "Programs that may be started; a list with an interpreter in it is no boundary.",
    ),
    key(
        "mcp.tools.allow_outbound_network",
        Bool,
        "true",
        "Lets started programs use the network; `false` is enforced by the kernel or refuses to start.",
    ),
    key("mcp.tools.read_timeout", SECONDS, "10", "Seconds one file call or request body may take."),
    key("mcp.tools.idle_timeout", SECONDS, "60", "Seconds after which an idle connection is closed."),
    key(
        "mcp.tools.proc_idle_timeout",
        Kind::Int { min: 0, max: 2_592_000 },
        "3600",
        "Seconds after which a silent background process is ended; 0 means never.",
    ),
    key("mcp.tools.kill_any", Bool, "false", "Lets `linux_proc_kill` end any process of the same user."),
    key(
        "mcp.tools.denylist_globs",
        Globs,
        SECRET_FILES,
        "File names taken for secrets, matched on the last part of a path in any case.",
    ),
    rule(
        "mcp.tools.denylist_reads",
        Bool,
        "false",
        "`true` in exec profile `restricted`, else `false`",
        "Refuses to read such files; `rlm_query` always refuses.",
    ),
    unset(
        "mcp.linux_ops.roots.allowed_roots",
        Paths,
        r#"["."]"#,
        "Roots for `linux_*` tools in place of `mcp.tools.allowed_roots`.",
    ),
    key(
        "mcp.linux_ops.roots.enforce_roots",
        Bool,
        "true",
        "Holds `linux_*` tools to their roots; `false` only with roots `[\"/\"]`.",
    ),
    // Exec.
    key(
        "mcp.exec.profile",
        OneOf(ExecProfile::NAMES),
        r#""unrestricted""#,
        "`restricted` refuses interpreters and launchers, checks arguments, has no network and needs full confinement.",
    ),
    key(
        "mcp.exec.confinement",
        OneOf(Confinement::NAMES),
        r#""auto""#,
        "Kernel confinement of started programs: what there is, all or nothing, or none.",
    ),
    unset(
        "mcp.exec.policy_file",
        PATH,
        r#""~/.config/llmc/policy.toml""#,
        "The operator's own rules on programs and their arguments (`docs/policy.md`), kept outside the roots.",
    ),
    key(
        "mcp.exec.path",
        Text(Shape::SearchPath),
        r#""auto""#,
        "Where programs are looked up: `auto` (the project's, yours, the usual tool folders) or folders joined by `:`.",
    ),
    key("mcp.exec.wait_s", SECONDS, "50", "Seconds a call waits for a command, unless it says otherwise.")
        .formerly("mcp.tools.exec_timeout"),
    rule(
        "mcp.exec.max_wait_s",
        SECONDS,
        "600",
        "`600`, or `wait_s` if that is more",
        "The longest wait a call may ask for, in seconds.",
    ),
    rule(
        "mcp.exec.on_timeout",
        OneOf(OnTimeout::NAMES),
        r#""background""#,
        "`kill` in exec profile `restricted`, else `background`",
        "What happens to a command that is still running after the wait.",
    ),
    key("mcp.exec.extra_write", Paths, "[]", "Folders beside the roots that commands may write."),
    rule(
        "mcp.exec.hidden",
        Paths,
        r#"["~/.ssh", "~/.aws"]"#,
        "the places where credentials are usually stored",
        "Files and folders of the home directory that commands cannot see.",
    ),
    key(
        "mcp.exec.caches",
        OneOf(CachePolicy::NAMES),
        r#""private""#,
        "Writes to tool caches such as `~/.cargo`: into a private layer, into the caches themselves, or refused.",
    ),
    key("mcp.exec.env", Texts, "[]", "Further environment variables that commands inherit; secrets are never passed on."),
    rule(
        "mcp.exec.network",
        Bool,
        "true",
        "`false` in exec profile `restricted`, else as `mcp.tools.allow_outbound_network`",
        "Whether commands have a network.",
    ),
    key(
        "mcp.locks.lease_s",
        Kind::Int { min: 1, max: 3_600 },
        "30",
        "Seconds after which an abandoned lock is free again.",
    ),
    // Observability.
    key("mcp.observability.enabled", Bool, "true", "Switch for all of this table but the logs."),
    key(
        "mcp.observability.log_level",
        OneOf(LogLevel::NAMES),
        r#""info""#,
        "The least severe line written to stderr.",
    )
    .short("LLMC_MCP_LOG_LEVEL"),
    key("mcp.observability.log_format", OneOf(LogFormat::NAMES), r#""json""#, "How log lines are written."),
    key("mcp.observability.include_correlation_id", Bool, "true", "Puts the correlation id into log lines."),
    key("mcp.observability.metrics_enabled", Bool, "true", "Counts calls in memory, for `get_metrics` and the dashboard."),
    key("mcp.observability.metrics_prometheus_enabled", Bool, "true", "Serves the metrics to Prometheus."),
    key("mcp.observability.metrics_path", Text(Shape::Route), r#""/metrics""#, "The route it reads them from."),
    key("mcp.observability.csv_token_audit_enabled", Bool, "false", "Appends one CSV row a call."),
    key(
        "mcp.observability.csv_path",
        PATH,
        r#""./artifacts/token_audit.csv""#,
        "The file for these rows, relative to the workspace root.",
    ),
    key("mcp.observability.retention_days", COUNT, "0", "Days telemetry is kept; 0 keeps it for ever."),
    // Modes.
    key(
        "mcp.hybrid.promoted_tools",
        Texts,
        r#"["linux_fs_write", "linux_fs_edit", "run_cmd", "te_grep", "rag_search"]"#,
        "Tools listed beside `read_file`, `list_dir` and `init`.",
    ),
    key("mcp.hybrid.include_execute_code", Bool, "true", "Lists `execute_code` too."),
    key("mcp.hybrid.bootstrap_budget_warning", COUNT, "15000", "Characters of listed schemas above which start warns."),
    key("mcp.code_execution.enabled", Bool, "false", "Selects mode `code_execution` when `mcp.mode` is not set."),
    key(
        "mcp.code_execution.sandbox",
        OneOf(ScriptBackend::NAMES),
        r#""auto""#,
        "`embedded` is the interpreter inside LLMC; `python` is the machine's and needs full confinement.",
    ),
    key("mcp.code_execution.timeout", SECONDS, "30", "Seconds one script may run, tool calls included."),
    key("mcp.code_execution.max_memory_mb", POSITIVE, "256", "Mebibytes one script may use."),
    key("mcp.code_execution.max_tool_calls", COUNT, "1000", "Tool calls one script may make."),
    key("mcp.code_execution.max_output_bytes", POSITIVE, "1048576", "Bytes of output kept from one script."),
    // Tool Envelope.
    key("mcp.te.enabled", Bool, "true", "Runs commands through the Tool Envelope."),
    key(
        "mcp.te.script_path",
        Text(Shape::Any),
        r#""""#,
        "The `te` program, relative to the workspace root; empty means this executable.",
    ),
    key("mcp.te.json_mode", Bool, "true", "Asks the `te` program for JSON."),
    key("mcp.te.timeout", SECONDS, "30", "Seconds the `te` program may run."),
    key("mcp.te.passthrough_on_failure", Bool, "true", "Runs the command directly when `te` itself fails."),
    key("mcp.te.budget_tokens", POSITIVE, "2000", "Tokens one answer may have."),
    key(
        "mcp.te.session_budget_tokens",
        COUNT,
        "0",
        "Tokens a session may be served before answers shrink to their receipts; 0 means no limit.",
    ),
    key("mcp.te.core_only", Bool, "false", "Lists only the seven core commands in mode `te`."),
    key("mcp.te.agents", Map, "{}", "Budgets by agent id."),
    unset("mcp.te.agents.*.budget_tokens", POSITIVE, "4000", "As `mcp.te.budget_tokens`, for this agent."),
    unset(
        "mcp.te.agents.*.session_budget_tokens",
        COUNT,
        "200000",
        "As `mcp.te.session_budget_tokens`, for this agent.",
    ),
    key("mcp.handles.ttl_hours", Kind::Int { min: 1, max: 87_600 }, "24", "Hours a handle is kept."),
    key("mcp.handles.max_bytes", POSITIVE, "268435456", "Bytes kept for all handles; the oldest go first."),
    // Retrieval.
    key("mcp.rag.jit_context_enabled", Bool, "true", "Adds snippets to `/invoke_agent` answers."),
    key("mcp.rag.default_scope", OneOf(Scope::NAMES), r#""repo""#, "Where a search looks when it does not say."),
    key("mcp.rag.top_k", Kind::Int { min: 1, max: 1_000 }, "3", "The most snippets a search may ask for."),
    key("mcp.rag.token_budget", POSITIVE, "600", "The most tokens of snippets a search may ask for."),
    key(
        "mcp.rag.embedding.provider",
        OneOf(EmbeddingProvider::NAMES),
        r#""none""#,
        "Where vectors come from; `none` keeps retrieval lexical and local.",
    ),
    unset("mcp.rag.embedding.model", NAME, r#""nomic-embed-text""#, "The embedding model, as its provider names it."),
    unset(
        "mcp.rag.embedding.base_url",
        Text(Shape::Url),
        r#""http://127.0.0.1:11434""#,
        "The embedding provider's address, when it is not the usual one.",
    ),
    // Recursive analysis.
    key("mcp.rlm.enabled", Bool, "true", "Offers `rlm_query`."),
    key(
        "mcp.rlm.profile",
        OneOf(RlmProfile::NAMES),
        r#""restricted""#,
        "`restricted` keeps to loopback and `allowed_hosts`; `unrestricted` is the operator's word.",
    ),
    key("mcp.rlm.allow_http", Bool, "false", "Offers `rlm_query` over HTTP as well as stdio."),
    key("mcp.rlm.allow_path", Bool, "true", "Lets a query name a file."),
    key("mcp.rlm.allow_absolute_paths", Bool, "false", "Lets that be an absolute path, within the roots."),
    key(
        "mcp.rlm.denylist_globs",
        Globs,
        SECRET_FILES,
        "Files it never reads, beside those of `mcp.tools.denylist_globs`.",
    ),
    key("mcp.rlm.default_max_bytes", POSITIVE, "262144", "Bytes read from a file when the query does not say."),
    key("mcp.rlm.default_timeout_s", SECONDS, "300", "Seconds a query may take when it does not say."),
    key("mcp.rlm.allow_model_override", Bool, "false", "Lets a query name another model."),
    rule(
        "mcp.rlm.allowed_model_prefixes",
        Texts,
        r#"["ollama/"]"#,
        "`[\"ollama/\"]` in profile `restricted`, any model in `unrestricted`",
        "Models that may be used, by the start of `provider/model`; an empty list allows none.",
    ),
    key("mcp.rlm.allowed_hosts", Texts, "[]", "Hosts that profile `restricted` may reach beside loopback."),
    key("mcp.rlm.allow_partial", Bool, "false", "Returns what there is when time or money runs out."),
    unset("rlm.model", Text(Shape::Model), r#""ollama/qwen3:8b""#, "The model that leads an analysis."),
    rule(
        "rlm.sub_model",
        Text(Shape::Model),
        r#""ollama/qwen3:8b""#,
        "`rlm.model`",
        "The model it asks about parts.",
    ),
    unset(
        "rlm.base_url",
        Text(Shape::Url),
        r#""http://127.0.0.1:11434""#,
        "The address of `rlm.model`'s provider, when it is not the usual one.",
    ),
    key("rlm.max_depth", Kind::Int { min: 0, max: 8 }, "1", "How deep analyses may start analyses."),
    key("rlm.direct_tokens", Kind::Int { min: 0, max: 1_000_000 }, "16000", "Texts of up to so many tokens are answered in one plain call."),
    unset("rlm.price_per_mtok_in", Float, "3.0", "Dollars per million tokens sent to `rlm.model`, or to a model without a known price."),
    unset("rlm.price_per_mtok_out", Float, "15.0", "Dollars per million tokens received, likewise."),
    key("rlm.token_budget", POSITIVE, "1000000", "Tokens one query may spend, sub-calls included."),
    key("rlm.max_budget_usd", Float, "100.0", "The most dollars one query may ask for."),
    // HTTP.
    key("mcp.server.host", Text(Shape::Host), r#""127.0.0.1""#, "The address to listen on."),
    key("mcp.server.port", Kind::Int { min: 0, max: 65_535 }, "8080", "The port; 0 takes a free one."),
    key("mcp.server.tls_enabled", Bool, "false", "Serves HTTPS; needs `tls_cert` and `tls_key`."),
    unset("mcp.server.tls_cert", PATH, r#""~/.config/llmc/cert.pem""#, "Certificate chain in PEM."),
    unset("mcp.server.tls_key", PATH, r#""~/.config/llmc/key.pem""#, "Its private key in PEM.").secret(),
    key("mcp.server.trust_proxy", Bool, "false", "Believes the forwarding headers of a reverse proxy."),
    key("mcp.server.allowed_hosts", Texts, LOOPBACK, "Names a request may ask for in its Host header."),
    key(
        "mcp.server.allowed_origins",
        Texts,
        LOOPBACK,
        "Origins a browser may call from: a host name for any scheme and port, or a full origin.",
    ),
    key("mcp.auth.mode", OneOf(AuthMode::NAMES), r#""token""#, "`none` needs a loopback `host` or `allow_unauthenticated`."),
    key("mcp.auth.header", Text(Shape::Header), r#""X-LLMC-Token""#, "The header with the token, beside `Authorization: Bearer`."),
    key("mcp.auth.token_env", Text(Shape::Env), r#""LLMC_MCP_TOKEN""#, "The environment variable with the main token."),
    key("mcp.auth.allow_unauthenticated", Bool, "false", "Permits `mode = \"none\"` on any address."),
    key("mcp.auth.tokens", Tables, "[]", "Named tokens beside the main one."),
    unset("mcp.auth.tokens[].name", NAME, r#""ci""#, "The name it has in logs; required, each one once."),
    unset(
        "mcp.auth.tokens[].token_env",
        Text(Shape::Env),
        r#""LLMC_TOKEN_CI""#,
        "The environment variable with the token; either this or `sha256`.",
    ),
    unset(
        "mcp.auth.tokens[].sha256",
        Text(Shape::Sha256),
        r#""0000000000000000000000000000000000000000000000000000000000000000""#,
        "The SHA-256 digest of the token.",
    )
    .secret(),
    key("mcp.auth.tokens[].read_only", Bool, "false", "Refuses this token every tool that writes or runs."),
    unset("mcp.auth.tokens[].tools", Texts, r#"["read_file", "rag_search"]"#, "The only tools it may call; unset means all."),
    unset("mcp.auth.tokens[].rate_limit_rps", POSITIVE, "5", "As `mcp.limits.rate_limit_rps`, for this token."),
    key("mcp.limits.rate_limit_rps", POSITIVE, "10", "Requests a second, sustained."),
    key("mcp.limits.rate_limit_burst", POSITIVE, "20", "Requests at once."),
    key("mcp.limits.concurrency_per_token", POSITIVE, "8", "Requests in progress."),
    key("mcp.limits.max_request_bytes", POSITIVE, "262144", "Bytes of a request body."),
    key("mcp.limits.max_header_bytes", POSITIVE, "16384", "Bytes of all headers of a request."),
    key("mcp.session.default_agent_id", NAME, r#""claude-desktop-mcp""#, "The agent, in telemetry and budgets."),
    key("mcp.session.default_model", NAME, r#""unknown""#, "Its model, in telemetry."),
    key(
        "mcp.resources.sidecars",
        Paths,
        r#"["DOCS/agents.core.min.md", "DOCS/contracts.env.min.md"]"#,
        "Files read as `llmc://docs/<file name>`; a missing one is a warning.",
    ),
    unset("mcp.docker.data_volume", PATH, r#""/data/llmc""#, "State directory in place of `.llmc` in the workspace."),
    key("mcp.docker.persist_telemetry", Bool, "true", "Keeps telemetry on disk; `false` keeps it in memory."),
    key("mcp.docker.persist_token_audit", Bool, "true", "Keeps the token audit on disk; `false` keeps it in memory."),
];
