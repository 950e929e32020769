"""The parts that every SQLite table shares: writer, reader, schema, owners and faults."""
