-- Version 14: the calls of a batch are found without reading all calls. The beginning of the hash is enough to find
-- them, and keeps the index small, since every call fills it.
CREATE INDEX calls_of_batch ON calls (substr(batch, 7, 8));
