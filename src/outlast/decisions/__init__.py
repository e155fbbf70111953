"""Decisions and the attention list: what waits for a person, in tables of its own."""
