"""`outlast attention`: what waits for a person."""

import click

from outlast.decisions.attention import AttentionItem, AttentionKind, AttentionPage
from outlast.limits import ATTENTION_PAGE_MAX

from .application import DONE, Application, Reach, app_option, database_option, execute, json_option
from .output import instant_text, print_json, print_line, print_table


@click.command()
@database_option
@app_option
@json_option
@click.option("--limit", type=click.IntRange(1, ATTENTION_PAGE_MAX), default=50, show_default=True)
@click.option("--before", metavar="PLACE", help="Where the page before ended.")
def attention(database: str | None, app: str | None, is_json: bool, limit: int, before: str | None) -> None:
    """List what waits for a person, the latest first: open questions, failed and dead runs, each with what to do about it."""

    async def act(engine: Application) -> int:
        page = await engine.inspector.list_attention(limit=limit, before=before)
        print_json(page) if is_json else _print_page(page)
        return DONE

    execute(Reach(database, app), act)


def _print_page(page: AttentionPage) -> None:
    if not page.items:
        print_line("nothing waits for you")
        return
    rows = [(str(item.kind), instant_text(item.since), item.run or "-", _remedy(item), item.what) for item in page.items]
    print_table(("KIND", "SINCE", "RUN", "WHAT TO DO", "WHAT IT IS"), rows)
    if page.next is not None:
        print_line(f"more: --before {page.next}")


def _remedy(item: AttentionItem) -> str:
    if item.decision is not None:
        return f"outlast decide {item.decision.id} {'|'.join(item.decision.options)}"
    return "outlast retry|discard RUN" if item.kind is AttentionKind.DEAD else "outlast retry|resume|discard RUN"
