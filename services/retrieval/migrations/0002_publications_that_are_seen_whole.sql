-- A chunk's point in the index never changes: other words, filters or vectors' text make another point. New ones are in the index before
-- they are published, old ones stay until nobody can still be reading the publication that had them.
ALTER TABLE chunks ADD COLUMN point uuid;
UPDATE chunks SET point = id;
ALTER TABLE chunks ALTER COLUMN point SET NOT NULL;
ALTER TABLE chunks DROP COLUMN point_hash;
CREATE UNIQUE INDEX chunks_by_point ON chunks (point);
DROP INDEX chunks_to_write;
CREATE INDEX chunks_to_write ON chunks (workspace) WHERE NOT in_index;

-- Its vector of the present space is known, whether or not the index has it just now: what the vectors' publication counts.
ALTER TABLE chunks ADD COLUMN embedded boolean NOT NULL DEFAULT false;
UPDATE chunks SET embedded = dense;
CREATE INDEX chunks_to_know ON chunks (workspace) WHERE NOT embedded;

ALTER TABLE removals RENAME COLUMN chunk TO point;
ALTER TABLE removals
    ADD COLUMN due_at timestamptz NOT NULL DEFAULT now(),
    -- the index is known to hold it; not so while it is being written, or where a write was not answered
    ADD COLUMN certain boolean NOT NULL DEFAULT false;
CREATE INDEX removals_due ON removals (due_at);

-- What evidence says about its note: how often it was published, and its front matter's source and category.
ALTER TABLE documents
    ADD COLUMN published int NOT NULL DEFAULT 1,
    ADD COLUMN source_url text,
    ADD COLUMN category text;

ALTER TABLE publications DROP COLUMN fingerprint, DROP COLUMN fingerprint_generation;

-- Changes that wait for a publication by hand. `content_hash` NULL: the note has gone.
CREATE TABLE held (
    workspace uuid NOT NULL,
    path text COLLATE "C" NOT NULL,
    content_hash text,
    revision bigint NOT NULL,
    -- where the note stands in the present publication, if elsewhere
    moved_from text COLLATE "C",
    since timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (workspace, path)
);
