"""The names of the library: where each is. `agent` reads them here when one is first used, and type checkers do."""

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
from agent.machine.launching import LaunchEnd as LaunchEnd
from agent.machine.launching import run_launch as run_launch
from agent.output import Lines as Lines
from agent.output import Sink as Sink
from agent.settings import Found as Found
from agent.settings import Settings as Settings
from agent.settings import read_settings as read_settings
from agent.workbench.local.client import LocalCluster as LocalCluster
from agent.workbench.local.pods import PodInfo as PodInfo
from agent.workbench.local.spec import ClusterSpec as ClusterSpec

__version__: str
__all__: list[str]
