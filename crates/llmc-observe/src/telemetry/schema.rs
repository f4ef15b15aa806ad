//! The tables of the telemetry file, and how a file of the version before becomes one of this version.

use llmc_envelope::store::{SqlSchema, SqlUpgrade};

/// The version of the store's file.
pub const TELEMETRY_VERSION: i32 = 2;

/// The version of a file that the next process to record a call upgrades.
pub const UPGRADED_TELEMETRY_VERSION: i32 = 1;

/// Columns after `args` are new in version 2. They may be missing from a row: a server of the version before that has
/// the file open writes the others only.
pub(super) const SCHEMA: SqlSchema = SqlSchema {
    version: TELEMETRY_VERSION,
    sql: "
CREATE TABLE calls (
    seq                 INTEGER PRIMARY KEY,
    time_ms             INTEGER NOT NULL,
    source              TEXT NOT NULL,
    agent               TEXT,
    session             TEXT,
    model               TEXT,
    cmd                 TEXT NOT NULL,
    mode                TEXT NOT NULL,
    bytes_in            INTEGER NOT NULL,
    bytes_out           INTEGER NOT NULL,
    tokens_in           INTEGER NOT NULL,
    tokens_served       INTEGER NOT NULL,
    tokens_withheld     INTEGER NOT NULL,
    tokens_fetched_back INTEGER NOT NULL,
    latency_ms          REAL NOT NULL,
    truncated           INTEGER NOT NULL,
    handle              TEXT,
    error               TEXT,
    args                TEXT,
    principal           TEXT,
    server              TEXT,
    client              TEXT,
    correlation_id      TEXT,
    path                TEXT,
    entry               TEXT
);
CREATE INDEX calls_by_time ON calls (time_ms);
CREATE TABLE contents (
    seq        INTEGER PRIMARY KEY,
    bytes      INTEGER NOT NULL,
    args_cut   INTEGER NOT NULL,
    answer_cut INTEGER NOT NULL,
    args       TEXT NOT NULL,
    answer     TEXT NOT NULL
);",
};

pub(super) const UPGRADE: SqlUpgrade = SqlUpgrade {
    from: SqlSchema {
        version: UPGRADED_TELEMETRY_VERSION,
        sql: "
CREATE TABLE calls (
    seq                 INTEGER PRIMARY KEY,
    time_ms             INTEGER NOT NULL,
    source              TEXT NOT NULL,
    agent               TEXT,
    session             TEXT,
    model               TEXT,
    cmd                 TEXT NOT NULL,
    mode                TEXT NOT NULL,
    bytes_in            INTEGER NOT NULL,
    bytes_out           INTEGER NOT NULL,
    tokens_in           INTEGER NOT NULL,
    tokens_served       INTEGER NOT NULL,
    tokens_withheld     INTEGER NOT NULL,
    tokens_fetched_back INTEGER NOT NULL,
    latency_ms          REAL NOT NULL,
    truncated           INTEGER NOT NULL,
    handle              TEXT,
    error               TEXT,
    args                TEXT
);
CREATE INDEX calls_by_time ON calls (time_ms);",
    },
    before: "DROP INDEX calls_by_time; ALTER TABLE calls RENAME TO calls_before;",
    after: "
INSERT INTO calls (seq, time_ms, source, agent, session, model, cmd, mode, bytes_in, bytes_out, tokens_in, tokens_served,
    tokens_withheld, tokens_fetched_back, latency_ms, truncated, handle, error, args)
SELECT seq, time_ms, source, agent, session, model, cmd, mode, bytes_in, bytes_out, tokens_in, tokens_served,
    tokens_withheld, tokens_fetched_back, latency_ms, truncated, handle, error, args FROM calls_before;
DROP TABLE calls_before;",
};
