-- Version 15: what a call does not share with the calls of other programs, until it is finished.
DROP VIEW every_call;
DROP VIEW bundled_calls;
ALTER TABLE calls ADD COLUMN claims TEXT;
ALTER TABLE bundles ADD COLUMN claims TEXT;

-- Recovery looks at what is unfinished, and at nothing else; a batch that begins at what others have in its session.
DROP INDEX unfinished_calls;
CREATE INDEX unfinished_calls ON calls (session, owner) WHERE outcome IS NULL;

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
