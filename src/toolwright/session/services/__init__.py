"""The services of a session: messages, files, key-value, attachments, resources and connections."""
