"""The secrets of a session: storage, encryption and redaction."""
