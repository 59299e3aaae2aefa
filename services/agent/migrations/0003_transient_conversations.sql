-- Conversations of clients that send their whole history each time: not listed, and removed a day later.

ALTER TABLE conversations ADD COLUMN transient boolean NOT NULL DEFAULT false;
CREATE INDEX conversations_transient ON conversations (updated_at) WHERE transient;

-- Removing is routine now: what a removed row takes along must be found without reading a table for each.
CREATE INDEX messages_by_parent_message ON messages (parent_message_id);
CREATE INDEX turns_by_conversation ON turns (conversation_id);
