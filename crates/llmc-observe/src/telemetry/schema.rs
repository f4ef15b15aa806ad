//! The tables of the telemetry file.

use llmc_envelope::store::SqlSchema;

/// The version of the store's file.
pub const TELEMETRY_VERSION: i32 = 1;

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
