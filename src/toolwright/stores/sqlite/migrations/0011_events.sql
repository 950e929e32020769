-- Version 11: what happened, in one order for the whole file, so that another process can follow it.
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
