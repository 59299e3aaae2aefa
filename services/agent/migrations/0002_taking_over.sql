-- What an agent needs to go on with a turn whose agent is gone.

-- What was asked for, the message apart: the fields of `agent.turn.start` as resolved, the account's role, the notices to give.
ALTER TABLE turns ADD COLUMN assignment jsonb;
-- Where the last whole round ended: the rounds so far as they are stored with the message, and the text and activity up to there.
-- `log` then holds the events up to there, too; the whole log once the turn has ended.
ALTER TABLE turns ADD COLUMN checkpoint jsonb;
