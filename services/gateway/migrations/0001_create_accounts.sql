-- Accounts, their sessions and tokens. Secrets are kept as hashes: argon2id for passwords, SHA-256 for random tokens.

CREATE TABLE accounts (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    username text NOT NULL UNIQUE,
    password_hash text NOT NULL,
    role text NOT NULL CHECK (role IN ('admin', 'member')),
    disabled boolean NOT NULL DEFAULT false,
    preferences jsonb NOT NULL DEFAULT '{}',
    created_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE sessions (
    token_sha256 bytea PRIMARY KEY,
    account_id uuid NOT NULL REFERENCES accounts,
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL
);
CREATE INDEX sessions_by_account ON sessions (account_id);

CREATE TABLE tokens (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    token_sha256 bytea NOT NULL UNIQUE,
    account_id uuid NOT NULL REFERENCES accounts,
    name text NOT NULL,
    role text NOT NULL CHECK (role IN ('admin', 'member')),
    created_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX tokens_by_account ON tokens (account_id);

-- One row per failed login; rows older than the window are removed as new ones come.
CREATE TABLE login_failures (
    address text NOT NULL,
    username text NOT NULL,
    failed_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX login_failures_by_key ON login_failures (address, username, failed_at);
