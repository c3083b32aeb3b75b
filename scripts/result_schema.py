"""Make docs/result.schema.json and answers.schema.json of the types.

They are those of agent/decide/result.py and agent/commands/answers.py. .venv/bin/python -m scripts.result_schema
"""

from __future__ import annotations

import ast
import inspect
import json
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from agent.commands.answers import ANSWERS
from agent.commands.answers import VERSION as ANSWERS_VERSION
from agent.decide.result import VERSION, Result
from agent.wire import field_names, is_record, needed_fields

COMMAND = ".venv/bin/python -m scripts.result_schema"
PATH = Path(__file__).parents[1] / "docs/result.schema.json"
ANSWERS_PATH = PATH.with_name("answers.schema.json")
NAMES = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}
Schema = dict[str, Any]


def result_schema(*, strict: bool = False) -> Schema:
    """The schema of result.json. `strict`: for writers, who may not write names that are not in it."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "result.schema.json",
        "title": f"result.json of a4-agent, version {VERSION}",
        "description": _one_line(Result.__doc__ or ""),
        **_object(Result, strict),
    }


def answers_schema() -> Schema:
    """The schema of what verbs answer to --json: each kind under its name."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "answers.schema.json",
        "title": f"What verbs of a4-agent answer to --json, version {ANSWERS_VERSION}",
        "$defs": {
            kind.__name__: {"description": _one_line(kind.__doc__ or ""), **_object(kind, strict=False)}
            for kind in ANSWERS
        },
    }


def _object(kind: Any, strict: bool) -> Schema:
    hints = get_type_hints(kind, include_extras=True)
    texts = field_texts(kind)
    members = {}
    for name in field_names(kind):
        about = {"description": texts[name]} if name in texts else {}
        members[name] = {**_schema(hints[name], strict), **about}
    required = [name for name in members if name in needed_fields(kind)]  # what has a default came later
    closed = {"additionalProperties": False} if strict and kind.__name__ != "Gate" else {}
    return {"type": "object", "required": required, **closed, "properties": members}


def _schema(kind: Any, strict: bool) -> Schema:
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return {}
    if origin is Annotated:
        return {**_schema(arguments[0], strict), **dict(kind.__metadata__)}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (Union, types.UnionType):
        return _union(arguments, strict)
    if is_record(kind):
        return _object(kind, strict)
    if kind in NAMES:
        return {"type": NAMES[kind]}
    if issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _schema(arguments[1], strict)}
    assert issubclass(origin, Sequence), kind
    return {"type": "array", "items": _schema(arguments[0], strict)}


def _union(kinds: Sequence[Any], strict: bool) -> Schema:
    if all(kind in NAMES for kind in kinds):
        return {"type": [NAMES[kind] for kind in kinds]}
    (other,) = (kind for kind in kinds if kind is not type(None))
    return {"oneOf": [{"type": "null"}, _schema(other, strict)]}


def field_texts(kind: type) -> dict[str, str]:
    """The string under each field of a class, on one line."""
    (tree,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(tree, ast.ClassDef)
    return {
        field.target.id: _one_line(text.value.value)
        for field, text in zip(tree.body, tree.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    }


def _one_line(text: str) -> str:
    return " ".join(text.split())


def text(schema: Schema) -> str:
    """The content of the file."""
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    PATH.write_text(text(result_schema()))
    ANSWERS_PATH.write_text(text(answers_schema()))
