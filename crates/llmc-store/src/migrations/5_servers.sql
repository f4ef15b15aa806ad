-- Servers that are running, the calls that one of them carries out for another, and which of them has which script
-- session. All times are by the clock of the database.

CREATE TABLE llmc.servers (
    tenant     text NOT NULL DEFAULT current_setting('llmc.tenant') CHECK (tenant <> ''),
    id         text NOT NULL,
    machine    text NOT NULL,
    version    text NOT NULL,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant, id)
);
ALTER TABLE llmc.servers ENABLE ROW LEVEL SECURITY;
ALTER TABLE llmc.servers FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON llmc.servers
    USING (tenant = current_setting('llmc.tenant', true))
    WITH CHECK (tenant = current_setting('llmc.tenant', true));

-- A row lives as long as its call: the server that asks removes it, which also cancels a call without an answer.
CREATE TABLE llmc.forwarded_calls (
    tenant     text NOT NULL DEFAULT current_setting('llmc.tenant') CHECK (tenant <> ''),
    id         text NOT NULL,
    origin     text NOT NULL,
    target     text NOT NULL,
    request    text NOT NULL,
    answer     text,
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (tenant, id)
);
ALTER TABLE llmc.forwarded_calls ENABLE ROW LEVEL SECURITY;
ALTER TABLE llmc.forwarded_calls FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON llmc.forwarded_calls
    USING (tenant = current_setting('llmc.tenant', true))
    WITH CHECK (tenant = current_setting('llmc.tenant', true));
CREATE INDEX forwarded_calls_by_target ON llmc.forwarded_calls (tenant, target) WHERE answer IS NULL;
CREATE INDEX forwarded_calls_by_end ON llmc.forwarded_calls (tenant, expires_at);

-- The key is a digest of principal and name.
CREATE TABLE llmc.script_sessions (
    tenant  text NOT NULL DEFAULT current_setting('llmc.tenant') CHECK (tenant <> ''),
    key     text NOT NULL,
    server  text NOT NULL,
    used_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant, key)
);
ALTER TABLE llmc.script_sessions ENABLE ROW LEVEL SECURITY;
ALTER TABLE llmc.script_sessions FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON llmc.script_sessions
    USING (tenant = current_setting('llmc.tenant', true))
    WITH CHECK (tenant = current_setting('llmc.tenant', true));
CREATE INDEX script_sessions_by_use ON llmc.script_sessions (tenant, used_at);
