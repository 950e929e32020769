-- One row for each call the journal knows, in the order they came. A row without an outcome is unfinished, and belongs
-- to its owner.
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
    outcome     BLOB, authority BLOB, claims TEXT,
    UNIQUE (session, scope, call_id)
);

-- Recovery looks at what is unfinished, and at nothing else; a batch that begins at what others have in its session.
CREATE INDEX unfinished_calls ON calls (session, owner) WHERE outcome IS NULL;

-- The calls of a batch, whose id is "batch_" and a hash: its beginning finds them, and keeps the index small.
CREATE INDEX calls_of_batch ON calls (substr(batch, 7, 8));

-- The processes that wrote here; each holds a lock on a file named by its number while it lives. None is removed:
-- a number that was given again could make a dead owner look alive.
CREATE TABLE owners (
    number INTEGER PRIMARY KEY,
    name   TEXT NOT NULL UNIQUE
);

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

-- The first execution of each call that is traced, as the W3C header `traceparent`: a replay and a takeover are linked
-- to it.
CREATE TABLE traces (
    session TEXT NOT NULL,
    scope   TEXT NOT NULL,
    call_id TEXT NOT NULL,
    trace   TEXT NOT NULL,
    PRIMARY KEY (session, scope, call_id)
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
CREATE INDEX decided_waits ON waits (arrived) WHERE arrived IS NOT NULL AND kind IN ('approval', 'crash', 'question');
CREATE INDEX decided_of_session ON waits (session, arrived)
    WHERE arrived IS NOT NULL AND kind IN ('approval', 'crash', 'question');
CREATE INDEX inbox ON waits (opened_at) WHERE open = 1 AND kind IN ('approval', 'crash', 'question');

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
    reason  TEXT,
    "by"    TEXT, via TEXT
);

CREATE INDEX remembered_of_session ON remembered (session);

-- What the file itself has: the secret that keys are signed with, and the number of the last resolution.
CREATE TABLE meta (
    name  TEXT NOT NULL PRIMARY KEY,
    value NOT NULL
) WITHOUT ROWID;

INSERT INTO meta VALUES ('arrived', 0);

-- What sessions keep beside their calls. Content is kept once, under its hash, in pieces that fit into memory.
CREATE TABLE blobs (
    digest  BLOB    NOT NULL,
    number  INTEGER NOT NULL,
    content BLOB    NOT NULL,
    PRIMARY KEY (digest, number)
) WITHOUT ROWID;

-- Files and directories by their whole path; `parent` is the path of the directory that an entry stands in.
CREATE TABLE files (
    session    TEXT    NOT NULL,
    path       TEXT    NOT NULL,
    parent     TEXT    NOT NULL,
    directory  INTEGER NOT NULL,
    digest     BLOB,
    size       INTEGER NOT NULL,
    readonly   INTEGER NOT NULL,
    created_at REAL    NOT NULL,
    updated_at REAL    NOT NULL,
    PRIMARY KEY (session, path)
) WITHOUT ROWID;

CREATE INDEX files_of_directory ON files (session, parent);
CREATE INDEX files_of_blob ON files (digest) WHERE digest IS NOT NULL;

CREATE TABLE key_values (
    session    TEXT NOT NULL,
    key        TEXT NOT NULL,
    value      BLOB NOT NULL,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    PRIMARY KEY (session, key)
) WITHOUT ROWID;

-- A value is sealed with a key of its own, and that key with a master key, which `master` names.
CREATE TABLE secrets (
    session    TEXT NOT NULL,
    name       TEXT NOT NULL,
    master     TEXT NOT NULL,
    wrapped    BLOB NOT NULL,
    sealed     BLOB NOT NULL,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    PRIMARY KEY (session, name)
) WITHOUT ROWID;

CREATE TABLE messages (
    session  TEXT    NOT NULL,
    number   INTEGER NOT NULL,
    sender   TEXT    NOT NULL,
    content  BLOB    NOT NULL,
    metadata BLOB    NOT NULL,
    at       REAL    NOT NULL,
    PRIMARY KEY (session, number)
) WITHOUT ROWID;

CREATE TABLE attachments (
    session    TEXT    NOT NULL,
    digest     BLOB    NOT NULL,
    name       TEXT    NOT NULL,
    media_type TEXT    NOT NULL,
    size       INTEGER NOT NULL,
    at         REAL    NOT NULL,
    PRIMARY KEY (session, digest)
) WITHOUT ROWID;

CREATE INDEX attachments_of_blob ON attachments (digest);

CREATE TABLE resources (
    session    TEXT NOT NULL,
    id         TEXT NOT NULL,
    kind       TEXT NOT NULL,
    name       TEXT NOT NULL,
    status     TEXT NOT NULL,
    metadata   BLOB NOT NULL,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    PRIMARY KEY (session, id)
) WITHOUT ROWID;

-- The providers that a session is connected to.
CREATE TABLE connections (
    session      TEXT NOT NULL,
    provider     TEXT NOT NULL,
    detail       BLOB NOT NULL,
    connected_at REAL NOT NULL,
    PRIMARY KEY (session, provider)
) WITHOUT ROWID;

-- How much each session keeps in each of these tables, counted by the database itself.
CREATE TABLE usage (
    session TEXT    NOT NULL,
    service TEXT    NOT NULL,
    entries INTEGER NOT NULL,
    bytes   INTEGER NOT NULL,
    PRIMARY KEY (session, service)
) WITHOUT ROWID;

CREATE TRIGGER files_added AFTER INSERT ON files BEGIN
    INSERT INTO usage VALUES (NEW.session, 'files', 1, NEW.size)
        ON CONFLICT DO UPDATE SET entries = entries + 1, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER files_changed AFTER UPDATE ON files BEGIN
    UPDATE usage SET bytes = bytes + (NEW.size) - (OLD.size) WHERE session = NEW.session AND service = 'files';
END;
CREATE TRIGGER files_removed AFTER DELETE ON files BEGIN
    UPDATE usage SET entries = entries - 1, bytes = bytes - (OLD.size) WHERE session = OLD.session AND service = 'files';
END;

CREATE TRIGGER key_values_added AFTER INSERT ON key_values BEGIN
    INSERT INTO usage VALUES (NEW.session, 'key_values', 1, length(NEW.value))
        ON CONFLICT DO UPDATE SET entries = entries + 1, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER key_values_changed AFTER UPDATE ON key_values BEGIN
    UPDATE usage SET bytes = bytes + (length(NEW.value)) - (length(OLD.value)) WHERE session = NEW.session AND service = 'key_values';
END;
CREATE TRIGGER key_values_removed AFTER DELETE ON key_values BEGIN
    UPDATE usage SET entries = entries - 1, bytes = bytes - (length(OLD.value)) WHERE session = OLD.session AND service = 'key_values';
END;

CREATE TRIGGER secrets_added AFTER INSERT ON secrets BEGIN
    INSERT INTO usage VALUES (NEW.session, 'secrets', 1, length(NEW.sealed))
        ON CONFLICT DO UPDATE SET entries = entries + 1, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER secrets_changed AFTER UPDATE ON secrets BEGIN
    UPDATE usage SET bytes = bytes + (length(NEW.sealed)) - (length(OLD.sealed)) WHERE session = NEW.session AND service = 'secrets';
END;
CREATE TRIGGER secrets_removed AFTER DELETE ON secrets BEGIN
    UPDATE usage SET entries = entries - 1, bytes = bytes - (length(OLD.sealed)) WHERE session = OLD.session AND service = 'secrets';
END;

CREATE TRIGGER messages_added AFTER INSERT ON messages BEGIN
    INSERT INTO usage VALUES (NEW.session, 'messages', 1, length(NEW.content) + length(NEW.metadata))
        ON CONFLICT DO UPDATE SET entries = entries + 1, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER messages_changed AFTER UPDATE ON messages BEGIN
    UPDATE usage SET bytes = bytes + (length(NEW.content) + length(NEW.metadata)) - (length(OLD.content) + length(OLD.metadata)) WHERE session = NEW.session AND service = 'messages';
END;
CREATE TRIGGER messages_removed AFTER DELETE ON messages BEGIN
    UPDATE usage SET entries = entries - 1, bytes = bytes - (length(OLD.content) + length(OLD.metadata)) WHERE session = OLD.session AND service = 'messages';
END;

CREATE TRIGGER attachments_added AFTER INSERT ON attachments BEGIN
    INSERT INTO usage VALUES (NEW.session, 'attachments', 1, NEW.size)
        ON CONFLICT DO UPDATE SET entries = entries + 1, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER attachments_changed AFTER UPDATE ON attachments BEGIN
    UPDATE usage SET bytes = bytes + (NEW.size) - (OLD.size) WHERE session = NEW.session AND service = 'attachments';
END;
CREATE TRIGGER attachments_removed AFTER DELETE ON attachments BEGIN
    UPDATE usage SET entries = entries - 1, bytes = bytes - (OLD.size) WHERE session = OLD.session AND service = 'attachments';
END;

CREATE TRIGGER resources_added AFTER INSERT ON resources BEGIN
    INSERT INTO usage VALUES (NEW.session, 'resources', 1, length(NEW.metadata))
        ON CONFLICT DO UPDATE SET entries = entries + 1, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER resources_changed AFTER UPDATE ON resources BEGIN
    UPDATE usage SET bytes = bytes + (length(NEW.metadata)) - (length(OLD.metadata)) WHERE session = NEW.session AND service = 'resources';
END;
CREATE TRIGGER resources_removed AFTER DELETE ON resources BEGIN
    UPDATE usage SET entries = entries - 1, bytes = bytes - (length(OLD.metadata)) WHERE session = OLD.session AND service = 'resources';
END;

-- Work that outlives the batch. `state` is "held" for what waits until something of its session or its schedule ends,
-- "queued" for what any worker may take; then "running" or "waiting", under a lease; and one that nothing follows.
-- `token` rises with each worker. Of the output, the head and the tail are kept among the events.
-- `authority` is JSON of what it may do: no more than its starter. Schedules and triggers have it, too.
CREATE TABLE processes (
    id            TEXT    NOT NULL PRIMARY KEY,
    session       TEXT    NOT NULL,
    parent        TEXT,
    schedule      TEXT,
    alone         INTEGER NOT NULL DEFAULT 0,
    tool          TEXT    NOT NULL,
    arguments     BLOB    NOT NULL,
    title         TEXT    NOT NULL,
    options       BLOB    NOT NULL,
    provenance    BLOB    NOT NULL,
    state         TEXT    NOT NULL,
    status_text   TEXT    NOT NULL,
    created_at    REAL    NOT NULL,
    started_at    REAL,
    ended_at      REAL,
    deadline      REAL,
    worker        TEXT,
    token         INTEGER NOT NULL DEFAULT 0,
    lease_until   REAL,
    attempts      INTEGER NOT NULL DEFAULT 0,
    crashes       INTEGER NOT NULL DEFAULT 0,
    cancel_reason TEXT,
    progress      BLOB,
    tail          TEXT    NOT NULL DEFAULT '',
    log_chars     INTEGER NOT NULL DEFAULT 0,
    tail_first    INTEGER,
    tail_chars    INTEGER NOT NULL DEFAULT 0,
    outcome       BLOB,
    last_event    INTEGER NOT NULL DEFAULT 0,
    last_progress INTEGER,
    changed       INTEGER NOT NULL,
    authority     BLOB
);

CREATE INDEX queued_processes ON processes (created_at) WHERE state = 'queued';
CREATE INDEX held_processes ON processes (session, created_at) WHERE state = 'held';
CREATE INDEX leased_processes ON processes (lease_until) WHERE state IN ('running', 'waiting');
CREATE INDEX active_processes ON processes (session) WHERE state IN ('queued', 'running', 'waiting');
CREATE INDEX processes_of_session ON processes (session, created_at);
CREATE INDEX processes_of_parent ON processes (parent) WHERE parent IS NOT NULL;
CREATE INDEX unfinished_of_schedule ON processes (schedule, created_at)
    WHERE schedule IS NOT NULL AND state IN ('held', 'queued', 'running', 'waiting');
CREATE INDEX changed_processes ON processes (changed);

-- The events of runs. An event with a key is appended once.
CREATE TABLE process_events (
    process TEXT    NOT NULL,
    number  INTEGER NOT NULL,
    type    TEXT    NOT NULL,
    at      REAL    NOT NULL,
    payload BLOB    NOT NULL,
    key     TEXT,
    PRIMARY KEY (process, number)
) WITHOUT ROWID;

CREATE UNIQUE INDEX keyed_events ON process_events (process, key) WHERE key IS NOT NULL;

-- Sessions that may await, cancel and signal a run of another session.
CREATE TABLE process_grants (
    process TEXT NOT NULL,
    session TEXT NOT NULL,
    PRIMARY KEY (process, session)
) WITHOUT ROWID;

-- Workers by their names, with how many runs each has at most and until when it counts as alive.
CREATE TABLE workers (
    name     TEXT    NOT NULL PRIMARY KEY,
    owner    TEXT,
    capacity INTEGER NOT NULL,
    until    REAL    NOT NULL
) WITHOUT ROWID;

-- When a tool is to be started: once at an instant, or again and again. `next_at` only rises.
CREATE TABLE schedules (
    id          TEXT    NOT NULL PRIMARY KEY,
    session     TEXT    NOT NULL,
    tool        TEXT    NOT NULL,
    arguments   BLOB    NOT NULL,
    title       TEXT    NOT NULL,
    options     BLOB    NOT NULL,
    timing      BLOB    NOT NULL,
    misfire     TEXT    NOT NULL,
    overlap     TEXT    NOT NULL,
    state       TEXT    NOT NULL,
    next_at     REAL,
    created_at  REAL    NOT NULL,
    provenance  BLOB    NOT NULL,
    authority   BLOB
);

CREATE INDEX due_schedules ON schedules (next_at, id) WHERE state = 'active';
CREATE INDEX live_schedules ON schedules (session) WHERE state IN ('active', 'paused');
CREATE INDEX schedules_of_session ON schedules (session, created_at);

-- What each schedule did for each instant: once, whoever was first.
CREATE TABLE firings (
    schedule TEXT NOT NULL,
    instant  REAL NOT NULL,
    at       REAL NOT NULL,
    what     TEXT NOT NULL,
    process  TEXT,
    PRIMARY KEY (schedule, instant, what)
) WITHOUT ROWID;

-- What starts a run when something occurs: the topic, and what must be in its payload.
CREATE TABLE triggers (
    session    TEXT NOT NULL,
    id         TEXT NOT NULL,
    topic      TEXT NOT NULL,
    pattern    BLOB NOT NULL,
    tool       TEXT NOT NULL,
    arguments  BLOB NOT NULL,
    payload_as TEXT,
    title      TEXT NOT NULL,
    options    BLOB NOT NULL,
    created_at REAL NOT NULL,
    authority  BLOB,
    PRIMARY KEY (session, id)
) WITHOUT ROWID;

CREATE INDEX triggers_of_topic ON triggers (topic);

-- What occurred, once for each key, and what it started. Of the payload, only the digest is kept.
CREATE TABLE occurrences (
    topic   TEXT NOT NULL,
    key     TEXT NOT NULL,
    digest  TEXT NOT NULL,
    at      REAL NOT NULL,
    started BLOB NOT NULL,
    PRIMARY KEY (topic, key)
) WITHOUT ROWID;

INSERT INTO meta VALUES ('changed', 0);

-- The intents of a batch whose calls may simply run again, in one row instead of one for each: a JSON array of arrays.
-- A call of it that is finished has its own row among the calls; the others get theirs when one of them is needed.
CREATE TABLE bundles (
    session   TEXT NOT NULL,
    scope     TEXT NOT NULL,
    id        TEXT NOT NULL,
    batch     TEXT NOT NULL,
    queued_at REAL NOT NULL,
    owner     TEXT NOT NULL,
    intents   TEXT NOT NULL, authority BLOB, claims TEXT,
    PRIMARY KEY (session, scope)
) WITHOUT ROWID;

CREATE VIEW bundled_calls AS
SELECT session, scope, intent.value ->> 0 AS call_id, batch, intent.value ->> 1 AS position, intent.value ->> 2 AS tool,
    intent.value ->> 3 AS tool_id, CAST(intent.value ->> 4 AS BLOB) AS arguments, intent.value ->> 5 AS source,
    intent.value ->> 6 AS parent, queued_at, owner,
    NULL AS started_at, NULL AS finished_at, NULL AS status, NULL AS outcome, authority,
    bundles.claims ->> intent.key AS claims
FROM bundles, json_each(bundles.intents) AS intent
WHERE NOT EXISTS (
    SELECT 1 FROM calls
    WHERE calls.session = bundles.session AND calls.scope = bundles.scope AND calls.call_id = intent.value ->> 0
);

-- What is asked by those who only read.
CREATE VIEW every_call AS SELECT * FROM calls UNION ALL SELECT * FROM bundled_calls;

-- Turns, from a message to the model's answer.
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

-- The lists of all turns.
CREATE INDEX turns_by_time ON turns (created_at, number);

-- The last number of a turn of each session that had turns which were pruned: the next one is beyond it.
CREATE TABLE turn_numbers (
    session TEXT    PRIMARY KEY,
    last    INTEGER NOT NULL
) WITHOUT ROWID;

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

-- Who may use the HTTP service.
CREATE TABLE tokens (
    id         TEXT PRIMARY KEY,
    kind       TEXT NOT NULL, -- a token of a program, a login of a browser, or a link that makes one login
    hash       BLOB NOT NULL, -- of the value, which is stored nowhere
    name       TEXT NOT NULL,
    scopes     TEXT NOT NULL,
    sessions   TEXT NOT NULL,
    created_at REAL NOT NULL,
    created_by TEXT,
    expires_at REAL,
    revoked_at REAL,
    parent     TEXT           -- the token that a login was made with
) WITHOUT ROWID;

CREATE INDEX tokens_of_parent ON tokens (parent) WHERE parent IS NOT NULL;

-- What happened, in one order for the whole file, so that another process can follow it.
-- One row for one or more events of one kind: `number` is that of the last of them, and is never given twice. A row
-- names its subject and has no content: that is read where it is stored, and is gone when that is removed.
CREATE TABLE events (
    number  INTEGER PRIMARY KEY,
    session TEXT    NOT NULL,
    kind    TEXT    NOT NULL,
    at      REAL    NOT NULL,
    scope   TEXT    NOT NULL DEFAULT '',
    subject,
    detail
);

CREATE TRIGGER noted_wait AFTER INSERT ON waits WHEN NEW.open = 1 BEGIN
    INSERT INTO events (session, kind, at, scope, subject, detail)
        VALUES (NEW.session, 'call.waiting', NEW.opened_at, NEW.scope, NEW.call_id, NEW.kind || ':' || NEW.name);
END;
CREATE TRIGGER noted_early_resolution AFTER INSERT ON waits WHEN NEW.resolution IS NOT NULL BEGIN
    INSERT INTO events (session, kind, at, scope, subject, detail) VALUES (NEW.session, 'call.resolved',
        (julianday('now') - 2440587.5) * 86400.0, NEW.scope, NEW.call_id, NEW.kind || ':' || NEW.name);
END;
CREATE TRIGGER noted_resolution AFTER UPDATE OF resolution ON waits
    WHEN OLD.resolution IS NULL AND NEW.resolution IS NOT NULL BEGIN
    INSERT INTO events (session, kind, at, scope, subject, detail) VALUES (NEW.session, 'call.resolved',
        (julianday('now') - 2440587.5) * 86400.0, NEW.scope, NEW.call_id, NEW.kind || ':' || NEW.name);
END;

CREATE TRIGGER noted_run AFTER INSERT ON process_events BEGIN
    INSERT INTO events (session, kind, at, subject, detail)
        SELECT session, 'run.' || NEW.type, NEW.at, NEW.process, NEW.number FROM processes WHERE id = NEW.process;
END;

CREATE TRIGGER noted_turn AFTER INSERT ON turns BEGIN
    INSERT INTO events (session, kind, at, subject) VALUES (NEW.session, 'turn.queued', NEW.created_at, NEW.id);
END;
CREATE TRIGGER noted_turn_events AFTER INSERT ON turn_events BEGIN
    INSERT INTO events (number, session, kind, at, subject, detail)
        SELECT (SELECT coalesce(max(number), 0) FROM events) + json_array_length(CAST(NEW.data AS TEXT)),
            session, 'turn', 0, NEW.turn, NEW.last FROM turns WHERE id = NEW.turn;
END;

CREATE TRIGGER noted_message AFTER INSERT ON messages BEGIN
    INSERT INTO events (session, kind, at, subject, detail)
        VALUES (NEW.session, 'message.added', NEW.at, NEW.number, NEW.sender);
END;

CREATE TRIGGER noted_file AFTER INSERT ON files BEGIN
    INSERT INTO events (session, kind, at, subject) VALUES (NEW.session, 'file.written', NEW.updated_at, NEW.path);
END;
CREATE TRIGGER noted_file_change AFTER UPDATE ON files BEGIN
    INSERT INTO events (session, kind, at, subject) VALUES (NEW.session, 'file.written', NEW.updated_at, NEW.path);
END;
CREATE TRIGGER noted_file_removal AFTER DELETE ON files BEGIN
    INSERT INTO events (session, kind, at, subject)
        VALUES (OLD.session, 'file.removed', (julianday('now') - 2440587.5) * 86400.0, OLD.path);
END;

CREATE TRIGGER noted_key AFTER INSERT ON key_values BEGIN
    INSERT INTO events (session, kind, at, subject) VALUES (NEW.session, 'kv.set', NEW.updated_at, NEW.key);
END;
CREATE TRIGGER noted_key_change AFTER UPDATE ON key_values BEGIN
    INSERT INTO events (session, kind, at, subject) VALUES (NEW.session, 'kv.set', NEW.updated_at, NEW.key);
END;
CREATE TRIGGER noted_key_removal AFTER DELETE ON key_values BEGIN
    INSERT INTO events (session, kind, at, subject)
        VALUES (OLD.session, 'kv.removed', (julianday('now') - 2440587.5) * 86400.0, OLD.key);
END;

CREATE TRIGGER noted_schedule AFTER INSERT ON schedules BEGIN
    INSERT INTO events (session, kind, at, subject) VALUES (NEW.session, 'schedule.added', NEW.created_at, NEW.id);
END;
CREATE TRIGGER noted_schedule_change AFTER UPDATE ON schedules
    WHEN OLD.state IS NOT NEW.state OR OLD.next_at IS NOT NEW.next_at BEGIN
    INSERT INTO events (session, kind, at, subject, detail) VALUES (NEW.session, 'schedule.changed',
        (julianday('now') - 2440587.5) * 86400.0, NEW.id, NEW.state);
END;
CREATE TRIGGER noted_firing AFTER INSERT ON firings BEGIN
    INSERT INTO events (session, kind, at, subject, detail)
        SELECT session, 'schedule.fired', NEW.at, NEW.schedule, NEW.process FROM schedules WHERE id = NEW.schedule;
END;

-- Requests that named a key, with the answer that each got. Without a status, its owner works on it, or
-- died while it did.
CREATE TABLE requests (
    key     TEXT NOT NULL PRIMARY KEY,
    content TEXT NOT NULL,
    owner   TEXT NOT NULL,
    at      REAL NOT NULL,
    status  INTEGER,
    headers TEXT,
    body    BLOB
) WITHOUT ROWID;

CREATE INDEX requests_by_time ON requests (at);
