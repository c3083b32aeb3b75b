"""Records as JSON and back, by the types of their fields.

What travels between pods or is stored is a frozen dataclass, or a NamedTuple where every start imports it: that costs a
sixth, and `dataclasses` itself half as much as a bare interpreter. `to_json` gives every field by its name; `from_json`
reads it back, ignores names that it does not know and says by its path what is wrong. Types are resolved when a class
is first read: nothing happens at import.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import types
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

Value = TypeVar("Value")
Read = Callable[[Any, str], Any]
"""Reads a JSON value; the text is the path that leads to it."""

SCALARS = {str: "a text", bool: "true or false", int: "a whole number", float: "a number", type(None): "null"}


class WireError(ValueError):
    """Why a JSON value is not what was expected, by its path: "pods[3].index is not a whole number"."""


def to_json(value: Any) -> Any:
    """`value` as JSON: dataclasses and mappings become objects, sequences and sets lists, bytes base64."""
    if isinstance(value, (str, int, float, type(None))):
        return value
    if isinstance(value, Mapping):
        return {str(name): to_json(one) for name, one in value.items()}
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if is_record(value):
        return {name: to_json(getattr(value, name)) for name in field_names(value)}
    return [to_json(one) for one in (sorted(value) if isinstance(value, Set) else value)]


def without_none(value: Any) -> Any:
    """JSON less every member of an object that is null."""
    if isinstance(value, dict):
        return {name: without_none(one) for name, one in value.items() if one is not None}
    return [without_none(one) for one in value] if isinstance(value, list) else value


def from_json(kind: type[Value], data: Any, path: str = "") -> Value:
    """The `kind` that `to_json` made `data` of. Raises WireError."""
    read: Read = _reader(kind)  # type: ignore[arg-type]  # a type is hashable
    found: Value = read(data, path)
    return found


def json_object(text: str | bytes) -> dict[str, Any]:
    """The JSON object that a text is; empty when it is none, as what a killed process left or another program said."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


@cache
def _reader(kind: Any) -> Read:
    """How to read a value of that type."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return lambda value, path: value
    if origin is Annotated:
        return _reader(arguments[0])
    if origin in (Union, types.UnionType):
        return _union(arguments)
    if origin is Literal:
        return _literal(arguments)
    if is_record(kind):
        return _record(kind)
    if kind in SCALARS:
        return _scalar(kind)
    return _bytes if kind is bytes else _container(kind, origin, arguments)


def _container(kind: Any, origin: Any, arguments: Any) -> Read:
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping(*arguments)
    if origin is tuple and arguments[-1] is not Ellipsis:
        return _fixed(arguments)
    if isinstance(origin, type) and issubclass(origin, Collection):
        return _sequence(arguments[0], tuple if issubclass(origin, Sequence) else frozenset)
    raise TypeError(f"{kind} cannot be read from JSON")


def _record(kind: Any) -> Read:
    hints = get_type_hints(kind, include_extras=True)
    readers = {name: _reader(hints[name]) for name in field_names(kind)}
    needed = needed_fields(kind)

    def read(value: Any, path: str) -> Any:
        members = _expect(value, dict, path, "an object")
        if missing := [name for name in readers if name in needed and name not in members]:
            raise WireError(f"{_member(path, missing[0])} is missing")
        return kind(**{n: read_one(members[n], _member(path, n)) for n, read_one in readers.items() if n in members})

    return read


def is_record(kind: Any) -> bool:
    """A dataclass or a NamedTuple, or a value of one."""
    return hasattr(kind, "_fields") or hasattr(kind, "__dataclass_fields__")


def field_names(record: Any) -> Sequence[str]:
    """The fields of a dataclass or a NamedTuple, or of a value of one."""
    if not hasattr(record, "_fields"):
        from dataclasses import fields  # here: no record that every start imports is one

        return [field.name for field in fields(record)]
    names: Sequence[str] = record._fields
    return names


def needed_fields(kind: Any) -> set[str]:
    """Fields without a default."""
    if not hasattr(kind, "_fields"):
        from dataclasses import MISSING, fields

        return {f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING}
    return set(kind._fields) - set(kind._field_defaults)


def shown(record: Any, *hidden: str) -> str:
    """A NamedTuple as its repr says it, less the fields that may hold secrets."""
    fields = (f"{name}={value!r}" for name, value in record._asdict().items() if name not in hidden)
    return f"{type(record).__name__}({', '.join(fields)})"


def _mapping(key: Any, value: Any) -> Read:
    read_value = _reader(value)

    def read(data: Any, path: str) -> Any:
        members = _expect(data, dict, path, "an object")
        return {_key(key, name, path): read_value(one, _member(path, name)) for name, one in members.items()}

    return read


def _key(kind: Any, name: str, path: str) -> Any:
    if kind is str:
        return name
    try:
        return kind(name)
    except ValueError:
        raise WireError(f"{path or 'it'} has a name that is not a whole number: {name!r}") from None


def _sequence(item: Any, make: Callable[[Any], Any]) -> Read:
    read_item = _reader(item)

    def read(value: Any, path: str) -> Any:
        items = _expect(value, (list, tuple), path, "a list")
        return make(read_item(one, f"{path}[{number}]") for number, one in enumerate(items))

    return read


def _fixed(items: Sequence[Any]) -> Read:
    readers = [_reader(item) for item in items]

    def read(value: Any, path: str) -> Any:
        given = _expect(value, (list, tuple), path, "a list")
        if len(given) != len(readers):
            raise WireError(f"{path or 'it'} has {len(given)} items, not {len(readers)}")
        pairs = zip(readers, given, strict=True)
        return tuple(read_item(one, f"{path}[{number}]") for number, (read_item, one) in enumerate(pairs))

    return read


def _union(kinds: Sequence[Any]) -> Read:
    """A reader for scalars, for one other type and None, or for records that differ in their fields' names."""
    if len(kinds) > 1 and all(map(is_record, kinds)):
        return _one_of(kinds)
    others = [kind for kind in kinds if kind not in SCALARS] or [kind for kind in kinds if kind is not type(None)]
    if len(others) == 1:
        scalars = [kind for kind in kinds if kind not in others]
        read_other = _reader(others[0])
        return lambda value, path: value if _is_scalar(value, scalars) else read_other(value, path)
    words = ", ".join("true, false" if kind is bool else SCALARS[kind] for kind in kinds[:-1])

    def read(value: Any, path: str) -> Any:
        if not _is_scalar(value, kinds):
            raise WireError(f"{path or 'it'} is not {words} or {SCALARS[kinds[-1]]}")
        return value

    return read


def _one_of(records: Sequence[Any]) -> Read:
    readers = {frozenset(field_names(kind)): _reader(kind) for kind in records}

    def read(value: Any, path: str) -> Any:
        names = frozenset(_expect(value, dict, path, "an object"))
        if names not in readers:
            raise WireError(f"{path or 'it'} is none of {', '.join(kind.__name__ for kind in records)}")
        return readers[names](value, path)

    return read


def _literal(values: Sequence[Any]) -> Read:
    def read(value: Any, path: str) -> Any:
        if value not in values:
            raise WireError(f"{path or 'it'} is {value!r}, not one of {', '.join(map(str, values))}")
        return value

    return read


def _scalar(kind: type) -> Read:
    def read(value: Any, path: str) -> Any:
        if not _is_scalar(value, [kind]):
            raise WireError(f"{path or 'it'} is not {SCALARS[kind]}")
        return _number(value, path) if kind is float else value

    return read


def _is_scalar(value: Any, kinds: Sequence[type]) -> bool:
    """JSON has one kind of number, and Python takes True for 1."""
    if isinstance(value, bool):
        return bool in kinds
    return isinstance(value, tuple(kinds)) or (float in kinds and isinstance(value, int))


def _number(value: float, path: str) -> float:
    if value != value:
        raise WireError(f"{path or 'it'} is not a number")
    try:
        return float(value)
    except OverflowError:
        # JSON may have a whole number that no float can hold.
        return math.inf


def _bytes(value: Any, path: str) -> bytes:
    try:
        return base64.b64decode(_expect(value, str, path, "a text"), validate=True)
    except binascii.Error:
        raise WireError(f"{path or 'it'} is not base64") from None


def _expect(value: Any, kind: Any, path: str, words: str) -> Any:
    if not isinstance(value, kind):
        raise WireError(f"{path or 'it'} is not {words}")
    return value


def _member(path: str, name: str) -> str:
    return f"{path}.{name}" if path else str(name)


def finite(value: object) -> float | None:
    """The number, or that of a text; None for what is none, and for infinity and NaN."""
    try:
        number = float(str(value))
    except ValueError:
        return None
    return number if math.isfinite(number) else None
