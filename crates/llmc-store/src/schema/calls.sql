-- Telemetry and the token audit of all servers. Times are milliseconds since the epoch by the clock of the database.

-- Numbers are taken under a lock of the tenant, so that a reader that has seen a number has seen all smaller ones.
CREATE SEQUENCE llmc.call_numbers;
CREATE TABLE llmc.calls (
    tenant              text NOT NULL DEFAULT current_setting('llmc.tenant') CHECK (tenant <> ''),
    seq                 bigint NOT NULL,
    batch               text NOT NULL,
    time_ms             bigint NOT NULL,
    source              text NOT NULL,
    agent               text NOT NULL,
    session             text NOT NULL,
    model               text NOT NULL,
    cmd                 text NOT NULL,
    mode                text NOT NULL,
    bytes_in            bigint NOT NULL,
    bytes_out           bigint NOT NULL,
    tokens_in           bigint NOT NULL,
    tokens_served       bigint NOT NULL,
    tokens_withheld     bigint NOT NULL,
    tokens_fetched_back bigint NOT NULL,
    latency_ms          double precision NOT NULL,
    truncated           boolean NOT NULL,
    handle              text,
    error               text,
    principal           text NOT NULL,
    server              text NOT NULL,
    client              text,
    correlation_id      text NOT NULL,
    path                text,
    entry               text,
    args                text,
    PRIMARY KEY (tenant, seq)
);
ALTER TABLE llmc.calls ENABLE ROW LEVEL SECURITY;
ALTER TABLE llmc.calls FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON llmc.calls
    USING (tenant = current_setting('llmc.tenant', true))
    WITH CHECK (tenant = current_setting('llmc.tenant', true));
CREATE INDEX calls_by_time ON llmc.calls (tenant, time_ms);
CREATE INDEX calls_by_session ON llmc.calls (tenant, session, seq);

CREATE TABLE llmc.call_contents (
    tenant     text NOT NULL DEFAULT current_setting('llmc.tenant') CHECK (tenant <> ''),
    seq        bigint NOT NULL,
    bytes      bigint NOT NULL,
    args_cut   boolean NOT NULL,
    answer_cut boolean NOT NULL,
    args       text NOT NULL,
    answer     text NOT NULL,
    PRIMARY KEY (tenant, seq)
);
ALTER TABLE llmc.call_contents ENABLE ROW LEVEL SECURITY;
ALTER TABLE llmc.call_contents FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON llmc.call_contents
    USING (tenant = current_setting('llmc.tenant', true))
    WITH CHECK (tenant = current_setting('llmc.tenant', true));

CREATE TABLE llmc.audit (
    tenant              text NOT NULL DEFAULT current_setting('llmc.tenant') CHECK (tenant <> ''),
    id                  text NOT NULL,
    time_ms             bigint NOT NULL,
    server              text NOT NULL,
    correlation_id      text NOT NULL,
    session_id          text NOT NULL,
    agent_id            text NOT NULL,
    tool                text NOT NULL,
    tokens_in           bigint NOT NULL,
    tokens_out          bigint NOT NULL,
    tokens_withheld     bigint NOT NULL,
    tokens_fetched_back bigint NOT NULL,
    duration_ms         double precision NOT NULL,
    status              text NOT NULL,
    PRIMARY KEY (tenant, id)
);
ALTER TABLE llmc.audit ENABLE ROW LEVEL SECURITY;
ALTER TABLE llmc.audit FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON llmc.audit
    USING (tenant = current_setting('llmc.tenant', true))
    WITH CHECK (tenant = current_setting('llmc.tenant', true));
CREATE INDEX audit_by_time ON llmc.audit (tenant, time_ms, id);
