"""What wins: the user, then vendors' scripts, the profile, the pod. And search paths, which only grow."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.decide.environment import (
    Environment,
    Layer,
    added,
    changed,
    effect,
    of_interfaces,
    of_pod,
    prepended,
    saved,
)

NAMES = st.sampled_from(["A", "B", "C", "PATH", "LD_LIBRARY_PATH"])
VALUES = st.text(st.sampled_from("xy:;= \n"), max_size=6)
VARIABLES = st.dictionaries(NAMES, VALUES)
LAYERS = st.lists(st.builds(Layer, st.just("layer"), VARIABLES, st.frozensets(NAMES)), max_size=4)


def layered(base: dict[str, str], layers: list[Layer], user: frozenset[str] = frozenset()) -> Environment:
    made = of_pod(base, user)
    for layer in layers:
        made = made.with_layer(layer)
    return made


def entries(env: object, name: str) -> set[str]:
    assert isinstance(env, dict)
    return {entry for entry in env.get(name, "").split(":") if entry}


def test_the_order_of_precedence() -> None:
    made = layered(
        {"A": "pod", "B": "pod", "C": "pod", "D": "user", "E": "pod"},
        [
            Layer("profile", {"B": "profile", "C": "profile", "D": "profile", "F": "profile"}, ["E"]),
            Layer("script", {"C": "script", "D": "script", "G": "script"}),
        ],
        frozenset({"D"}),
    )
    assert made.env == {
        "A": "pod", "B": "profile", "C": "script", "D": "user", "F": "profile", "G": "script",
    }  # fmt: skip
    assert made.sources == {"B": "profile", "C": "script", "E": "profile", "F": "profile", "G": "script"}
    assert sorted(made.overruled) == [
        "B=profile (profile) overrules B=pod (the pod)",
        "C=profile (profile) overrules C=pod (the pod)",
        "C=script (script) overrules C=profile (profile)",
        "D=user (A4_USER_ENV) overrules D=profile (profile)",
        "D=user (A4_USER_ENV) overrules D=script (script)",
        "E is not set (profile) overrules E=pod (the pod)",
    ]


def test_an_overruled_value_is_one_line() -> None:
    (one,) = layered({"A": "x" * 300}, [Layer("profile", {"A": "two\nlines"})]).overruled
    assert one == f"A='two\\nlines' (profile) overrules A={'x' * 200}… (the pod)"
    (one,) = layered({"A": "0"}, [Layer("profile", {}, ["A"])], frozenset({"A", "B"})).overruled
    assert one == "A=0 (A4_USER_ENV) overrules unset A (profile)"


def test_search_paths_are_prepended() -> None:
    made = layered(
        {"LD_LIBRARY_PATH": "/cuda:/driver:", "LD_PRELOAD": "/tcmalloc.so"},
        [
            Layer("profile", {"LD_LIBRARY_PATH": "/gib:/driver", "LD_PRELOAD": "/nvshmem.so"}),
            Layer("script", {"LD_LIBRARY_PATH": "/replaced"}, ["LD_PRELOAD"]),
        ],
    )
    assert made.env == {
        "LD_LIBRARY_PATH": "/replaced:/gib:/driver:/cuda",
        "LD_PRELOAD": "/nvshmem.so:/tcmalloc.so",
    }
    assert made.overruled == ()


def test_the_user_s_search_path_comes_first() -> None:
    layers = [Layer("profile", {"PATH": "/profile"}), Layer("script", {"PATH": "/script:/profile:/user:/usr/bin"})]
    made = layered({"PATH": "/user:/usr/bin"}, layers, frozenset({"PATH"}))
    assert made.env == {"PATH": "/user:/usr/bin:/script:/profile"}


@given(VARIABLES, LAYERS, st.frozensets(NAMES))
def test_laws(base: dict[str, str], layers: list[Layer], user: frozenset[str]) -> None:
    made = layered(base, layers, user)
    for name in ("A", "B", "C"):
        last = [layer for layer in layers if name in layer.values or name in layer.unset]
        if name in user and name in base:
            wanted = base[name]
        elif last:
            wanted = None if name in last[-1].unset else last[-1].values[name]  # type: ignore[assignment]
        else:
            wanted = base.get(name)  # type: ignore[assignment]
        assert made.env.get(name) == wanted
    for name in ("PATH", "LD_LIBRARY_PATH"):
        texts = [base.get(name, ""), *(layer.values.get(name, "") for layer in layers if name not in layer.unset)]
        assert entries(made.env, name) == {entry for text in texts for entry in text.split(":") if entry}
    assert changed(base, made.changes) == made.env
    assert not layers or made.with_layer(layers[-1]).env == made.env, "a layer twice is a layer once"
    assert set(made.sources) == {name for name in {*base, *made.env} if base.get(name) != made.env.get(name)}


def test_added() -> None:
    assert added("LD_LIBRARY_PATH", {"LD_LIBRARY_PATH": "/a:/b:/c"}, {"LD_LIBRARY_PATH": "/c:/d"}) == ["/a", "/b"]


@pytest.mark.parametrize(
    ("name", "first", "rest", "both"),
    [
        ("PATH", "/a", "/b:/a:/c", "/a:/b:/c"),
        ("PATH", "", "/b", "/b"),
        ("PATH", "/a:", ":/b::", "/a:/b"),
        ("LD_PRELOAD", "/a.so", "/b.so /a.so", "/a.so:/b.so"),
        ("LD_LIBRARY_PATH", "/with space", "/b", "/with space:/b"),
    ],
)
def test_prepended(name: str, first: str, rest: str, both: str) -> None:
    assert prepended(name, first, rest) == both


def env0(**values: str) -> bytes:
    return b"".join(f"{name}={value}\0".encode(errors="surrogateescape") for name, value in values.items())


def test_the_effect_of_a_script() -> None:
    before = env0(A="1", B="2", C="3", SHLVL="1", _="x")
    after = env0(A="1", B="two\n=\udcff", D="4", SHLVL="2", _="y", PWD="/")
    assert effect("s", before + b"\0" + after) == Layer("s", {"B": "two\n=\udcff", "D": "4"}, ["C"])
    assert effect("s", env0() + b"A=\0\0A=\0") == Layer("s", {}, [])


@pytest.mark.parametrize("answer", [b"", env0(A="1"), env0(A="1") + b"\0", env0(A="1") + b"\0A=1\0B"])
def test_no_whole_answer(answer: bytes) -> None:
    with pytest.raises(ValueError, match="ended the shell"):
        effect("s", answer)


def test_what_is_kept_for_commands() -> None:
    made = layered({"A": "1", "B": "1"}, [Layer("profile", {"A": "2"}, ["B"])])
    assert saved(made, "x", "why") == {
        "version": 1,
        "profile": "x",
        "why": "why",
        "changes": {"A": "2", "B": None},
        "sources": {"A": "profile", "B": "profile"},
        "overruled": ["A=2 (profile) overrules A=1 (the pod)", "B is not set (profile) overrules B=1 (the pod)"],
    }


@pytest.mark.parametrize(
    ("environ", "interfaces", "now"),
    [
        ({"GLOO_SOCKET_IFNAME": "eth0", "NCCL_SOCKET_IFNAME": "eth0,eth1"}, ["eth0"], {}),
        ({"NCCL_SOCKET_IFNAME": "eth0,eth1", "NVTE_UB_SOCKET_IFNAME": "eth1"}, ["eth0"], {"NVTE_UB_SOCKET_IFNAME"}),
        (
            {"GLOO_SOCKET_IFNAME": "eth0", "NCCL_SOCKET_IFNAME": "eth"},
            ["ens3", "ens4"],
            {"GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"},
        ),
        ({"NCCL_SOCKET_IFNAME": "ens"}, ["lo", "ens4"], {}),
        ({"NCCL_SOCKET_IFNAME": "^docker", "GLOO_SOCKET_IFNAME": ""}, ["ens3"], {}),
        ({"HF_TOKEN": "eth0"}, ["ens3"], {}),
    ],
)
def test_interfaces_that_are_not_there_give_way(environ: dict[str, str], interfaces: list[str], now: set[str]) -> None:
    assert of_interfaces(environ, interfaces).values == dict.fromkeys(now, interfaces[0])
    made = layered(environ, [of_interfaces(environ, interfaces)], frozenset(environ))
    assert made.env == environ, "what the user has set stays"
