"""The services of sessions in a SQL store."""
