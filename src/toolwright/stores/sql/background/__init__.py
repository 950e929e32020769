"""Background runs, schedules and triggers in a SQL store."""
