-- What calls did that is not deterministic. Without `done`, it began and may have happened.
CREATE TABLE effects (
    session TEXT    NOT NULL,
    scope   TEXT    NOT NULL,
    call_id TEXT    NOT NULL,
    label   TEXT    NOT NULL,
    input   BLOB    NOT NULL,
    at      REAL    NOT NULL,
    done    INTEGER NOT NULL,
    payload BLOB    NOT NULL,
    failure BLOB,
    PRIMARY KEY (session, scope, call_id, label)
) WITHOUT ROWID;

-- What calls wait for. A wait is open from when it begins until it is resolved or its call is over; one that was
-- resolved before it began has no `opened_at`. `arrived` numbers the resolutions in the order they came.
CREATE TABLE waits (
    session    TEXT    NOT NULL,
    scope      TEXT    NOT NULL,
    call_id    TEXT    NOT NULL,
    kind       TEXT    NOT NULL,
    name       TEXT    NOT NULL,
    opened_at  REAL,
    deadline   REAL,
    detail     BLOB    NOT NULL,
    resolution BLOB,
    arrived    INTEGER,
    open       INTEGER NOT NULL,
    PRIMARY KEY (session, scope, call_id, kind, name)
) WITHOUT ROWID;

CREATE INDEX arrived_waits ON waits (arrived) WHERE arrived IS NOT NULL;
CREATE INDEX open_waits ON waits (session, opened_at) WHERE open = 1;
CREATE INDEX inbox ON waits (opened_at) WHERE open = 1 AND kind IN ('approval', 'crash');

-- What was sent to calls, one after the other: `number` in the whole file, never given twice, `place` under its name.
CREATE TABLE signals (
    number  INTEGER PRIMARY KEY AUTOINCREMENT,
    session TEXT    NOT NULL,
    scope   TEXT    NOT NULL,
    call_id TEXT    NOT NULL,
    kind    TEXT    NOT NULL,
    name    TEXT    NOT NULL,
    place   INTEGER NOT NULL,
    payload BLOB    NOT NULL,
    at      REAL    NOT NULL,
    UNIQUE (session, scope, call_id, kind, name, place)
);

-- Sessions whose waits can neither begin nor be resolved any more.
CREATE TABLE revoked (
    session    TEXT NOT NULL PRIMARY KEY,
    resolution BLOB NOT NULL
) WITHOUT ROWID;

-- Decisions of people that hold for later calls of their session.
CREATE TABLE remembered (
    number  INTEGER PRIMARY KEY,
    session TEXT NOT NULL,
    tool_id TEXT NOT NULL,
    effect  TEXT NOT NULL,
    pattern BLOB NOT NULL,
    at      REAL NOT NULL,
    reason  TEXT
);

CREATE INDEX remembered_of_session ON remembered (session);

-- What the file itself has: the secret that keys are signed with, and the number of the last resolution.
CREATE TABLE meta (
    name  TEXT NOT NULL PRIMARY KEY,
    value NOT NULL
) WITHOUT ROWID;

INSERT INTO meta VALUES ('arrived', 0);
