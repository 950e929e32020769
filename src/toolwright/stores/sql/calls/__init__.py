"""The journal of calls and their waits in a SQL store."""
