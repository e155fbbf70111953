"""Plumbing to a database that knows no tables: transactions, statements by name, migrations, one driver a file."""
