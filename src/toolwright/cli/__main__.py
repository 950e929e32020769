"""`python -m toolwright.cli` is the `toolwright` command."""

from toolwright.cli import main

main()
