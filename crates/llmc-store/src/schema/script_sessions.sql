-- Which server has which script session, by the clock of the database. The key is a digest of principal and name.

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
