-- Turns that wait for the user's consent to a change of a note.

-- How often the turn has waited; its other attempts are those whose agent was lost.
ALTER TABLE turns ADD COLUMN suspensions int NOT NULL DEFAULT 0;
-- When it began, or went on after it had waited.
ALTER TABLE turns ADD COLUMN active_since timestamptz NOT NULL DEFAULT now();

-- What the user has decided, once for each call.
CREATE TABLE approvals (
    turn_id uuid NOT NULL REFERENCES turns ON DELETE CASCADE,
    tool_call_id text NOT NULL,
    decision text NOT NULL CHECK (decision IN ('approve', 'reject')),
    decided_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (turn_id, tool_call_id)
);
