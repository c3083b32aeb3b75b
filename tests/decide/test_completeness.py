"""What is complete by its content, and what only looks like it."""

from __future__ import annotations

import json
import pickle
import struct
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.decide.completeness import NEWEST, TRACKER, newest_checkpoint, problem
from agent.decide.pipeline import StageOutput
from agent.machine.stored import StoredCheckout

COMMIT = "a" * 40


class Tree:
    """A Reader of files in memory."""

    def __init__(self, files: Mapping[str, bytes], checkout: StoredCheckout | None = None) -> None:
        self.files = {f"/mnt/{path}": data for path, data in files.items()}
        self._checkout = checkout or StoredCheckout()

    def names(self, path: str) -> Sequence[str]:
        return sorted({name[len(path) + 1 :].split("/")[0] for name in self.files if name.startswith(f"{path}/")})

    def size(self, path: str) -> int | None:
        return len(self.files[path]) if path in self.files else None

    def read(self, path: str, offset: int = 0, length: int = -1) -> bytes:
        data = self.files.get(path, b"")[offset:]
        return data if length < 0 else data[:length]

    def checkout(self, path: str) -> StoredCheckout:
        return self._checkout


def shard(*tensors: str, each: int = 16) -> bytes:
    header = {name: {"data_offsets": [i * each, (i + 1) * each]} for i, name in enumerate(tensors)}
    text = json.dumps({"__metadata__": {}, **header}).encode()
    return struct.pack("<Q", len(text)) + text + bytes(each * len(tensors))


def model() -> dict[str, bytes]:
    weights = {"a": "model-1.safetensors", "b": "model-2.safetensors", "c": "model-2.safetensors"}
    return {
        "m/config.json": b"{}",
        "m/tokenizer.json": b'{"model": {}}',
        "m/model.safetensors.index.json": json.dumps({"weight_map": weights}).encode(),
        "m/model-1.safetensors": shard("a"),
        "m/model-2.safetensors": shard("b", "c"),
    }


def index(lengths: Sequence[int], documents: int = 2, kind: int = 4) -> bytes:
    begins = [4 * sum(lengths[:i]) for i in range(len(lengths))]
    return (
        struct.pack("<9sQBQQ", b"MMIDIDX\x00\x00", 1, kind, len(lengths), documents)
        + struct.pack(f"<{len(lengths)}i", *lengths)
        + struct.pack(f"<{len(lengths)}q", *begins)
        + bytes(8 * documents)
    )


def mmap() -> dict[str, bytes]:
    return {"d/x.idx": index([3, 5]), "d/x.bin": bytes(32)}


def own_checkpoint(iteration: int) -> dict[str, bytes]:
    """A training's, in place of a converted one."""
    parts = {name.replace("release", f"iter_{iteration:07d}"): data for name, data in torch_dist().items()}
    return {**parts, f"c/{TRACKER}": str(iteration).encode()}


def torch_dist() -> dict[str, bytes]:
    return {
        f"c/{TRACKER}": b"release\n",
        "c/release/.metadata": b"\x80\x04 __0_0.distcp q\x01 __1_0.distcp .",
        "c/release/common.pt": b"x",
        "c/release/__0_0.distcp": b"x",
        "c/release/__1_0.distcp": b"x",
    }


def json_list() -> dict[str, bytes]:
    return {"j.json": b'[{"a": "1"}, {"a": "2"}]'}


def trained() -> dict[str, bytes]:
    return {f"t/{TRACKER}": b"20", **checkpoint("t/iter_0000010"), **checkpoint("t/iter_0000020")}


def checkpoint(path: str) -> dict[str, bytes]:
    return {f"{path}/.metadata": b"__0_0.distcp.", f"{path}/common.pt": b"x", f"{path}/__0_0.distcp": b"x"}


MODEL, MMAP, DIST = StageOutput("model", "/mnt/m"), StageOutput("mmap", "/mnt/d/x"), StageOutput("torch_dist", "/mnt/c")
JSON, TRAINED = StageOutput("json", "/mnt/j.json"), StageOutput("trained", "/mnt/t", "20")
OWN = DIST._replace(expected=NEWEST)
ALL = [
    (MODEL, model),
    (MMAP, mmap),
    (DIST, torch_dist),
    (JSON, json_list),
    (TRAINED, trained),
]
IDS = [output.kind for output, _ in ALL]


@pytest.mark.parametrize(("output", "make"), ALL, ids=IDS)
def test_what_is_whole_is_complete_and_what_is_not_there_is_not(
    output: StageOutput, make: type[dict[str, bytes]]
) -> None:
    assert problem(output, Tree(make())) == ""
    assert "missing" in problem(output, Tree({}))


@pytest.mark.parametrize(("output", "make"), ALL[:3], ids=IDS[:3])
def test_no_file_may_be_missing(output: StageOutput, make: type[dict[str, bytes]]) -> None:
    for name in make():
        files = make()
        del files[name]
        if name == "m/model.safetensors.index.json":
            continue  # then it is to be one file, model.safetensors
        assert problem(output, Tree(files)), name


@pytest.mark.parametrize(("output", "make"), [*ALL[:2], ALL[3]], ids=[*IDS[:2], IDS[3]])
@given(cut=st.integers(0, 10**6), which=st.integers(0, 10))
def test_no_file_may_be_torn(output: StageOutput, make: type[dict[str, bytes]], cut: int, which: int) -> None:
    files = make()
    name = sorted(files)[which % len(files)]
    files[name] = files[name][: cut % len(files[name])]
    assert problem(output, Tree(files)), (name, files[name])


@pytest.mark.parametrize(
    ("output", "files", "said"),
    [
        (MODEL, {**model(), "m/model-2.safetensors": shard("b")}, "lacks 1 tensors"),
        (MODEL, {**model(), "m/model-2.safetensors": shard("b", "c") + b"x"}, "should have"),
        (MODEL, {**model(), "m/model-2.safetensors": b"<html>503 no</html>"}, "header cannot be"),
        (MODEL, {**model(), "m/tokenizer.json": b"<html>"}, "it is not JSON"),
        (MODEL, {name: data for name, data in model().items() if "tokenizer" not in name}, "no tokenizer"),
        (MODEL, {"m/config.json": b"{}", "m/tokenizer.json": b"{}", "m/model.safetensors": shard("a")}, ""),
        (MMAP, {**mmap(), "d/x.idx": b"<html>" + bytes(100)}, "not the index of a dataset"),
        (MMAP, {**mmap(), "d/x.idx": index([])}, "not the index of a dataset"),
        (MMAP, {**mmap(), "d/x.bin": b""}, ".bin: it has 0 bytes"),
        (MMAP._replace(expected="5"), mmap(), ""),
        (MMAP._replace(expected="8"), mmap(), "5 tokens, not 8"),
        (DIST, {**torch_dist(), f"c/{TRACKER}": b"1"}, "does not say release"),
        (DIST, {**torch_dist(), "c/iter_0000001/x": b"x"}, "iter_0000001 is there"),
        (DIST, {**torch_dist(), "c/release/__1_0.distcp": b""}, "__1_0.distcp is missing or cut: it has 0 bytes"),
        (DIST, {**torch_dist(), "c/release/.metadata": b"x."}, ""),
        (DIST, {**torch_dist(), "c/release/.metadata": b"__0_0.dist"}, ".metadata is cut"),
        (OWN, torch_dist(), ""),
        (OWN, own_checkpoint(20), ""),
        (OWN, {**own_checkpoint(20), f"c/{TRACKER}": b"40"}, "iter_0000040/.metadata: it is missing"),
        (JSON, {"j.json": b"[]"}, "not a list"),
        (JSON, {"j.json": b'{"a": 1}\n{"a": 2}\n'}, ""),
        (JSON, {"j.json": b'["a"]'}, "not a list"),
        (JSON, {"j.json": b"\xff\xfe"}, "cannot be read"),
        (StageOutput("code", "/mnt/p", "x/run.sh"), {"p/x/run.sh": b""}, ""),
        (StageOutput("code", "/mnt/p", "x/run.sh"), {"p/x/other": b""}, "x/run.sh is missing"),
        (StageOutput("code", "/mnt/p", "x/run.sh"), {}, "it is missing"),
        (TRAINED._replace(expected="21"), trained(), "of iteration 20, not 21"),
        (TRAINED, {f"t/{TRACKER}": b"20", "t/iter_0000020/x": b"x"}, "no checkpoint"),
    ],
)
def test_cases(output: StageOutput, files: Mapping[str, bytes], said: str) -> None:
    found = problem(output, Tree(files))
    assert (said in found) if said else not found, found


def changed(*files: tuple[str, str, bytes | None, bytes]) -> StoredCheckout:
    return StoredCheckout(COMMIT, changed=files)


@pytest.mark.parametrize(
    ("seen", "expected", "said"),
    [
        (StoredCheckout(COMMIT, [f" {COMMIT} Megatron (v1)"]), COMMIT, ""),
        (StoredCheckout("b" * 40), COMMIT, "at commit bbbb"),
        (StoredCheckout(COMMIT, locks=["x/.git/index.lock"]), COMMIT, "index.lock"),
        (changed(("", "a", None, b"x"), ("one", "b", b"", b"x")), COMMIT, "2 files missing or cut off, such as a"),
        (changed(("one", "b", b"ab", b"abc")), COMMIT, "1 file missing or cut off, such as one/b"),
        (changed(*(("", "a", now, b"abc") for now in (b"b", b"abcd", b"abx"))), COMMIT, ""),
        (StoredCheckout(COMMIT, [f"-{COMMIT} one", f" {COMMIT} two"]), COMMIT, "submodule one is missing"),
        (StoredCheckout(COMMIT, [f"-{COMMIT} one", f" {COMMIT} two"]), f"{COMMIT} two", ""),
        (StoredCheckout(COMMIT, [f" {COMMIT} one", f"+{COMMIT} two (x)"]), f"{COMMIT} two", "two is at another commit"),
        (StoredCheckout(), COMMIT, "not a git repository"),
    ],
)
def test_checkouts(seen: StoredCheckout, expected: str, said: str) -> None:
    found = problem(StageOutput("checkout", "/mnt/p", expected), Tree({"p/README": b"x"}, seen))
    assert (said in found) if said else not found, found


@dataclass(frozen=True)
class Index:
    """As torch has it: what is stored, by its name."""

    fqn: str


@dataclass
class StorageInfo:
    """As torch has it: where that is."""

    relative_path: str
    offset: int
    length: int


@dataclass
class Metadata:
    """As torch has it."""

    state_dict_metadata: Mapping[Index, object]
    storage_data: Mapping[Index, StorageInfo]


@pytest.mark.parametrize(("sizes", "newest"), [((50, 20), 20), ((49, 20), 10), ((50, 19), 10), ((70, 21), 20)])
def test_a_checkpoint_is_whole_when_its_files_hold_all_that_its_metadata_have(
    sizes: tuple[int, int], newest: int
) -> None:
    places = [("__0_0.distcp", 30, 20), ("__0_0.distcp", 0, 30), ("__1_0.distcp", 0, 20)]
    stored = {Index(str(number)): StorageInfo(*place) for number, place in enumerate(places)}
    files = {**checkpoint("t/iter_0000010"), **checkpoint("t/iter_0000020")}
    files["t/iter_0000020/.metadata"] = pickle.dumps(Metadata({Index("0"): (1, complex, OrderedDict(a=1))}, stored))
    for rank, size in enumerate(sizes):
        files[f"t/iter_0000020/__{rank}_0.distcp"] = bytes(size)
    found = newest_checkpoint("/mnt/t", Tree(files))
    assert found is not None and found.iteration == newest


def test_metadata_run_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """A pickle can name any function to call."""

    class Harm:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return print, ("harm",)

    assert problem(DIST, Tree({**torch_dist(), "c/release/.metadata": pickle.dumps(Harm())})) == ""
    assert capsys.readouterr().out == ""


def test_a_checkpoint_of_megatron_core_0_19_has_no_common_pt() -> None:
    """Its names, as 0.19.2 wrote them, are among those of the shards."""
    files = {name: data for name, data in torch_dist().items() if not name.endswith("common.pt")}
    assert "common.pt" in problem(DIST, Tree(files))
    metadata = b"\x80\x02 common_state/shard_0_1 __0_0.distcp __1_0.distcp ."
    assert problem(DIST, Tree({**files, "c/release/.metadata": metadata})) == ""


def test_the_newest_checkpoint_is_a_whole_one() -> None:
    """The directory of one that is being saved has no metadata yet; Pai's script has a directory of its own."""
    short = {**checkpoint("t/name/iter_0000020"), "t/name/iter_0000020/__0_0.distcp": b""}
    files = {**checkpoint("t/name/iter_0000010"), **short, "t/name/iter_0000030/common.pt": b"x"}
    found = newest_checkpoint("/mnt/t", Tree(files))
    assert found is not None and (found.iteration, found.path) == (10, "/mnt/t/name/iter_0000010")
