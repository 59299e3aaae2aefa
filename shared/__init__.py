"""What the five services share: what is said (contracts), how it travels (messaging), telemetry, database, settings."""
