-- Leases on files of the workspace, by the clock of the database. A row that has expired is free for the next holder.

CREATE TABLE llmc.leases (
    tenant     text NOT NULL DEFAULT current_setting('llmc.tenant') CHECK (tenant <> ''),
    name       text NOT NULL,
    path       bytea NOT NULL,
    holder     bytea NOT NULL,
    server     text NOT NULL,
    token      text NOT NULL,
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (tenant, name)
);
ALTER TABLE llmc.leases ENABLE ROW LEVEL SECURITY;
ALTER TABLE llmc.leases FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON llmc.leases
    USING (tenant = current_setting('llmc.tenant', true))
    WITH CHECK (tenant = current_setting('llmc.tenant', true));
