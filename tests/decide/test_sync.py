"""What files in a shared directory say: names, contents under a checksum, beats, mounts, claims."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.decide.sync import claims, facts
from agent.decide.sync.beats import LEADER_SECONDS, Beats, beat_seconds, beats, poll_seconds
from agent.decide.sync.mounts import BUCKETS, DirectoryMount, check_mount
from agent.errors import DirectoryUnusable

NONCE = "0123456789abcdef" * 2
PLACE = facts.FactPlace("jobs/e", NONCE)
NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,30}", fullmatch=True)
FACTS = st.builds(
    facts.Fact,
    name=NAMES,
    pod=st.integers(0, 99_999),
    failed=st.booleans(),
    code=st.integers(0, 255),
    message=st.text(max_size=50),
    host=st.text(max_size=20),
    time=st.floats(0, 1e10),
)

# Names and contents


@pytest.mark.parametrize("name", ["download", "download_complete", "a.b-c", "7", "x" * 100])
def test_a_name(name: str) -> None:
    assert facts.fact_name(name) == name
    assert facts.name_of(facts.Fact(name, 3).file) == facts.name_of(facts.Fact(name, 3, failed=True).file) == name


BEAT = f"pod.0.{NONCE}"


def test_what_is_no_name_no_file_of_a_fact_and_no_beat() -> None:
    for name in ("", ".", "..", ".x", "-x", "a/b", "a b", "ä", "x" * 101, "a\n"):
        with pytest.raises(ValueError, match="a name of at most"):
            facts.fact_name(name)
    assert not [file for file in ("done.x", "done.x.a", "done..1", "other.x.1", "", ".done.x.1") if facts.name_of(file)]
    assert facts.name_of("done.x.1.tmp") in ("", "x.1")
    others = ["pod.0", BEAT, f"{BEAT}.x", f"pod.a.{NONCE}.1", f".{BEAT}.1", "pod.0.abc.1"]
    assert list(beats(others)) == []


@given(data=st.data(), fact=FACTS)
def test_a_fact_is_read_as_it_was_written(data: st.DataObject, fact: facts.Fact) -> None:
    """What is torn or changed is none."""
    text = facts.write_fact(fact, PLACE)
    assert facts.read_fact(fact.file, text, PLACE) == fact
    assert facts.name_of(fact.file) == fact.name
    long = fact._replace(message="m" * 2 * facts.MOST_MESSAGE)
    assert len(facts.read_fact(long.file, facts.write_fact(long, PLACE), PLACE).message) == facts.MOST_MESSAGE
    at = data.draw(st.integers(0, len(text) - 1))
    torn = data.draw(st.sampled_from([text[:at], text[:at] + "~" + text[at + 1 :], text + "x", "\0" * len(text)]))
    with pytest.raises(ValueError):
        facts.read_fact(fact.file, torn, PLACE)


@given(fact=FACTS, other=FACTS, start=st.sampled_from([NONCE, "f" * 32]), job=st.sampled_from(["jobs/e", "jobs/f"]))
def test_a_fact_counts_only_where_it_belongs(fact: facts.Fact, other: facts.Fact, start: str, job: str) -> None:
    place = facts.FactPlace(job, start)
    if (other.file, place) != (fact.file, PLACE):
        with pytest.raises(ValueError, match="it belongs to"):
            facts.read_fact(other.file, facts.write_fact(fact, PLACE), place)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it is empty"),
        ("{}", "its checksum is wrong"),
        ("{}\n", "its checksum is wrong"),
        (facts.seal({})[:-1], "its checksum is wrong"),
        (facts.seal({}), "name is missing"),
        (facts.seal({"name": "x", "pod": "0", "job": "", "start": ""}), "pod is not a whole number"),
    ],
)
def test_why_it_is_no_fact(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        facts.read_fact("done.x.0", text, PLACE)


@given(data=st.dictionaries(st.text(), st.one_of(st.text(), st.integers(), st.none())))
def test_seals(data: dict[str, str | int | None]) -> None:
    assert facts.unseal(facts.seal(data)) == json.loads(json.dumps(data))


@given(texts=st.lists(st.text(min_size=1, max_size=300), min_size=2, max_size=2, unique=True))
def test_every_text_has_a_folder_of_its_own(texts: list[str]) -> None:
    one, other = map(facts.folder, texts)
    assert one != other
    for name in (one, other):
        assert 0 < len(name.encode()) <= 255 and "/" not in name and not name.startswith(".")


def test_directories_of_jobs_and_claims() -> None:
    assert facts.job_directory("uid.0.1", "") == ".a4-agent/jobs/uid.0.1"
    assert facts.job_directory("uid.0.1", "script-1a") == ".a4-agent/jobs/uid.0.1@script-1a", (
        "a run of a job is another"
    )
    assert facts.job_directory("../../etc", "") == ".a4-agent/jobs/%2E.%2F..%2Fetc"
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


# Beats


COUNTS = st.lists(st.tuples(st.floats(0, 5), st.one_of(st.none(), st.integers(0, 20))), max_size=30)


@given(looks=COUNTS, fresh=st.booleans())
def test_only_who_goes_on_is_heard(looks: list[tuple[float, int | None]], fresh: bool) -> None:
    """Whatever is listed when: a number that does not grow is left from any time ago, unless nothing is old."""
    seen = Beats(lease=3.0, fresh=fresh)
    now, most, last = 0.0, -1 if fresh else None, None
    for seconds, count in looks:
        now += seconds
        seen.look(now, [f"{BEAT}.{count}"] if count is not None else [])
        if count is not None:
            last = now if most is not None and count > most else last
            most = max(count, most if most is not None else count)
        assert seen.heard(0) == ({NONCE} if last is not None else set())
        assert seen.silence(0) == (None if last is None else pytest.approx(now - last))
        assert seen.silent_pods([0, 1]) == ({0: now - last} if last is not None and now - last > 3.0 else {})


def test_who_did_not_look_for_long_blames_nobody() -> None:
    seen = Beats(lease=12.0)
    for now, count in ((0.0, 1), (1.0, 2), (30.0, 2)):
        seen.look(now, [f"pod.0.{NONCE}.{count}"])
    assert seen.silent_pods([0]) == {}
    for now in (36.0, 43.0):
        seen.look(now, [f"pod.0.{NONCE}.2"])
    assert seen.silent_pods([0]) == {0: 13.0}


def test_a_pod_started_again_is_not_silent() -> None:
    seen = Beats(lease=3.0)
    for now, names in [(0.0, ["0.1"]), (1.0, ["0.2", "f.7"]), (5.0, ["0.2", "f.8"])]:
        seen.look(now, [f"pod.2.{name[0] * 32}.{name[2]}" for name in names])
    assert seen.heard(2) == {"0" * 32, "f" * 32}
    assert seen.silent_pods([2]) == {}


@given(leads=st.booleans(), lease=st.floats(0.1, 600), pods=st.integers(1, 1024))
def test_a_lease_has_room_for_several_beats(leads: bool, lease: float, pods: int) -> None:
    seconds = beat_seconds(lease, pods, leads=leads)
    assert 0 < seconds <= lease / 6
    assert not leads or seconds <= LEADER_SECONDS


@given(chance=st.floats(0, 1), pods=st.integers(1, 1024))
def test_looks_are_spread(chance: float, pods: int) -> None:
    least = 0.8 if pods <= 64 else 4.0
    assert least <= poll_seconds(pods, chance) <= 1.51 * least


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
