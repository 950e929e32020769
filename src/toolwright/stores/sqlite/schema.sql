-- One row for each call the journal knows. A row without an outcome is unfinished, and belongs to its owner.
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
    PRIMARY KEY (session, scope, call_id)
) WITHOUT ROWID;

-- Recovery looks at what is unfinished, and at nothing else.
CREATE INDEX unfinished_calls ON calls (queued_at) WHERE outcome IS NULL;

-- The processes that wrote here; each holds a lock on a file named by its number while it lives. None is removed:
-- a number that was given again could make a dead owner look alive.
CREATE TABLE owners (
    number INTEGER PRIMARY KEY,
    name   TEXT NOT NULL UNIQUE
);
