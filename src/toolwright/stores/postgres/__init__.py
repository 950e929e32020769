"""A store in PostgreSQL: the shared queries of `stores/sql`, and its own journal, writer and sign of life."""
