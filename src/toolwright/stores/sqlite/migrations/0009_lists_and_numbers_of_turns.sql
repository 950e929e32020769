-- Version 9: turns are listed by their time without a scan, and their numbers continue after pruning.
CREATE INDEX turns_by_time ON turns (created_at, number);
CREATE TABLE turn_numbers (
    session TEXT    PRIMARY KEY,
    last    INTEGER NOT NULL
) WITHOUT ROWID;
