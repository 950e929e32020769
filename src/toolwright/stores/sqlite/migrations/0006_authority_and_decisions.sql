-- Version 6: what a background run may do is kept with it, and who decided what.
ALTER TABLE processes ADD COLUMN authority BLOB;
ALTER TABLE schedules ADD COLUMN authority BLOB;
ALTER TABLE triggers ADD COLUMN authority BLOB;
ALTER TABLE remembered ADD COLUMN "by" TEXT;

-- What was decided is listed by the number of its arrival.
CREATE INDEX decided_waits ON waits (arrived) WHERE arrived IS NOT NULL AND kind IN ('approval', 'crash');

-- How often calls were running when their process died, since they last got a step further: `started_at` is the start
-- that was counted last, `steps` how many effects were done then.
CREATE TABLE crashes (
    session    TEXT    NOT NULL,
    scope      TEXT    NOT NULL,
    call_id    TEXT    NOT NULL,
    count      INTEGER NOT NULL,
    started_at REAL,
    steps      INTEGER NOT NULL,
    PRIMARY KEY (session, scope, call_id)
) WITHOUT ROWID;
