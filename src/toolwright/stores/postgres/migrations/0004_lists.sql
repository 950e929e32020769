-- Version 4: lists that are as fast in a store with a million calls and runs.
ALTER TABLE calls SET (fillfactor = 70);
CREATE INDEX calls_of_session ON calls ((session || ''), rowid);
CREATE INDEX calls_by_status ON calls (status, rowid) WHERE status <> 'success';
CREATE INDEX processes_by_time ON processes (created_at, rowid);
CREATE INDEX pending_processes ON processes (created_at, rowid)
    WHERE state IN ('held', 'queued', 'running', 'waiting');
