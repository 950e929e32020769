"""Journal: the record of each call before and after it runs, and what happens after a crash."""
