"""Journal: the record of each call before and after it runs, and the handling after a crash."""
