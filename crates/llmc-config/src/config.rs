//! The configuration that the rest of the program reads, and what follows from single tables.

use std::fmt;
use std::time::Duration;

use crate::declarations::{
    CodeExecutionConfig, ExecConfig, HandlesConfig, LocksConfig, McpConfig, RlmConfig,
    ServerConfig, TeConfig, TokenEntry, ToolsConfig,
};
use crate::merge::{Layer, MergedSettings};
use crate::spec::{ReadTable, TableSource};
use crate::value::parse_ip;

pub(crate) use crate::upstream::UpstreamConfig;

/// The whole configuration, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    pub mcp: McpConfig,
    pub rlm: RlmConfig,
    /// Why nothing here can run scripts, if so: a fact of the machine, not a setting.
    pub without_scripts: Option<String>,
}

/// One `[[mcp.auth.tokens]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedToken {
    /// No two tokens share one.
    pub name: String,
    pub proof: TokenProof,
    pub read_only: bool,
    /// `None` allows all of them, an empty list none.
    pub tools: Option<Vec<String>>,
    /// `None` leaves it at `mcp.limits`.
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
        let mut settings = MergedSettings::new(Layer::default());
        crate::check::apply_rules(&mut settings, false);
        Self::from_settings(&settings)
    }
}

impl Config {
    pub(crate) fn from_settings(settings: &MergedSettings) -> Self {
        let source = TableSource {
            settings,
            values: &settings.top,
        };
        Self {
            mcp: McpConfig::read(&source),
            rlm: RlmConfig::read(&source),
            without_scripts: None,
        }
    }
}

impl McpConfig {
    /// The roots of `linux_*` tools as written: their own, or else those of all tools.
    pub fn linux_roots(&self) -> &[String] {
        let own = self.linux_ops.roots.allowed_roots.as_deref();
        own.unwrap_or(&self.tools.allowed_roots)
    }
}

impl ServerConfig {
    /// Whether only this machine can connect.
    pub fn is_loopback(&self) -> bool {
        match parse_ip(&self.host) {
            Some(ip) => ip.to_canonical().is_loopback(),
            None => self.host.eq_ignore_ascii_case("localhost"),
        }
    }
}

impl ToolsConfig {
    pub fn read_timeout(&self) -> Duration {
        Duration::from_secs(self.read_timeout)
    }

    pub fn idle_timeout(&self) -> Duration {
        Duration::from_secs(self.idle_timeout)
    }

    /// `None` for never.
    pub fn proc_idle_timeout(&self) -> Option<Duration> {
        (self.proc_idle_timeout > 0).then(|| Duration::from_secs(self.proc_idle_timeout))
    }
}

impl ExecConfig {
    pub fn wait(&self) -> Duration {
        Duration::from_secs(self.wait_s)
    }

    pub fn max_wait(&self) -> Duration {
        Duration::from_secs(self.max_wait_s)
    }
}

impl TeConfig {
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

    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }
}

impl HandlesConfig {
    pub fn ttl(&self) -> Duration {
        Duration::from_secs(self.ttl_hours.saturating_mul(3_600))
    }
}

impl LocksConfig {
    pub fn lease(&self) -> Duration {
        Duration::from_secs(self.lease_s)
    }
}

impl CodeExecutionConfig {
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }
}

/// Why a table of a list is not what the list holds: the key at fault and what is wrong with it.
pub(crate) struct TableFault(pub(crate) &'static str, pub(crate) &'static str);

impl TryFrom<TokenEntry> for NamedToken {
    type Error = TableFault;

    fn try_from(entry: TokenEntry) -> Result<Self, TableFault> {
        let digest = entry.sha256.as_deref().and_then(TokenDigest::parse);
        let proof = match (entry.token_env, digest) {
            (Some(_), Some(_)) => {
                return Err(TableFault(
                    "token_env",
                    "give either token_env or sha256, not both",
                ));
            }
            (None, None) => {
                return Err(TableFault(
                    "token_env",
                    "missing; give either token_env or sha256",
                ));
            }
            (Some(env), None) => TokenProof::Env(env),
            (None, Some(digest)) => TokenProof::Sha256(digest),
        };
        let missing = TableFault("name", "missing; every token needs a name");
        Ok(Self {
            name: entry.name.ok_or(missing)?,
            proof,
            read_only: entry.read_only,
            tools: entry.tools,
            rate_limit_rps: entry.rate_limit_rps,
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
