"""Exporting, importing and deleting whole sessions."""
