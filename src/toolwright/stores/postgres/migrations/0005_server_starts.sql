-- Version 5: the start of the server that has the store, and since when a process found it there.
CREATE TABLE server_starts (
    started timestamptz NOT NULL PRIMARY KEY,
    seen    timestamptz NOT NULL
);

INSERT INTO server_starts VALUES (pg_postmaster_start_time(), '-infinity');
