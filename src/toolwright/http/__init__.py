"""The HTTP service over an app and its store. Nothing imports it before it is used; it needs the extra `http`."""
