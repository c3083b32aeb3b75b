"""The sequence of a pipeline on storage in memory: killed at every point, over old things, with a lost claim."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from agent.decide.completeness import Checkpoint
from agent.decide.pipeline import GitCheckout, Pipeline, Stage, StageCommand, StageOutput, Where
from agent.decide.sync_facts import seal
from agent.errors import AgentError, DirectoryUnusable, MissingProgram, PeerLost
from agent.lifecycle.sharing.background import Held
from agent.lifecycle.stages.records import StageRecord, StageVerdict, is_training, read_record, record_name
from agent.lifecycle.stages.sequence import carry_out
from agent.lifecycle.stages.site import PodSite
from agent.lifecycle.stages.work import Begin, Failed

INPUTS = {"commit": "new"}
OLD = {"commit": "old"}
ITERATIONS = 9


class Thing(NamedTuple):
    """What lies somewhere: made of these inputs, whole or not; of a training its newest iteration."""

    of: Mapping[str, str]
    whole: bool = True
    iteration: int = 0


class Storage:
    """What pods share. `changes`: whoever changes something asks first, and may be killed there."""

    def __init__(self) -> None:
        self.things: dict[str, Thing] = {}
        self.records: dict[str, str] = {}
        self.lock = threading.Lock()
        """The claim."""
        self.mark = ""


class Killed(BaseException):
    """kill -9."""


class Fake(PodSite):
    """A pod's site in memory, and the claims that it holds."""

    def __init__(self, storage: Storage, *, epoch: str = "uid.0.0", killed_at: int = -1, lost_at: int = -1) -> None:
        self.storage = storage
        self.epoch = epoch
        self.run = "run"
        self.effects: list[str] = []
        self.looked_at: set[str] = set()
        self.said: list[str] = []
        self.worked: list[str] = []
        self.began: dict[str, Begin] = {}
        self.saves = ITERATIONS
        """Iterations that a training saves before it ends; fewer than ITERATIONS: it fails."""
        self.says = ""
        """Why what a training has made cannot be used, though it ends with 0."""
        self.met: Callable[[str, str], Mapping[int, str]] = lambda name, says: {0: says}
        self._killed_at = killed_at
        self._lost_at = lost_at

    def _effect(self, what: str) -> None:
        self.effects.append(what)
        if len(self.effects) - 1 == self._killed_at:
            raise Killed

    # Looking

    def problem(self, output: StageOutput) -> str:
        self.looked_at.add(output.path)
        thing = self.storage.things.get(output.path)
        if thing is None:
            return "it is not there"
        if output.kind == "trained":
            return "" if thing.iteration >= int(output.expected) else f"it is at {thing.iteration}"
        return "" if thing.whole else "it is torn"

    def newest(self, output: StageOutput) -> Checkpoint | None:
        thing = self.storage.things.get(output.path)
        return Checkpoint(thing.iteration, output.path) if thing and thing.iteration else None

    def names(self, path: str) -> Sequence[str]:
        return sorted({name[len(path) + 1 :] for name in self.storage.things if name.startswith(f"{path}/")})

    def record(self, stage: Stage) -> StageRecord | None:
        return read_record(self.storage.records.get(record_name(stage, "/mnt"), ""))

    # Writing

    @contextmanager
    def claim(self, stage: Stage) -> Iterator[Held]:
        with self.storage.lock:
            yield Held(self.until)

    def until(self) -> float:
        if 0 <= self._lost_at <= len(self.effects):
            raise PeerLost("another has taken the claim over")
        return 0.0

    def prepare(self, stage: Stage, verdict: StageVerdict, claimed: Held) -> None:
        self._effect("prepare")
        for path in [path for path in self.storage.things if stage.staging and path.startswith(stage.staging)]:
            del self.storage.things[path]

    def begin_from(self, stage: Stage, checkpoint: Checkpoint) -> str:
        self._effect("begin from")
        return f"/begin/{checkpoint.iteration}"

    def work(self, stage: Stage, begin: Begin) -> str:
        self.worked.append(stage.name)
        self.began[stage.name] = begin
        things, output = self.storage.things, stage.outputs[0]
        place = (stage.staging or stage.target) + output.path.removeprefix(stage.target)
        if is_training(stage):
            for iteration in range(things.get(place, Thing(INPUTS)).iteration + 1, self.saves + 1):
                self._effect(f"save {iteration}")
                things[place] = Thing(stage.inputs, iteration=iteration)
            if self.saves < ITERATIONS:
                raise Failed(1, "train ended with exit code 1")
            return self.says
        for whole in (False, True):
            self._effect(f"write {stage.name}")
            things[place] = Thing(stage.inputs, whole)
        return ""

    def keep(self, stage: Stage, claimed: Held, **fields: Any) -> None:
        claimed.until()
        self._effect("record")
        record = StageRecord(stage.inputs, 1e9, self.run, self.epoch, **fields)
        self.storage.records[record_name(stage, "/mnt")] = seal(record)

    def rename(self, old: str, new: str, claimed: Held) -> None:
        claimed.until()
        self._effect("rename")
        things = self.storage.things
        moved = {path: thing for path, thing in things.items() if f"{path}/".startswith(f"{old}/")}
        assert moved and not self._at(new)
        for path in moved:
            del things[path]
        things.update({new + path.removeprefix(old): thing for path, thing in moved.items()})

    def _at(self, path: str) -> list[str]:
        return [name for name in self.storage.things if f"{name}/".startswith(f"{path}/")]

    def link(self, old: str, new: str, claimed: Held) -> None:
        claimed.until()
        self._effect("link")
        self.storage.things[new] = self.storage.things[old]

    def restore(self, stage: Stage, claimed: Held) -> str:
        return ""

    def edits(self, stage: Stage) -> str:
        return ""

    def set_aside(self, path: str, claimed: Held) -> None:
        if self._at(path):
            self.rename(path, f"{path}.before-{len(self.storage.things)}", claimed)

    def clear(self, stage: Stage, claimed: Held) -> None:
        claimed.until()
        self._effect("clear")

    # Telling

    def check_room(self, stages: Sequence[Stage]) -> None:
        assert not self.effects
        self.asking = [stage.name for stage in stages]

    def leave_mark(self) -> None:
        self.storage.mark = "left"

    def find_mark(self) -> None:
        assert self.storage.mark == "left"

    def remove_mark(self) -> None:
        self.storage.mark = "removed"

    def note_made(self, stage: Stage) -> None:
        pass

    def meet(self, name: str, says: str = "") -> Mapping[int, str]:
        return self.met(name, says)

    def say(self, text: str) -> None:
        self.said.append(text)

    def begun(self, stage: Stage, number: int, of: int) -> None:
        pass

    def ended(self, stage: Stage, why: str, status: int = 0) -> None:
        pass


def made(name: str, where: Where = "lead", **more: Any) -> Stage:
    target = f"/mnt/{name}"
    output = StageOutput("torch_dist", target)
    given = {"outputs": [output], "target": target, "staging": f"{target}.partial", "inputs": INPUTS, **more}
    return Stage(name, where, StageCommand(["make"]), **given)


CLONE = made("clone", older=["/mnt/clone-GCP"])
DATA = made("data", outputs=[StageOutput("json", "/mnt/data/x.json")], staging="/mnt/data/.partial")
CONVERT = made("convert", needs=[*CLONE.outputs])
TRAIN = Stage(
    "train",
    "together",
    StageCommand(["train"], [("LOAD", "/mnt/convert")], resumes="LOAD"),
    [StageOutput("trained", "/mnt/train", str(ITERATIONS))],
    "/mnt/train",
    inputs=INPUTS,
    again="A4_TRAIN_AGAIN",
)
STAGES = [CLONE, DATA, CONVERT, TRAIN]
STARTS: dict[str, dict[str, Thing]] = {
    "nothing": {},
    "old things": {path: Thing(OLD) for path in ("/mnt/clone", "/mnt/data/x.json", "/mnt/convert")},
    "torn things": {path: Thing(INPUTS, whole=False) for path in ("/mnt/clone", "/mnt/data/x.json", "/mnt/convert")},
    "another training": {"/mnt/train": Thing(OLD, iteration=50)},
}


def storage_of(start: str, *, records: bool) -> Storage:
    storage = Storage()
    storage.things.update(STARTS[start])
    if records:
        kept = seal(StageRecord(OLD if "old" in start or "other" in start else INPUTS, 1e9, "run-0", "other.0.0"))
        storage.records = {record_name(stage, "/mnt"): kept for stage in STAGES}
    return storage


def run(site: Fake, stages: Sequence[Stage] = STAGES) -> Fake:
    carry_out(Pipeline("run", 0, [0], stages), site)
    return site


def check_names(storage: Storage) -> None:
    """What bears the name of something that this pipeline makes is whole, unless it was there before."""
    for stage in (CLONE, DATA, CONVERT):
        for output in stage.outputs:
            thing = storage.things.get(output.path)
            record = read_record(storage.records.get(record_name(stage, "/mnt"), ""))
            if thing and thing.whole and record and record.inputs == INPUTS:
                assert thing.of == INPUTS, "a record stands for what was made of other inputs"


@pytest.mark.parametrize("records", [False, True])
@pytest.mark.parametrize("start", STARTS)
def test_killed_anywhere_the_next_one_finishes_it(start: str, records: bool) -> None:
    effects = run(Fake(storage_of(start, records=records)))
    assert effects.effects or start == "old things"
    for point in range(len(effects.effects)):
        storage = storage_of(start, records=records)
        with pytest.raises(Killed):
            run(Fake(storage, killed_at=point))
        check_names(storage)
        run(Fake(storage, epoch="uid.1.0"))
        check_names(storage)
        for stage in STAGES:
            thing = storage.things[stage.outputs[0].path]
            expected = OLD if start == "old things" and not records and stage is not TRAIN else INPUTS
            assert thing.of == expected and thing.whole, (stage.name, point)
        assert storage.things["/mnt/train"].iteration == ITERATIONS
        third = run(Fake(storage))
        assert third.worked == [] and third.effects == [], "what is finished is not made again"


@pytest.mark.parametrize("records", [False, True])
@pytest.mark.parametrize("start", STARTS)
def test_who_has_lost_the_claim_shows_nothing_more(start: str, records: bool) -> None:
    effects = run(Fake(storage_of(start, records=records)), [CLONE, DATA, CONVERT])
    for point in range(len(effects.effects)):
        storage = storage_of(start, records=records)
        site = Fake(storage, lost_at=point)
        with pytest.raises(PeerLost):
            run(site, [CLONE, DATA, CONVERT])
        assert not {"record", "rename", "link", "clear"} & set(site.effects[point:])


@pytest.mark.parametrize("error", [Failed(2, "make failed"), MissingProgram("git: 128", ""), FileNotFoundError("part")])
def test_who_fails_because_another_has_the_claim_says_so(error: Exception) -> None:
    """Who takes it over empties the place in which the program works."""

    class Fails(Fake):
        def work(self, stage: Stage, begin: Begin) -> str:
            raise error

    with pytest.raises(PeerLost):
        run(Fails(Storage(), lost_at=1), [CLONE])
    with pytest.raises(type(error)):
        run(Fails(Storage()), [CLONE])


def test_whole_outputs_without_a_record_are_taken_but_not_a_training() -> None:
    storage = storage_of("nothing", records=False)
    storage.things = {stage.outputs[0].path: Thing(OLD, iteration=ITERATIONS) for stage in STAGES}
    site = run(Fake(storage))
    assert site.worked == ["train"] and not site.began["train"].resumes
    assert storage.things["/mnt/train"].of == INPUTS


def test_other_inputs_make_it_anew_and_keep_the_old() -> None:
    storage = storage_of("old things", records=True)
    storage.things["/mnt/clone-GCP"] = Thing(OLD)  # nobody knows what an older launcher made it from
    site = run(Fake(storage), [CLONE])
    assert site.worked == ["clone"] and "commit old, now new" in site.said[0]
    clones = [thing.of["commit"] for path, thing in storage.things.items() if "clone" in path]
    assert sorted(clones) == ["new", "old", "old"]


def test_what_an_older_launcher_has_elsewhere_is_linked() -> None:
    storage = Storage()
    storage.things["/mnt/clone-GCP"] = Thing(INPUTS)
    site = run(Fake(storage), [CLONE])
    assert site.worked == [] and site.effects == ["link"] and "/mnt/clone-GCP" in site.said[-1]


def test_a_pod_that_does_not_come_leaves_no_mark_behind() -> None:
    def meet(name: str, says: str) -> Mapping[int, str]:
        raise PeerLost("pod 1 ended")

    site = Fake(Storage())
    site.met = meet
    with pytest.raises(PeerLost):
        run(site)
    assert site.storage.mark == "removed"


def test_a_mark_that_cannot_be_removed_ends_nothing() -> None:
    class Keeps(Fake):
        def remove_mark(self) -> None:
            raise DirectoryUnusable("the storage is read-only", "")

    site = Keeps(Storage())
    run(site)
    assert site.worked == [stage.name for stage in STAGES]


def test_a_stage_that_is_passed_over_is_needed_by_another() -> None:
    """And that is seen before anything else is made."""
    skipped = CLONE._replace(passed_over="SKIP_CLONE_REPO=true")
    site = Fake(Storage())
    with pytest.raises(AgentError) as caught:
        run(site, [skipped, DATA, CONVERT])
    assert caught.value.code == 66 and "SKIP_CLONE_REPO=true" in caught.value.hint
    assert site.worked == []
    storage = Storage()
    storage.things["/mnt/clone"] = Thing(INPUTS)
    run(Fake(storage), [skipped, CONVERT])


@pytest.mark.parametrize(
    ("whole", "said"), [(True, ""), (False, "; the code that is there is used as it is: it is torn")]
)
def test_code_that_is_used_as_it_is_is_told_from_what_would_be_cloned(whole: bool, said: str) -> None:
    skipped = CLONE._replace(work=GitCheckout("url", "commit"), passed_over="SKIP_CLONE_REPO=true")
    site = Fake(Storage())
    site.storage.things["/mnt/clone"] = Thing(INPUTS, whole)
    run(site, [skipped, DATA])
    assert site.said[0] == f"clone: skipped: SKIP_CLONE_REPO=true{said}"


def test_a_program_that_ends_with_0_and_leaves_nothing_has_failed() -> None:
    class Lazy(Fake):
        def work(self, stage: Stage, begin: Begin) -> str:
            return ""

    with pytest.raises(Failed) as caught:
        run(Lazy(Storage()), [CLONE])
    assert caught.value.code == 65


def test_room_is_looked_for_before_anything_is_made_for_what_is_not_there() -> None:
    large = [stage._replace(space=100) for stage in STAGES]
    site = Fake(storage_of("nothing", records=False))
    site.storage.things["/mnt/clone"] = Thing(INPUTS)
    run(site, [*large[:2], large[2]._replace(passed_over="SKIP"), large[3]])
    assert site.asking == ["data", "train"]


# Trainings


def test_a_later_attempt_goes_on_with_what_was_saved() -> None:
    storage = Storage()
    first = Fake(storage)
    first.saves = 4
    with pytest.raises(Failed):
        run(first, [TRAIN])
    assert first.began["train"] == Begin(True)
    second = run(Fake(storage, epoch="uid.1.0"), [TRAIN])
    assert second.began["train"] == Begin(True, "/begin/4", repeats_at=-1)


def test_a_finished_training_says_so_first_and_nothing_is_made_or_looked_at_for_it() -> None:
    """To look at all files of a model or a repository takes long on storage that pods share."""
    storage = Storage()
    run(Fake(storage))
    del storage.things["/mnt/clone"]
    site = run(Fake(storage))
    assert site.worked == [] and site.said[0].startswith("train: complete since")
    assert "A4_TRAIN_AGAIN" in site.said[0] and site.said[1] == "clone: not needed: the training is complete"
    assert site.looked_at == {"/mnt/train"}


def test_to_convert_again_does_so_when_the_training_is_complete() -> None:
    """And leaves the training as it is, which has a setting of its own."""
    storage = Storage()
    run(Fake(storage, epoch="earlier.0.0"))
    again = [stage._replace(anew=stage is CONVERT, again="FORCE_CONVERSION") for stage in STAGES]
    for epoch, worked in (("uid.0.0", ["convert"]), ("uid.1.0", [])):
        site = run(Fake(storage, epoch=epoch), again)
        assert site.worked == worked
        assert any("complete since" in text for text in site.said if text.startswith("train: "))


def test_a_training_that_is_no_good_is_never_complete() -> None:
    storage = Storage()
    first = Fake(storage)
    first.says = "lm loss: NaN"
    with pytest.raises(Failed) as failed:
        run(first, [TRAIN])
    assert (failed.value.code, failed.value.what) == (65, "lm loss: NaN")
    second = run(Fake(storage, epoch="other.0.0"), [TRAIN])
    assert "what was made cannot be used: lm loss: NaN" in second.said[0]
    assert second.began["train"] == Begin(True), "it goes on with a checkpoint that cannot be used"
    assert [path for path in storage.things if path.startswith("/mnt/train.")], "that one is gone"


# Several pods


class Gathering:
    """Meetings of threads."""

    def __init__(self, pods: int) -> None:
        self._all = threading.Barrier(pods, timeout=60)
        self._said: dict[str, dict[int, str]] = {}

    def of(self, pod: int) -> Callable[[str, str], Mapping[int, str]]:
        def meet(name: str, says: str) -> Mapping[int, str]:
            self._said.setdefault(name, {})[pod] = says
            self._all.wait()
            return dict(self._said[name])

        return meet


@pytest.mark.parametrize("convert", ["lead", "together"])
def test_all_pods_go_through_the_same_stages(convert: Where) -> None:
    storage, gathering = Storage(), Gathering(3)
    stages = [Stage("environment", "each pod", StageCommand(["x"]), [StageOutput("json", "/own")], "/own"), *STAGES]
    stages = [stage._replace(where=convert) if stage.name == "convert" else stage for stage in stages]
    for worked in (True, False):
        sites = {pod: Fake(storage) for pod in (2, 0, 1)}
        threads = []
        for pod, site in sites.items():
            site.met = gathering.of(pod)
            arguments = (Pipeline("run", pod, [2, 0, 1], stages), site)
            threads.append(threading.Thread(target=carry_out, args=arguments))
            threads[-1].start()
        for thread in threads:
            thread.join(60)
        assert storage.mark == "removed", "while a pod has not looked for it"
        others = ["environment", *(["convert"] if convert == "together" else []), "train"]
        assert sites[2].worked == (["environment", *(stage.name for stage in STAGES)] if worked else [])
        assert sites[0].worked == sites[1].worked == (others if worked else [])
        assert [text for text in sites[1].said if "begins" not in text] == ([] if worked else sites[2].said)
