-- How often a note was published that is no more: one that comes at its place has its id, and goes on counting (RC-5).
CREATE TABLE former_documents (
    id uuid PRIMARY KEY,
    published int NOT NULL
);
