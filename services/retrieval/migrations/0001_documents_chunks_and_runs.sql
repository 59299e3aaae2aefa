-- What readers of a workspace see: raised with each committed batch.
CREATE TABLE publications (
    workspace uuid PRIMARY KEY,
    publish text NOT NULL DEFAULT 'auto' CHECK (publish IN ('auto', 'manual')),
    generation bigint NOT NULL DEFAULT 0,
    published_at timestamptz NOT NULL DEFAULT now(),
    vector_generation bigint NOT NULL DEFAULT 0,
    vectors_at timestamptz,
    catalog_revision bigint NOT NULL DEFAULT 0,
    -- SHA-256 over paths and hashes, and the generation it was computed for
    fingerprint text,
    fingerprint_generation bigint
);

-- A note as it was indexed. The id survives a move.
CREATE TABLE documents (
    id uuid PRIMARY KEY,
    workspace uuid NOT NULL,
    path text COLLATE "C" NOT NULL,
    title text NOT NULL,
    tags text[] NOT NULL,
    content_hash text NOT NULL,
    revision bigint NOT NULL,
    -- known, but not to be found: withdrawn by its front matter, or unreadable
    excluded boolean NOT NULL DEFAULT false,
    modified_at timestamptz NOT NULL,
    -- by which version of the cutting
    cut_version int NOT NULL,
    UNIQUE (workspace, path)
);

CREATE TABLE chunks (
    id uuid PRIMARY KEY,
    document uuid NOT NULL REFERENCES documents ON DELETE CASCADE,
    workspace uuid NOT NULL,
    ordinal int NOT NULL,
    heading_path text[] NOT NULL,
    start_at int NOT NULL,
    end_at int NOT NULL,
    text text NOT NULL,
    sha256 text NOT NULL,
    -- of what is embedded, headings included
    passage_sha bytea NOT NULL,
    -- the sparse vector; word ids as signed 32 bit
    tokens int[] NOT NULL,
    weights real[] NOT NULL,
    exchange boolean NOT NULL DEFAULT false,
    -- of all that the index holds of this chunk but its dense vector
    point_hash bytea NOT NULL,
    -- the outbox: false until the index has answered the write
    in_index boolean NOT NULL DEFAULT false,
    -- the point in the index has its dense vector
    dense boolean NOT NULL DEFAULT false
);
CREATE INDEX chunks_of_document ON chunks (document);
CREATE INDEX chunks_of_workspace ON chunks (workspace);
CREATE INDEX chunks_to_write ON chunks (id) WHERE NOT in_index;
CREATE INDEX chunks_to_embed ON chunks (document) WHERE NOT dense;
-- For the answer by words alone while the engine is away.
CREATE INDEX chunks_by_word ON chunks USING gin (tokens);

-- The outbox's other half: points that the index must forget.
CREATE TABLE removals (chunk uuid PRIMARY KEY);

-- Dense vectors by what was embedded: nothing is embedded twice. float32, little-endian.
CREATE TABLE vectors (
    space text NOT NULL,
    passage_sha bytea NOT NULL,
    vector bytea NOT NULL,
    PRIMARY KEY (space, passage_sha)
);

-- The embedding space that the index's dense vectors are of; one row.
CREATE TABLE embedding_space (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    space text NOT NULL
);

CREATE TABLE runs (
    id uuid PRIMARY KEY,
    account uuid,
    created_at timestamptz NOT NULL,
    body jsonb NOT NULL
);
CREATE INDEX runs_newest ON runs (created_at DESC, id);
CREATE INDEX runs_of_account ON runs (account, created_at DESC, id);
