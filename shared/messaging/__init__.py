"""How messages travel: one NATS connection a process, scopes with deadlines, asking, serving, streams."""
