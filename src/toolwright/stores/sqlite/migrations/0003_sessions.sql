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
