"""An idempotency key that is pruned in the middle of an enqueue that has met it."""

import asyncio

import psycopg

from outlast import Context, connect, task

FORGET_ONCE = """CREATE FUNCTION public.forget() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF nextval('public.inserts') = 1 THEN  -- a sequence, because the refused transaction must not undo it
            DELETE FROM outlast.run_key WHERE key = 'k';
        END IF;
        RETURN NULL;
    END $$"""
MEETS = "CREATE TRIGGER forget AFTER INSERT ON outlast.run FOR EACH STATEMENT EXECUTE FUNCTION public.forget()"


@task
async def greet(ctx: Context) -> str:
    return "hello"


def test_a_key_that_is_pruned_while_it_is_met_is_met_again(postgres_url: str):
    """The enqueue is tried again, and what it answers is there."""

    async def main() -> None:
        async with connect(postgres_url, tasks=[greet]) as engine:
            first = await engine.enqueue(greet, idempotency_key="k")
            with psycopg.connect(postgres_url, autocommit=True) as connection:
                connection.execute("CREATE SEQUENCE public.inserts")
                connection.execute(FORGET_ONCE.encode())
                connection.execute(MEETS.encode())
            second = await engine.enqueue(greet, idempotency_key="k")
            assert await engine.find(second.id) is not None
            assert second.id == first.id, "the refused try has undone the deletion too"

    asyncio.run(main())
