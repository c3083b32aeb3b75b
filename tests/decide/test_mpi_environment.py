"""What ranks get of the launch environment."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.decide.mpi_environment import is_denied, rank_environment


@pytest.mark.parametrize(
    "name",
    [
        "PATH",
        "LD_LIBRARY_PATH",
        "HOME",
        "HF_TOKEN",
        "NCCL_DEBUG",
        "NNODES",
        "MASTER_ADDR",
        "A4_RUN",
        "A4_TOKEN_FILE",
        "OPAL_PREFIX",
        "LANG",
    ],
)
def test_ranks_get_what_the_workload_was_given(name: str) -> None:
    kept = rank_environment({name: "value"})
    assert kept.env == {name: "value"}
    assert kept.names == [name]


@pytest.mark.parametrize(
    "name",
    [
        "HOSTNAME",
        "PWD",
        "_",
        "SHLVL",
        "SSH_CONNECTION",
        "SSH_PUBLIC_KEY",
        "KUBERNETES_SERVICE_HOST",
        "JOB_COMPLETION_INDEX",
        "A4_SECRET_FILE",
        "OMPI_COMM_WORLD_RANK",
        "PMIX_RANK",
        "PRTE_MCA_plm_ssh_agent",
        "OMPI_MCA_plm_rsh_args",
        "OMPI_MCA_orte_default_hostfile",
        "OMPI_MCA_rmaps_base_mapping_policy",
        "OMPI_MCA_routed",
        "MPIEXEC_TIMEOUT",
        "BASH_FUNC_module%%",
        "BASH_ENV",
    ],
)
def test_what_belongs_to_one_pod_or_one_mpirun_stays(name: str) -> None:
    kept = rank_environment({name: "value"})
    assert kept.env == {} and kept.names == [] and kept.refused == []


def test_parameters_of_mpi_itself_are_kept_but_not_named_as_open_mpi_forwards_them() -> None:
    kept = rank_environment({"OMPI_MCA_coll_hcoll_enable": "0", "OMPI_MCA_btl_tcp_links": "2"})
    assert kept.env == {"OMPI_MCA_coll_hcoll_enable": "0", "OMPI_MCA_btl_tcp_links": "2"}
    assert kept.names == []


@pytest.mark.parametrize("name", ["", "A B", "A*", "A=B", "my.setting", "a-b", "1A", "É"])
def test_names_that_mpirun_cannot_carry_are_reported(name: str) -> None:
    kept = rank_environment({name: "value", "FINE": "1"})
    assert kept.names == ["FINE"]
    assert kept.refused == [name]


def test_a_name_is_no_beginning_of_names() -> None:
    assert is_denied("HOSTNAME") and not is_denied("HOSTNAME_PREFIX")


@given(st.dictionaries(st.text(max_size=20), st.text(max_size=20)))
def test_every_variable_is_kept_refused_or_denied_and_twice_is_once(env: dict[str, str]) -> None:
    kept = rank_environment(env)
    denied = {name for name in env if is_denied(name)}
    assert set(kept.env) | set(kept.refused) | denied == set(env)
    assert len(kept.env) + len(kept.refused) + len(denied) == len(env)
    assert rank_environment(kept.env) == type(kept)(kept.env, kept.names, [])
    assert kept.names == sorted(kept.names)
