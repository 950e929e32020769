"""The contracts of stores: every protocol that a store fulfils, with the values that it takes and gives.

`store.py` puts the parts together. The author of a store reads this folder and docs/writing-a-store.md, and nothing
else. Nothing here reads or writes: the implementations are `stores/sqlite`, and for the calls of a runtime without a
file `effects/memory.py`.
"""
