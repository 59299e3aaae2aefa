-- Prepared requests: inserted and read, never changed or removed (RC-10, RC-19).

CREATE TABLE snapshots (
    id uuid PRIMARY KEY,
    -- The order of making; given under a lock, so that it is also the order of commits.
    position bigint GENERATED ALWAYS AS IDENTITY UNIQUE,
    -- The record as its line of JSON, byte for byte as it was made or imported (RC-17).
    line text NOT NULL,
    stored_at timestamptz NOT NULL DEFAULT now()
);

CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'rows of % are kept as they are', TG_TABLE_NAME USING ERRCODE = 'insufficient_privilege';
END $$;
CREATE TRIGGER snapshots_are_kept BEFORE UPDATE OR DELETE OR TRUNCATE ON snapshots EXECUTE FUNCTION refuse_change();
