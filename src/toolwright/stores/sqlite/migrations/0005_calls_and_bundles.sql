-- Calls were kept in the order of their keys, which scatters what is written together over the file.
DROP INDEX unfinished_calls;
ALTER TABLE calls RENAME TO calls_by_key;

CREATE TABLE calls (
    session     TEXT    NOT NULL,
    scope       TEXT    NOT NULL,
    call_id     TEXT    NOT NULL,
    batch       TEXT    NOT NULL,
    position    INTEGER NOT NULL,
    tool        TEXT    NOT NULL,
    tool_id     TEXT    NOT NULL,
    arguments   BLOB    NOT NULL,
    source      TEXT    NOT NULL,
    parent      TEXT,
    queued_at   REAL    NOT NULL,
    owner       TEXT    NOT NULL,
    started_at  REAL,
    finished_at REAL,
    status      TEXT,
    outcome     BLOB,
    UNIQUE (session, scope, call_id)
);

INSERT INTO calls SELECT * FROM calls_by_key ORDER BY queued_at, batch, position;
DROP TABLE calls_by_key;

-- Recovery looks at what is unfinished, and at nothing else.
CREATE INDEX unfinished_calls ON calls (queued_at) WHERE outcome IS NULL;

-- The intents of a batch whose calls may simply run again, in one row instead of one for each: a JSON array of arrays.
-- A call of it that is finished has its own row among the calls; the others get theirs when one of them is needed.
CREATE TABLE bundles (
    session   TEXT NOT NULL,
    scope     TEXT NOT NULL,
    id        TEXT NOT NULL,
    batch     TEXT NOT NULL,
    queued_at REAL NOT NULL,
    owner     TEXT NOT NULL,
    intents   TEXT NOT NULL,
    PRIMARY KEY (session, scope)
) WITHOUT ROWID;

CREATE VIEW bundled_calls AS
SELECT session, scope, intent.value ->> 0 AS call_id, batch, intent.value ->> 1 AS position, intent.value ->> 2 AS tool,
    intent.value ->> 3 AS tool_id, CAST(intent.value ->> 4 AS BLOB) AS arguments, intent.value ->> 5 AS source,
    intent.value ->> 6 AS parent, queued_at, owner,
    NULL AS started_at, NULL AS finished_at, NULL AS status, NULL AS outcome
FROM bundles, json_each(bundles.intents) AS intent
WHERE NOT EXISTS (
    SELECT 1 FROM calls
    WHERE calls.session = bundles.session AND calls.scope = bundles.scope AND calls.call_id = intent.value ->> 0
);

-- What is asked by those who only read.
CREATE VIEW every_call AS SELECT * FROM calls UNION ALL SELECT * FROM bundled_calls;
