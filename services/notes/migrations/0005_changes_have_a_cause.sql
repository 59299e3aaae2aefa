-- The trace context in which a note was written, to be told with the change; none where another program wrote it.
ALTER TABLE changes ADD COLUMN traceparent text;
