"""Signature: the arguments of a step function's calls as JSON text, and the codec of its result.

One call has one text, however it is written: `f(1, b=2)` and `f(a=1, b=2)` both give `[1,2]`, an object only where a
parameter was left out before one that was given or keywords are needed; defaults are not filled in. Never calls the function.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter
from inspect import Signature as PythonSignature
from types import MethodType
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from outlast.errors import PayloadError, UsageError
from outlast.function import name_of, parameters_of, result_of
from outlast.payload import Codec, bounded, codec_for

_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
# Under these keys `*args` and `**kwargs` stand in an object; no parameter can have such a name.
_REST_KEYS: dict[Any, str] = {Parameter.VAR_POSITIONAL: "*", Parameter.VAR_KEYWORD: "**"}
_read_array = msgspec.json.Decoder(list[msgspec.Raw]).decode
_read_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_write_object = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class _Argument:
    name: str
    key: str
    """Its name in an object."""
    annotation: Any
    codec: Codec
    """Of all its values together, for `*args` and `**kwargs`."""


class Signature:
    """The parameters and the result of one function."""

    __slots__ = ("_arguments", "_arrays", "_fits_array", "_more", "_only", "_positional", "_python", "_required_count", "name", "result")

    def __init__(self, name: str, parameters: Sequence[Parameter], result: Any) -> None:
        self.name = name
        self.result = _codec(name, "its result", result)
        """The codec of what the function returns, or of what an `async` one does when it is awaited."""
        self._python = PythonSignature(parameters)
        self._arguments = {parameter.name: _argument(name, parameter) for parameter in parameters}
        self._positional = [self._arguments[parameter.name] for parameter in parameters if parameter.kind in _POSITIONAL]
        self._more = next((self._arguments[parameter.name] for parameter in parameters if parameter.kind is Parameter.VAR_POSITIONAL), None)
        required = [parameter for parameter in parameters if parameter.default is Parameter.empty and parameter.kind not in _REST_KEYS]
        self._required_count = len(required)
        self._fits_array = all(parameter.kind in _POSITIONAL for parameter in required)
        self._arrays: dict[int, Codec] = {}
        self._only: Codec | None = None
        """The codec of as many arguments as every call has had so far."""

    def encode_arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], field: str) -> str:
        """Return the arguments as JSON text, "" for none; TypeError where Python's own call would raise it, PayloadError as a codec."""
        if self._fits_array and not kwargs and self._required_count <= len(args) <= len(self._positional):
            return self._encode_array(args, field)
        try:
            given = self._python.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(f"{self.name}() {error}") from None
        leading = self._leading(given)
        if len(leading) == len(given):
            return self._encode_array(tuple(leading.values()), field)
        if self._more and len(leading) == len(given) - 1 and self._more.name in given:
            return self._encode_array((*leading.values(), *given[self._more.name]), field)
        return self._encode_object(given, field)

    def decode_arguments(self, text: str, field: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return what to call the function with; PayloadError where the text does not fit what it takes today."""
        if not text:
            return (), {}
        if text.startswith("["):
            return self._decode_array(text, field), {}
        given = self._decode_object(text, field)
        leading = self._leading(given)
        more = given.pop(self._more.name, ()) if self._more else ()
        keywords: dict[str, Any] = {}
        for name, value in given.items():
            if name not in leading:
                keywords.update(value if self._arguments[name].key == "**" else {name: value})
        return (*leading.values(), *more), keywords

    def _leading(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return what can be given by position: all up to the first parameter that was left out."""
        leading: dict[str, Any] = {}
        for argument in self._positional:
            if argument.name not in given:
                break
            leading[argument.name] = given[argument.name]
        return leading

    def _encode_array(self, args: tuple[Any, ...], field: str) -> str:
        if not args:
            return ""
        try:
            codec = self._arrays.get(len(args)) or self._array(len(args), field)
            return codec.encode(args, field)
        except PayloadError:
            # Once more one by one, for a message that has the parameter's name instead of its number.
            for index, value in enumerate(args):
                argument = self._at(index)
                codec_for(argument.annotation).encode(value, f"{field}.{argument.name}")
            raise

    def _decode_array(self, text: str, field: str) -> tuple[Any, ...]:
        if self._only is not None:  # nearly always as many as ever: read once, and only what does not fit is taken apart
            try:
                args: tuple[Any, ...] = self._only.decode(text, field)
                return args
            except PayloadError:
                pass
        try:
            parts = _read_array(text)
        except Exception as error:  # a text that nests too deep or is no JSON: one run's fault, never the worker's
            raise PayloadError(f"{field}: what is stored are not the arguments of {self.name}: {type(error).__qualname__}", field=field) from error
        codec = self._array(len(parts), field)
        try:
            return tuple(codec.decode(text, field))
        except PayloadError:
            for index, part in enumerate(parts):
                argument = self._at(index)
                codec_for(argument.annotation).decode(bytes(part).decode(), f"{field}.{argument.name}")
            raise

    def _encode_object(self, given: Mapping[str, Any], field: str) -> str:
        texts: dict[str, msgspec.Raw] = {}
        for name, value in given.items():
            argument = self._arguments[name]
            whole = list(value) if argument.key == "*" else value
            texts[argument.key] = msgspec.Raw(argument.codec.encode(whole, f"{field}.{name}").encode())
        return bounded(_write_object(texts), field)

    def _decode_object(self, text: str, field: str) -> dict[str, Any]:
        try:
            parts = _read_object(text)
        except Exception as error:  # as for an array
            raise PayloadError(f"{field}: what is stored are not the arguments of {self.name}: {type(error).__qualname__}", field=field) from error
        known = {argument.key: argument for argument in self._arguments.values()}
        unknown = parts.keys() - known.keys()
        if unknown:
            raise PayloadError(f"{field}: {self.name} takes no {min(unknown)!a} any more; deploy the code that fits", field=field)
        return {known[key].name: known[key].codec.decode(bytes(part).decode(), f"{field}.{known[key].name}") for key, part in parts.items()}

    def _array(self, count: int, field: str) -> Codec:
        codec = self._arrays.get(count)
        if codec is None:
            if count > len(self._positional) and self._more is None:
                taken = len(self._positional)
                raise PayloadError(f"{field}: {count} arguments are stored, and {self.name} takes {taken}; deploy the code that fits", field=field)
            annotations = tuple(self._at(index).annotation for index in range(count))
            codec = self._arrays[count] = codec_for(tuple.__class_getitem__(annotations))
            self._only = codec if len(self._arrays) == 1 else None
        return codec

    def _at(self, index: int) -> _Argument:
        if index < len(self._positional) or self._more is None:
            return self._positional[index]
        return self._more


def signature_of(function: Callable[..., Any], *, supplied: int = 0) -> Signature:
    """Return the signature, computed once; UsageError that names the parameter where an annotation cannot be resolved or kept.

    The first `supplied` parameters come from the engine (a connection, an attempt), are not stored, and can have any type.
    """
    # A bound method is made anew at each access, so that the function in it is what is remembered.
    key = function.__func__ if isinstance(function, MethodType) else function
    kind = (key is not function, supplied)
    try:
        known = _signatures.setdefault(key, {})
    except TypeError:
        return _new_signature(function, supplied)
    if kind not in known:
        known[kind] = _new_signature(function, supplied)
    return known[kind]


# Weak, so that a function made for one call can go; a signature does not hold its function.
_signatures: WeakKeyDictionary[Callable[..., Any], dict[tuple[bool, int], Signature]] = WeakKeyDictionary()


def _new_signature(function: Callable[..., Any], supplied: int) -> Signature:
    return Signature(name_of(function), parameters_of(function, supplied=supplied), result_of(function))


def _argument(function_name: str, parameter: Parameter) -> _Argument:
    annotation = parameter.annotation
    codec = _codec(function_name, f"parameter {parameter.name!r}", annotation)
    key = _REST_KEYS.get(parameter.kind, parameter.name)
    if parameter.kind is Parameter.VAR_POSITIONAL:
        codec = codec_for(list.__class_getitem__(annotation))
    elif parameter.kind is Parameter.VAR_KEYWORD:
        codec = codec_for(dict.__class_getitem__((str, annotation)))
    return _Argument(parameter.name, key, annotation, codec)


def _codec(function_name: str, place: str, annotation: Any) -> Codec:
    try:
        return codec_for(annotation)
    except UsageError as error:
        raise UsageError(f"{function_name}: {place}: {error}") from error
