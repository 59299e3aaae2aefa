"""What the services say to each other: subjects, requests, replies, events, errors. Pydantic and the standard library only."""
