-- Version 7: turns, from a message to the model's answer.
CREATE TABLE turns (
    id            TEXT    PRIMARY KEY,
    session       TEXT    NOT NULL,
    number        INTEGER NOT NULL,
    state         TEXT    NOT NULL,
    message       BLOB    NOT NULL,
    options       BLOB    NOT NULL,
    created_at    REAL    NOT NULL,
    started_at    REAL,
    ended_at      REAL,
    owner         TEXT,
    token         INTEGER NOT NULL,
    progress      BLOB    NOT NULL,
    answer        BLOB,
    outcome       BLOB,
    cancel_reason TEXT,
    events        INTEGER NOT NULL,
    advances      INTEGER NOT NULL,
    caller        TEXT, -- the call whose sub-agent it is: its session, scope and id, as JSON
    above         TEXT, -- the scope of the calls of the turn that its usage counts for
    UNIQUE (session, number)
);

-- The turns of sub-agents, by their calls and by the turns above them.
CREATE INDEX turns_of_calls ON turns (caller) WHERE caller IS NOT NULL;
CREATE INDEX turns_below ON turns (above) WHERE above IS NOT NULL;

-- The queue of each session, and what recovery looks at.
CREATE INDEX unfinished_turns ON turns (session, number) WHERE ended_at IS NULL;

-- The events of a turn, as they were written: one row for many events. `last` is the number of the last of them.
CREATE TABLE turn_events (
    turn TEXT    NOT NULL,
    last INTEGER NOT NULL,
    data BLOB    NOT NULL,
    PRIMARY KEY (turn, last)
) WITHOUT ROWID;

-- Messages that were sent to a running turn.
CREATE TABLE turn_steering (
    turn   TEXT    NOT NULL,
    number INTEGER NOT NULL,
    text   TEXT    NOT NULL,
    at     REAL    NOT NULL,
    PRIMARY KEY (turn, number)
) WITHOUT ROWID;
