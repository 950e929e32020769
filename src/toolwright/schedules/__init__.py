"""Work that starts at an instant or by a cron expression: when it is due, and the handling of missed instants."""
