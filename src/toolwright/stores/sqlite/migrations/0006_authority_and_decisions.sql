-- Version 6: what a background run may do is kept with it, and who decided what.
ALTER TABLE processes ADD COLUMN authority BLOB;
ALTER TABLE schedules ADD COLUMN authority BLOB;
ALTER TABLE triggers ADD COLUMN authority BLOB;
ALTER TABLE remembered ADD COLUMN "by" TEXT;

-- What was decided is listed by the number of its arrival.
CREATE INDEX decided_waits ON waits (arrived) WHERE arrived IS NOT NULL AND kind IN ('approval', 'crash');
CREATE INDEX decided_of_session ON waits (session, arrived)
    WHERE arrived IS NOT NULL AND kind IN ('approval', 'crash');

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

-- What a batch may do is kept with its calls until they are over, where that is less than its program may.
DROP VIEW every_call;
DROP VIEW bundled_calls;
ALTER TABLE calls ADD COLUMN authority BLOB;
ALTER TABLE bundles ADD COLUMN authority BLOB;

CREATE VIEW bundled_calls AS
SELECT session, scope, intent.value ->> 0 AS call_id, batch, intent.value ->> 1 AS position, intent.value ->> 2 AS tool,
    intent.value ->> 3 AS tool_id, CAST(intent.value ->> 4 AS BLOB) AS arguments, intent.value ->> 5 AS source,
    intent.value ->> 6 AS parent, queued_at, owner,
    NULL AS started_at, NULL AS finished_at, NULL AS status, NULL AS outcome, authority
FROM bundles, json_each(bundles.intents) AS intent
WHERE NOT EXISTS (
    SELECT 1 FROM calls
    WHERE calls.session = bundles.session AND calls.scope = bundles.scope AND calls.call_id = intent.value ->> 0
);

-- What is asked by those who only read.
CREATE VIEW every_call AS SELECT * FROM calls UNION ALL SELECT * FROM bundled_calls;
