"""What ranks get of the launch environment."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent.decide.mpi_environment import is_denied, rank_environment

GIVEN = """
PATH LD_LIBRARY_PATH HOME HF_TOKEN NCCL_DEBUG NNODES MASTER_ADDR A4_RUN A4_TOKEN_FILE OPAL_PREFIX LANG HOSTNAME_PREFIX
OMPI_MCA_coll_hcoll_enable OMPI_MCA_btl_tcp_links
"""
DENIED = """
HOSTNAME PWD _ SHLVL SSH_CONNECTION SSH_PUBLIC_KEY KUBERNETES_SERVICE_HOST JOB_COMPLETION_INDEX A4_SECRET_FILE
OMPI_COMM_WORLD_RANK PMIX_RANK PRTE_MCA_plm_ssh_agent OMPI_MCA_plm_rsh_args OMPI_MCA_orte_default_hostfile
OMPI_MCA_rmaps_base_mapping_policy OMPI_MCA_routed MPIEXEC_TIMEOUT BASH_FUNC_module%% BASH_ENV PMIX_MCA_gds
"""
"""What belongs to one pod or one mpirun."""
NO_NAMES = ["", "A B", "A*", "A=B", "my.setting", "a-b", "1A", "É"]
"""mpirun cannot carry them."""


def test_which_variables_ranks_get() -> None:
    given, denied = GIVEN.split(), DENIED.split()
    assert list(rank_environment(dict.fromkeys([*denied, *NO_NAMES, *given], "value"))) == given
    assert [name for name in [*given, *denied, *NO_NAMES] if is_denied(name)] == denied


@given(st.dictionaries(st.text(max_size=20), st.text(max_size=20)))
def test_what_is_kept_is_unchanged_and_twice_is_once(env: dict[str, str]) -> None:
    kept = rank_environment(env)
    assert kept.items() <= env.items() and not any(map(is_denied, kept))
    assert rank_environment(kept) == kept
