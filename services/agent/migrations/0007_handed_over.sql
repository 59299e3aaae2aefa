-- How often an agent that was told to stop has left the turn to another: attempts that nothing was lost in.
ALTER TABLE turns ADD COLUMN handed_over int NOT NULL DEFAULT 0;
