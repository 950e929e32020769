-- The version of this schema, which also marks it as ours.
CREATE TABLE toolwright_schema (
    version bigint NOT NULL
);

-- One row for each call the journal knows, in the order they came. A row without an outcome is unfinished, and belongs
-- to its owner.
CREATE TABLE calls (
    rowid       bigint  GENERATED ALWAYS AS IDENTITY,
    session     text COLLATE "C"    NOT NULL,
    scope       text COLLATE "C"    NOT NULL,
    call_id     text COLLATE "C"    NOT NULL,
    batch       text COLLATE "C"    NOT NULL,
    position    bigint NOT NULL,
    tool        text COLLATE "C"    NOT NULL,
    tool_id     text COLLATE "C"    NOT NULL,
    arguments   bytea    NOT NULL,
    source      text COLLATE "C"    NOT NULL,
    parent      text COLLATE "C",
    queued_at   float8    NOT NULL,
    owner       text COLLATE "C"    NOT NULL,
    started_at  float8,
    finished_at float8,
    status      text COLLATE "C",
    outcome     bytea,
    authority   bytea,
    claims      text COLLATE "C",
    PRIMARY KEY (session, scope, call_id)
) WITH (fillfactor = 70);  -- room beside a call for its start, which then changes no index

-- Recovery looks at what is unfinished, and at nothing else; a batch that begins at what others have in its session.
CREATE INDEX unfinished_calls ON calls (session, owner) WHERE outcome IS NULL;

-- Lists of calls show the newest first: of all, of a session, or of those that did not succeed.
CREATE INDEX calls_by_arrival ON calls (rowid);
-- Its expression keeps the planner from using it where a call is looked up by its key.
CREATE INDEX calls_of_session ON calls ((session || ''), rowid);
CREATE INDEX calls_by_status ON calls (status, rowid) WHERE status <> 'success';

-- The calls of a batch, whose id is "batch_" and a hash: its beginning finds them, and keeps the index small.
CREATE INDEX calls_of_batch ON calls (substr(batch, 7, 8));

-- What is asked by those who only read. The intents of a batch are never in one row here, as they may be in SQLite: the
-- shared queries find none.
CREATE VIEW every_call AS
SELECT session, scope, call_id, batch, position, tool, tool_id, arguments, source, parent, queued_at, owner, started_at,
    finished_at, status, outcome, authority, claims
FROM calls;
CREATE VIEW bundled_calls AS SELECT * FROM every_call WHERE false;
CREATE TABLE bundles (
    session text COLLATE "C" NOT NULL PRIMARY KEY CHECK (false),
    scope   text COLLATE "C" NOT NULL
);

-- The processes that have the store open. Each renews its row, and holds an advisory lock by its name: while one of the
-- two is there, it is alive.
CREATE TABLE owners (
    name    text COLLATE "C" NOT NULL PRIMARY KEY,
    until   timestamptz NOT NULL,
    program text NOT NULL
) WITH (fillfactor = 50);

-- The start of the server that has the store, and since when a process found it there: the locks of owners did not outlive
-- the server before it.
CREATE TABLE server_starts (
    started timestamptz NOT NULL PRIMARY KEY,
    seen    timestamptz NOT NULL
);

-- The number of the last transaction of each owner: one that lost its connection sees here whether it was committed.
CREATE TABLE commits (
    owner  text COLLATE "C" NOT NULL PRIMARY KEY,
    number bigint NOT NULL,
    news   bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

-- What calls did that is not deterministic. Without `done`, it began and may have happened.
CREATE TABLE effects (
    session text COLLATE "C"    NOT NULL,
    scope   text COLLATE "C"    NOT NULL,
    call_id text COLLATE "C"    NOT NULL,
    label   text COLLATE "C"    NOT NULL,
    input   bytea    NOT NULL,
    at      float8    NOT NULL,
    done    bigint NOT NULL,
    payload bytea    NOT NULL,
    failure bytea,
    PRIMARY KEY (session, scope, call_id, label)
);

-- How often calls were running when their process died, since they last got a step further: `started_at` is the start
-- that was counted last, `steps` how many effects were done then.
CREATE TABLE crashes (
    session    text COLLATE "C"    NOT NULL,
    scope      text COLLATE "C"    NOT NULL,
    call_id    text COLLATE "C"    NOT NULL,
    count      bigint NOT NULL,
    started_at float8,
    steps      bigint NOT NULL,
    PRIMARY KEY (session, scope, call_id)
);

-- The first execution of each call that is traced, as the W3C header `traceparent`: a replay and a takeover are linked
-- to it.
CREATE TABLE traces (
    session text COLLATE "C" NOT NULL,
    scope   text COLLATE "C" NOT NULL,
    call_id text COLLATE "C" NOT NULL,
    trace   text COLLATE "C" NOT NULL,
    PRIMARY KEY (session, scope, call_id)
);

-- What calls wait for. A wait is open from when it begins until it is resolved or its call is over; one that was
-- resolved before it began has no `opened_at`. `arrived` numbers the resolutions in the order they came.
CREATE TABLE waits (
    session    text COLLATE "C"    NOT NULL,
    scope      text COLLATE "C"    NOT NULL,
    call_id    text COLLATE "C"    NOT NULL,
    kind       text COLLATE "C"    NOT NULL,
    name       text COLLATE "C"    NOT NULL,
    opened_at  float8,
    deadline   float8,
    detail     bytea    NOT NULL,
    resolution bytea,
    arrived    bigint,
    open       bigint NOT NULL,
    PRIMARY KEY (session, scope, call_id, kind, name)
);

CREATE INDEX arrived_waits ON waits (arrived) WHERE arrived IS NOT NULL;
CREATE INDEX open_waits ON waits (session, opened_at) WHERE open = 1;
CREATE INDEX decided_waits ON waits (arrived) WHERE arrived IS NOT NULL AND kind IN ('approval', 'crash', 'question');
CREATE INDEX decided_of_session ON waits (session, arrived)
    WHERE arrived IS NOT NULL AND kind IN ('approval', 'crash', 'question');
CREATE INDEX inbox ON waits (opened_at) WHERE open = 1 AND kind IN ('approval', 'crash', 'question');

-- What was sent to calls, one after the other: `number` in the whole store, never given twice, `place` under its name.
CREATE TABLE signals (
    number  bigint NOT NULL PRIMARY KEY,
    session text COLLATE "C"    NOT NULL,
    scope   text COLLATE "C"    NOT NULL,
    call_id text COLLATE "C"    NOT NULL,
    kind    text COLLATE "C"    NOT NULL,
    name    text COLLATE "C"    NOT NULL,
    place   bigint NOT NULL,
    payload bytea    NOT NULL,
    at      float8    NOT NULL,
    UNIQUE (session, scope, call_id, kind, name, place)
);

-- Sessions whose waits can neither begin nor be resolved any more.
CREATE TABLE revoked (
    session    text COLLATE "C" NOT NULL PRIMARY KEY,
    resolution bytea NOT NULL
);

-- Decisions of people that hold for later calls of their session.
CREATE TABLE remembered (
    number  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session text COLLATE "C" NOT NULL,
    tool_id text COLLATE "C" NOT NULL,
    effect  text COLLATE "C" NOT NULL,
    pattern bytea NOT NULL,
    at      float8 NOT NULL,
    reason  text COLLATE "C",
    "by"    text COLLATE "C", via text COLLATE "C"
);

CREATE INDEX remembered_of_session ON remembered (session);

-- What the store itself has: the secret that keys are signed with, and the sealed key of fingerprints.
CREATE TABLE meta (
    name  text COLLATE "C" NOT NULL PRIMARY KEY,
    value bytea NOT NULL
);

-- The numbers of the last resolution, the last signal and the last change of a run.
CREATE TABLE counters (
    name  text COLLATE "C" NOT NULL PRIMARY KEY,
    value bigint NOT NULL
) WITH (fillfactor = 50);

INSERT INTO counters VALUES ('arrived', 0), ('signals', 0), ('changed', 0);

-- What sessions keep beside their calls. Content is kept once, under its hash, in pieces that fit into memory.
CREATE TABLE blobs (
    digest  bytea    NOT NULL,
    number  bigint NOT NULL,
    content bytea    NOT NULL,
    PRIMARY KEY (digest, number)
);

-- Files and directories by their whole path; `parent` is the path of the directory that an entry stands in.
CREATE TABLE files (
    session    text COLLATE "C"    NOT NULL,
    path       text COLLATE "C"    NOT NULL,
    parent     text COLLATE "C"    NOT NULL,
    directory  bigint NOT NULL,
    digest     bytea,
    size       bigint NOT NULL,
    readonly   bigint NOT NULL,
    created_at float8    NOT NULL,
    updated_at float8    NOT NULL,
    PRIMARY KEY (session, path)
);

CREATE INDEX files_of_directory ON files (session, parent);
CREATE INDEX files_of_blob ON files (digest) WHERE digest IS NOT NULL;

CREATE TABLE key_values (
    session    text COLLATE "C" NOT NULL,
    key        text COLLATE "C" NOT NULL,
    value      bytea NOT NULL,
    created_at float8 NOT NULL,
    updated_at float8 NOT NULL,
    PRIMARY KEY (session, key)
);

-- A value is sealed with a key of its own, and that key with a master key, which `master` names.
CREATE TABLE secrets (
    session    text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    master     text COLLATE "C" NOT NULL,
    wrapped    bytea NOT NULL,
    sealed     bytea NOT NULL,
    created_at float8 NOT NULL,
    updated_at float8 NOT NULL,
    PRIMARY KEY (session, name)
);

CREATE TABLE messages (
    session  text COLLATE "C"    NOT NULL,
    number   bigint NOT NULL,
    sender   text COLLATE "C"    NOT NULL,
    content  bytea    NOT NULL,
    metadata bytea    NOT NULL,
    at       float8    NOT NULL,
    PRIMARY KEY (session, number)
);

CREATE TABLE attachments (
    session    text COLLATE "C"    NOT NULL,
    digest     bytea    NOT NULL,
    name       text COLLATE "C"    NOT NULL,
    media_type text COLLATE "C"    NOT NULL,
    size       bigint NOT NULL,
    at         float8    NOT NULL,
    PRIMARY KEY (session, digest)
);

CREATE INDEX attachments_of_blob ON attachments (digest);

CREATE TABLE resources (
    session    text COLLATE "C" NOT NULL,
    id         text COLLATE "C" NOT NULL,
    kind       text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    status     text COLLATE "C" NOT NULL,
    metadata   bytea NOT NULL,
    created_at float8 NOT NULL,
    updated_at float8 NOT NULL,
    PRIMARY KEY (session, id)
);

-- The providers that a session is connected to.
CREATE TABLE connections (
    session      text COLLATE "C" NOT NULL,
    provider     text COLLATE "C" NOT NULL,
    detail       bytea NOT NULL,
    connected_at float8 NOT NULL,
    PRIMARY KEY (session, provider)
);

-- How much each session keeps in each of these tables, counted by the database itself.
CREATE TABLE usage (
    session text COLLATE "C"    NOT NULL,
    service text COLLATE "C"    NOT NULL,
    entries bigint NOT NULL,
    bytes   bigint NOT NULL,
    PRIMARY KEY (session, service)
);

-- Work that outlives the batch. `state` is "held" for what waits until something of its session or its schedule ends,
-- "queued" for what any worker may take; then "running" or "waiting", under a lease; and one that nothing follows.
-- `token` rises with each worker. Of the output, the head and the tail are kept among the events.
-- `authority` is JSON of what it may do: no more than its starter. Schedules and triggers have it, too.
CREATE TABLE processes (
    rowid         bigint  GENERATED ALWAYS AS IDENTITY,
    id            text COLLATE "C"    NOT NULL PRIMARY KEY,
    session       text COLLATE "C"    NOT NULL,
    parent        text COLLATE "C",
    schedule      text COLLATE "C",
    alone         bigint NOT NULL DEFAULT 0,
    tool          text COLLATE "C"    NOT NULL,
    arguments     bytea    NOT NULL,
    title         text COLLATE "C"    NOT NULL,
    options       bytea    NOT NULL,
    provenance    bytea    NOT NULL,
    state         text COLLATE "C"    NOT NULL,
    status_text   text COLLATE "C"    NOT NULL,
    created_at    float8    NOT NULL,
    started_at    float8,
    ended_at      float8,
    deadline      float8,
    worker        text COLLATE "C",
    token         bigint NOT NULL DEFAULT 0,
    lease_until   float8,
    attempts      bigint NOT NULL DEFAULT 0,
    crashes       bigint NOT NULL DEFAULT 0,
    cancel_reason text COLLATE "C",
    progress      bytea,
    tail          text COLLATE "C"    NOT NULL DEFAULT '',
    log_chars     bigint NOT NULL DEFAULT 0,
    tail_first    bigint,
    tail_chars    bigint NOT NULL DEFAULT 0,
    outcome       bytea,
    last_event    bigint NOT NULL DEFAULT 0,
    last_progress bigint,
    changed       bigint NOT NULL,
    authority     bytea
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

-- The lists of all runs, and of those that are not finished.
CREATE INDEX processes_by_time ON processes (created_at, rowid);
CREATE INDEX pending_processes ON processes (created_at, rowid)
    WHERE state IN ('held', 'queued', 'running', 'waiting');

-- The events of runs. An event with a key is appended once.
CREATE TABLE process_events (
    process text COLLATE "C"    NOT NULL,
    number  bigint NOT NULL,
    type    text COLLATE "C"    NOT NULL,
    at      float8    NOT NULL,
    payload bytea    NOT NULL,
    key     text COLLATE "C",
    PRIMARY KEY (process, number)
);

CREATE UNIQUE INDEX keyed_events ON process_events (process, key) WHERE key IS NOT NULL;

-- Sessions that may await, cancel and signal a run of another session.
CREATE TABLE process_grants (
    process text COLLATE "C" NOT NULL,
    session text COLLATE "C" NOT NULL,
    PRIMARY KEY (process, session)
);

-- Workers by their names, with how many runs each has at most and until when it counts as alive.
CREATE TABLE workers (
    name     text COLLATE "C"    NOT NULL PRIMARY KEY,
    owner    text COLLATE "C",
    capacity bigint NOT NULL,
    until    float8    NOT NULL
);

-- When a tool is to be started: once at an instant, or again and again. `next_at` only rises.
CREATE TABLE schedules (
    id          text COLLATE "C"    NOT NULL PRIMARY KEY,
    session     text COLLATE "C"    NOT NULL,
    tool        text COLLATE "C"    NOT NULL,
    arguments   bytea    NOT NULL,
    title       text COLLATE "C"    NOT NULL,
    options     bytea    NOT NULL,
    timing      bytea    NOT NULL,
    misfire     text COLLATE "C"    NOT NULL,
    overlap     text COLLATE "C"    NOT NULL,
    state       text COLLATE "C"    NOT NULL,
    next_at     float8,
    created_at  float8    NOT NULL,
    provenance  bytea    NOT NULL,
    authority   bytea
);

CREATE INDEX due_schedules ON schedules (next_at, id) WHERE state = 'active';
CREATE INDEX live_schedules ON schedules (session) WHERE state IN ('active', 'paused');
CREATE INDEX schedules_of_session ON schedules (session, created_at);

-- What each schedule did for each instant: once, whoever was first.
CREATE TABLE firings (
    schedule text COLLATE "C" NOT NULL,
    instant  float8 NOT NULL,
    at       float8 NOT NULL,
    what     text COLLATE "C" NOT NULL,
    process  text COLLATE "C",
    PRIMARY KEY (schedule, instant, what)
);

-- What starts a run when something occurs: the topic, and what must be in its payload.
CREATE TABLE triggers (
    session    text COLLATE "C" NOT NULL,
    id         text COLLATE "C" NOT NULL,
    topic      text COLLATE "C" NOT NULL,
    pattern    bytea NOT NULL,
    tool       text COLLATE "C" NOT NULL,
    arguments  bytea NOT NULL,
    payload_as text COLLATE "C",
    title      text COLLATE "C" NOT NULL,
    options    bytea NOT NULL,
    created_at float8 NOT NULL,
    authority  bytea,
    PRIMARY KEY (session, id)
);

CREATE INDEX triggers_of_topic ON triggers (topic);

-- What occurred, once for each key, and what it started. Of the payload, only the digest is kept.
CREATE TABLE occurrences (
    topic   text COLLATE "C" NOT NULL,
    key     text COLLATE "C" NOT NULL,
    digest  text COLLATE "C" NOT NULL,
    at      float8 NOT NULL,
    started bytea NOT NULL,
    PRIMARY KEY (topic, key)
);

-- Turns, from a message to the model's answer.
CREATE TABLE turns (
    id            text COLLATE "C"    PRIMARY KEY,
    session       text COLLATE "C"    NOT NULL,
    number        bigint NOT NULL,
    state         text COLLATE "C"    NOT NULL,
    message       bytea    NOT NULL,
    options       bytea    NOT NULL,
    created_at    float8    NOT NULL,
    started_at    float8,
    ended_at      float8,
    owner         text COLLATE "C",
    token         bigint NOT NULL,
    progress      bytea    NOT NULL,
    answer        bytea,
    outcome       bytea,
    cancel_reason text COLLATE "C",
    events        bigint NOT NULL,
    advances      bigint NOT NULL,
    caller        text COLLATE "C", -- the call whose sub-agent it is: its session, scope and id, as JSON
    above         text COLLATE "C", -- the scope of the calls of the turn that its usage counts for
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
    session text COLLATE "C"    PRIMARY KEY,
    last    bigint NOT NULL
);

-- The events of a turn, as they were written: one row for many events. `last` is the number of the last of them.
CREATE TABLE turn_events (
    turn text COLLATE "C"    NOT NULL,
    last bigint NOT NULL,
    data bytea    NOT NULL,
    PRIMARY KEY (turn, last)
);

-- Messages that were sent to a running turn.
CREATE TABLE turn_steering (
    turn   text COLLATE "C"    NOT NULL,
    number bigint NOT NULL,
    text   text COLLATE "C"    NOT NULL,
    at     float8    NOT NULL,
    PRIMARY KEY (turn, number)
);

-- Who may use the HTTP service.
CREATE TABLE tokens (
    id         text COLLATE "C" PRIMARY KEY,
    kind       text COLLATE "C" NOT NULL, -- a token of a program, a login of a browser, or a link that makes one login
    hash       bytea NOT NULL, -- of the value, which is stored nowhere
    name       text COLLATE "C" NOT NULL,
    scopes     text COLLATE "C" NOT NULL,
    sessions   text COLLATE "C" NOT NULL,
    created_at float8 NOT NULL,
    created_by text COLLATE "C",
    expires_at float8,
    revoked_at float8,
    parent     text COLLATE "C"           -- the token that a login was made with
);

CREATE INDEX tokens_of_parent ON tokens (parent) WHERE parent IS NOT NULL;

-- What happened, in one order for the whole store, so that another process can follow it.
-- One row for one or more events of one kind: `number` is that of the last of them, and is never given twice. A row
-- names its subject and has no content: that is read where it is stored, and is gone when that is removed.
-- The numbers come from a sequence, whose steps leave room for the events of one row.
CREATE SEQUENCE event_numbers START 1000000 INCREMENT 100000;
CREATE TABLE events (
    number  bigint  NOT NULL PRIMARY KEY DEFAULT nextval('event_numbers'),
    session text COLLATE "C" NOT NULL,
    kind    text COLLATE "C" NOT NULL,
    at      float8  NOT NULL,
    scope   text COLLATE "C" NOT NULL DEFAULT '',
    subject text COLLATE "C",
    detail  text COLLATE "C"
);

-- Requests that named a key, with the answer that each got. Without a status, its owner works on it, or
-- died while it did.
CREATE TABLE requests (
    key     text COLLATE "C" NOT NULL PRIMARY KEY,
    content text COLLATE "C" NOT NULL,
    owner   text COLLATE "C" NOT NULL,
    at      float8 NOT NULL,
    status  bigint,
    headers text COLLATE "C",
    body    bytea
);

CREATE INDEX requests_by_time ON requests (at);

-- The numbers of signals have no gaps, and are seen in their order: a sequence would show a later one first.
CREATE FUNCTION number_signal() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    UPDATE counters SET value = value + 1 WHERE name = 'signals' RETURNING value INTO NEW.number;
    RETURN NEW;
END $$;
CREATE TRIGGER numbered_signal BEFORE INSERT ON signals FOR EACH ROW EXECUTE FUNCTION number_signal();

-- How much each session keeps, counted by the database itself: one function for each table and its size of a row.
DO $do$
DECLARE
    part record;
BEGIN
    FOR part IN SELECT * FROM (VALUES
        ('files', '%1$s.size'),
        ('key_values', 'length(%1$s.value)'),
        ('secrets', 'length(%1$s.sealed)'),
        ('messages', '(length(%1$s.content) + length(%1$s.metadata))'),
        ('attachments', '%1$s.size'),
        ('resources', 'length(%1$s.metadata)')
    ) AS parts (name, size) LOOP
        EXECUTE format($sql$
            CREATE FUNCTION count_%1$s() RETURNS trigger LANGUAGE plpgsql AS $body$ BEGIN
                IF TG_OP = 'INSERT' THEN
                    INSERT INTO usage AS known VALUES (NEW.session, '%1$s', 1, %2$s) ON CONFLICT (session, service)
                        DO UPDATE SET entries = known.entries + 1, bytes = known.bytes + excluded.bytes;
                ELSIF TG_OP = 'UPDATE' THEN
                    IF %2$s <> %3$s THEN
                        UPDATE usage SET bytes = bytes + %2$s - %3$s
                            WHERE session = NEW.session AND service = '%1$s';
                    END IF;
                ELSE
                    UPDATE usage SET entries = entries - 1, bytes = bytes - %3$s
                        WHERE session = OLD.session AND service = '%1$s';
                END IF;
                RETURN NULL;
            END $body$;
            CREATE TRIGGER counted AFTER INSERT OR UPDATE OR DELETE ON %1$s
                FOR EACH ROW EXECUTE FUNCTION count_%1$s();
        $sql$, part.name, format(part.size, 'NEW'), format(part.size, 'OLD'));
    END LOOP;
END $do$;

-- What the event log has of other tables.
CREATE FUNCTION instant_now() RETURNS float8 LANGUAGE sql AS 'SELECT extract(epoch FROM clock_timestamp())::float8';

CREATE FUNCTION note_wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF TG_OP = 'INSERT' AND NEW.open = 1 THEN
        INSERT INTO events (session, kind, at, scope, subject, detail)
            VALUES (NEW.session, 'call.waiting', NEW.opened_at, NEW.scope, NEW.call_id, NEW.kind || ':' || NEW.name);
    END IF;
    IF NEW.resolution IS NOT NULL AND (TG_OP = 'INSERT' OR OLD.resolution IS NULL) THEN
        INSERT INTO events (session, kind, at, scope, subject, detail)
            VALUES (NEW.session, 'call.resolved', instant_now(), NEW.scope, NEW.call_id, NEW.kind || ':' || NEW.name);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER noted AFTER INSERT OR UPDATE OF resolution ON waits FOR EACH ROW EXECUTE FUNCTION note_wait();

CREATE FUNCTION note_run() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO events (session, kind, at, subject, detail)
        SELECT session, 'run.' || NEW.type, NEW.at, NEW.process, NEW.number FROM processes WHERE id = NEW.process;
    RETURN NULL;
END $$;
CREATE TRIGGER noted AFTER INSERT ON process_events FOR EACH ROW EXECUTE FUNCTION note_run();

CREATE FUNCTION note_turn() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO events (session, kind, at, subject) VALUES (NEW.session, 'turn.queued', NEW.created_at, NEW.id);
    RETURN NULL;
END $$;
CREATE TRIGGER noted AFTER INSERT ON turns FOR EACH ROW EXECUTE FUNCTION note_turn();

CREATE FUNCTION note_turn_events() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO events (session, kind, at, subject, detail)
        SELECT session, 'turn', 0, NEW.turn, NEW.last FROM turns WHERE id = NEW.turn;
    RETURN NULL;
END $$;
CREATE TRIGGER noted AFTER INSERT ON turn_events FOR EACH ROW EXECUTE FUNCTION note_turn_events();

CREATE FUNCTION note_message() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO events (session, kind, at, subject, detail)
        VALUES (NEW.session, 'message.added', NEW.at, NEW.number, NEW.sender);
    RETURN NULL;
END $$;
CREATE TRIGGER noted AFTER INSERT ON messages FOR EACH ROW EXECUTE FUNCTION note_message();

CREATE FUNCTION note_file() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF TG_OP = 'DELETE' THEN
        INSERT INTO events (session, kind, at, subject) VALUES (OLD.session, 'file.removed', instant_now(), OLD.path);
    ELSE
        INSERT INTO events (session, kind, at, subject) VALUES (NEW.session, 'file.written', NEW.updated_at, NEW.path);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER noted AFTER INSERT OR UPDATE OR DELETE ON files FOR EACH ROW EXECUTE FUNCTION note_file();

CREATE FUNCTION note_key() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF TG_OP = 'DELETE' THEN
        INSERT INTO events (session, kind, at, subject) VALUES (OLD.session, 'kv.removed', instant_now(), OLD.key);
    ELSE
        INSERT INTO events (session, kind, at, subject) VALUES (NEW.session, 'kv.set', NEW.updated_at, NEW.key);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER noted AFTER INSERT OR UPDATE OR DELETE ON key_values FOR EACH ROW EXECUTE FUNCTION note_key();

CREATE FUNCTION note_schedule() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO events (session, kind, at, subject)
            VALUES (NEW.session, 'schedule.added', NEW.created_at, NEW.id);
    ELSIF OLD.state <> NEW.state OR OLD.next_at IS DISTINCT FROM NEW.next_at THEN
        INSERT INTO events (session, kind, at, subject, detail)
            VALUES (NEW.session, 'schedule.changed', instant_now(), NEW.id, NEW.state);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER noted AFTER INSERT OR UPDATE ON schedules FOR EACH ROW EXECUTE FUNCTION note_schedule();

CREATE FUNCTION note_firing() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO events (session, kind, at, subject, detail)
        SELECT session, 'schedule.fired', NEW.at, NEW.schedule, NEW.process FROM schedules WHERE id = NEW.schedule;
    RETURN NULL;
END $$;
CREATE TRIGGER noted AFTER INSERT ON firings FOR EACH ROW EXECUTE FUNCTION note_firing();
