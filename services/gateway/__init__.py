"""The gateway: HTTP and SSE at the edge; accounts, sessions and tokens. It knows no note and no model, it asks."""
