"""a4-agent: brings the pods of a GPU JobSet together and runs one workload on all of them.

The public names below are documented in docs/api.md. Each is imported when it is first used: `import agent`, which
every start of the command line does, costs nothing.
"""

__version__ = "0.1.0"
__all__: list[str]

TYPE_CHECKING = False  # that of typing, without the import
if TYPE_CHECKING:
    from agent.client import Client as Client
    from agent.client import Output as Output
    from agent.client import RunEnd as RunEnd
    from agent.client import RunInfo as RunInfo
    from agent.decide.ending import JobEnd as JobEnd
    from agent.decide.facts import Facts as Facts
    from agent.decide.mpirun import Mpi as Mpi
    from agent.decide.mpirun import MpiVersion as MpiVersion
    from agent.decide.mpirun import mpirun_launch as mpirun_launch
    from agent.decide.mpirun_end import MpirunEnd as MpirunEnd
    from agent.decide.mpirun_end import mpirun_end as mpirun_end
    from agent.decide.plan import Plan as Plan
    from agent.decide.plan import PlannedPeer as PlannedPeer
    from agent.decide.plan import hostfile as hostfile
    from agent.decide.ranks import RankEnd as RankEnd
    from agent.decide.ranks import RanksVerdict as RanksVerdict
    from agent.decide.ranks import parse_rank as parse_rank
    from agent.decide.ranks import ranks_verdict as ranks_verdict
    from agent.decide.runspec import MpirunOptions as MpirunOptions
    from agent.decide.runspec import RunSpec as RunSpec
    from agent.decide.subset import subset as subset
    from agent.decide.torchrun import TorchrunEnd as TorchrunEnd
    from agent.decide.torchrun import torchrun_end as torchrun_end
    from agent.decide.torchrun import torchrun_launch as torchrun_launch
    from agent.environment import find_mpi as find_mpi
    from agent.environment import job_from_environment as job_from_environment
    from agent.environment import read_facts as read_facts
    from agent.environment import read_plan as read_plan
    from agent.environment import serve as serve
    from agent.errors import AgentError as AgentError
    from agent.errors import ClusterBusy as ClusterBusy
    from agent.errors import DirectoryUnusable as DirectoryUnusable
    from agent.errors import Exit as Exit
    from agent.errors import IdentityRefused as IdentityRefused
    from agent.errors import MissingProgram as MissingProgram
    from agent.errors import PeerLost as PeerLost
    from agent.errors import PeersMissing as PeersMissing
    from agent.errors import PodsDiffer as PodsDiffer
    from agent.errors import SettingsError as SettingsError
    from agent.errors import SystemFault as SystemFault
    from agent.errors import UsageError as UsageError
    from agent.launch import Launch as Launch
    from agent.lifecycle.pod.pod import Job as Job
    from agent.local.client import LocalCluster as LocalCluster
    from agent.local.pods import PodInfo as PodInfo
    from agent.local.spec import ClusterSpec as ClusterSpec
    from agent.machine.launching import LaunchEnd as LaunchEnd
    from agent.machine.launching import run_launch as run_launch
    from agent.output import Lines as Lines
    from agent.output import Sink as Sink
    from agent.settings import Found as Found
    from agent.settings import Settings as Settings
    from agent.settings import read_settings as read_settings
else:
    _NAMES = {
        "agent.client": ("Client", "Output", "RunEnd", "RunInfo"),
        "agent.decide.ending": ("JobEnd",),
        "agent.decide.facts": ("Facts",),
        "agent.decide.mpirun": ("Mpi", "MpiVersion", "mpirun_launch"),
        "agent.decide.mpirun_end": ("MpirunEnd", "mpirun_end"),
        "agent.decide.plan": ("Plan", "PlannedPeer", "hostfile"),
        "agent.decide.ranks": ("RankEnd", "RanksVerdict", "parse_rank", "ranks_verdict"),
        "agent.decide.runspec": ("MpirunOptions", "RunSpec"),
        "agent.decide.subset": ("subset",),
        "agent.decide.torchrun": ("TorchrunEnd", "torchrun_end", "torchrun_launch"),
        "agent.environment": ("find_mpi", "job_from_environment", "read_facts", "read_plan", "serve"),
        "agent.errors": (
            "AgentError",
            "ClusterBusy",
            "DirectoryUnusable",
            "Exit",
            "IdentityRefused",
            "MissingProgram",
            "PeerLost",
            "PeersMissing",
            "PodsDiffer",
            "SettingsError",
            "SystemFault",
            "UsageError",
        ),
        "agent.launch": ("Launch",),
        "agent.lifecycle.pod.pod": ("Job",),
        "agent.local.client": ("LocalCluster",),
        "agent.local.pods": ("PodInfo",),
        "agent.local.spec": ("ClusterSpec",),
        "agent.machine.launching": ("LaunchEnd", "run_launch"),
        "agent.output": ("Lines", "Sink"),
        "agent.settings": ("Found", "Settings", "read_settings"),
    }
    _MODULES = {name: module for module, names in _NAMES.items() for name in names}
    __all__ = ["__version__", *_MODULES]

    def __getattr__(name):
        if name not in _MODULES:
            raise AttributeError(f"module 'agent' has no attribute {name!r}")
        from importlib import import_module

        value = globals()[name] = getattr(import_module(_MODULES[name]), name)
        return value

    def __dir__():
        return sorted({*(name for name in globals() if name.startswith("__")), *__all__})
