"""What ships to users for their tests, and what our own tests use first. Nothing in the library imports it."""
