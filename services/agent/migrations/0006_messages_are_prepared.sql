-- Whether the notes that a user's message mentions were looked for: they are once, and what was found stays.
ALTER TABLE messages ADD COLUMN prepared boolean NOT NULL DEFAULT false;
UPDATE messages SET prepared = true WHERE injected <> '[]';
