-- Named tokens of HTTP callers, as digests. Times are milliseconds since the epoch by the clock of the database.

CREATE TABLE llmc.tokens (
    tenant     text NOT NULL DEFAULT current_setting('llmc.tenant') CHECK (tenant <> ''),
    name       text NOT NULL CHECK (name <> ''),
    digest     bytea NOT NULL CHECK (octet_length(digest) = 32),
    read_only  boolean NOT NULL,
    tools      text[],
    rate_rps   bigint CHECK (rate_rps > 0),
    created_ms bigint NOT NULL,
    expires_ms bigint,
    PRIMARY KEY (tenant, name),
    UNIQUE (tenant, digest)
);
ALTER TABLE llmc.tokens ENABLE ROW LEVEL SECURITY;
ALTER TABLE llmc.tokens FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON llmc.tokens
    USING (tenant = current_setting('llmc.tenant', true))
    WITH CHECK (tenant = current_setting('llmc.tenant', true));

-- Servers listen on this channel, and read the tokens again. It has no payload: tenants share it.
CREATE FUNCTION llmc.notify_token_change() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN PERFORM pg_notify(''llmc_tokens'', ''''); RETURN NULL; END';
CREATE TRIGGER notify_change AFTER INSERT OR UPDATE OR DELETE ON llmc.tokens
    FOR EACH STATEMENT EXECUTE FUNCTION llmc.notify_token_change();
