"""The built-in engine: durable runs on SQLite and PostgreSQL behind the `TaskEngine` port."""
