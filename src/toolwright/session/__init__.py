"""One conversation's part of a runtime: its batches, its recovery, and decisions of a person or a program about it."""
