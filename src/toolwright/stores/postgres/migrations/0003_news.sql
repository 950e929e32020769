-- Version 3: how much each owner has written that others may wait for.
ALTER TABLE commits ADD COLUMN news bigint NOT NULL DEFAULT 0;
