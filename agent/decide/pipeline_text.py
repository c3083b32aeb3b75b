"""A pipeline as one word of a command line, and back."""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Any

from agent import wire
from agent.decide.pipeline import Checkout, Command, Files, Model, Packages, Pipeline, Stage

_WORK: dict[str, Any] = {kind.__name__: kind for kind in (Command, Checkout, Model, Files, Packages)}


def pack(pipeline: Pipeline) -> str:
    """Compressed: Linux takes no argument of more than 128 KiB."""
    data = wire.to_json(pipeline)
    for stage, told in zip(pipeline.stages, data["stages"], strict=True):
        told["work"] = {type(stage.work).__name__: told["work"]}
    return b64encode(zlib.compress(json.dumps(data).encode(), 9)).decode()


def unpack(word: str) -> Pipeline:
    """Raises ValueError."""
    packed = wire.from_json(_Packed, json.loads(zlib.decompress(b64decode(word))))
    return Pipeline(packed.run, packed.pod, packed.pods, [_stage(stage) for stage in packed.stages])


class _PackedStage(Stage):
    work: Any


class _Packed(Pipeline):
    stages: Sequence[_PackedStage]


def _stage(packed: _PackedStage) -> Stage:
    ((kind, work),) = packed.work.items()
    return packed._replace(work=wire.from_json(_WORK[kind], work))
