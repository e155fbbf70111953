"""What both stores keep as JSON text: failures, short lists, headers, and the batches that statements expand.

It knows the shapes and no database. Text that no database takes is refused here, as data.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from outlast.database.transaction import Refusal, RefusedError
from outlast.failure import Failure

_encode = msgspec.json.Encoder().encode
_failure = msgspec.json.Decoder(Failure).decode
_texts = msgspec.json.Decoder(tuple[str, ...]).decode
_rows = msgspec.json.Decoder(list[tuple[str, ...]]).decode
_headers = msgspec.json.Decoder(dict[str, str]).decode


def batch_to_json(rows: Sequence[Any]) -> str:
    """Return rows as the one JSON parameter that a statement expands: one call of the driver for any number of rows."""
    try:
        return _encode(rows).decode()
    except (UnicodeEncodeError, OverflowError) as error:
        raise RefusedError(Refusal.DATA, f"a value cannot be stored: {error}") from error


def texts_rows_from_json(text: str) -> list[tuple[str, ...]]:
    """Return rows of texts that a statement put together as one value."""
    return _rows(text)


def failure_text(failure: Failure) -> str:
    return _encode(failure).decode()


def failure_to_json(failure: Failure | None) -> str | None:
    return None if failure is None else failure_text(failure)


def parse_failure(text: str) -> Failure:
    return _failure(text)


def failure_from_json(text: str | None) -> Failure | None:
    return None if text is None else parse_failure(text)


def texts_from_json(text: str) -> tuple[str, ...]:
    """Return a JSON list of texts: tags, warnings."""
    return _texts(text)


def headers_from_json(text: str) -> dict[str, str]:
    return _headers(text)


def headers_to_json(headers: Mapping[str, str]) -> str:
    return _encode(dict(headers)).decode()


def texts_to_json(texts: Sequence[str]) -> str:
    return _encode(list(texts)).decode()
