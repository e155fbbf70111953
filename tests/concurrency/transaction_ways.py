"""The ways to begin a transaction that an application has, each with a function that adds a row as its driver does, and what is then there."""

import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
import psycopg_pool
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import sessionmaker


@dataclass
class Way:
    """One way to a database: how to begin transactions on it, and how to add a row in one."""

    on: Any
    add: Callable[..., Any]
    close: Callable[[], Any] = lambda: None


# --- adding a row, as an application does it with its driver ----------------------------------------------------------------
def add_by_psycopg(connection: Any, name: str) -> str:
    connection.execute("INSERT INTO item (name) VALUES (%s)", [name])
    return name


async def add_by_async_psycopg(connection: Any, name: str) -> str:
    await connection.execute("INSERT INTO item (name) VALUES (%s)", [name])
    return name


def add_by_sqlite3(connection: Any, name: str) -> str:
    connection.execute("INSERT INTO item (name) VALUES (?)", [name])
    return name


def add_by_sqlalchemy(begun: Any, name: str) -> str:
    begun.execute(sqlalchemy.text("INSERT INTO item (name) VALUES (:name)"), {"name": name})
    return name


async def add_by_async_sqlalchemy(begun: Any, name: str) -> str:
    await begun.execute(sqlalchemy.text("INSERT INTO item (name) VALUES (:name)"), {"name": name})
    return name


def alchemical(url: str, *, is_async: bool) -> str:
    if url.startswith("sqlite"):
        return url.replace("sqlite:", "sqlite+aiosqlite:") if is_async else url
    return url.replace("postgresql:", "postgresql+psycopg:")


@asynccontextmanager
async def way_to(name: str, url: str) -> AsyncIterator[Way]:
    if name == "own":
        yield Way(None, add_by_sqlite3 if url.startswith("sqlite") else add_by_psycopg)
    elif name == "function":
        if url.startswith("sqlite"):
            yield Way(lambda: sqlite3.connect(url.removeprefix("sqlite:///"), timeout=30), add_by_sqlite3)
        else:
            yield Way(lambda: psycopg.connect(url), add_by_psycopg)
    elif name == "async function":

        async def open_connection() -> Any:
            return await psycopg.AsyncConnection.connect(url)

        yield Way(open_connection, add_by_async_psycopg)
    elif name == "pool":
        with psycopg_pool.ConnectionPool(url, min_size=1, max_size=4, open=True) as pool:
            yield Way(pool, add_by_psycopg)
    elif name == "async pool":
        async with psycopg_pool.AsyncConnectionPool(url, min_size=1, max_size=4, open=False) as async_pool:
            yield Way(async_pool, add_by_async_psycopg)
    elif name in ("engine", "sessionmaker"):
        engine = sqlalchemy.create_engine(alchemical(url, is_async=False))
        yield Way(engine if name == "engine" else sessionmaker(engine), add_by_sqlalchemy)
        engine.dispose()
    else:
        async_engine = create_async_engine(alchemical(url, is_async=True))
        yield Way(async_engine if name == "async engine" else async_sessionmaker(async_engine), add_by_async_sqlalchemy)
        await async_engine.dispose()


EVERYWHERE = ["own", "function", "engine", "sessionmaker", "async engine", "async sessionmaker"]
ON_POSTGRESQL = ["async function", "pool", "async pool"]


def execute(url: str, sql: str) -> list[tuple[Any, ...]]:
    """Run a statement apart from everything."""
    connection: Any = sqlite3.connect(url.removeprefix("sqlite:///"), timeout=30) if url.startswith("sqlite") else psycopg.connect(url)
    try:
        cursor = connection.execute(sql)
        rows = cursor.fetchall() if cursor.description is not None else []
        connection.commit()
    finally:
        connection.close()
    return rows


def names(url: str) -> list[str]:
    return [name for (name,) in execute(url, "SELECT name FROM item ORDER BY name")]


def records(url: str) -> list[tuple[str, str]]:
    table = "outlast_run_step" if url.startswith("sqlite") else "outlast.step"
    return [(name, kind) for name, kind in execute(url, f"SELECT name, kind FROM {table} ORDER BY seq")]


def skip_where_there_is_no_such(way: str, url: str) -> None:
    if way in ON_POSTGRESQL and url.startswith("sqlite"):
        pytest.skip("capability: psycopg is PostgreSQL's")
