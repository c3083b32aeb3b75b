"""What `make test-long` draws."""

from __future__ import annotations

from tests.cluster.soak import FAULTS, PHASES, PODS, RUNS, draw


def test_a_seed_and_a_number_stand_for_one_fault() -> None:
    assert draw(7, 3) == draw(7, 3)
    assert len({draw(seed, number)[1:] for seed in range(5) for number in range(20)}) == 100


def test_two_hundred_have_every_kind_phase_pod_and_run() -> None:
    faults = [draw(1, number) for number in range(200)]
    assert {fault.kind for fault in faults} == set(FAULTS)
    assert {(fault.phase, fault.pod) for fault in faults} == {(phase, pod) for phase in PHASES for pod in range(PODS)}
    assert {(fault.run, fault.mpi) for fault in faults} == {(run, mpi) for run in RUNS for mpi in (4, 5)}
