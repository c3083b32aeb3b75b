"""The order of things in a pipeline: who does what, who waits for whom, and what is published when."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress

from agent import wire
from agent.decide.completeness import ABSENT
from agent.decide.pipeline import GitCheckout, Pipeline, Stage, StageOutput
from agent.errors import AgentError, DirectoryUnusable, Exit, MissingProgram
from agent.lifecycle.sharing.background import Held
from agent.lifecycle.stages.records import StageVerdict, is_training, judge, published, repeats_at, staged
from agent.lifecycle.stages.site import PodSite
from agent.lifecycle.stages.work import Begin, Failed


def carry_out(pipeline: Pipeline, site: PodSite) -> None:
    """All stages, in their order. Raises AgentError and Failed for the one that fails."""
    trainings = [stage for stage in pipeline.stages if is_training(stage) and not stage.passed_over]
    finished = _finished(pipeline, site, trainings)
    if pipeline.leads and not finished:
        _check_what_is_left_out(pipeline, site)
    finished = _gather(pipeline, site, finished)
    if pipeline.leads and not finished:
        asking = [stage for stage in pipeline.stages if stage.space and not stage.passed_over]
        site.check_room([stage for stage in asking if _judge(site, stage).needed])
    if finished:
        site.say(finished)
    for number, stage in enumerate(pipeline.stages, 1):
        site.begun(stage, number, len(pipeline.stages))
        if why := _Turn(pipeline, site, stage, bool(finished)).take():
            site.say(f"{stage.name}: {why}")
        site.ended(stage, why)
        if stage in trainings[-1:]:
            finished = ""


def _gather(pipeline: Pipeline, site: PodSite, finished: str) -> str:
    """Wait until all pods are there and see the same storage; what the lead says. Raises AgentError."""
    if pipeline.leads:
        site.leave_mark()
    try:
        said = site.meet("the pipeline begins", finished).get(pipeline.pods[0], "")
        if not pipeline.leads:
            site.find_mark()
        site.meet("all pods see the shared directory")
    finally:
        if pipeline.leads:
            with suppress(DirectoryUnusable):  # nobody needs it any more, and it would hide why the pipeline ends
                site.remove_mark()
    return said


def _finished(pipeline: Pipeline, site: PodSite, trainings: Sequence[Stage]) -> str:
    """What the lead says where all trainings are complete and nothing is to be made anew: nothing is made for them."""
    if not pipeline.leads or not trainings:
        return ""
    renewed = [stage for stage in pipeline.stages if stage.anew and not stage.passed_over]
    verdicts = [_judge(site, stage) for stage in (*renewed, *trainings)]
    if any(verdict.needed for verdict in verdicts):
        return ""
    return f"{trainings[-1].name}: {verdicts[-1].why}"


def _check_what_is_left_out(pipeline: Pipeline, site: PodSite) -> None:
    """Refuse at once, and not after hours of downloads, what a stage will need and none will make. Raises
    MissingProgram."""
    made = {output.path for stage in pipeline.stages if not stage.passed_over for output in stage.outputs}
    for stage in pipeline.stages:
        for output in () if stage.passed_over else stage.needs:
            why = "" if output.path in made else site.problem(output)
            if why and _judge(site, stage).needed:
                raise _lacks(pipeline, stage, output, why)


def _lacks(pipeline: Pipeline, stage: Stage, output: StageOutput, why: str) -> MissingProgram:
    makers = [one for one in pipeline.stages if output.path in [made.path for made in one.outputs] and one.passed_over]
    hints = [f"the stage {one.name}, which makes it, is skipped: {one.passed_over}" for one in makers]
    return MissingProgram(f"{stage.name} needs {output.path}: {why}", "\n".join(hints))


def _judge(site: PodSite, stage: Stage) -> StageVerdict:
    if not stage.outputs:
        return StageVerdict(True, "it has no outputs to check")
    problems = ((output, site.problem(output)) for output in stage.outputs)
    problem = next((f"{output.path}: {why}" for output, why in problems if why), "")
    return judge(stage, problem, site.record(stage), site.run, site.epoch)


class _Turn:
    """One stage on this pod."""

    def __init__(self, pipeline: Pipeline, site: PodSite, stage: Stage, finished: bool) -> None:
        """finished: nothing is made, nor looked at, for the training is complete."""
        self._pipeline = pipeline
        self._site = site
        self._stage = stage
        self._not_needed = "not needed: the training is complete" if finished else ""

    def take(self) -> str:
        """Why it was passed over; empty when it was carried out."""
        stage = self._stage
        if stage.passed_over:
            return f"skipped: {stage.passed_over}{self._as_it_is()}"
        if stage.where == "each pod":
            if self._not_needed:
                return self._not_needed
            if wrong := self._site.work(stage, Begin(True)):
                raise Failed(Exit.WRONG_RESULT, wrong)
            return ""
        if self._pipeline.leads:
            why = self._lead()
            self._site.note_made(stage)
            self._meet("is over", why or "made")
            return why
        if stage.where == "together":
            begin = wire.from_json(Begin, json.loads(self._meet("begins")[self._pipeline.pods[0]]))
            if begin.needed:
                self._meet("is done", self._site.work(stage, begin))
        why = self._meet("is over")[self._pipeline.pods[0]]
        return "" if why == "made" else why

    def _as_it_is(self) -> str:
        """What differs in code that the user has put there; empty where there is nothing to say."""
        stage = self._stage
        if not isinstance(stage.work, GitCheckout) or not self._pipeline.leads or self._not_needed:
            return ""
        with suppress(MissingProgram):  # without git nobody knows, and nobody needs to
            why = self._site.problem(stage.outputs[0])
            return f"; the code that is there is used as it is: {why}" if why not in ("", ABSENT) else ""
        return ""

    def _meet(self, what: str, says: str = "") -> Mapping[int, str]:
        return self._site.meet(f"{self._stage.name} {what}", says)

    def _lead(self) -> str:
        stage, site = self._stage, self._site
        with ExitStack() as stack:
            verdict = self._judge()
            if verdict.needed:
                claimed = stack.enter_context(site.claim(stage))
                verdict = self._judge()  # another may have had it until now
            for mended in (self._restored, self._taken_over):
                if verdict.needed and not verdict.aside:
                    verdict = mended(verdict, claimed)
            begin = self._begin(verdict, claimed) if verdict.needed else Begin(False)
            if stage.where == "together":
                self._meet("begins", json.dumps(wire.to_json(begin)))
            if not verdict.needed:
                return "; ".join(filter(None, (verdict.why, "" if self._not_needed else site.edits(stage))))
            try:
                self._make(begin, claimed)
            except (AgentError, Failed, OSError):
                claimed.until()  # who has taken the claim over has also emptied the place: that is why it failed
                raise
        return ""

    def _make(self, begin: Begin, claimed: Held) -> None:
        stage, site = self._stage, self._site
        wrong = site.work(stage, begin)
        if stage.where == "together":  # the last pod alone may have seen it
            wrong = next(filter(None, self._meet("is done", wrong).values()), "")
        if wrong and is_training(stage):  # it has its name already: nobody may go on with it
            site.keep(stage, claimed, done=False, wrong=wrong)
        if wrong:
            raise Failed(Exit.WRONG_RESULT, wrong)
        self._finish(claimed)

    def _judge(self) -> StageVerdict:
        if self._not_needed and not is_training(self._stage):
            return StageVerdict(False, self._not_needed)
        return _judge(self._site, self._stage)

    def _restored(self, verdict: StageVerdict, claimed: Held) -> StageVerdict:
        restored = self._site.restore(self._stage, claimed)
        if not restored:
            return verdict
        verdict = self._judge()
        return verdict if verdict.needed else verdict._replace(why=f"{restored}; {verdict.why}")

    def _taken_over(self, verdict: StageVerdict, claimed: Held) -> StageVerdict:
        """Whether an older launcher has left it complete elsewhere."""
        stage, site = self._stage, self._site
        for older in stage.older:
            found = [output._replace(path=older + output.path.removeprefix(stage.target)) for output in stage.outputs]
            if not any(map(site.problem, found)):
                site.set_aside(stage.target, claimed)
                site.link(older, stage.target, claimed)
                return StageVerdict(False, f"complete, by its content, in {older}")
        return verdict

    def _begin(self, verdict: StageVerdict, claimed: Held) -> Begin:
        """Check what it needs, and prepare. Raises AgentError."""
        stage, site = self._stage, self._site
        for output in stage.needs:
            if why := site.problem(output):
                raise _lacks(self._pipeline, stage, output, why)
        site.say(f"{stage.name} begins: {verdict.why}")
        if not is_training(stage):
            site.prepare(stage, verdict, claimed)
            return Begin(True)
        before, newest = site.record(stage), site.newest(stage.outputs[0])
        if newest is not None and verdict.aside:  # it is of another training
            site.set_aside(stage.target, claimed)
            newest = None
        site.prepare(stage, verdict, claimed)
        site.keep(stage, claimed, done=False, began_at=-1 if newest is None else newest.iteration)
        begins_from = "" if newest is None else site.begin_from(stage, newest)
        return Begin(True, begins_from, repeats_at(before, site.run, site.epoch))

    def _finish(self, claimed: Held) -> None:
        """Give what was made its name: after its record, so that nothing bears its name without one, and after what
        had the name before is gone, so that no record stands for that."""
        stage, site = self._stage, self._site
        for output in stage.outputs:
            made = staged(output, stage)
            if why := site.problem(made):
                raise Failed(Exit.WRONG_RESULT, f"{stage.name} ended with 0, but {made.path}: {why}")
        moves = published(stage, site.names(stage.staging))
        for _, name in reversed(moves):
            site.set_aside(name, claimed)
        if stage.outputs:
            site.keep(stage, claimed)
        for old, name in moves:
            site.rename(old, name, claimed)
        site.clear(stage, claimed)
