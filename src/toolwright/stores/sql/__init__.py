"""The queries that every SQL store shares, over a small protocol of a connection. Owns no database."""
