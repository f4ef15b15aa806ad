-- What the files of a workspace were: entries, their changes, contents, and the newest state of every path. Entries have the
-- clock of the database. Texts are bytes where they might hold a NUL. The row of a workspace is locked by every write.

CREATE TABLE llmc.history_workspaces (
    tenant text NOT NULL DEFAULT current_setting('llmc.tenant') CHECK (tenant <> ''),
    number bigint GENERATED ALWAYS AS IDENTITY,
    -- The id that lies in the workspace, and a digest of its path.
    key text NOT NULL,
    path bytea NOT NULL,
    store_number bigint NOT NULL,
    generation bigint NOT NULL DEFAULT 0,
    looked_ns bigint NOT NULL DEFAULT 0,
    is_built boolean NOT NULL DEFAULT false,
    last_entry bigint NOT NULL DEFAULT 0,
    -- Which server takes the first snapshot.
    builder text,
    builder_seen_at timestamptz,
    used_on date NOT NULL DEFAULT current_date,
    PRIMARY KEY (tenant, number),
    UNIQUE (tenant, key)
);
ALTER TABLE llmc.history_workspaces ENABLE ROW LEVEL SECURITY;
ALTER TABLE llmc.history_workspaces FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON llmc.history_workspaces
    USING (tenant = current_setting('llmc.tenant', true))
    WITH CHECK (tenant = current_setting('llmc.tenant', true));

CREATE TABLE llmc.history_entries (
    tenant text NOT NULL DEFAULT current_setting('llmc.tenant') CHECK (tenant <> ''),
    workspace bigint NOT NULL,
    id bigint NOT NULL,
    -- Names the write, for a server that lost its connection before it heard of the commit.
    batch text NOT NULL,
    time_ms bigint NOT NULL,
    source bigint NOT NULL,
    principal bytea NOT NULL,
    agent bytea NOT NULL,
    session bytea NOT NULL,
    tool bytea NOT NULL,
    args bytea NOT NULL,
    created bigint NOT NULL,
    changed bigint NOT NULL,
    deleted bigint NOT NULL,
    moved bigint NOT NULL,
    not_kept bigint NOT NULL,
    ignored bigint NOT NULL,
    shared boolean NOT NULL,
    head_before bytea,
    head_after bytea,
    undoes bigint[] NOT NULL,
    steps bytea NOT NULL,
    not_undoable bytea,
    PRIMARY KEY (tenant, workspace, id)
);
ALTER TABLE llmc.history_entries ENABLE ROW LEVEL SECURITY;
ALTER TABLE llmc.history_entries FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON llmc.history_entries
    USING (tenant = current_setting('llmc.tenant', true))
    WITH CHECK (tenant = current_setting('llmc.tenant', true));
CREATE INDEX history_entries_by_session ON llmc.history_entries (tenant, workspace, session, id);

CREATE TABLE llmc.history_changes (
    tenant text NOT NULL DEFAULT current_setting('llmc.tenant') CHECK (tenant <> ''),
    workspace bigint NOT NULL,
    entry bigint NOT NULL,
    path bytea NOT NULL,
    moved_from bytea,
    moved_to bytea,
    old_kind bigint NOT NULL,
    old_mode bigint NOT NULL,
    old_size bigint NOT NULL,
    old_id bytea,
    old_why bigint,
    new_kind bigint NOT NULL,
    new_mode bigint NOT NULL,
    new_size bigint NOT NULL,
    new_id bytea,
    new_why bigint,
    shared boolean NOT NULL,
    undone_by bigint
);
ALTER TABLE llmc.history_changes ENABLE ROW LEVEL SECURITY;
ALTER TABLE llmc.history_changes FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON llmc.history_changes
    USING (tenant = current_setting('llmc.tenant', true))
    WITH CHECK (tenant = current_setting('llmc.tenant', true));
-- A path may be longer than a key of an index.
CREATE UNIQUE INDEX history_changes_by_entry ON llmc.history_changes (tenant, workspace, entry, sha256(path));
CREATE INDEX history_changes_by_path ON llmc.history_changes (tenant, workspace, substring(path FOR 200), entry);
CREATE INDEX history_changes_by_old ON llmc.history_changes (tenant, workspace, old_id) WHERE old_id IS NOT NULL;
CREATE INDEX history_changes_by_new ON llmc.history_changes (tenant, workspace, new_id) WHERE new_id IS NOT NULL;
CREATE INDEX history_changes_undone ON llmc.history_changes (tenant, workspace, undone_by) WHERE undone_by IS NOT NULL;

CREATE TABLE llmc.history_snapshot (
    tenant text NOT NULL DEFAULT current_setting('llmc.tenant') CHECK (tenant <> ''),
    workspace bigint NOT NULL,
    -- The digest is the key: a path may be longer than a key of an index.
    digest bytea NOT NULL,
    path bytea NOT NULL,
    gen bigint NOT NULL,
    kind bigint NOT NULL,
    mode bigint NOT NULL,
    size bigint NOT NULL,
    id bytea,
    why bigint,
    mtime_ns bigint NOT NULL,
    ctime_ns bigint NOT NULL,
    inode bigint NOT NULL,
    flags bigint NOT NULL,
    PRIMARY KEY (tenant, workspace, digest)
);
ALTER TABLE llmc.history_snapshot ENABLE ROW LEVEL SECURITY;
ALTER TABLE llmc.history_snapshot FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON llmc.history_snapshot
    USING (tenant = current_setting('llmc.tenant', true))
    WITH CHECK (tenant = current_setting('llmc.tenant', true));
CREATE INDEX history_snapshot_by_gen ON llmc.history_snapshot (tenant, workspace, gen, digest);
CREATE INDEX history_snapshot_by_id ON llmc.history_snapshot (tenant, workspace, id) WHERE id IS NOT NULL;

CREATE TABLE llmc.history_objects (
    tenant text NOT NULL DEFAULT current_setting('llmc.tenant') CHECK (tenant <> ''),
    number bigint GENERATED ALWAYS AS IDENTITY,
    workspace bigint NOT NULL,
    id bytea NOT NULL CHECK (octet_length(id) = 20),
    size bigint NOT NULL,
    is_compressed boolean NOT NULL,
    -- Bytes as stored.
    bytes bigint NOT NULL,
    added_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- A large content is in chunks, and incomplete until all of them are there.
    is_complete boolean NOT NULL,
    body bytea,
    PRIMARY KEY (tenant, number)
);
ALTER TABLE llmc.history_objects ENABLE ROW LEVEL SECURITY;
ALTER TABLE llmc.history_objects FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON llmc.history_objects
    USING (tenant = current_setting('llmc.tenant', true))
    WITH CHECK (tenant = current_setting('llmc.tenant', true));
CREATE UNIQUE INDEX history_objects_by_id ON llmc.history_objects (tenant, workspace, id) WHERE is_complete;
CREATE INDEX history_objects_by_number ON llmc.history_objects (tenant, workspace, number) INCLUDE (bytes);
-- They are compressed already.
ALTER TABLE llmc.history_objects ALTER COLUMN body SET STORAGE EXTERNAL;

CREATE TABLE llmc.history_chunks (
    tenant text NOT NULL DEFAULT current_setting('llmc.tenant') CHECK (tenant <> ''),
    object bigint NOT NULL,
    n bigint NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (tenant, object, n),
    FOREIGN KEY (tenant, object) REFERENCES llmc.history_objects (tenant, number) ON DELETE CASCADE
);
ALTER TABLE llmc.history_chunks ENABLE ROW LEVEL SECURITY;
ALTER TABLE llmc.history_chunks FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON llmc.history_chunks
    USING (tenant = current_setting('llmc.tenant', true))
    WITH CHECK (tenant = current_setting('llmc.tenant', true));
ALTER TABLE llmc.history_chunks ALTER COLUMN data SET STORAGE EXTERNAL;

CREATE TABLE llmc.history_active (
    tenant text NOT NULL DEFAULT current_setting('llmc.tenant') CHECK (tenant <> ''),
    workspace bigint NOT NULL,
    call text NOT NULL,
    server text NOT NULL,
    shared boolean NOT NULL,
    -- A server writes this every few seconds while the call runs.
    seen_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant, workspace, call)
);
ALTER TABLE llmc.history_active ENABLE ROW LEVEL SECURITY;
ALTER TABLE llmc.history_active FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON llmc.history_active
    USING (tenant = current_setting('llmc.tenant', true))
    WITH CHECK (tenant = current_setting('llmc.tenant', true));

CREATE TABLE llmc.history_plans (
    tenant text NOT NULL DEFAULT current_setting('llmc.tenant') CHECK (tenant <> ''),
    workspace bigint NOT NULL,
    id text NOT NULL,
    server text NOT NULL,
    plan text NOT NULL,
    seen_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant, workspace, id)
);
ALTER TABLE llmc.history_plans ENABLE ROW LEVEL SECURITY;
ALTER TABLE llmc.history_plans FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON llmc.history_plans
    USING (tenant = current_setting('llmc.tenant', true))
    WITH CHECK (tenant = current_setting('llmc.tenant', true));
