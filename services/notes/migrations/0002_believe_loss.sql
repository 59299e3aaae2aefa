-- Set by an operator who knows that what is missing was deleted; taken back once a scan has used it.
ALTER TABLE workspaces ADD COLUMN believe_loss boolean NOT NULL DEFAULT false;
