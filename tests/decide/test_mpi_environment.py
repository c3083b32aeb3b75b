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
    assert rank_environment({name: "value"}) == {name: "value"}


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
    assert rank_environment({name: "value"}) == {} and is_denied(name)


def test_parameters_of_mpi_itself_are_kept() -> None:
    given = {"OMPI_MCA_coll_hcoll_enable": "0", "OMPI_MCA_btl_tcp_links": "2"}
    assert rank_environment(given) == given


@pytest.mark.parametrize("name", ["", "A B", "A*", "A=B", "my.setting", "a-b", "1A", "É"])
def test_names_that_mpirun_cannot_carry_are_left_out(name: str) -> None:
    assert rank_environment({name: "value", "FINE": "1"}) == {"FINE": "1"} and not is_denied(name)


def test_a_name_is_no_beginning_of_names() -> None:
    assert is_denied("HOSTNAME") and not is_denied("HOSTNAME_PREFIX")


@given(st.dictionaries(st.text(max_size=20), st.text(max_size=20)))
def test_what_is_kept_is_unchanged_and_twice_is_once(env: dict[str, str]) -> None:
    kept = rank_environment(env)
    assert kept.items() <= env.items() and not any(map(is_denied, kept))
    assert rank_environment(kept) == kept
