-- Version 6: what a background run may do is kept with it, and who decided what.
ALTER TABLE processes ADD COLUMN authority BLOB;
ALTER TABLE schedules ADD COLUMN authority BLOB;
ALTER TABLE triggers ADD COLUMN authority BLOB;
ALTER TABLE remembered ADD COLUMN "by" TEXT;

-- What was decided is listed by the number of its arrival.
CREATE INDEX decided_waits ON waits (arrived) WHERE arrived IS NOT NULL AND kind IN ('approval', 'crash');
