"""Background runs, schedules and triggers in SQLite."""
