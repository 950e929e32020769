"""One conversation's part of a runtime: its batches, its recovery, and what a person or a program decides about it."""
