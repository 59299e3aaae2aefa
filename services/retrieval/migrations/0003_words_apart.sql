-- A chunk's words, apart from what is noted about the chunk again and again: each new version of a row enters all of its words anew.
-- With all that a search by words needs to know.
CREATE TABLE words (
    chunk uuid PRIMARY KEY REFERENCES chunks ON DELETE CASCADE,
    point uuid NOT NULL,
    workspace uuid NOT NULL,
    document uuid NOT NULL,
    exchange boolean NOT NULL,
    -- the sparse vector; word ids as signed 32 bit
    tokens int[] NOT NULL,
    weights real[] NOT NULL
);
INSERT INTO words (chunk, point, workspace, document, exchange, tokens, weights)
    SELECT id, point, workspace, document, exchange, tokens, weights FROM chunks;
ALTER TABLE chunks DROP COLUMN tokens, DROP COLUMN weights;
-- For the answer by words alone while the engine is away.
CREATE INDEX words_by_token ON words USING gin (tokens);
