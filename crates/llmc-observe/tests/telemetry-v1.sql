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
CREATE INDEX calls_by_time ON calls (time_ms);
