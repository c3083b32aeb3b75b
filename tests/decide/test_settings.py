"""Settings: defaults, sources, wrong values, and everything that is wrong told at once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.catalogue import RUNNABLE
from agent.errors import Exit, SettingsError
from agent.fabrics.profiles import CHOICES
from agent.settings import (
    SETTINGS,
    SETTINGS_OF_RUNS,
    TASK_SCRIPTS,
    Found,
    Settings,
    examine,
    read_settings,
)

POD = {
    "NNODES": "4",
    "JOB_COMPLETION_INDEX": "3",
    "HOSTNAME_PREFIX": "job-workload-",
    "DOMAIN_NAME": "job.default.svc.cluster.local",
    "A4_JOBSET_UID": "11-22",
    "A4_RESTART_ATTEMPT": "2",
    "A4_JOB_RESTART_ATTEMPT": "1",
}
NO_SECRET = Found(secret_problem="A4_SECRET_FILE=/x cannot be read")


def read(extra: dict[str, str] | None = None, found: Found | None = None, workload: str = "") -> Settings:
    return read_settings(POD | (extra or {}), found or Found(), workload)[0]


def problems(environ: dict[str, str], found: Found | None = None, workload: str = "") -> list[str]:
    with pytest.raises(SettingsError) as caught:
        read_settings(environ, found or Found(), workload)
    assert caught.value.code == Exit.SETTINGS
    assert all(problem in str(caught.value) for problem in caught.value.problems)
    return caught.value.problems


def source(name: str, environ: dict[str, str], found: Found | None = None, workload: str = "") -> str:
    return next(value.source for value in examine(environ, found or Found(), workload).values if value.name == name)


def test_a_pod_with_the_least_environment() -> None:
    """What follows from its variables; all else is as its row says (and docs/settings.md: tests/test_docs.py)."""
    follows = {
        "nnodes": 4,
        "index": 3,
        "hostname_prefix": "job-workload-",
        "domain_name": "job.default.svc.cluster.local",
        "workload": "none",
        "sleep_on": "never",
        "epoch": "11-22.2.1",
        "results_dir": "/run/a4-agent/results",
        "results_explicit": False,
        "task_script": "",
        "bucket": False,
    }
    rows = {one.field: one.parse(one.default) for one in SETTINGS if one.default is not None}
    assert read()._asdict() == {name: {**rows, **follows}[name] for name in Settings._fields}


# One for each way to read a text; every name has its field (below), and tells a wrong value (WRONG).
GOOD = [
    ("GPUS_PER_NODE", "1", "gpus_per_node", 1),
    ("A4_WORKLOAD", "Script", "workload", "script"),
    ("SLEEP_INFINITY", "True", "sleep_on", "always"),
    ("SLEEP_INFINITY", "0", "sleep_on", "never"),
    ("A4_SLEEP_ON", "Failure", "sleep_on", "failure"),
    ("A4_SLEEP_MAX_HOURS", "0.5", "sleep_max_hours", 0.5),
    ("A4_PYTHON", "/opt/venv/bin/python", "python", "/opt/venv/bin/python"),
    ("A4_DEEPEP_DIR", "/src/DeepEP", "deepep_dir", "/src/DeepEP"),
    ("A4_ACCELERATOR", "nvidia-b200", "accelerator", "nvidia-b200"),
    ("A4_USER_ENV", " NCCL_DEBUG,NCCL_ALGO\n_x  ", "user_env", "NCCL_DEBUG NCCL_ALGO _x"),
    ("A4_GPU_PERSISTENCE", "false", "gpu_persistence", False),
    ("A4_WORKLOAD_TIMEOUT_SECONDS", "3600", "workload_timeout", 3600.0),
    ("A4_STALL_TIMEOUT_SECONDS", "0", "stall_timeout", 0.0),
    ("A4_WHY_SECONDS", "0", "why_seconds", 0.0),
    ("A4_GATE", "yes", "gate", "true"),
    ("A4_GATE", "Strict", "gate", "strict"),
    ("SSH_PUBLIC_KEY", "ssh-ed25519 AAAA me\necdsa-sha2-nistp256 BBBB\n", "ssh_public_key", None),
    ("A4_SECRET_FILE", "/a b/c", "secret_file", "/a b/c"),
    ("A4_EPOCH", "own", "epoch", "own"),
    ("A4_LOCATION", "/c/b", "location", "/c/b"),
    ("A4_METADATA_HOST", "10.0.0.1:8080", "metadata_host", "10.0.0.1:8080"),
    ("POD_NAME", "job-workload-0-3-x7k2p", "pod_name", "job-workload-0-3-x7k2p"),
    ("A4_INTERFACE", "eth0.7", "interface", "eth0.7"),
    ("A4_RUN_DIR", "/run/other", "run_dir", "/run/other"),
    ("A4_RUN_DIR", "/run/other", "results_dir", "/run/other/results"),
    ("A4_RESULTS_DIR", "/gcs/x", "results_dir", "/gcs/x"),
    ("A4_PEER_TIMEOUT_SECONDS", "1.5", "peer_timeout", 1.5),
    ("A4_LEASE_SECONDS", "3", "lease", 3.0),
    ("A4_WARN_SIGNAL", "none", "warn_signal", ""),
    ("A4_WARN_SIGNAL", "USR1", "warn_signal", "USR1"),
    ("A4_WARN_SIGNAL", "sigusr2", "warn_signal", "USR2"),
    ("A4_WARN_SECONDS", "1", "warn_seconds", 1.0),
    ("A4_LOG_LEVEL", "DEBUG", "log_level", "debug"),
]


BUCKET = "/gcs/testbed-logs"


@pytest.mark.parametrize(
    ("extra", "directory"),
    [
        ({}, f"{BUCKET}/job/11-22.2.1"),
        ({"JOB_IDENTIFIER": "name-1"}, f"{BUCKET}/name-1/11-22.2.1"),
        ({"A4_EPOCH": "own"}, f"{BUCKET}/job/own"),
        ({"A4_RESULTS_DIR": "/mnt/x"}, "/mnt/x"),
        ({"JOB_IDENTIFIER": "../../etc"}, "/run/a4-agent/results"),
        ({"A4_EPOCH": "a/b"}, "/run/a4-agent/results"),
    ],
)
def test_results_go_to_the_bucket_that_is_mounted(extra: dict[str, str], directory: str) -> None:
    settings = read(extra, Found(bucket=True))
    assert settings.results_dir == directory
    assert settings.results_explicit == ("A4_RESULTS_DIR" in extra)


@pytest.mark.parametrize(
    ("extra", "directory", "came_from"),
    [
        ({}, "", "default"),
        ({"PAI_WORKSPACE_ROOT": "/lustre/me"}, "/lustre/me", "derived from PAI_WORKSPACE_ROOT"),
        ({"PAI_WORKSPACE_ROOT": "no path"}, "", "default"),
        ({"PAI_WORKSPACE_ROOT": "/mnt", "A4_SHARED_DIR": "/nfs"}, "/nfs", "environment"),
        ({"PAI_WORKSPACE_ROOT": "/mnt", "A4_SHARED_DIR": ""}, "", "environment"),
    ],
)
def test_the_directory_that_pods_share(extra: dict[str, str], directory: str, came_from: str) -> None:
    assert read(extra).shared_dir == directory
    assert source("A4_SHARED_DIR", POD | extra) == came_from


@pytest.mark.parametrize(
    ("on", "after"), [("always", (True, True)), ("failure", (False, True)), ("never", (False, False))]
)
def test_when_the_cluster_stays(on: str, after: tuple[bool, bool]) -> None:
    settings = read({"A4_SLEEP_ON": on, "SLEEP_INFINITY": "true"})
    assert (settings.sleeps_after(0), settings.sleeps_after(7)) == after


@pytest.mark.parametrize(("name", "text", "field", "value"), GOOD)
def test_a_good_value(name: str, text: str, field: str, value: object) -> None:
    assert getattr(read({name: text}), field) == (text.strip() if value is None else value)
    assert source(name, POD | {name: text}) == "environment"


WRONG = [
    ("NNODES", "0", "from 1 to 100000"),
    ("A4_ACCELERATOR", "a b", "such as nvidia-b200"),
    ("A4_PROFILE", "a4", f"one of {', '.join(CHOICES)}"),
    ("A4_USER_ENV", "NCCL_DEBUG=INFO", "names of variables"),
    ("NNODES", "٤", "from 1 to 100000"),
    ("JOB_COMPLETION_INDEX", "-1", "from 0 to 99999"),
    ("GPUS_PER_NODE", "0", "from 1 to 1024"),
    ("HOSTNAME_PREFIX", "job-workload", "with its dash"),
    ("HOSTNAME_PREFIX", "Job-", "with its dash"),
    ("HOSTNAME_PREFIX", "a\nb-", "with its dash"),
    ("DOMAIN_NAME", "job..local", "a DNS name"),
    ("DOMAIN_NAME", "job.local.", "a DNS name"),
    ("DOMAIN_NAME", "$(x)", "a DNS name"),
    ("MASTER_PORT", "65536", "from 1 to 65535"),
    ("A4_WORKLOAD", "conectivity", f"one of {', '.join(RUNNABLE)}"),
    ("A4_RUN_NAME", "my run", "a name of a-z"),
    ("A4_RUN_NAME", "ddp-0123abcd", "looks like the id of a run"),
    ("SLEEP_INFINITY", "maybe", "true or false"),
    ("A4_SSH_PORT", "ssh", "from 1 to 65535"),
    ("SSH_PUBLIC_KEY", "ssh-ed25519 AAAA me\nnonsense", "OpenSSH public key"),
    ("SSH_PUBLIC_KEY", 'command="x" ssh-ed25519 AAAA', "OpenSSH public key"),
    ("A4_SECRET_FILE", "job-secret", "an absolute path"),
    ("A4_EPOCH", "a b", "without spaces"),
    ("A4_LOCATION", "cluster/block", "such as /cluster/block"),
    ("A4_LOCATION", "/a/b/c/d/e", "such as /cluster/block"),
    ("A4_METADATA_HOST", "http://metadata", "a host name or address"),
    ("A4_INTERFACE", "eth0 eth1", "name of a network interface"),
    ("NODE_NAME", "-node", "a name without spaces"),
    ("A4_RUN_DIR", "run", "an absolute path"),
    ("A4_RUN_DIR", "/", "an absolute path"),
    ("A4_RUN_DIR", "/run/a b", "an absolute path"),
    ("A4_RUN_DIR", "/run/%h", "an absolute path"),
    ("A4_SHARED_DIR", "mnt", "an absolute path"),
    ("A4_PEER_TIMEOUT_SECONDS", "0.999", "seconds (at least 1)"),
    ("A4_LEASE_SECONDS", "30s", "seconds (at least 3), such as 30"),
    ("A4_GRACE_SECONDS", "3", "seconds (at least 5)"),
    ("A4_WARN_SIGNAL", "TERM", "none or one of USR1, USR2, XCPU"),
    ("A4_WARN_SECONDS", "-1", "0 or a number (at least 1)"),
    ("A4_VENDOR_SCRIPT_TIMEOUT_SECONDS", "0", "seconds (at least 1)"),
    ("A4_WORKLOAD_TIMEOUT_SECONDS", "0.01", "0 or a number (at least 1), such as 3600"),
    ("A4_STALL_TIMEOUT_SECONDS", "never", "auto, or 0 or a number (at least 1)"),
    ("A4_STALL_TIMEOUT_SECONDS", "0.5", "auto, or 0 or a number (at least 1)"),
    ("A4_WHY_SECONDS", "-1", "0 or a number (at least 1), such as 300"),
    ("A4_GATE", "maybe", "true, false or strict"),
    ("A4_SLEEP_ON", "sometimes", "one of always, failure, never"),
    ("A4_SLEEP_MAX_HOURS", "12h", "0 or a number (at least 0.01)"),
    ("A4_PYTHON", "a\nb", "a program"),
    ("A4_LOG_LIMIT_MB", "0", "a whole number from 1"),
    ("A4_MODEL_REVISION", "a b", "a branch, tag or commit"),
    ("A4_DATASET_URL", "http://[x", "the beginning of URLs"),
    ("A4_DATASET_URL", "http://x:port/y", "the beginning of URLs"),
    ("A4_DATASET_URL", "https://x/y?key=z", "the beginning of URLs"),
    ("A4_PAI_REPOSITORY", "https://[x/y.git", "the URL of a git repository"),
    ("A4_PAI_REPOSITORY", "--upload-pack=x", "the URL of a git repository"),
    ("A4_PAI_COMMIT", "main", "a commit, 40 hexadecimal digits"),
]


@pytest.mark.parametrize(("name", "text", "wanted"), WRONG)
def test_a_wrong_value_is_told_with_its_name_value_source_and_what_would_be_right(
    name: str, text: str, wanted: str
) -> None:
    about = [problem for problem in problems(POD | {name: text}) if problem.startswith(f"{name}=")]
    assert len(about) == 1
    assert repr(text) in about[0]
    assert "(environment)" in about[0]
    assert wanted in about[0]


def test_a_wrong_url_is_told_without_its_password_and_token() -> None:
    (about,) = problems(POD | {"A4_DATASET_URL": "https://me:keepthis@x/y?key=z&token=this-too"})
    assert about == "A4_DATASET_URL='https://me:***@x/y?key=z&token=***' (environment) should be the beginning of URLs"


def test_every_setting_refuses_nonsense_by_its_name() -> None:
    """What would be right is in WRONG, once for each way to read a text."""
    nonsense = "?\n"
    wrong = [setting.name for setting in SETTINGS if setting.name != "JOB_IDENTIFIER"]
    told = {name: problems(POD | {name: nonsense}) for name in wrong}
    assert [n for n in wrong if not any(x.startswith(f"{n}={nonsense!r} (environment)") for x in told[n])] == []


def test_every_setting_has_its_field_and_every_field_its_setting() -> None:
    """But for those that only their workload reads."""
    fields = set(Settings._fields) - {"task_script", "bucket", "results_explicit"}
    of_all, of_runs = ({setting.field for setting in some} for some in (SETTINGS, SETTINGS_OF_RUNS))
    assert fields <= of_all and of_all - fields <= of_runs | {"downloaders_dir"}


def test_all_problems_come_at_once() -> None:
    seen = problems(POD | {"JOB_COMPLETION_INDEX": "9", "A4_SSH_PORT": "x", "A4_LOG_LEVEL": "y"}, NO_SECRET)
    assert [text.split("=")[0] for text in seen] == [
        "A4_SSH_PORT",
        "A4_LOG_LEVEL",
        "JOB_COMPLETION_INDEX",
        "A4_SECRET_FILE",
    ]


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({}, ["NNODES", "a4-agent local"]),
        ({"NNODES": ""}, ["NNODES", "a4-agent local"]),
        ({"HOSTNAME_PREFIX": "x-"}, ["NNODES", "a4-agent local"]),
        (POD | {"JOB_COMPLETION_INDEX": "4"}, ["JOB_COMPLETION_INDEX=4", "NNODES=4"]),
        (POD | {"A4_METRICS_PORT": "6002"}, ["A4_METRICS_PORT=6002", "MASTER_PORT=6002"]),
        (POD | {"A4_METRICS_PORT": "222", "A4_SSH_PORT": "222"}, ["A4_METRICS_PORT=222", "A4_SSH_PORT=222"]),
        ({name: value for name, value in POD.items() if not name.startswith("A4_")}, ["A4_EPOCH is not set"]),
        *((POD | {name: ""}, [f"{name} is not set"]) for name in ("HOSTNAME_PREFIX", "DOMAIN_NAME")),
        ({name: value for name, value in POD.items() if name != "DOMAIN_NAME"}, ["DOMAIN_NAME is not set"]),
    ],
)
def test_no_pod_of_a_job(environ: dict[str, str], words: list[str]) -> None:
    (problem,) = problems(environ)
    assert all(word in problem for word in words)


RENAMED = {
    "the JobSet": (POD | {"POD_NAME": "other-workload-0-3-x7k2p"}, "other-workload-"),
    "the replicated job": (POD | {"POD_NAME": "job-worker-0-3-x7k2p"}, "job-worker-"),
    "nothing": (POD | {"POD_NAME": "job-workload-0-3-x7k2p"}, ""),
    "nothing, a second replica": (POD | {"POD_NAME": "job-workload-1-3-x7k2p"}, ""),
    "nothing, and no name is told": (POD, ""),
    "a pod that is none of a JobSet": (POD | {"POD_NAME": "other-3"}, ""),
    "a pod whose name Kubernetes has shortened": (POD | {"POD_NAME": "b" * 51 + "-0-3-" + "-x7k2p"}, ""),
    "one pod, which waits for nobody": (
        POD | {"NNODES": "1", "JOB_COMPLETION_INDEX": "0", "POD_NAME": "b-0-0-x7k2p"},
        "",
    ),
}


@pytest.mark.parametrize(("environ", "wanted"), RENAMED.values(), ids=RENAMED.keys())
def test_a_job_that_was_renamed_in_one_place_only(environ: dict[str, str], wanted: str) -> None:
    told = [problem for problem in examine(environ, Found()).problems if "HOSTNAME_PREFIX" in problem]
    assert len(told) == bool(wanted)
    assert all(f"should be '{wanted}'" in problem and environ["POD_NAME"] in problem for problem in told)


def test_the_longest_pod_name_is_a_dns_label() -> None:
    prefix = "a" * 56 + "-"
    long = POD | {"HOSTNAME_PREFIX": prefix}
    (problem,) = problems(long | {"NNODES": "100000"})
    assert f"{prefix}0-99999, 64 characters; 63 are the limit" in problem
    assert read_settings(long | {"NNODES": "10000"}, Found())[0].hostname_prefix == prefix


def test_a_lease_leaves_time_for_the_fence_of_runs_with_lives() -> None:
    assert read({"A4_LEASE_SECONDS": "5"}).lease == 5
    assert read({"A4_LEASE_SECONDS": "10", "A4_LIVES": "3"}).lives == 3
    (problem,) = problems(POD | {"A4_LEASE_SECONDS": "5", "A4_LIVES": "3"})
    assert problem == (
        "A4_LEASE_SECONDS=5 should be at least 10 for runs with lives: "
        "4.5 s of it are for ending what a lost pod still runs"
    )


def test_a_warning_and_what_follows_it_fit_into_the_grace_time() -> None:
    warned = {"A4_WARN_SIGNAL": "USR1", "A4_GRACE_SECONDS": "120"}
    assert read({**warned, "A4_WARN_SECONDS": "98"}).warn_seconds == 98
    (problem,) = problems(POD | warned | {"A4_WARN_SECONDS": "98.5"})
    assert problem == (
        "A4_WARN_SECONDS=98.5 should be at most 98 with A4_GRACE_SECONDS=120: "
        "the agent needs 20 s, and 2 s follow SIGTERM"
    )


def test_several_pods_need_the_secret_and_one_does_not() -> None:
    assert problems(POD, NO_SECRET) == [NO_SECRET.secret_problem]
    settings, warnings = read_settings({"NNODES": "1"}, NO_SECRET)
    assert (settings.nnodes, settings.index, settings.is_coordinator, warnings) == (1, 0, True, ())
    assert settings.epoch == "one-pod"
    for name in ("JOB_COMPLETION_INDEX", "HOSTNAME_PREFIX", "DOMAIN_NAME", "A4_EPOCH"):
        assert source(name, {"NNODES": "1"}) == "default for one pod"


@pytest.mark.parametrize(
    ("environ", "warning"),
    [
        ({"A4_SSHPORT": "x"}, "A4_SSHPORT is not a setting of a4-agent; did you mean A4_SSH_PORT?"),
        ({"A4_QQQQQQQQQQQQQQQQQQQQ": "x"}, "A4_QQQQQQQQQQQQQQQQQQQQ is not a setting of a4-agent"),
        ({"A4_RUN": "torchrun-1a2b", "A4_NODE_RANK": "0", "A4_WHY_DIR": "/x"}, ""),  # the agent's, for a run
        ({"A4_WARN_SECONDS": "600"}, "A4_WARN_SECONDS is set without A4_WARN_SIGNAL: nobody is warned"),
    ],
)
def test_warnings(environ: dict[str, str], warning: str) -> None:
    assert read_settings(POD | environ, Found())[1] == ((warning,) if warning else ())


@pytest.mark.parametrize(
    ("extra", "script", "argument", "workload", "came_from"),
    [
        ({}, "", "", "none", "default"),
        ({"A4_WORKLOAD": ""}, "", "", "none", "default"),
        ({}, TASK_SCRIPTS[0], "", "script", f"derived: {TASK_SCRIPTS[0]} is mounted"),
        ({"RUN_DEEPEP_TEST": "true"}, TASK_SCRIPTS[1], "", "script", f"derived: {TASK_SCRIPTS[1]} is mounted"),
        ({"RUN_DEEPEP_TEST": "true"}, "", "", "deepep", "derived: RUN_DEEPEP_TEST=true"),
        ({"RUN_DEEPEP_TEST": "false"}, "", "", "none", "default"),
        ({"A4_WORKLOAD": "connectivity"}, TASK_SCRIPTS[0], "", "connectivity", "environment"),
        ({"A4_WORKLOAD": "script"}, "", "connectivity", "connectivity", "command line"),
    ],
)
def test_where_the_workload_comes_from(
    extra: dict[str, str], script: str, argument: str, workload: str, came_from: str
) -> None:
    (value,) = (v for v in examine(POD | extra, Found(script), argument).values if v.name == "A4_WORKLOAD")
    assert (value.value, value.source) == (workload, came_from)
    assert not value.problem


@pytest.mark.parametrize(
    ("environ", "epoch", "warned"),
    [
        ({"A4_JOBSET_UID": "u", "A4_RESTART_ATTEMPT": "1", "A4_JOB_RESTART_ATTEMPT": "2"}, "u.1.2", False),
        ({"A4_JOBSET_UID": "u", "A4_RESTART_ATTEMPT": "", "A4_JOB_RESTART_ATTEMPT": ""}, "u.0.0", False),
        ({"A4_JOBSET_UID": "u", "JOB_UUID": "v"}, "u.0.0", False),
        ({"A4_JOBSET_UID": "", "JOB_UUID": "v", "JOB_IDENTIFIER": "w"}, "v", False),
        ({"A4_JOBSET_UID": "", "JOB_IDENTIFIER": "w"}, "w", True),
        ({"JOB_UUID": "v", "JOB_IDENTIFIER": "w"}, "v", True),
        ({"JOB_IDENTIFIER": "w"}, "w", True),
        ({"A4_EPOCH": "mine", "A4_JOBSET_UID": "u"}, "mine", False),
        ({"A4_EPOCH": "mine"}, "mine", False),
    ],
)
def test_the_epoch(environ: dict[str, str], epoch: str, warned: bool) -> None:
    base = {name: POD[name] for name in ("NNODES", "JOB_COMPLETION_INDEX", "HOSTNAME_PREFIX", "DOMAIN_NAME")}
    settings, warnings = read_settings(base | environ, Found())
    assert settings.epoch == epoch
    assert any("A4_JOBSET_UID is not set" in text for text in warnings) == warned


names = st.sampled_from([setting.name for setting in SETTINGS])


@given(st.dictionaries(names, st.text(max_size=80)))
def test_no_value_whatever_is_more_than_a_problem(environ: dict[str, str]) -> None:
    seen = examine(POD | environ, Found())
    assert (seen.settings is None) == bool(seen.problems)
    for value in seen.values:
        assert not value.problem or value.problem.startswith(value.name)
