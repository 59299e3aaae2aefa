-- A row outlives its directory: a vault that comes back has its id, and with it everything that others keep about it.
CREATE TABLE workspaces (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    directory text COLLATE "C" NOT NULL UNIQUE,
    root text NOT NULL,
    title text NOT NULL,
    notes_dir text NOT NULL,
    -- false while the directory is not among those to serve
    served boolean NOT NULL DEFAULT true,
    -- why its files cannot be relied on; null while they can
    problem text,
    available boolean NOT NULL GENERATED ALWAYS AS (problem IS NULL) STORED,
    -- device and inode of the notes' directory at the last scan that was believed
    root_identity text,
    scanned_at timestamptz,
    revision bigint NOT NULL DEFAULT 0,
    notes int NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE members (
    workspace uuid NOT NULL REFERENCES workspaces ON DELETE CASCADE,
    account_id uuid NOT NULL,
    access text NOT NULL CHECK (access IN ('read', 'write')),
    PRIMARY KEY (account_id, workspace)
);
CREATE INDEX members_by_workspace ON members (workspace);

CREATE TABLE notes (
    workspace uuid NOT NULL REFERENCES workspaces ON DELETE CASCADE,
    -- NFC, relative to the notes' directory; ordered by its bytes wherever the database runs
    path text COLLATE "C" NOT NULL,
    title text NOT NULL,
    tags text[] NOT NULL,
    -- the tags and the tags above them (a of a/b), folded for comparing
    tag_keys text[] NOT NULL,
    content_hash text NOT NULL,
    size bigint NOT NULL,
    mtime_ns bigint NOT NULL,
    ctime_ns bigint NOT NULL,
    inode bigint NOT NULL,
    modified_at timestamptz NOT NULL,
    revision bigint NOT NULL,
    PRIMARY KEY (workspace, path)
);
CREATE INDEX notes_by_tag ON notes USING gin (tag_keys);

-- What happened and is to be told, in order of the revision within a workspace.
CREATE TABLE changes (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    workspace uuid NOT NULL REFERENCES workspaces ON DELETE CASCADE,
    revision bigint NOT NULL,
    kind text NOT NULL CHECK (kind IN ('created', 'updated', 'moved', 'deleted')),
    path text NOT NULL,
    content_hash text,
    from_path text,
    changed_at timestamptz NOT NULL DEFAULT now(),
    sent_at timestamptz,
    UNIQUE (workspace, revision)
);
CREATE INDEX changes_to_send ON changes (workspace, revision) WHERE sent_at IS NULL;
CREATE INDEX changes_sent ON changes (sent_at) WHERE sent_at IS NOT NULL;
