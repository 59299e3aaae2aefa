-- What a reply cites is read from its text and sources each time: one scanner, one answer.
ALTER TABLE messages DROP COLUMN cited;
