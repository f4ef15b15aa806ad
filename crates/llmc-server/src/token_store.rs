//! Named tokens in the database that servers share: made, listed and revoked from a shell, read by servers.
//!
//! Only digests are stored. A token has 256 random bits, so its plain digest cannot be turned back.

use std::fmt;
use std::time::Duration;

use llmc_store::{Database, Row};
use llmc_tools::{Error, ErrorKind, Result};
use sha2::{Digest, Sha256};

use crate::http::{MAIN_PRINCIPAL, random_token};

/// The channel on which the database notifies of changed tokens.
pub(crate) const TOKEN_CHANNEL: &str = "llmc_tokens";
/// The longest name.
const MAX_NAME_CHARS: usize = 63;
/// Tokens of one tenant that servers read.
const MAX_TOKENS: i64 = 10_000;
/// What tokens of this program begin with, so that a leaked one is recognised.
const TOKEN_PREFIX: &str = "llmc_";
/// The longest time until a token expires, so that no sum overflows.
const MAX_LIFE: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

const NOW: &str = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint";

/// A name that a token may have: letters, digits, `.`, `_` and `-`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenName(String);

impl TokenName {
    /// Checks a name.
    ///
    /// # Errors
    /// It has other characters, is too long, or is the main token's.
    pub fn parse(name: &str) -> Result<TokenName> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let fits = (1..=MAX_NAME_CHARS).contains(&name.len()) && name.bytes().all(is_plain);
        if !fits {
            return Err(Error::bad_args(format!(
                "the name of a token has 1 to {MAX_NAME_CHARS} letters, digits, dots, underscores and hyphens"
            )));
        }
        if name == MAIN_PRINCIPAL {
            return Err(Error::bad_args(format!(
                "the name {MAIN_PRINCIPAL:?} is the main token's"
            )));
        }
        Ok(TokenName(name.to_owned()))
    }
}

impl fmt::Display for TokenName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a new token may do, and for how long.
#[derive(Debug, Clone, Default)]
pub struct NewToken {
    pub read_only: bool,
    /// `None` allows all tools.
    pub tools: Option<Vec<String>>,
    /// Requests a second on each server; `None` leaves it at `mcp.limits`.
    pub rate_rps: Option<u32>,
    /// `None` never expires.
    pub expires_in: Option<Duration>,
}

/// A token as the database has it.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredToken {
    pub name: String,
    pub read_only: bool,
    pub tools: Option<Vec<String>>,
    pub rate_rps: Option<u64>,
    /// Milliseconds since 1970.
    pub created_ms: i64,
    pub expires_ms: Option<i64>,
    /// How long it still counts, by the clock of the database; `None` for ever, zero for an expired one.
    pub expires_in: Option<Duration>,
    pub(crate) digest: [u8; 32],
}

impl fmt::Debug for StoredToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoredToken({})", self.name)
    }
}

/// The tokens of one tenant.
#[derive(Debug, Clone)]
pub struct TokenStore {
    database: Database,
}

impl TokenStore {
    pub fn new(database: Database) -> TokenStore {
        TokenStore { database }
    }

    pub(crate) fn database(&self) -> &Database {
        &self.database
    }

    /// Makes a token; its text, which is stored nowhere.
    ///
    /// # Errors
    /// There is one of that name, or the database cannot be used.
    pub fn add(&self, name: &TokenName, new: &NewToken) -> Result<String> {
        let token = format!("{TOKEN_PREFIX}{}", random_token()?);
        let digest = Sha256::digest(token.as_bytes()).to_vec();
        let rate = new.rate_rps.map(i64::from);
        let life = new
            .expires_in
            .map(|life| i64::try_from(life.min(MAX_LIFE).as_millis()).unwrap_or(i64::MAX / 2));
        let sql = format!(
            "INSERT INTO llmc.tokens AS known (name, digest, read_only, tools, rate_rps, created_ms, expires_ms) \
             VALUES ($1, $2, $3, $4, $5, {NOW}, {NOW} + $6::bigint) \
             ON CONFLICT (tenant, name) DO UPDATE SET name = excluded.name WHERE known.digest = excluded.digest"
        );
        let made = self.database.transaction(async |tx| {
            // The same row once more is the same call after its connection was lost.
            tx.execute(
                &sql,
                &[&name.0, &digest, &new.read_only, &new.tools, &rate, &life],
            )
            .await
        });
        match made.map_err(Error::from)? {
            0 => Err(Error::new(
                ErrorKind::AlreadyExists,
                format!("there is a token {name} already"),
            )
            .hint(format!("llmc token revoke {name} removes it"))),
            _ => Ok(token),
        }
    }

    /// Every token, by name.
    ///
    /// # Errors
    /// The database cannot be used.
    pub fn list(&self) -> Result<Vec<StoredToken>> {
        self.read().map_err(Error::from)
    }

    pub(crate) fn read(&self) -> llmc_store::Result<Vec<StoredToken>> {
        let sql = format!(
            "SELECT name, digest, read_only, tools, rate_rps, created_ms, expires_ms, expires_ms - {NOW} \
             FROM llmc.tokens ORDER BY name LIMIT {MAX_TOKENS}"
        );
        self.database.transaction(async |tx| {
            let rows = tx.query(&sql, &[]).await?;
            rows.iter().map(stored).collect()
        })
    }

    /// Removes a token; servers learn it at once.
    ///
    /// # Errors
    /// There is none of that name, or the database cannot be used.
    pub fn revoke(&self, name: &TokenName) -> Result<()> {
        let is_retry = std::cell::Cell::new(false);
        let removed = self.database.transaction(async |tx| {
            let sql = "DELETE FROM llmc.tokens WHERE name = $1";
            let removed = tx.execute(sql, &[&name.0]).await?;
            // The first try may have been committed before its connection was lost.
            Ok::<_, llmc_store::Error>(removed > 0 || is_retry.replace(true))
        });
        match removed.map_err(Error::from)? {
            true => Ok(()),
            false => Err(
                Error::new(ErrorKind::NotFound, format!("there is no token {name}"))
                    .hint("llmc token list shows them"),
            ),
        }
    }
}

fn stored(row: &Row) -> llmc_store::Result<StoredToken> {
    let mut digest = [0; 32];
    let bytes: &[u8] = row.try_get(1)?;
    if bytes.len() != digest.len() {
        return Err(llmc_store::Error::Failed(
            "a digest of a token is damaged".to_owned(),
        ));
    }
    digest.copy_from_slice(bytes);
    let rate: Option<i64> = row.try_get(4)?;
    let left_ms: Option<i64> = row.try_get(7)?;
    Ok(StoredToken {
        name: row.try_get(0)?,
        digest,
        read_only: row.try_get(2)?,
        tools: row.try_get(3)?,
        rate_rps: rate.and_then(|rate| u64::try_from(rate).ok()),
        created_ms: row.try_get(5)?,
        expires_ms: row.try_get(6)?,
        expires_in: left_ms.map(|ms| Duration::from_millis(u64::try_from(ms).unwrap_or(0))),
    })
}
