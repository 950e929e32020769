"""Limited children: processes of our own that handle untrusted code and data. Owns starting, limiting and ending them.

A job is a function of this package that runs in a child process. The operating system enforces the limits of the child:
address space, processor time, open files, no files written, no new privileges. A child that crashes or is killed fails
the one call that it worked on.
"""

from toolwright.limited_children.pool import ChildFailed, ChildJob, ChildPool, ChildTimeout

__all__ = ["ChildFailed", "ChildJob", "ChildPool", "ChildTimeout"]
