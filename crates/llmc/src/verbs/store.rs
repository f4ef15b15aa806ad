//! `llmc store`: the database that several servers share.

use std::fmt::Write;
use std::io::BufWriter;
use std::process::ExitCode;

use indicatif::{HumanBytes, HumanCount};
use llmc_observe::{CopiedTexts, SharedAudit, Telemetry, TelemetryLocation, TelemetryOptions};
use llmc_store::Database;
use llmc_tools::{Error, ErrorKind, own_and_shared_handles, shared_database, telemetry_location};

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

/// Copies what this machine has recorded without the database.
pub(super) fn copy(common: &Common) -> Result<ExitCode, Failure> {
    let loaded = load(common)?;
    let (config, dir) = (&loaded.config, loaded.state_dir());
    let database = database(common)?;
    database.connect().map_err(Error::from)?;
    let mut out = String::new();
    let handles = own_and_shared_handles(&dir, &database, &config.mcp.handles)?;
    if let Some((own, shared)) = handles {
        let done = own.copy_to(&shared).map_err(Error::from)?;
        let (copied, known) = (HumanCount(done.copied), HumanCount(done.known));
        let bytes = HumanBytes(done.bytes);
        let _ = writeln!(
            out,
            "handles: {copied} copied ({bytes}), {known} there already"
        );
        if done.left_out > 0 {
            let count = HumanCount(done.left_out);
            let _ = writeln!(out, "handles left out: {count}, damaged or too large");
        }
    }
    let calls = telemetry_location(config, Some(&dir), None);
    if let Some(TelemetryLocation::File(path)) = calls
        && path.exists()
    {
        let texts = match config.mcp.observability.keep_contents {
            true => CopiedTexts::Keep,
            false => CopiedTexts::LeaveOut,
        };
        let days = u32::try_from(config.mcp.observability.retention_days).unwrap_or(u32::MAX);
        let options = TelemetryOptions {
            retention_days: days,
            ..TelemetryOptions::default()
        };
        let done = Telemetry::open(&path, options).and_then(|own| own.copy_to(database, texts));
        let done = done.map_err(|error| Error::new(ErrorKind::Unavailable, error.to_string()))?;
        let (copied, known) = (HumanCount(done.copied), HumanCount(done.known));
        let _ = writeln!(out, "calls: {copied} copied, {known} there already");
    }
    if out.is_empty() {
        out.push_str("this machine has no handles and no telemetry\n");
    }
    let audit = loaded.csv_path();
    if audit.exists() {
        let _ = writeln!(out, "not copied: the token audit in {}", audit.display());
    }
    print(out.trim_end())?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn migrate(common: &Common) -> Result<ExitCode, Failure> {
    let database = database(common)?;
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
