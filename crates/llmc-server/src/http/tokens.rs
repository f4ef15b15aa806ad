//! The tokens, what each may do, and where the main one comes from.
//!
//! Only digests are kept. A presented token is hashed and compared with every digest in constant time, so that the time of
//! a error reveals nothing about a token.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, HeaderName};
use llmc_config::{AuthMode, NamedToken, TokenProof};
use llmc_tools::{App, Error, Result, SlotPool, catalog};
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;

use super::rate_limit::RateLimiter;
use super::shared_tokens::SharedTokens;
use super::token_file;
use super::token_strength::{is_token, weakness};
use crate::token_store::{StoredToken, TokenStore};

/// The principal of the main token, and of every caller while no token is required.
pub(crate) const MAIN_PRINCIPAL: &str = "local";

/// The rate of a signed-in page, whose views ask for several things at once.
const PAGE_REQUESTS_PER_SECOND: u64 = 50;
const PAGE_REQUESTS_AT_ONCE: u64 = 100;
const PAGE_SLOTS: u64 = 16;

/// What one token may do, and how much of it.
#[derive(Debug)]
pub(crate) struct Token {
    /// The owner of its handles and calls.
    pub(crate) principal: String,
    /// Whether it may see every principal's calls: the main token may.
    pub(crate) sees_all: bool,
    pub(crate) read_only: bool,
    pub(crate) tools: Option<Arc<Vec<String>>>,
    pub(crate) rate: RateLimiter,
    /// Limits its requests in progress.
    pub(crate) slots: SlotPool,
    digest: [u8; 32],
}

impl Token {
    /// What a signed-in page may do: all that the main token may, at the pace of a person's browser.
    pub(super) fn of_page() -> Token {
        Token {
            rate: RateLimiter::new(PAGE_REQUESTS_PER_SECOND, PAGE_REQUESTS_AT_ONCE),
            ..TokenLimits {
                rps: 1,
                burst: 1,
                slots: PAGE_SLOTS,
            }
            .main([0; 32])
        }
    }

    pub(super) fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    /// What proves that a session id was issued to this token: the same after a restart, and of no use to guess the token.
    pub(super) fn session_proof(&self, session: &[u8]) -> [u8; 8] {
        let mut hasher = Sha256::new();
        hasher.update(b"llmc mcp session\0");
        hasher.update(self.digest);
        hasher.update(session);
        let mut proof = [0; 8];
        proof.copy_from_slice(&hasher.finalize()[..8]);
        proof
    }
}

#[derive(Debug)]
pub(crate) struct Tokens {
    header: HeaderName,
    /// `None` requires no token.
    list: Option<Vec<Arc<Token>>>,
    /// Those of the database that servers share.
    shared: Option<Arc<SharedTokens>>,
    anyone: Arc<Token>,
    source: TokenSource,
}

/// Where the main token is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenSource {
    /// No token is required.
    None,
    /// In this environment variable.
    Env(String),
    /// In this file, which the server made.
    File(PathBuf),
    /// There is none, only named ones, of the configuration or of the shared database.
    Named,
    /// There is none, only one-time links.
    Link,
}

impl std::fmt::Display for TokenSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TokenSource::None => write!(f, "not required (mcp.auth.mode is none)"),
            TokenSource::Env(name) => write!(f, "in the environment variable {name}"),
            TokenSource::File(path) => write!(f, "in the file {}", path.display()),
            TokenSource::Named => write!(f, "only named tokens"),
            TokenSource::Link => write!(f, "none, only the links of `llmc dashboard`"),
        }
    }
}

impl Tokens {
    /// Reads the tokens of the configuration, and makes a main token on loopback where there is none.
    ///
    /// # Errors
    /// A token that cannot be read or used, or none at all on an address that others reach.
    pub(super) fn load(app: &App, loopback: bool) -> Result<Tokens> {
        let auth = &app.config().mcp.auth;
        let header = HeaderName::try_from(auth.header.as_str())
            .map_err(|_| Error::bad_args("mcp.auth.header is no header name"))?;
        let limits = TokenLimits::of(app);
        let anyone = Arc::new(limits.main([0; 32]));
        if auth.mode == AuthMode::None {
            return Ok(Tokens {
                header,
                list: None,
                shared: None,
                anyone,
                source: TokenSource::None,
            });
        }
        let mut list = Vec::new();
        for named in &auth.tokens {
            list.push(Arc::new(limits.named(named, loopback)?));
        }
        let source = match from_env(&auth.token_env, loopback)? {
            Some(digest) => {
                list.push(Arc::new(limits.main(digest)));
                TokenSource::Env(auth.token_env.clone())
            }
            None if !loopback && (!list.is_empty() || app.database().is_some()) => {
                TokenSource::Named
            }
            None if loopback => {
                let path = token_file::path(app.loaded());
                let token = token_file::read_or_generate(&path, app.loaded())?;
                list.push(Arc::new(limits.main(digest(token.as_bytes()))));
                TokenSource::File(path)
            }
            None => {
                let host = &app.config().mcp.server.host;
                return Err(Error::bad_args(format!(
                    "no token, and {host} can be reached from other machines"
                ))
                .hint(format!(
                    "set {}, name tokens in [[mcp.auth.tokens]], or listen on 127.0.0.1",
                    auth.token_env
                )));
            }
        };
        Ok(Tokens {
            header,
            list: Some(list),
            shared: None,
            anyone,
            source,
        })
    }

    /// No token counts; who signs in has a one-time link.
    pub(super) fn none(app: &App) -> Result<Tokens> {
        let header = HeaderName::try_from(app.config().mcp.auth.header.as_str())
            .map_err(|_| Error::bad_args("mcp.auth.header is no header name"))?;
        Ok(Tokens {
            header,
            list: Some(Vec::new()),
            shared: None,
            anyone: Arc::new(TokenLimits::of(app).main([0; 32])),
            source: TokenSource::Link,
        })
    }

    /// Accepts tokens of the shared database as well, if there is one, until the server stops. Waits for it a little.
    pub(super) fn with_shared(mut self, app: &App, stop: &CancellationToken) -> Tokens {
        let (Some(list), Some(database)) = (&self.list, app.database()) else {
            return self;
        };
        let taken = list.iter().map(|token| token.principal.clone());
        self.shared = Some(SharedTokens::watch(
            TokenStore::new(database.clone()),
            TokenLimits::of(app),
            taken.chain([MAIN_PRINCIPAL.to_owned()]).collect(),
            Duration::from_secs(app.config().mcp.store.token_grace_s),
            stop.clone(),
        ));
        self
    }

    /// Whether a token can be presented, or none is needed.
    pub(super) fn takes_token(&self) -> bool {
        self.shared.is_some() || self.list.as_ref().is_none_or(|list| !list.is_empty())
    }

    /// Where the main token is.
    pub(super) fn source(&self) -> &TokenSource {
        &self.source
    }

    /// The token of a request; `None` without a known one.
    ///
    /// The header of the configuration comes before `Authorization: Bearer`. Two of either are no token: a proxy and this
    /// server might read different ones.
    pub(super) fn find(&self, headers: &HeaderMap) -> Option<Arc<Token>> {
        let Some(list) = &self.list else {
            return Some(self.anyone.clone());
        };
        let presented = match single(headers, &self.header)? {
            Some(token) => token,
            None => bearer(single(headers, &AUTHORIZATION)??)?,
        };
        if presented.is_empty() {
            return None;
        }
        let presented = digest(presented);
        let mut found = None;
        for token in list {
            if is_same(&token.digest, &presented) {
                found = Some(token);
            }
        }
        let shared = || self.shared.as_ref()?.find(&presented);
        found.cloned().or_else(shared)
    }
}

/// `None` when there are several, `Some(None)` when there is none.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<Option<&'a [u8]>> {
    let mut values = headers.get_all(name).iter();
    let first = values.next();
    if values.next().is_some() {
        return None;
    }
    Some(first.map(|value| value.as_bytes()))
}

pub(super) fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(b"Bearer ".len())?;
    scheme
        .eq_ignore_ascii_case(b"Bearer ")
        .then(|| token.trim_ascii())
}

/// Compares without stopping at the first difference.
pub(super) fn is_same(a: &[u8; 32], b: &[u8; 32]) -> bool {
    let differing = a.iter().zip(b).fold(0, |all, (a, b)| all | (a ^ b));
    std::hint::black_box(differing) == 0
}

fn digest(token: &[u8]) -> [u8; 32] {
    Sha256::digest(token).into()
}

/// The limits of every token that sets none of its own.
#[derive(Debug)]
pub(super) struct TokenLimits {
    rps: u64,
    burst: u64,
    slots: u64,
}

impl TokenLimits {
    fn of(app: &App) -> TokenLimits {
        let limits = &app.config().mcp.limits;
        TokenLimits {
            rps: limits.rate_limit_rps,
            burst: limits.rate_limit_burst,
            slots: limits.concurrency_per_token,
        }
    }

    fn main(&self, digest: [u8; 32]) -> Token {
        Token {
            principal: MAIN_PRINCIPAL.to_owned(),
            sees_all: true,
            read_only: false,
            tools: None,
            rate: RateLimiter::new(self.rps, self.burst),
            slots: SlotPool::new(self.slots),
            digest,
        }
    }

    fn named(&self, named: &NamedToken, loopback: bool) -> Result<Token> {
        let name = &named.name;
        if name == MAIN_PRINCIPAL {
            return Err(Error::bad_args(format!(
                "mcp.auth.tokens: the name {MAIN_PRINCIPAL:?} is the main token's"
            ))
            .hint("give it another name"));
        }
        let digest = match &named.proof {
            TokenProof::Sha256(digest) => *digest.as_bytes(),
            TokenProof::Env(variable) => from_env(variable, loopback)?.ok_or_else(|| {
                Error::bad_args(format!(
                    "token {name:?}: the environment variable {variable} is not set"
                ))
                .hint("set it, or give the token's sha256 instead")
            })?,
        };
        let rps = named.rate_limit_rps.unwrap_or(self.rps);
        Ok(Token {
            principal: name.clone(),
            sees_all: false,
            read_only: named.read_only,
            tools: canonical_tools(name, named.tools.as_deref()),
            rate: RateLimiter::new(rps, self.burst),
            ..self.main(digest)
        })
    }

    /// A token of the shared database.
    pub(super) fn stored(&self, stored: &StoredToken) -> Token {
        let rps = stored.rate_rps.unwrap_or(self.rps);
        Token {
            principal: stored.name.clone(),
            sees_all: false,
            read_only: stored.read_only,
            tools: canonical_tools(&stored.name, stored.tools.as_deref()),
            rate: RateLimiter::new(rps, self.burst),
            ..self.main(stored.digest)
        }
    }
}

/// The names that the tools of a token have in the list of tools.
fn canonical_tools(token: &str, tools: Option<&[String]>) -> Option<Arc<Vec<String>>> {
    let known = tools?.iter().map(|tool| match catalog::find(tool) {
        Some(found) => found.name.to_owned(),
        None if tool.contains('.') => tool.clone(),
        None => {
            tracing::warn!(token, tool, "a token names a tool that does not exist");
            tool.clone()
        }
    });
    Some(Arc::new(known.collect()))
}

/// The digest of the token in a variable; an empty variable counts as unset. A token that can be guessed is a warning, and
/// refused where other machines can try.
fn from_env(variable: &str, loopback: bool) -> Result<Option<[u8; 32]>> {
    let Some(value) = std::env::var_os(variable).filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    let token = value.to_str().filter(|token| is_token(token));
    let token = token.ok_or_else(|| {
        Error::bad_args(format!(
            "{variable} has characters that no header can carry"
        ))
        .hint("a token is made of visible ASCII characters, without spaces")
    })?;
    if let Some(why) = weakness(token) {
        let message = format!("the token in {variable} can be guessed: {why}");
        let hint = "make one with `openssl rand -hex 32`";
        if !loopback {
            return Err(Error::bad_args(message).hint(hint));
        }
        tracing::warn!(variable, "{message}; {hint}");
    }
    Ok(Some(digest(token.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bearer_is_read_in_any_case_and_nothing_else_is() {
        assert_eq!(bearer(b"Bearer abc"), Some(&b"abc"[..]));
        assert_eq!(bearer(b"bearer  abc "), Some(&b"abc"[..]));
        assert_eq!(bearer(b"Basic abc"), None);
        assert_eq!(bearer(b"Bearer"), None);
        assert_eq!(bearer(b""), None);
    }

    #[test]
    fn two_of_one_header_are_no_token() {
        let name = HeaderName::from_static("x-llmc-token");
        let mut headers = HeaderMap::new();
        assert_eq!(single(&headers, &name), Some(None));
        headers.append(&name, "a".parse().unwrap());
        assert_eq!(single(&headers, &name), Some(Some(&b"a"[..])));
        headers.append(&name, "a".parse().unwrap());
        assert_eq!(single(&headers, &name), None);
    }
}
