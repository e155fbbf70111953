"""Address: what a `postgresql://` URL means to psycopg, and how it is shown without any secret in it."""

import re

import psycopg
from psycopg.conninfo import conninfo_to_dict

from outlast.errors import UsageError
from outlast.limits import ENQUEUE_TIMEOUT

_SCHEME = re.compile(r"^postgres(?:ql)?(?:\+\w+)?://")


def parse_address(url: str) -> dict[str, str]:
    """Return the connection's settings. `postgres:`, `postgresql:` and `postgresql+anything:` mean the same.

    The URL is never quoted in the error: it may hold a password.
    """
    if not _SCHEME.match(url):
        raise UsageError("this is no PostgreSQL address: write postgresql://user@host:5432/database")
    try:
        settings = conninfo_to_dict(_SCHEME.sub("postgresql://", url))
    except psycopg.Error:
        raise UsageError("the PostgreSQL address cannot be read: write postgresql://user@host:5432/database, special characters as %XX") from None
    if settings.pop("options", None) is not None:
        raise UsageError("start-up options do not pass a connection pooler: set them with ALTER ROLE or ALTER DATABASE, and leave `options` out of the address")
    return _DEFAULTS | {name: str(value) for name, value in settings.items()} | _FIXED


def shown_address(settings: dict[str, str]) -> str:
    """Return the address for logs and people: user, host, port and database, nothing else."""
    user = f"{settings['user']}@" if "user" in settings else ""
    host = settings.get("host") or settings.get("hostaddr") or "localhost"
    return f"postgresql://{user}{host}:{settings.get('port', '5432')}/{settings.get('dbname', settings.get('user', ''))}"


# Whatever the role, the database or the environment says: in a smaller encoding most of Unicode could not be sent.
_FIXED = {"client_encoding": "UTF8"}
_DEFAULTS = {
    "connect_timeout": str(int(ENQUEUE_TIMEOUT.total_seconds())),
    # A peer that vanished without a word is noticed after ten seconds, idle or in the middle of a request.
    "keepalives": "1",
    "keepalives_idle": "4",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}
