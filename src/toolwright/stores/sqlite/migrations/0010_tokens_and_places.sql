-- Version 10: who may use the HTTP service, and from where a decision came that holds for later calls.
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

ALTER TABLE remembered ADD COLUMN via TEXT;
