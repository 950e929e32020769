-- Version 12: the traces of calls.
-- The first execution of each call that is traced, as the W3C header `traceparent`: a replay and a takeover are linked
-- to it.
CREATE TABLE traces (
    session TEXT NOT NULL,
    scope   TEXT NOT NULL,
    call_id TEXT NOT NULL,
    trace   TEXT NOT NULL,
    PRIMARY KEY (session, scope, call_id)
) WITHOUT ROWID;
