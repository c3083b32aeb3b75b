"""Settings: what the pod's environment says, typed, each value with its source.

`examine` reads everything and collects every problem; `read_settings` raises them all at once.
Names without the `A4_` prefix are those that the charts of the old testbeds inject.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Set
from typing import Any, NamedTuple

from agent.catalogue import RUNNABLE
from agent.decide.env_sh import MARK as SHELL_ENV
from agent.decide.fence import lease_problem
from agent.decide.grace import LEAST_TERM_SECONDS, RESERVED_SECONDS, USUAL, most_warn_seconds
from agent.decide.masking import MARK
from agent.decide.run_names import run_name
from agent.decide.secret_variables import SECRET_ENV, listed, without_secrets
from agent.decide.setting_values import (
    DNS_LABEL,
    MOST_LIVES,
    auto_or,
    choice,
    flag,
    gate,
    matching,
    maybe_path,
    names,
    none_or,
    path,
    place,
    public_keys,
    restart_reasons,
    run_dir,
    seconds,
    warn_signal,
    whole,
)
from agent.decide.words import did_you_mean
from agent.errors import SettingsError
from agent.fabrics.profiles import AUTO
from agent.fabrics.profiles import CHOICES as PROFILE_CHOICES
from agent.paths import DEEPEP_DIR, DEFAULT_RUN_DIR, DOWNLOADERS_DIR, SECRET_FILE

LEAST_LEASE = 3.0
"""Six beats, of half a second each."""
LEAST_GRACE = 5.0
"""Three of them are Kubernetes' own."""
TASK_SCRIPTS = (
    "/workload/task/task-script.sh",
    "/workload/scripts/training-script.sh",
    "/workload/scripts/pai-training-script.sh",
)
BUCKET = "/gcs"
_NAME_TEXT = matching(r"([A-Za-z0-9][!-~]{0,252})?", "a name without spaces")
_SERVER = r"([^\s/?#]+@)?([\w.-]+|\[[\w.:]+\])(:\d{1,5})?"
NOT_A_POD = (
    "NNODES is not set: this does not look like a pod of a JobSet. "
    "To try the agent on this machine: a4-agent local run --pods 4 connectivity"
)


class Found(NamedTuple):
    """What is mounted in the pod, as far as the settings depend on it."""

    task_script: str = ""
    """Path of the mounted task script, empty when there is none."""
    secret_problem: str = ""
    """Why the job secret cannot be used, empty when it can."""
    bucket: bool = False
    """A bucket or another file system is mounted at /gcs."""


class Settings(NamedTuple):
    """Every setting of a pod as a typed field.

    A field is called as its variable is, in small letters, without the prefix `A4_` and without `_SECONDS`; the index
    of the pod is `index`.
    """

    nnodes: int
    index: int  # type: ignore[assignment]  # nobody needs that of tuple
    gpus_per_node: int
    hostname_prefix: str
    domain_name: str
    master_port: int
    job_identifier: str
    workload: str
    run_name: str
    sleep_infinity: bool
    sleep_on: str
    sleep_max_hours: float
    ssh_port: int
    ssh_public_key: str
    secret_file: str
    epoch: str
    location: str
    pod_name: str
    node_name: str
    image: str
    metadata_host: str
    interface: str
    run_dir: str
    results_dir: str
    results_explicit: bool
    shared_dir: str
    python: str
    deepep_dir: str
    nccl_tests_dir: str
    baselines: str
    profile: str
    accelerator: str
    user_env: str
    """Names, a space between them."""
    gpu_persistence: bool
    pods_differ: str
    script_timeout: float
    peer_timeout: float
    lease: float
    lives: int
    restart_on: str
    replacement: float
    workload_timeout: float
    stall_timeout: float | str
    """Seconds, 0 for never, or "auto"."""
    grace: float
    warn_signal: str
    """Such as USR1; empty: none."""
    warn_seconds: float
    why: bool
    why_seconds: float
    hang_seconds: float
    why_timing: bool
    run_health: bool
    gate: str
    report: bool
    log_limit_mb: int
    log_level: str
    log_format: str
    task_script: str = ""
    secret_env: str = ""
    """Names, a space between them."""
    bucket: bool = False
    """One is mounted at BUCKET."""
    metrics_port: int = 0
    """0: none."""

    @property
    def is_coordinator(self) -> bool:
        return self.index == 0

    def stall_seconds(self, usual: float) -> float:
        """Limit of silence for a workload for which `usual` is the usual one; 0: none."""
        return usual if isinstance(self.stall_timeout, str) else self.stall_timeout

    def sleeps_after(self, code: int) -> bool:
        """Does the cluster stay after a first run that ended so?"""
        return self.sleep_on == "always" or (self.sleep_on == "failure" and code != 0)


class Value(NamedTuple):
    """One setting as it was found: `problem` is empty when it is good. As JSON: `a4-agent settings --json`."""

    name: str
    value: Any
    source: str
    problem: str
    meaning: str


class Setting(NamedTuple):
    """How one environment variable becomes one field. `parse` raises ValueError with what it takes."""

    name: str
    parse: Callable[[str], Any]
    default: str | None
    help: str
    called: str = ""
    """Its field, where that is not called as the variable is."""

    @property
    def field(self) -> str:
        """A field of `Settings`; what has none there is read by its workload, from the environment of the run."""
        return self.called or self.name.removeprefix("A4_").removesuffix("_SECONDS").lower()


SETTINGS_OF_RUNS = (
    Setting("A4_PYTHON", matching(r"[^\0\n]+", "a program"), "python3", "the workload's Python, with torch"),
    Setting("A4_NCCL_TESTS_DIR", maybe_path, "", "directory of nccl-tests, searched first"),
    Setting(
        "A4_WRONG_NETWORK",
        choice("warn", "fail"),
        "warn",
        "torchrun, mpirun and pai-megatron-* over another network than the profile's: warn, or end with 65",
    ),
    Setting("A4_TRAIN_AGAIN", flag, "false", "pai-megatron-*: train anew what is trained already"),
    Setting("A4_CONVERT_ON", choice("lead", "all"), "lead", "pai-megatron-*: the pods that convert the model"),
    Setting("A4_KEEP_TRAINING", flag, "false", f"pai-megatron-*: copy what was trained to {BUCKET}/logs"),
    Setting(
        "A4_MODEL_SOURCE",
        choice("huggingface", "modelscope"),
        "huggingface",
        "pai-megatron-*: where the model is downloaded from",
    ),
    Setting("A4_MODEL_REVISION", matching(r"[\w./-]*", "a branch, tag or commit"), "", "its revision; empty: newest"),
    Setting(
        "A4_DATASET_URL",
        matching(rf"(https?://{_SERVER}(/[^\s?#]*)?)?", "the beginning of URLs"),
        "",
        "pai-megatron-*: where the datasets are downloaded from (default: Alibaba's store)",
    ),
    Setting(
        "A4_PAI_REPOSITORY",
        matching(rf"((https?|ssh|git)://{_SERVER}/\S+|(file://)?/\S+)?", "the URL of a git repository"),
        "",
        "pai-megatron-*: where Pai-Megatron-Patch is cloned from (default: GitHub)",
    ),
    Setting(
        "A4_PAI_COMMIT",
        matching(r"([0-9a-f]{40})?", "a commit, 40 hexadecimal digits"),
        "",
        "pai-megatron-*: its commit (default: the one that the arguments are for)",
    ),
)
"""A shell in which `a4-agent run` is typed may set them for that run. Most have no field: workloads read them."""
SETTINGS = (
    Setting("NNODES", whole(1, 100_000), None, "number of pods"),
    Setting("JOB_COMPLETION_INDEX", whole(0, 99_999), None, "index of this pod; 0 coordinates", called="index"),
    Setting("GPUS_PER_NODE", whole(1, 1024), "8", "GPUs per pod: slots in the hostfile"),
    Setting(
        "HOSTNAME_PREFIX",
        matching(r"[a-z0-9][-a-z0-9]{0,55}-", "the start of the pods' names with its dash, such as 'job-workload-'"),
        None,
        "peer i is <HOSTNAME_PREFIX>0-<i>.<DOMAIN_NAME>",
    ),
    Setting(
        "DOMAIN_NAME",
        matching(rf"{DNS_LABEL}(\.{DNS_LABEL})*", "a DNS name, such as job.default.svc.cluster.local"),
        None,
        "domain of the pods' headless service",
    ),
    Setting("MASTER_PORT", whole(1, 65535), "6002", "rendezvous port of torchrun"),
    Setting("JOB_IDENTIFIER", str, "", "name of the job, for results"),
    Setting("A4_WORKLOAD", choice(*RUNNABLE), None, "what to run: " + ", ".join(RUNNABLE)),
    Setting("A4_RUN_NAME", lambda text: text and run_name(text), "", "name of the job's first run"),
    Setting("SLEEP_INFINITY", flag, "false", "keep the formed cluster after the run"),
    Setting(
        "A4_SLEEP_ON",
        choice("always", "failure", "never"),
        None,
        "keep it after the run always, after a failure, or never (default: always if SLEEP_INFINITY)",
    ),
    Setting("A4_SLEEP_MAX_HOURS", none_or("12", 0.01), "0", "release an idle cluster after this; 0: never"),
    Setting("A4_SSH_PORT", whole(1, 65535), "2222", "port of every pod's sshd"),
    Setting("SSH_PUBLIC_KEY", public_keys, "", "keys of people who may log in"),
    Setting("A4_SECRET_FILE", path, SECRET_FILE, "the job's secret; every SSH key derives from it"),
    Setting("A4_EPOCH", matching(r"[!-~]{1,200}", "text without spaces"), None, "one attempt of a job"),
    Setting("A4_LOCATION", place, "", "the node's place; wins over the metadata server"),
    Setting("POD_NAME", _NAME_TEXT, "", "the pod's name in Kubernetes, for messages"),
    Setting("NODE_NAME", _NAME_TEXT, "", "its node's, for messages and the plan (default: the host name)"),
    Setting("A4_IMAGE", matching(r"[!-~]{0,1000}", "an image's name without spaces"), "", "the image, for results"),
    Setting(
        "A4_METADATA_HOST",
        matching(r"[A-Za-z0-9.-]+(:[0-9]{1,5})?", "a host name or address, with a port if not 80"),
        "metadata.google.internal",
        "GCE metadata server",
    ),
    Setting(
        "A4_INTERFACE",
        matching(r"[A-Za-z0-9_.:@-]{0,15}", "the name of a network interface, such as eth0"),
        "",
        "NIC for SSH, MPI and rendezvous (default: that of the default route)",
    ),
    Setting("A4_RUN_DIR", run_dir, DEFAULT_RUN_DIR, "private state of this pod"),
    Setting("A4_RESULTS_DIR", path, None, "where results and pods' logs are kept"),
    Setting("A4_SHARED_DIR", maybe_path, "", "directory that all pods share, on NFS or Lustre"),
    Setting("A4_DEEPEP_DIR", path, DEEPEP_DIR, "DeepEP's source with its tests, for deepep"),
    Setting("A4_BASELINES", maybe_path, "", "file of your own baselines of bandwidth"),
    Setting("A4_PROFILE", choice(*PROFILE_CHOICES), AUTO, "fabric profile: " + ", ".join(PROFILE_CHOICES)),
    Setting(
        "A4_ACCELERATOR",
        matching(r"[A-Za-z0-9._-]*", "GKE's name of an accelerator, such as nvidia-b200"),
        "",
        "what GPUs the pod should have, by GKE's name, such as nvidia-b200; doctor compares",
    ),
    Setting("A4_USER_ENV", names, "", "variables whose values come before those of profile and scripts"),
    Setting(SECRET_ENV, names, "", "variables that hold secrets, whatever they are called"),
    Setting("A4_GPU_PERSISTENCE", flag, "true", "set the GPUs' persistence mode at start"),
    Setting("A4_PODS_DIFFER", choice("refuse", "warn"), "refuse", "a run on pods that differ where they must not"),
    Setting(
        "A4_VENDOR_SCRIPT_TIMEOUT_SECONDS",
        seconds("60"),
        "60",
        "a vendor's script that takes longer ends the pod",
        called="script_timeout",
    ),
    Setting("A4_PEER_TIMEOUT_SECONDS", seconds("600"), "600", "give up on peers after this long"),
    Setting("A4_LEASE_SECONDS", seconds("30", LEAST_LEASE), "30", "a peer not heard for this long is lost"),
    Setting(
        "A4_LIVES", whole(0, MOST_LIVES), "0", "how often a run may start again after a pod or rank is lost; 0: never"
    ),
    Setting(
        "A4_RESTART_ON",
        restart_reasons,
        "lost,unhealthy,75,137,143",
        "what starts it again: `lost` pods, pods that became `unhealthy`, exit codes of ranks, and `stalled`",
    ),
    Setting("A4_REPLACEMENT_SECONDS", seconds("900"), "900", "how long it waits for the replacement of a lost pod"),
    Setting("A4_WORKLOAD_TIMEOUT_SECONDS", none_or("3600"), "0", "wall limit of a run; 0: none"),
    Setting(
        "A4_STALL_TIMEOUT_SECONDS",
        auto_or(none_or("1800")),
        "auto",
        "end a run that prints nothing for this long; 0: never; auto: 1800 for nccl, collectives and deepep",
    ),
    Setting("A4_GRACE_SECONDS", seconds("30", LEAST_GRACE), "30", "the pod's terminationGracePeriodSeconds"),
    Setting("A4_WARN_SIGNAL", warn_signal, "none", "signal to a run's processes before SIGTERM"),
    Setting("A4_WARN_SECONDS", none_or("60"), "0", "how long before SIGTERM that signal comes", called="warn_seconds"),
    Setting("A4_WHY", flag, "true", "prepare ranks to say why a run hangs, and find out when one does"),
    Setting(
        "A4_WHY_SECONDS",
        none_or("300"),
        "300",
        "a run that prints nothing for this long is looked at once, and goes on; 0: never",
        called="why_seconds",
    ),
    Setting(
        "A4_HANG_SECONDS",
        none_or("60"),
        "60",
        "a rank for which others only wait is said to hang after so long without an operation, at the earliest",
        called="hang_seconds",
    ),
    Setting("A4_WHY_TIMING", flag, "false", "have torch time every NCCL operation, at 20 µs each, to see which began"),
    Setting("A4_RUN_HEALTH", flag, "true", "compare the error counters of GPUs and NICs before and after each run"),
    Setting(
        "A4_GATE",
        gate,
        "false",
        "look at all pods before the first run, as a4-agent doctor does, and end the job (65) with a fatal finding; "
        "strict: also if a check could not run",
    ),
    Setting("A4_REPORT", flag, "true", "make report.html of every run; needs Jinja2 and matplotlib"),
    Setting("A4_LOG_LEVEL", choice("debug", "info", "warning", "error"), "info", "lowest level logged"),
    Setting("A4_LOG_FORMAT", choice("text", "json"), "text", "text, or one JSON object a line"),
    Setting("A4_METRICS_PORT", whole(0, 65535), "0", "port on which each pod serves metrics to Prometheus; 0: none"),
    Setting(
        "A4_LOG_LIMIT_MB",
        whole(1, 1_000_000),
        "1024",
        "most output of all runs kept in a pod, in MiB; the oldest goes first",
    ),
    Setting(
        "A4_DOWNLOADERS_DIR",
        path,
        DOWNLOADERS_DIR,
        "pai-megatron-*: virtual environments of the downloaders; one that is missing is made",
    ),
    *SETTINGS_OF_RUNS,
)
OF_RUNS = tuple(setting.name for setting in SETTINGS_OF_RUNS)
"""MASTER_PORT is another, under its old name."""
LONGEST_POD_NAME = 63
OF_ONE_POD = {"HOSTNAME_PREFIX": "pod-", "DOMAIN_NAME": "localdomain", "JOB_COMPLETION_INDEX": "0"}
EPOCH_PARTS = ("A4_JOBSET_UID", "A4_RESTART_ATTEMPT", "A4_JOB_RESTART_ATTEMPT", "JOB_UUID")


class Examination(NamedTuple):
    """What reading the settings gave; `settings` is None when `problems` is not empty."""

    values: tuple[Value, ...]
    problems: tuple[str, ...]
    warnings: tuple[str, ...]
    settings: Settings | None


def of_the_job(environ: Mapping[str, str]) -> Mapping[str, str]:
    """The environment with the job's NNODES, also in a run, whose programs have that of the run."""
    whole_job = environ.get("A4_JOB_NNODES")
    return {**environ, "NNODES": whole_job} if whole_job and "NNODES" in environ else environ


def read_settings(environ: Mapping[str, str], found: Found, workload: str = "") -> tuple[Settings, tuple[str, ...]]:
    """The settings of a pod with these variables, and warnings about them.

    `workload`: in place of A4_WORKLOAD. Raises SettingsError that lists every problem with its source and what would be
    right.
    """
    environ = of_the_job(environ)
    if not environ.get("NNODES"):
        raise SettingsError([NOT_A_POD])
    seen = examine(environ, found, workload)
    if seen.settings is None:
        raise SettingsError(list(seen.problems), "a4-agent settings shows every value and where it came from")
    return seen.settings, seen.warnings


def examine(environ: Mapping[str, str], found: Found, workload: str = "") -> Examination:
    """Read every setting; never raises."""
    environ = of_the_job(environ)
    values = tuple(_read(setting, environ, found, workload) for setting in SETTINGS)
    parsed = {setting.field: value.value for setting, value in zip(SETTINGS, values, strict=True)}
    parsed |= {"task_script": found.task_script, "bucket": found.bucket}
    parsed["results_explicit"] = bool(environ.get("A4_RESULTS_DIR"))
    wrong = {value.name: value.problem for value in values if value.problem}
    problems = (*wrong.values(), *_contradictions(parsed, found, wrong.keys()))
    settings = None if problems else Settings(**{name: parsed[name] for name in Settings._fields})
    return Examination(values, problems, tuple(_warnings(environ)), settings)


def read_setting(name: str, environ: Mapping[str, str], found: Found, workload: str = "") -> str:
    """One setting that is a text. Raises SettingsError when it is wrong or missing."""
    (setting,) = (one for one in SETTINGS if one.name == name)
    value = _read(setting, environ, found, workload)
    if value.problem:
        raise SettingsError([value.problem])
    return str(value.value)


def _read(setting: Setting, environ: Mapping[str, str], found: Found, workload: str) -> Value:
    text, source = _raw(setting, environ, found, workload)
    if text is None:
        who = "the chart sets it for every pod"
        if setting.name == "A4_EPOCH":
            who = "it follows from A4_JOBSET_UID, which the chart takes from the downward API"
        problem = f"{setting.name} is not set ({setting.help}); {who}"
        return Value(setting.name, None, "missing", problem, setting.help)
    try:
        return Value(setting.name, setting.parse(text), source, "", setting.help)
    except ValueError as wanted:
        text = MARK if setting.name in listed(environ) else _excerpt(text)
        problem = f"{setting.name}={text!r} ({source}) should be {wanted}"
        return Value(setting.name, text, source, problem, setting.help)


def _excerpt(text: str) -> str:
    """A wrong value, as far as it can be shown: people paste private keys where public ones belong."""
    if "PRIVATE KEY" in text:
        return "(a private key)"
    text = without_secrets(text)
    return text if len(text) <= 80 else text[:80] + "…"


def _raw(setting: Setting, environ: Mapping[str, str], found: Found, workload: str) -> tuple[str | None, str]:
    """The text of a setting and where it comes from."""
    one_pod = environ.get("NNODES") == "1"
    if setting.name == "A4_WORKLOAD" and workload:
        return workload, "command line"
    given = environ.get(setting.name)
    if given is not None and (given or setting.default is not None or setting.name == "NNODES"):
        return (given, "environment") if given or setting.default == "" else (setting.default, "default")
    match setting.name:
        case "A4_WORKLOAD":
            return _default_workload(environ, found)
        case "A4_EPOCH":
            return _epoch(environ, one_pod)
        case "A4_SLEEP_ON":
            return _default_sleep(environ)
        case "A4_RESULTS_DIR":
            return _results_dir(environ, found)
        case "A4_SHARED_DIR" if environ.get("PAI_WORKSPACE_ROOT", "").startswith("/"):
            return environ["PAI_WORKSPACE_ROOT"], "derived from PAI_WORKSPACE_ROOT"
        case name if one_pod and name in OF_ONE_POD:
            return OF_ONE_POD[name], "default for one pod"
    return setting.default, "default"


def _results_dir(environ: Mapping[str, str], found: Found) -> tuple[str, str]:
    job = environ.get("JOB_IDENTIFIER") or "job"
    epoch = environ.get("A4_EPOCH") or _epoch(environ, environ.get("NNODES") == "1")[0] or ""
    # A name that could climb out of the bucket's folder is refused.
    if found.bucket and all(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}", name) for name in (job, epoch)):
        return f"{BUCKET}/testbed-logs/{job}/{epoch}", f"derived: {BUCKET} is mounted"
    return (environ.get("A4_RUN_DIR") or DEFAULT_RUN_DIR) + "/results", "derived from A4_RUN_DIR"


def _default_sleep(environ: Mapping[str, str]) -> tuple[str, str]:
    try:
        sleeps = flag(environ.get("SLEEP_INFINITY", ""))
    except ValueError:
        sleeps = False  # SLEEP_INFINITY itself is then the problem that is told
    return ("always", "derived: SLEEP_INFINITY=true") if sleeps else ("never", "default")


def _default_workload(environ: Mapping[str, str], found: Found) -> tuple[str, str]:
    if found.task_script:
        return "script", f"derived: {found.task_script} is mounted"
    if environ.get("RUN_DEEPEP_TEST", "").lower() == "true":
        return "deepep", "derived: RUN_DEEPEP_TEST=true"
    return "none", "default"


def _epoch(environ: Mapping[str, str], one_pod: bool) -> tuple[str | None, str]:
    uid = environ.get("A4_JOBSET_UID")
    if uid:
        attempts = [environ.get(name) or "0" for name in EPOCH_PARTS[1:3]]
        return ".".join([uid, *attempts]), "derived from A4_JOBSET_UID and the restart attempts"
    for name in ("JOB_UUID", "JOB_IDENTIFIER"):
        if environ.get(name):
            return environ[name], f"derived from {name}"
    return ("one-pod", "default for one pod") if one_pod else (None, "")


def _contradictions(parsed: Mapping[str, Any], found: Found, wrong: Set[str]) -> Iterator[str]:
    """What is wrong between settings that are each right. `wrong` names those that are not."""
    if "NNODES" in wrong:
        return
    if "JOB_COMPLETION_INDEX" not in wrong and parsed["index"] >= parsed["nnodes"]:
        yield f"JOB_COMPLETION_INDEX={parsed['index']} (environment) should be below NNODES={parsed['nnodes']}"
    if parsed["metrics_port"] in (parsed["ssh_port"], parsed["master_port"]) and "A4_METRICS_PORT" not in wrong:
        others = f"A4_SSH_PORT={parsed['ssh_port']} and MASTER_PORT={parsed['master_port']}"
        yield f"A4_METRICS_PORT={parsed['metrics_port']} (environment) should be another port than {others}"
    longest = f"{parsed['hostname_prefix']}0-{parsed['nnodes'] - 1}"
    if "HOSTNAME_PREFIX" not in wrong and len(longest) > LONGEST_POD_NAME:
        limit = f"{LONGEST_POD_NAME} are the limit"
        yield f"HOSTNAME_PREFIX makes the pod name {longest}, {len(longest)} characters; {limit}"
    if parsed["nnodes"] > 1 and not wrong & {"HOSTNAME_PREFIX", "POD_NAME", "JOB_COMPLETION_INDEX"}:
        yield from _another_job(parsed["pod_name"], parsed["hostname_prefix"], parsed["index"])
    if parsed["nnodes"] > 1 and found.secret_problem:
        yield found.secret_problem
    if not wrong & {"A4_LEASE_SECONDS", "A4_LIVES"} and (problem := lease_problem(parsed["lease"], parsed["lives"])):
        yield problem
    if not wrong & {"A4_GRACE_SECONDS", "A4_WARN_SIGNAL", "A4_WARN_SECONDS"} and parsed["warn_signal"]:
        warn, grace = parsed["warn_seconds"], parsed["grace"]
        needed = f"the agent needs {USUAL.agents + RESERVED_SECONDS:g} s, and {LEAST_TERM_SECONDS:g} s follow SIGTERM"
        if warn > (most := most_warn_seconds(grace)):
            limit = f"at most {most:g} with A4_GRACE_SECONDS={grace:g}"
            yield f"A4_WARN_SECONDS={warn:g} should be {limit}: {needed}"


def _another_job(pod: str, prefix: str, index: int) -> Iterator[str]:
    """A pod of a JobSet whose name starts otherwise than those of the peers that it would wait for."""
    # Kubernetes shortens a longer name: its start is then not that of the peers.
    if len(pod) >= LONGEST_POD_NAME:
        return
    found = re.fullmatch(rf"(.+-)[0-9]+-{index}-[a-z0-9]{{5}}", pod)
    if found and found[1] != prefix:
        wanted = f"{found[1]!r}, as POD_NAME={pod} (environment) says"
        yield f"HOSTNAME_PREFIX={prefix!r} (environment) should be {wanted}; it is <JobSet>-<replicatedJob>-"


def _warnings(environ: Mapping[str, str]) -> Iterator[str]:
    # Where JobSet, before 0.9, gives no uid, the chart's JOB_UUID is the Job's; old charts' is that of a release.
    by_job = "A4_JOBSET_UID" in environ and environ.get("JOB_UUID")
    told = environ.get("A4_EPOCH") or environ.get("A4_JOBSET_UID") or by_job
    if not told and environ.get("NNODES") != "1":
        yield "A4_JOBSET_UID is not set (downward API): a restarted attempt of this job may have the same SSH keys"
    if (environ.get("A4_WARN_SECONDS") or "0") != "0" and not environ.get("A4_WARN_SIGNAL"):
        yield "A4_WARN_SECONDS is set without A4_WARN_SIGNAL: nobody is warned"
    known = {*(setting.name for setting in SETTINGS), *EPOCH_PARTS, SHELL_ENV}
    # A run has more of them, from the agent.
    unknown = set() if environ.get("A4_RUN") else {name for name in environ if name.startswith("A4_")} - known
    for name in sorted(unknown):
        yield f"{name} is not a setting of a4-agent{did_you_mean(name, known)}"
