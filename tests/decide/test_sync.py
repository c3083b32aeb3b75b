"""Names that pods set, and what files in a shared directory say: contents under a checksum, mounts, claims."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.decide import sync_facts as facts
from agent.errors import DirectoryUnusable
from agent.lifecycle.sharing import claim_files as claims
from agent.lifecycle.sharing.mounts import BUCKETS, DirectoryMount, check_mount

NONCE = "0123456789abcdef" * 2

# Names and contents


@pytest.mark.parametrize("name", ["download", "download_complete", "a.b-c", "7", "x" * 100])
def test_a_name(name: str) -> None:
    assert facts.fact_name(name) == name


@pytest.mark.parametrize("name", ["", ".", "..", ".x", "-x", "a/b", "a b", "ä", "x" * 101, "a\n"])
def test_what_is_no_name(name: str) -> None:
    with pytest.raises(ValueError, match="a name of at most"):
        facts.fact_name(name)


@given(data=st.dictionaries(st.text(), st.one_of(st.text(), st.integers(), st.none())))
def test_seals(data: dict[str, str | int | None]) -> None:
    assert facts.unseal(facts.seal(data)) == json.loads(json.dumps(data))


@given(texts=st.lists(st.text(min_size=1, max_size=300), min_size=2, max_size=2, unique=True))
def test_every_text_has_a_folder_of_its_own(texts: list[str]) -> None:
    one, other = map(facts.folder, texts)
    assert one != other
    for name in (one, other):
        assert 0 < len(name.encode()) <= 255 and "/" not in name and not name.startswith(".")


@pytest.mark.parametrize("text", ["", "{}", "{}\n", facts.seal({})[:-1], facts.seal({"a": 1}).replace("1", "2", 1)])
def test_what_is_torn_or_changed_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"empty|checksum"):
        facts.unseal(text)


def test_the_directory_of_a_claim() -> None:
    assert claims.claim_directory("ckpts/Qwen3") == ".a4-agent/claims/ckpts%2FQwen3"


@pytest.mark.parametrize(
    ("name", "job_id", "prefix", "expected"),
    [
        ("download_complete", "qwen", "qwen-workload-", ["sync_flags_qwen/download_complete_flag"]),
        ("conversion_complete", "q1", "q2-workload-", ["sync_flags_q1/conversion_complete_flag", "sync_flags_q2/…"]),
        ("download_complete", "", "q-workload-", ["sync_flags_q/download_complete_flag"]),
        ("download_complete", "../x", "", []),
        ("download", "qwen", "qwen-workload-", []),
    ],
)
def test_flags_of_old_scripts(name: str, job_id: str, prefix: str, expected: list[str]) -> None:
    found = ["/".join(flag) for flag in facts.old_flags(name, job_id, prefix)]
    assert found == [path.replace("…", "conversion_complete_flag") for path in expected]


# Mounts


@pytest.mark.parametrize(
    ("mount", "why"),
    [
        (DirectoryMount("/mnt", "nfs4", "10.0.0.2:/share"), ""),
        (DirectoryMount("/lustre", "lustre", "10.0.0.2@tcp:/fs"), ""),
        (DirectoryMount("/mnt", "ext4", "/dev/sda1"), ""),
        (DirectoryMount("/mnt", "fuse.juicefs", "JuiceFS:x"), ""),
        (DirectoryMount("/", "overlay", "overlay"), "nothing is mounted at /mnt/dir: what is written there stays"),
        *(
            (DirectoryMount("/mnt", f"fuse.{program}", "x"), f"/mnt/dir is a bucket ({program} at /mnt)")
            for program in sorted(BUCKETS)
        ),
        (DirectoryMount("/mnt", "fuse", "mountpoint-s3"), "/mnt/dir is a bucket (mountpoint-s3 at /mnt)"),
        (
            DirectoryMount("/mnt", "fuse", "bucket", links=False),
            "/mnt/dir (fuse at /mnt) has no hard links, as mounts of buckets",
        ),
    ],
)
def test_which_mounts_are_refused(mount: DirectoryMount, why: str) -> None:
    if not why:
        check_mount("/mnt/dir", mount)
        return
    with pytest.raises(DirectoryUnusable) as refused:
        check_mount("/mnt/dir", mount)
    assert refused.value.what.startswith(why) and refused.value.hint


# Claims


@pytest.mark.parametrize(
    ("names", "seen"),
    [
        ([], claims.Seen(0, True, -1)),
        (["term.1"], claims.Seen(1, False, -1)),
        (["term.1", claims.beat_file(1, NONCE, 4)], claims.Seen(1, False, 4)),
        (["term.1", claims.free_file(1)], claims.Seen(1, True, -1)),
        (
            ["term.1", claims.free_file(1), claims.term_file(2), claims.beat_file(1, NONCE, 9)],
            claims.Seen(2, False, -1),
        ),
        (["term.x", "beat.1", "other", ".term.7"], claims.Seen(0, True, -1)),
    ],
)
def test_what_the_names_of_a_claim_say(names: list[str], seen: claims.Seen) -> None:
    assert claims.read_claim(names) == seen


@given(names=st.lists(st.sampled_from(["term.1", "term.2", "free.1", claims.beat_file(2, NONCE, 3)])))
def test_a_claim_is_mine_until_a_newer_term(names: list[str]) -> None:
    assert not claims.is_mine([*names, "term.3"], 2)
    assert claims.is_mine([*names, "term.2"], 2)


def test_a_free_claim_is_taken_at_once_and_a_held_one_after_its_lease() -> None:
    contender = claims.Contender(lease=30.0)
    assert contender.look(100.0, []) == 1
    assert contender.holder == ""
    assert contender.look(101.0, ["term.1"]) == 0
    assert contender.holder == "term.1"
    for now in range(105, 131, 5):
        assert contender.look(now, ["term.1", claims.beat_file(1, NONCE, 0)]) == 0
    assert contender.look(134.0, ["term.1"]) == 0  # renamed while the listing was made
    assert contender.look(136.0, ["term.1", claims.beat_file(1, NONCE, 0)]) == 2
    assert contender.look(137.0, ["term.1", claims.beat_file(1, NONCE, 1)]) == 0
    assert contender.look(138.0, ["term.1", "free.1"]) == 2


def test_an_old_listing_and_a_contender_that_stood_still_take_nothing() -> None:
    contender = claims.Contender(lease=30.0)
    assert contender.look(100.0, ["term.1", "term.2"]) == 0
    assert contender.look(101.0, ["term.1", "free.1"]) == 0
    assert contender.look(200.0, ["term.1", "term.2"]) == 0
    assert contender.look(209.0, ["term.1", "term.2"]) == 0


@given(chance=st.floats(0, 1))
def test_looks_are_spread(chance: float) -> None:
    assert 0.8 <= claims.poll_seconds(chance) <= 1.21
