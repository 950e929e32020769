-- Version 13: requests that named a key, with the answer that each got. Without a status, its owner works on it, or
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
