//! The database of a team, as the configuration names it.

use llmc_config::StoreConfig;
use llmc_store::{Database, DatabaseSettings, DatabaseUrl, Tenant};

use crate::error::{Error, Result};

/// The database of `mcp.store.url`; `None` when every store is in the state directory. Connects to nothing.
///
/// # Errors
/// An address that cannot be read; the text quotes none of it.
pub fn shared_database(config: &StoreConfig) -> Result<Option<Database>> {
    let url = |text: &str| match text.is_empty() {
        true => Ok(None),
        false => DatabaseUrl::parse(text).map(Some).map_err(Error::from),
    };
    let admin_url = url(&config.admin_url)?;
    let Some(url) = url(&config.url)? else {
        return Ok(None);
    };
    let tenant = Tenant::parse(&config.tenant)
        .ok_or_else(|| Error::bad_args("mcp.store.tenant is not the name of a tenant"))?;
    Ok(Some(Database::new(DatabaseSettings {
        url,
        admin_url,
        tenant,
        max_connections: usize::try_from(config.max_connections).unwrap_or(1),
    })))
}
