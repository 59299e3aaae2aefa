"""PostgreSQL: a pool with limits, and plain SQL migrations. A service sees its own schema only."""
