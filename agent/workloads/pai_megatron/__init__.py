"""`pai-megatron-qwen3` and `pai-megatron-qwen3-next`: from a model's name to a trained checkpoint, by Pai's scripts."""

from __future__ import annotations

from collections.abc import Mapping

from agent.errors import SettingsError, UsageError
from agent.launch import Launch
from agent.workloads.base import Judgement, Outcome, RunContext
from agent.workloads.network import users_logs
from agent.workloads.pai_megatron.models import QWEN3, QWEN3_NEXT, Family
from agent.workloads.pai_megatron.options import read_options
from agent.workloads.pai_megatron.printed import StageNotes, noted
from agent.workloads.pai_megatron.stages import stages
from agent.workloads.pai_megatron.verdict import judge
from agent.workloads.step_launch import start_stages
from agent.workloads.torchrun import ByTorchrun


class PaiMegatron(ByTorchrun):
    """Both of them."""

    name: str
    family: Family
    uses_fabric = True
    imports_torch = True

    def check(self, context: RunContext) -> None:
        if context.args:
            raise UsageError(f"{self.name} takes no arguments", "its options are variables: docs/pai-megatron.md")

    def launch(self, context: RunContext) -> Launch:
        """Raises SettingsError."""
        options = read_options(context, self.family)
        leads = context.index == context.lead
        launch = start_stages(context, list(stages(context, options)), options.notes if leads else ())
        # Records, claims and what pods see of each other belong to the directory in which they work.
        workspace = dict.fromkeys(("PAI_WORKSPACE_ROOT", "A4_SHARED_DIR"), options.paths.workspace)
        given = {**workspace, **users_logs(context)}
        # torchrun of the first pod alone listens there.
        port = context.master_port if leads else 0
        return launch._replace(env={**launch.env, **given}, added=[*launch.added, *given], port=port)

    def inspect(self, context: RunContext, files: Mapping[str, str]) -> StageNotes | None:
        return noted(files) if files else None

    def judge(self, context: RunContext, outcome: Outcome) -> Judgement:
        try:
            options = read_options(context, self.family)
        except SettingsError:  # nothing was launched with these
            options = None
        return judge(context, outcome, options)


class Qwen3(PaiMegatron):
    name = "pai-megatron-qwen3"
    family = QWEN3


class Qwen3Next(PaiMegatron):
    name = "pai-megatron-qwen3-next"
    family = QWEN3_NEXT
