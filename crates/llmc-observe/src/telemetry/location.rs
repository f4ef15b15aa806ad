//! Where telemetry is kept.

use std::fmt;
use std::path::{Path, PathBuf};

use llmc_store::Database;

/// A file of this machine, or the database that the servers of a team share.
#[derive(Clone)]
pub enum TelemetryLocation {
    File(PathBuf),
    Database(Database),
}

impl fmt::Debug for TelemetryLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TelemetryLocation::File(path) => path.fmt(f),
            TelemetryLocation::Database(database) => database.fmt(f),
        }
    }
}

impl From<PathBuf> for TelemetryLocation {
    fn from(path: PathBuf) -> TelemetryLocation {
        TelemetryLocation::File(path)
    }
}

impl From<&Path> for TelemetryLocation {
    fn from(path: &Path) -> TelemetryLocation {
        TelemetryLocation::File(path.to_owned())
    }
}

impl From<&PathBuf> for TelemetryLocation {
    fn from(path: &PathBuf) -> TelemetryLocation {
        TelemetryLocation::File(path.clone())
    }
}

impl From<Database> for TelemetryLocation {
    fn from(database: Database) -> TelemetryLocation {
        TelemetryLocation::Database(database)
    }
}
