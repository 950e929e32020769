"""Toolwright inside other agent frameworks: one module a framework, each with an extra of its own.

No module here imports its framework before it is imported itself, and none is imported by `import toolwright`.
"""
