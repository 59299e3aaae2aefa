-- A chunk's words, apart from what is noted about the chunk again and again: each new version of a row enters all of its words anew.
CREATE TABLE words (
    chunk uuid PRIMARY KEY REFERENCES chunks ON DELETE CASCADE,
    -- the sparse vector; word ids as signed 32 bit
    tokens int[] NOT NULL,
    weights real[] NOT NULL
);
INSERT INTO words (chunk, tokens, weights) SELECT id, tokens, weights FROM chunks;
ALTER TABLE chunks DROP COLUMN tokens, DROP COLUMN weights;
-- For the answer by words alone while the engine is away.
CREATE INDEX words_by_token ON words USING gin (tokens);
