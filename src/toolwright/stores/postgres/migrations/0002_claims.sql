-- Version 2: what a call does not share with the calls of other programs, until it is finished.
ALTER TABLE calls ADD COLUMN claims text COLLATE "C";

-- Recovery looks at what is unfinished, and at nothing else; a batch that begins at what others have in its session.
DROP INDEX unfinished_calls;
CREATE INDEX unfinished_calls ON calls (session, owner) WHERE outcome IS NULL;

-- Replaced, so that who may read them may still.
CREATE OR REPLACE VIEW every_call AS
SELECT session, scope, call_id, batch, position, tool, tool_id, arguments, source, parent, queued_at, owner, started_at,
    finished_at, status, outcome, authority, claims
FROM calls;
CREATE OR REPLACE VIEW bundled_calls AS SELECT * FROM every_call WHERE false;
