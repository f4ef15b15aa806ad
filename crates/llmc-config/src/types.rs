//! The structs that mirror the TOML tables.
//!
//! A field has the name of its key and is read from the setting with that path, so the two cannot drift apart; what a
//! key means, its default and its bounds are told in the key table alone.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::choices::{
    AuthMode, CachePolicy, Confinement, EmbeddingProvider, ExecProfile, LogFormat, LogLevel, Mode,
    OnTimeout, RlmProfile, Scope, ScriptBackend,
};
use crate::read::{Read, int, text};
use crate::settings::{Layer, Row, Settings};
use crate::value::{Value, parse_ip};

macro_rules! section {
    ($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq)]
        pub struct $name {
            $(
                #[doc = concat!("Key `", stringify!($field), "`.")]
                pub $field: $type,
            )+
        }

        impl Read for $name {
            fn read(settings: &Settings, path: &str) -> Self {
                Self {
                    $($field: Read::read(settings, &format!("{path}.{}", stringify!($field)))),+
                }
            }
        }
    };
}

/// The whole configuration, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Table `[mcp]`.
    pub mcp: Mcp,
    /// Table `[rlm]`.
    pub rlm: Rlm,
}

section! {
    /// Table `[mcp]`.
    Mcp {
        enabled: bool,
        config_version: String,
        mode: Mode,
        structured_content: bool,
        server: Server,
        auth: Auth,
        tools: Tools,
        exec: Exec,
        rag: Rag,
        observability: Observability,
        limits: Limits,
        session: Session,
        te: Te,
        handles: Handles,
        locks: Locks,
        resources: Resources,
        docker: Docker,
        linux_ops: LinuxOps,
        hybrid: Hybrid,
        code_execution: CodeExecution,
        rlm: McpRlm,
    }
}

section! {
    /// Table `[mcp.server]`.
    Server {
        host: String,
        port: u16,
        tls_enabled: bool,
        tls_cert: Option<String>,
        tls_key: Option<String>,
        trust_proxy: bool,
        allowed_hosts: Vec<String>,
        allowed_origins: Vec<String>,
    }
}

section! {
    /// Table `[mcp.auth]`.
    Auth {
        mode: AuthMode,
        header: String,
        token_env: String,
        allow_unauthenticated: bool,
        tokens: Vec<NamedToken>,
    }
}

section! {
    /// Table `[mcp.tools]`.
    Tools {
        enable_run_cmd: bool,
        allowed_roots: Vec<String>,
        allow_outbound_network: bool,
        run_cmd_allowlist: Vec<String>,
        read_timeout: u64,
        idle_timeout: u64,
        proc_idle_timeout: u64,
        kill_any: bool,
        read_only: bool,
        denylist_globs: Vec<String>,
        denylist_reads: bool,
    }
}

section! {
    /// Table `[mcp.exec]`.
    Exec {
        profile: ExecProfile,
        confinement: Confinement,
        policy_file: Option<String>,
        path: String,
        wait_s: u64,
        max_wait_s: u64,
        on_timeout: OnTimeout,
        extra_write: Vec<String>,
        hidden: Option<Vec<String>>,
        caches: CachePolicy,
        env: Vec<String>,
        network: bool,
    }
}

section! {
    /// Table `[mcp.rag]`.
    Rag {
        jit_context_enabled: bool,
        default_scope: Scope,
        top_k: u64,
        token_budget: u64,
        embedding: Embedding,
    }
}

section! {
    /// Table `[mcp.rag.embedding]`.
    Embedding {
        provider: EmbeddingProvider,
        model: Option<String>,
        base_url: Option<String>,
    }
}

section! {
    /// Table `[mcp.observability]`.
    Observability {
        enabled: bool,
        metrics_enabled: bool,
        metrics_prometheus_enabled: bool,
        metrics_path: String,
        csv_token_audit_enabled: bool,
        csv_path: String,
        log_format: LogFormat,
        log_level: LogLevel,
        retention_days: u64,
        include_correlation_id: bool,
    }
}

section! {
    /// Table `[mcp.limits]`.
    Limits {
        rate_limit_rps: u64,
        rate_limit_burst: u64,
        concurrency_per_token: u64,
        max_request_bytes: u64,
        max_header_bytes: u64,
    }
}

section! {
    /// Table `[mcp.session]`.
    Session {
        default_agent_id: String,
        default_model: String,
    }
}

section! {
    /// Table `[mcp.te]`.
    Te {
        enabled: bool,
        script_path: String,
        json_mode: bool,
        timeout: u64,
        passthrough_on_failure: bool,
        budget_tokens: u64,
        session_budget_tokens: u64,
        core_only: bool,
        agents: BTreeMap<String, AgentBudget>,
    }
}

section! {
    /// Table `[mcp.handles]`.
    Handles {
        ttl_hours: u64,
        max_bytes: u64,
    }
}

section! {
    /// Table `[mcp.locks]`.
    Locks {
        lease_s: u64,
    }
}

section! {
    /// Table `[mcp.resources]`.
    Resources {
        sidecars: Vec<String>,
    }
}

section! {
    /// Table `[mcp.docker]`.
    Docker {
        data_volume: Option<String>,
        persist_telemetry: bool,
        persist_token_audit: bool,
    }
}

section! {
    /// Table `[mcp.linux_ops]`.
    LinuxOps {
        roots: LinuxRoots,
    }
}

section! {
    /// Table `[mcp.linux_ops.roots]`.
    LinuxRoots {
        allowed_roots: Option<Vec<String>>,
        enforce_roots: bool,
    }
}

section! {
    /// Table `[mcp.hybrid]`.
    Hybrid {
        promoted_tools: Vec<String>,
        include_execute_code: bool,
        bootstrap_budget_warning: u64,
    }
}

section! {
    /// Table `[mcp.code_execution]`.
    CodeExecution {
        enabled: bool,
        sandbox: ScriptBackend,
        timeout: u64,
        max_memory_mb: u64,
        max_tool_calls: u64,
        max_output_bytes: u64,
    }
}

section! {
    /// Table `[mcp.rlm]`: policy. Models and money are in [`Rlm`].
    McpRlm {
        enabled: bool,
        profile: RlmProfile,
        allow_http: bool,
        allow_path: bool,
        allow_absolute_paths: bool,
        denylist_globs: Vec<String>,
        default_max_bytes: u64,
        default_timeout_s: u64,
        allow_model_override: bool,
        allowed_model_prefixes: Option<Vec<String>>,
        allowed_hosts: Vec<String>,
        allow_partial: bool,
    }
}

section! {
    /// Table `[rlm]`: models and money. Policy is in [`McpRlm`].
    Rlm {
        model: Option<String>,
        sub_model: Option<String>,
        base_url: Option<String>,
        max_depth: u32,
        direct_tokens: u64,
        price_per_mtok_in: Option<f64>,
        price_per_mtok_out: Option<f64>,
        token_budget: u64,
        max_budget_usd: f64,
    }
}

/// One `[mcp.te.agents."ID"]`: what it sets takes the place of the key in `[mcp.te]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentBudget {
    /// Key `budget_tokens`.
    pub budget_tokens: Option<u64>,
    /// Key `session_budget_tokens`.
    pub session_budget_tokens: Option<u64>,
}

/// One `[[mcp.auth.tokens]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedToken {
    /// Key `name`; no two tokens share one.
    pub name: String,
    /// Key `token_env` or `sha256`: exactly one is given.
    pub proof: TokenProof,
    /// Key `read_only`.
    pub read_only: bool,
    /// Key `tools`; `None` allows all of them, an empty list none.
    pub tools: Option<Vec<String>>,
    /// Key `rate_limit_rps`; `None` leaves it at `mcp.limits`.
    pub rate_limit_rps: Option<u64>,
}

/// What a presented token is compared with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenProof {
    /// The value of this environment variable.
    Env(String),
    /// This digest.
    Sha256(TokenDigest),
}

/// A SHA-256 digest of a token; its `Debug` form hides it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TokenDigest([u8; 32]);

impl Default for Config {
    /// What takes effect without a file, environment or flags.
    fn default() -> Self {
        let mut settings = Settings::new(Layer::default());
        crate::check::follow_rules(&mut settings, false);
        Self::from_settings(&settings)
    }
}

impl Config {
    pub(crate) fn from_settings(settings: &Settings) -> Self {
        Self {
            mcp: Read::read(settings, "mcp"),
            rlm: Read::read(settings, "rlm"),
        }
    }
}

impl Mcp {
    /// The roots of `linux_*` tools as written: their own, or else those of all tools.
    pub fn linux_roots(&self) -> &[String] {
        let own = self.linux_ops.roots.allowed_roots.as_deref();
        own.unwrap_or(&self.tools.allowed_roots)
    }
}

impl Server {
    /// Whether only this machine can connect.
    pub fn is_loopback(&self) -> bool {
        match parse_ip(&self.host) {
            Some(ip) => ip.to_canonical().is_loopback(),
            None => self.host.eq_ignore_ascii_case("localhost"),
        }
    }
}

impl Tools {
    /// Key `read_timeout` as a duration.
    pub fn read_timeout(&self) -> Duration {
        Duration::from_secs(self.read_timeout)
    }

    /// Key `idle_timeout` as a duration.
    pub fn idle_timeout(&self) -> Duration {
        Duration::from_secs(self.idle_timeout)
    }
}

impl Tools {
    /// Key `proc_idle_timeout` as a duration, `None` for never.
    pub fn proc_idle_timeout(&self) -> Option<Duration> {
        (self.proc_idle_timeout > 0).then(|| Duration::from_secs(self.proc_idle_timeout))
    }
}

impl Exec {
    /// Key `wait_s` as a duration.
    pub fn wait(&self) -> Duration {
        Duration::from_secs(self.wait_s)
    }

    /// Key `max_wait_s` as a duration.
    pub fn max_wait(&self) -> Duration {
        Duration::from_secs(self.max_wait_s)
    }
}

impl Te {
    /// Tokens one answer to this agent may have.
    pub fn budget_for(&self, agent: &str) -> u64 {
        let own = self.agents.get(agent).and_then(|own| own.budget_tokens);
        own.unwrap_or(self.budget_tokens)
    }

    /// Tokens a session of this agent may be served, `None` for any number.
    pub fn session_budget_for(&self, agent: &str) -> Option<u64> {
        let own = self
            .agents
            .get(agent)
            .and_then(|own| own.session_budget_tokens);
        Some(own.unwrap_or(self.session_budget_tokens)).filter(|budget| *budget > 0)
    }

    /// Key `timeout` as a duration.
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }
}

impl Handles {
    /// Key `ttl_hours` as a duration.
    pub fn ttl(&self) -> Duration {
        Duration::from_secs(self.ttl_hours.saturating_mul(3_600))
    }
}

impl Locks {
    /// Key `lease_s` as a duration.
    pub fn lease(&self) -> Duration {
        Duration::from_secs(self.lease_s)
    }
}

impl CodeExecution {
    /// Key `timeout` as a duration.
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }
}

impl NamedToken {
    /// The token a row describes, or the field at fault and what is wrong with it.
    pub(crate) fn from_row(row: &Row) -> Result<Self, (&'static str, &'static str)> {
        let name = text(row, "mcp.auth.tokens[].name");
        let digest = text(row, "mcp.auth.tokens[].sha256").and_then(|hex| TokenDigest::parse(&hex));
        let proof = match (text(row, "mcp.auth.tokens[].token_env"), digest) {
            (Some(_), Some(_)) => {
                return Err(("token_env", "give either token_env or sha256, not both"));
            }
            (None, None) => return Err(("token_env", "missing; give either token_env or sha256")),
            (Some(env), None) => TokenProof::Env(env),
            (None, Some(digest)) => TokenProof::Sha256(digest),
        };
        Ok(Self {
            name: name.ok_or(("name", "missing; every token needs a name"))?,
            proof,
            read_only: matches!(
                row.value("mcp.auth.tokens[].read_only"),
                Some(Value::Bool(true))
            ),
            tools: match row.value("mcp.auth.tokens[].tools") {
                Some(Value::List(tools)) => Some(tools.clone()),
                _ => None,
            },
            rate_limit_rps: int(row, "mcp.auth.tokens[].rate_limit_rps"),
        })
    }
}

impl TokenDigest {
    /// The digest written as 64 hexadecimal digits.
    pub fn parse(hex: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        let digits: Option<Vec<u32>> = hex.chars().map(|c| c.to_digit(16)).collect();
        let digits = digits.filter(|digits| digits.len() == 64)?;
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = u8::try_from(pair[0] * 16 + pair[1]).ok()?;
        }
        Some(Self(bytes))
    }

    /// Its bytes, to be compared in constant time.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for TokenDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenDigest(***)")
    }
}
