//! `llmc store`: the database that several servers share.

use std::fmt::Write;
use std::process::ExitCode;

use llmc_tools::{Error, ErrorKind, shared_database};

use super::{Failure, load, print};
use crate::cli::Common;

pub(super) fn migrate(common: &Common) -> Result<ExitCode, Failure> {
    let loaded = load(common)?;
    let Some(database) = shared_database(&loaded.config.mcp.store)? else {
        let missing = Error::new(ErrorKind::BadArgs, "mcp.store.url is not set")
            .hint("set it to postgres://user:password@host/database");
        return Err(missing.into());
    };
    let done = database.migrate().map_err(Error::from)?;
    let settings = database.settings();
    let mut out = match (done.from, done.to) {
        (0, to) => format!("created schema {to}"),
        (from, to) if from == to => format!("schema {to} was there already"),
        (from, to) => format!("upgraded schema {from} to {to}"),
    };
    let _ = write!(out, " in {}", settings.url);
    if done.created_role {
        out.push_str("; created its role");
    }
    // What servers would find out by being refused.
    database.check().map_err(Error::from)?;
    print(&out)?;
    Ok(ExitCode::SUCCESS)
}
