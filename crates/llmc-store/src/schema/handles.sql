-- Results that answers left out. Times are milliseconds since the epoch by the clock of the database.
-- Texts that a caller gives are kept as bytes where they might hold a NUL, which a text of PostgreSQL cannot.

CREATE TABLE llmc.handles (
    tenant       text NOT NULL DEFAULT current_setting('llmc.tenant') CHECK (tenant <> ''),
    seq          bigint GENERATED ALWAYS AS IDENTITY,
    id           text NOT NULL,
    owner        bytea NOT NULL,
    kind         bytea NOT NULL,
    meta         text NOT NULL,
    pending      boolean NOT NULL,
    kept_file    boolean NOT NULL,
    total_bytes  bigint NOT NULL,
    stored_bytes bigint NOT NULL,
    created_ms   bigint NOT NULL,
    expires_ms   bigint NOT NULL,
    source_path  bytea,
    source_size  bigint,
    source_mtime bigint,
    source_sha   text,
    PRIMARY KEY (tenant, seq),
    UNIQUE (tenant, id)
);
ALTER TABLE llmc.handles ENABLE ROW LEVEL SECURITY;
ALTER TABLE llmc.handles FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON llmc.handles
    USING (tenant = current_setting('llmc.tenant', true))
    WITH CHECK (tenant = current_setting('llmc.tenant', true));
CREATE INDEX handles_by_age ON llmc.handles (tenant, created_ms, seq) INCLUDE (pending, stored_bytes);
CREATE INDEX handles_by_end ON llmc.handles (tenant, expires_ms);
CREATE INDEX handles_by_owner ON llmc.handles (tenant, owner, created_ms);

CREATE TABLE llmc.handle_blocks (
    tenant       text NOT NULL DEFAULT current_setting('llmc.tenant') CHECK (tenant <> ''),
    handle       bigint NOT NULL,
    n            bigint NOT NULL,
    codec        bigint NOT NULL,
    data         bytea NOT NULL,
    PRIMARY KEY (tenant, handle, n),
    FOREIGN KEY (tenant, handle) REFERENCES llmc.handles (tenant, seq) ON DELETE CASCADE
);
ALTER TABLE llmc.handle_blocks ENABLE ROW LEVEL SECURITY;
ALTER TABLE llmc.handle_blocks FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON llmc.handle_blocks
    USING (tenant = current_setting('llmc.tenant', true))
    WITH CHECK (tenant = current_setting('llmc.tenant', true));
-- They are compressed already.
ALTER TABLE llmc.handle_blocks ALTER COLUMN data SET STORAGE EXTERNAL;

CREATE TABLE llmc.handle_chunks (
    tenant       text NOT NULL DEFAULT current_setting('llmc.tenant') CHECK (tenant <> ''),
    handle       bigint NOT NULL,
    budget       bigint NOT NULL,
    n            bigint NOT NULL,
    start        bigint NOT NULL,
    len          bigint NOT NULL,
    PRIMARY KEY (tenant, handle, budget, n),
    FOREIGN KEY (tenant, handle) REFERENCES llmc.handles (tenant, seq) ON DELETE CASCADE
);
ALTER TABLE llmc.handle_chunks ENABLE ROW LEVEL SECURITY;
ALTER TABLE llmc.handle_chunks FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON llmc.handle_chunks
    USING (tenant = current_setting('llmc.tenant', true))
    WITH CHECK (tenant = current_setting('llmc.tenant', true));
