-- Conversations are trees of messages; a turn is one attempt at a reply; agents say that they are alive.

CREATE TABLE conversations (
    id uuid PRIMARY KEY,
    account_id uuid NOT NULL,
    title text NOT NULL,
    workspace uuid,
    -- The last message of the path that is shown.
    active_leaf uuid,
    -- The response that holds, or may take, the active path: a late or cancelled turn finds another id here and leaves it alone.
    active_response_id uuid,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX conversations_by_activity ON conversations (account_id, updated_at DESC, id DESC);

CREATE TABLE messages (
    id uuid PRIMARY KEY,
    conversation_id uuid NOT NULL REFERENCES conversations ON DELETE CASCADE,
    parent_message_id uuid REFERENCES messages ON DELETE CASCADE,
    -- Which child the active path last went through.
    active_child uuid,
    turn_id uuid,
    role text NOT NULL CHECK (role IN ('user', 'assistant')),
    content text NOT NULL DEFAULT '',
    status text NOT NULL,
    thinking text NOT NULL DEFAULT '',
    activity_json jsonb,
    tool_calls jsonb NOT NULL DEFAULT '[]',
    sources jsonb NOT NULL DEFAULT '[]',
    left_out jsonb NOT NULL DEFAULT '[]',
    cited int[] NOT NULL DEFAULT '{}',
    usage jsonb,
    -- What was said to and by the model, round by round, so that it can be said again exactly.
    rounds jsonb NOT NULL DEFAULT '[]',
    -- Notes that a user message mentions, with the bytes the model was given.
    injected jsonb NOT NULL DEFAULT '[]',
    position bigint GENERATED ALWAYS AS IDENTITY,
    created_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX messages_by_parent ON messages (conversation_id, parent_message_id, position);

CREATE TABLE turns (
    id uuid PRIMARY KEY,
    conversation_id uuid NOT NULL REFERENCES conversations ON DELETE CASCADE,
    account_id uuid NOT NULL,
    user_message_id uuid NOT NULL,
    response_id uuid NOT NULL,
    -- Where the active path ended before, to go back to when this turn brings nothing.
    previous_leaf uuid,
    status text NOT NULL DEFAULT 'running',
    -- The agent that writes the log; a later attempt fences an earlier one.
    owner uuid NOT NULL,
    attempt int NOT NULL DEFAULT 1,
    cancel_requested boolean NOT NULL DEFAULT false,
    client_message_id text,
    request_digest text NOT NULL DEFAULT '',
    last_seq int NOT NULL DEFAULT 0,
    -- The whole log once the turn has ended: deflated JSON of [seq, type, payload].
    log bytea,
    created_at timestamptz NOT NULL DEFAULT now(),
    ended_at timestamptz
);
CREATE UNIQUE INDEX turns_by_client_message ON turns (account_id, client_message_id) WHERE client_message_id IS NOT NULL;
CREATE INDEX turns_running ON turns (owner) WHERE status = 'running';

CREATE TABLE agents (
    id uuid PRIMARY KEY,
    beats bigint NOT NULL DEFAULT 0
);
