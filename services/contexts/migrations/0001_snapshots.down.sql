DROP TABLE snapshots;
DROP FUNCTION refuse_change();
