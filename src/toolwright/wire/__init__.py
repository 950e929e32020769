"""Calls and results in the shapes that providers speak. Owns conversion both ways; owns no connection."""
