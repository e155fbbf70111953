"""What a type checker must know of `ctx.transaction`: the connection comes from what is begun on, results and arguments from the function."""

import sqlite3

import psycopg
from psycopg_pool import AsyncConnectionPool, ConnectionPool
from sqlalchemy import Connection, Engine
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session, sessionmaker
from typing_extensions import assert_type

from outlast import Context


def by_session(session: Session, name: str) -> int:
    return len(name)


async def by_async_session(session: AsyncSession, name: str, *, note: str = "") -> int:
    return len(name + note)


def by_connection(connection: Connection, name: str) -> int:
    return len(name)


async def by_async_connection(connection: AsyncConnection, name: str) -> int:
    return len(name)


def by_psycopg(connection: psycopg.Connection, name: str) -> int:
    return len(name)


async def by_async_psycopg(connection: psycopg.AsyncConnection, name: str) -> int:
    return len(name)


def by_sqlite3(connection: sqlite3.Connection, name: str) -> int:
    return len(name)


def open_file() -> sqlite3.Connection:
    return sqlite3.connect("application.db")


async def body(
    ctx: Context,
    sessions: sessionmaker[Session],
    async_sessions: async_sessionmaker[AsyncSession],
    engine: Engine,
    async_engine: AsyncEngine,
    pool: ConnectionPool[psycopg.Connection],
    async_pool: AsyncConnectionPool[psycopg.AsyncConnection],
) -> None:
    assert_type(await ctx.transaction(sessions, by_session, "a"), int)
    assert_type(await ctx.transaction(async_sessions, by_async_session, "a", note="b"), int)
    assert_type(await ctx.transaction(engine, by_connection, "a"), int)
    assert_type(await ctx.transaction(async_engine, by_async_connection, "a"), int)
    assert_type(await ctx.transaction(pool, by_psycopg, "a"), int)
    assert_type(await ctx.transaction(async_pool, by_async_psycopg, "a"), int)
    assert_type(await ctx.transaction(open_file, by_sqlite3, "a"), int)
    assert_type(await ctx.transaction(ctx.database, by_sqlite3, "a"), int)
    await ctx.transaction(engine, by_connection)  # expect-error
    await ctx.transaction(engine, by_connection, 1)  # expect-error
    await ctx.transaction(async_engine, by_async_session, "a")  # expect-error
    await ctx.transaction("postgresql://host/db", by_psycopg, "a")  # expect-error
    ctx.transaction(sessions, by_session, "a")  # expect-error
