-- What parsing found in a source, by the hash of its content. The data has places in the source and no text of it.

CREATE TABLE llmc.index_units (
    tenant   text NOT NULL DEFAULT current_setting('llmc.tenant') CHECK (tenant <> ''),
    hash     bytea NOT NULL CHECK (octet_length(hash) = 16),
    language text NOT NULL,
    -- Programs whose parsers differ have rows of their own.
    format   integer NOT NULL,
    -- The day of the last use, within a week.
    used_on  date NOT NULL,
    data     bytea NOT NULL,
    PRIMARY KEY (tenant, hash, language, format)
);
ALTER TABLE llmc.index_units ENABLE ROW LEVEL SECURITY;
ALTER TABLE llmc.index_units FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON llmc.index_units
    USING (tenant = current_setting('llmc.tenant', true))
    WITH CHECK (tenant = current_setting('llmc.tenant', true));
CREATE INDEX index_units_by_day ON llmc.index_units (tenant, used_on);
-- It is compressed already.
ALTER TABLE llmc.index_units ALTER COLUMN data SET STORAGE EXTERNAL;
