"""What is to be done in a stage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.decide.pipeline import Files, GitCheckout, Model, Stage, StageCommand, StageOutput
from agent.decide.sync_facts import seal
from agent.lifecycle.stages import records as stages
from agent.wire import json_object

MADE = Stage(
    "convert",
    "lead",
    StageCommand(["x"]),
    [StageOutput("torch_dist", "/mnt/ckpts/x")],
    "/mnt/ckpts/x",
    "/mnt/ckpts/x.partial",
    inputs={"model": "A"},
)
TRAIN = Stage(
    "train", "together", StageCommand(["x"]), [StageOutput("trained", "/mnt/out", "9")], "/mnt/out", again="A4_AGAIN"
)
DATA = Stage(
    "dataset",
    "lead",
    Files(["https://example.org/x.bin"]),
    [StageOutput("mmap", "/mnt/data/x"), StageOutput("json", "/mnt/data/y.json")],
    "/mnt/data",
    "/mnt/data/.partial",
)
RUN = "mpirun-00c0ffee.2"
RECORD = stages.StageRecord({"model": "A"}, 0.0, RUN, "u.0.0")


@pytest.mark.parametrize(
    ("stage", "problem", "record", "needed", "why"),
    [
        (MADE, "", RECORD, False, "complete since 1970-01-01 00:00 UTC, nothing to do"),
        (MADE, "", None, False, "complete, by its content"),
        (MADE, "it is torn", RECORD, True, "it is torn"),
        (MADE, "it is torn", None, True, "it is torn"),
        (MADE, "", RECORD._replace(inputs={"model": "B"}), True, "made from other inputs: model B, now A"),
        (TRAIN, "", RECORD._replace(inputs={}), False, "nothing to do (A4_AGAIN makes it anew)"),
        (TRAIN, "", RECORD._replace(inputs={}, done=False), False, "its last iteration is saved, nothing to do"),
        (TRAIN, "", None, True, "it is not known what it was trained on"),
        (TRAIN, "its newest is 3", RECORD._replace(inputs={}, done=False), True, "its newest is 3"),
        (TRAIN, "its newest is 3", RECORD, True, "made from other inputs: model A, now (none)"),
    ],
)
def test_verdicts(stage: Stage, problem: str, record: stages.StageRecord | None, needed: bool, why: str) -> None:
    found = stages.judge(stage, problem, record, RUN, "u.0.0")
    assert found.needed is needed and why in found.why
    assert found.aside == (needed and why not in ("it is torn", "its newest is 3")), "what is of other inputs is kept"


@pytest.mark.parametrize(
    ("made_by", "made_in", "epoch", "anew"),
    [
        *((RUN, "u.0.0", "u.0.0", True), (RUN, "u.0.0", "u.1.0", False), (RUN, "u.0.0", "u.0.2", False)),
        *((RUN, "u.0.0", "v.1.0", True), (RUN, "u.0.0", "own", True), (RUN, "a.b", "a.c", True)),
        (RUN, "x.y.0.0", "x.y.1.0", False),
        *((f"mpirun-00c0ffee.{life}", "own", "own", anew) for life, anew in ((1, False), (3, True))),
        ("mpirun-0badcafe.1", "own", "own", True),
    ],
)
def test_anew_means_once_in_a_job(made_by: str, made_in: str, epoch: str, anew: bool) -> None:
    """A later attempt or life goes on; a later run with the same epoch was started by a person."""
    stage = MADE._replace(again="FORCE", anew=True)
    assert stages.judge(stage, "", RECORD._replace(run=made_by, epoch=made_in), RUN, epoch) == (
        stages.StageVerdict(True, "FORCE is set", aside=True)
        if anew
        else stages.StageVerdict(False, "complete since 1970-01-01 00:00 UTC, nothing to do (FORCE makes it anew)")
    )


@pytest.mark.parametrize(
    ("record", "epoch", "expected"),
    [
        (None, "u.1.0", None),
        (RECORD._replace(done=False, began_at=4), "u.1.0", 4),
        (RECORD._replace(done=False), "u.1.0", -1),
        (RECORD._replace(done=False), "u.0.0", None),
        (RECORD._replace(run="mpirun-00c0ffee.1", done=False, began_at=4), "u.0.0", 4),
        (RECORD._replace(done=True), "u.1.0", None),
    ],
)
def test_what_an_earlier_attempt_had_begun_with(
    record: stages.StageRecord | None, epoch: str, expected: int | None
) -> None:
    assert stages.repeats_at(record, RUN, epoch) == expected


@given(
    st.builds(
        stages.StageRecord,
        inputs=st.dictionaries(st.text(), st.text()),
        time=st.floats(allow_nan=False, allow_infinity=False),
        run=st.text(),
        epoch=st.text(),
        done=st.booleans(),
        began_at=st.integers(-1, 10**7),
    ),
    st.integers(1, 50),
)
def test_a_record_comes_back_and_a_torn_one_is_none(record: stages.StageRecord, cut: int) -> None:
    text = seal(record)
    assert stages.read_record(text) == record
    assert stages.read_record(text[:-cut]) is None


def test_names() -> None:
    assert stages.record_name(MADE, "/mnt") == "convert@ckpts/x"
    assert stages.staged(MADE.outputs[0], MADE).path == "/mnt/ckpts/x.partial"
    assert stages.staged(DATA.outputs[0], DATA).path == "/mnt/data/.partial/x"
    assert stages.staged(TRAIN.outputs[0], TRAIN).path == "/mnt/out"
    assert stages.aside_name("/mnt/x", 0.0) == "/mnt/x.before-19700101T000000"
    assert stages.differences({"a": "1", "b": "2"}, {"a": "1", "c": "3"}) == "b 2, now (none); c (none), now 3"


def test_a_directory_is_renamed_as_one_and_files_with_their_index_last() -> None:
    assert stages.published(MADE, ["release"]) == [("/mnt/ckpts/x.partial", "/mnt/ckpts/x")]
    moves = stages.published(DATA, [".x.bin.part", "x.idx", "x.bin", "y.json"])
    assert [new for _, new in moves] == ["/mnt/data/x.bin", "/mnt/data/y.json", "/mnt/data/x.idx"]
    assert all(old == new.replace("/data/", "/data/.partial/") for old, new in moves)
    assert stages.published(TRAIN, ["iter_0000009"]) == []


def test_flags_of_old_launchers() -> None:
    model = Stage("model", "lead", Model("huggingface", "a/b", ""))
    clone = Stage("clone", "lead", GitCheckout("https://example.org", "0" * 40))
    assert stages.flag_of(model, [DATA, MADE]) == "" and stages.flag_of(clone, []) == ""
    assert stages.flag_of(DATA, [MADE]) == "download_complete" and stages.flag_of(MADE, []) == "conversion_complete"


@pytest.mark.parametrize("line", ["", "no JSON", "[1]", "3"])
def test_what_a_library_prints_is_no_word_of_ours(line: str) -> None:
    assert json_object(line) == {}
