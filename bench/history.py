"""A long past for a database: finished runs in numbers that would take too long to run one by one."""

import psycopg

from .sql import load_statements


def multiply_finished_runs(url: str, copies: int) -> None:
    """Copy all runs of this database so many times, and leave the tables as a server's own housekeeping would."""
    statements = load_statements(__file__)
    with psycopg.connect(url, autocommit=True) as connection:
        for name in ("copy_runs", "copy_bodies", "copy_steps"):
            connection.execute(statements[name], {"copies": copies})
        connection.execute(statements["tidy_up"])
