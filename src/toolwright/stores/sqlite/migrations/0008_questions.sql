-- Version 8: questions to a person are in the inbox, and among what was decided.
DROP INDEX decided_waits;
DROP INDEX decided_of_session;
DROP INDEX inbox;
CREATE INDEX decided_waits ON waits (arrived) WHERE arrived IS NOT NULL AND kind IN ('approval', 'crash', 'question');
CREATE INDEX decided_of_session ON waits (session, arrived)
    WHERE arrived IS NOT NULL AND kind IN ('approval', 'crash', 'question');
CREATE INDEX inbox ON waits (opened_at) WHERE open = 1 AND kind IN ('approval', 'crash', 'question');
