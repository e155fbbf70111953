"""Values that msgspec does not know: paths, and pydantic models where the application uses them.

A path is a plain string; one that is no UTF-8 is `{"$path": "<base64 of its bytes>"}`. Never imports pydantic: a class can
only be one of its models if it is imported already.
"""

import base64
import sys
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

import msgspec

from outlast.scalar import CHECKS, Check, Refused, refuse_type, type_name

_PATH_TAG = "$path"


def check_for(kind: type) -> Check | None:
    """Return the check of a class of this file, and None for any other."""
    if issubclass(kind, PurePath):
        return _path_check(kind)
    return _model_check(kind) if is_model(kind) else None


def is_model(kind: type) -> bool:
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and issubclass(kind, pydantic.BaseModel)


def write(value: Any) -> Any:
    """Return what msgspec shall write in place of a value that it does not know."""
    if isinstance(value, PurePath):
        return _path_to_json(value)
    if is_model(type(value)):
        return msgspec.Raw(value.model_dump_json(by_alias=True).encode())
    raise TypeError(f"{type_name(value)} is not supported")


def read(kind: Any, value: Any) -> Any:
    """Return an object of the annotated class from what the JSON holds."""
    if kind is object:
        return value
    if issubclass(kind, PurePath):
        return kind(_path_from_json(value))
    if is_model(kind):
        return kind.model_validate_json(msgspec.json.encode(value))
    raise TypeError(f"{kind.__qualname__} is not supported")


def _path_check(kind: type[PurePath]) -> Check:
    concrete = type(kind())

    def check(value: Any, depth: int) -> bool:
        if type(value) is not concrete:
            if not isinstance(value, PurePath):
                refuse_type(kind.__name__, value)
            if concrete(str(value)) != value:
                raise Refused(f"a {type(value).__name__} would be read as another path here; annotate it with its own class")
        if "\0" in str(value):
            raise Refused("a path must not contain NUL; no file can have that name")
        return False

    return check


def _path_to_json(path: PurePath) -> str | dict[str, str]:
    text = str(path)
    if text.isascii():
        return text
    try:
        raw = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise TypeError("the path holds a character that no file name can hold") from None
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return {_PATH_TAG: base64.b64encode(raw).decode()}


def _path_from_json(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and value.keys() == {_PATH_TAG} and isinstance(value[_PATH_TAG], str):
        return base64.b64decode(value[_PATH_TAG], validate=True).decode("utf-8", "surrogateescape")
    raise ValueError(f"Expected a path, got {type_name(value)}")


def _model_check(kind: Any) -> Check:
    def check(value: Any, depth: int) -> bool:
        if type(value) is not kind:
            refuse_type(kind.__qualname__, value)
        _check_parts(value.model_dump())
        try:
            copy = kind.model_validate_json(value.model_dump_json(by_alias=True))
        except ValueError:
            raise Refused("the model does not read what it writes; give its fields types that it reads back") from None
        if copy != value:
            raise Refused("the model does not come back equal to what it was; change how it is written or compared")
        return False

    return check


def _check_parts(value: Any) -> None:
    if isinstance(value, Mapping):
        for key, item in value.items():
            _check_parts(key)
            _check_parts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            _check_parts(item)
    elif isinstance(value, set | frozenset):
        raise Refused("a set inside a pydantic model is written in no fixed order; use a list")
    elif type(value) in (str, int, float):
        CHECKS[type(value)](value, 0)
