-- What providers have answered to prepared requests; kept like them (RC-20).

CREATE TABLE answers (
    id uuid PRIMARY KEY,
    snapshot uuid NOT NULL REFERENCES snapshots,
    position bigint GENERATED ALWAYS AS IDENTITY,
    answer jsonb NOT NULL,
    stored_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX answers_of_snapshot ON answers (snapshot, position);
CREATE TRIGGER answers_are_kept BEFORE UPDATE OR DELETE OR TRUNCATE ON answers EXECUTE FUNCTION refuse_change();
