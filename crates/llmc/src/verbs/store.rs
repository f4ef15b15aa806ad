//! `llmc store`: the database that several servers share.

use std::fmt::Write;
use std::io::BufWriter;
use std::process::ExitCode;

use llmc_observe::SharedAudit;
use llmc_store::{Database, SCHEMA_VERSION};
use llmc_tools::{Error, ErrorKind, shared_database};

use super::{Failure, load, print};
use crate::cli::Common;

pub(super) fn database(common: &Common) -> Result<Database, Failure> {
    shared_database(&load(common)?.config.mcp.store)?.ok_or_else(|| {
        let missing = Error::new(ErrorKind::BadArgs, "mcp.store.url is not set");
        let missing = missing.hint("set it to postgres://user:password@host/database");
        missing.into()
    })
}

/// Prints the token audit of all servers.
pub(super) fn audit(common: &Common) -> Result<ExitCode, Failure> {
    let audit = SharedAudit::new(database(common)?, String::new(), 0);
    let mut out = BufWriter::new(std::io::stdout().lock());
    let written = audit.export(&mut out);
    let written = written.and_then(|()| std::io::Write::flush(&mut out));
    match written {
        Ok(()) => Ok(ExitCode::SUCCESS),
        // What read the output has ended.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(error) => Err(Error::new(ErrorKind::Unavailable, error.to_string()).into()),
    }
}

pub(super) fn migrate(common: &Common) -> Result<ExitCode, Failure> {
    let database = database(common)?;
    let done = database.create_tables().map_err(Error::from)?;
    let settings = database.settings();
    let mut out = match done.created_tables {
        true => format!("created schema {SCHEMA_VERSION}"),
        false => format!("schema {SCHEMA_VERSION} was there already"),
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
