-- The words of each note's text, for the mention menu; see content_words.py.
CREATE TABLE note_words (
    workspace uuid NOT NULL,
    path text COLLATE "C" NOT NULL,
    words tsvector NOT NULL,
    PRIMARY KEY (workspace, path),
    FOREIGN KEY (workspace, path) REFERENCES notes (workspace, path) ON DELETE CASCADE
);
CREATE INDEX note_words_by_word ON note_words USING gin (words);
-- Notes that are known already are read once more.
UPDATE notes SET ctime_ns = 0;

-- Where a note was that is no longer there: its last text, and where it went if that was seen. For references that lead to it.
CREATE TABLE departures (
    workspace uuid NOT NULL REFERENCES workspaces ON DELETE CASCADE,
    path text COLLATE "C" NOT NULL,
    content_hash text NOT NULL,
    moved_to text,
    PRIMARY KEY (workspace, path)
);
CREATE INDEX notes_by_hash ON notes (content_hash);
