"""No secret is shown, however it is cut, nested or repeated, and what is no secret is not touched."""

from __future__ import annotations

import json
import re
import shlex
from base64 import b64encode, encodebytes, urlsafe_b64encode
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from agent.decide.masking import MaskedStream, Masker
from agent.launch import Launch
from tests.laws import examples

# Few letters, so that secrets overlap and nest; no star, of which the mask itself is made.
few = st.text("abé", min_size=1, max_size=6)
letters = st.characters(blacklist_characters="*", blacklist_categories=["Cs"])
any_text = st.text(letters, min_size=1, max_size=20)
secrets = st.lists(few | any_text, max_size=5)


@st.composite
def texts(draw: st.DrawFn, min_size: int = 0) -> tuple[list[str], str]:
    """Secrets, and a text made of them, pieces of them, and other things."""
    known = draw(secrets)
    pieces = few | any_text
    if known:
        whole = st.sampled_from(known)
        pieces |= whole | st.builds(lambda secret, at: secret[:at], whole, st.integers(0, 10))
    return known, "".join(draw(st.lists(pieces, min_size=min_size, max_size=8)))


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted(place % (len(data) + 1) for place in places)
    return [data[start:end] for start, end in zip([0, *ends], [*ends, len(data)], strict=True)]


def passed(stream: MaskedStream, pieces: list[bytes]) -> bytes:
    return b"".join([*(stream.feed(piece) for piece in pieces), stream.finish()])


@examples(50)
@given(texts(), st.lists(st.integers(0, 200)))
def test_a_stream_is_masked_as_its_whole_text_is(case: tuple[list[str], str], places: list[int]) -> None:
    """And shows no secret."""
    known, text = case
    masker = Masker(known)
    stream, shown = masker.stream(), masker.text(text)
    assert not [secret for secret in known if secret in shown]
    assert passed(stream, cut(text.encode(), places)) == shown.encode()
    assert passed(stream, [bytes([byte]) for byte in text.encode()]) == shown.encode()  # ended, it begins anew


@examples(50)
@given(st.lists(st.text("ab*", min_size=1, max_size=5), max_size=4), st.text("ab*"), st.lists(st.integers(0, 50)))
def test_secrets_that_look_like_the_mark(known: list[str], text: str, places: list[int]) -> None:
    masker = Masker(known)
    assert passed(masker.stream(), cut(text.encode(), places)) == masker.text(text).encode()


@examples(50)
@given(texts(), st.lists(st.integers(0, 200)))
def test_no_more_is_kept_back_than_could_become_a_secret(case: tuple[list[str], str], places: list[int]) -> None:
    known, text = case
    known = [secret for secret in known if len(secret) < 8]  # longer ones have more forms
    forms = {form.encode() for secret in known for form in forms_of(secret)}
    beginnings = {form[:end] for form in forms for end in range(len(form))}
    stream, came, shown = Masker(known).stream(), b"", b""
    for piece in cut(text.encode(), places):
        came, shown = came + piece, shown + stream.feed(piece)
        possible = max(len(start) for start in [b"", *beginnings] if came.endswith(start))
        settled = came[: len(came) - possible]
        if not [form for form in forms if form in came]:
            assert shown == settled


def forms_of(secret: str) -> list[str]:
    lines = [secret.strip() or secret, *(line.strip() for line in secret.splitlines() if len(line.strip()) >= 8)]
    return [*lines, *(shlex.quote(f"{line} ")[1:-2] for line in lines)]


@pytest.mark.parametrize(
    ("known", "text", "shown"),
    [
        ([], "nothing is secret", "nothing is secret"),
        ([""], "nothing is secret", "nothing is secret"),
        (["inner-123"], "x inner-123 y", "x *** y"),
        (["inner-123", "outer-inner-123-end"], "x outer-inner-123-end y inner-123", "x *** y ***"),
        (["abcdefgh", "abcdefghijkl"], "abcdefghijk abcdefghijkl", "***ijk ***"),
        (["abcdefgh", "efghijkl"], "<abcdefghijkl>", "<***>"),
        (["abcabc"], "abcabcxabcabc abcab", "***x*** abcab"),
        (["secret-a", "secret-b"], "secret-asecret-b", "******"),
        (["  spaced-out\n"], "token=spaced-out", "token=***"),
        (["a\tb(c)[d].*"], "a\tb(c)[d].* axb", "*** axb"),
        (["pässwörter", "\udcff\udcfe-key"], "pässwörter\udcff\udcfe-key", "******"),
    ],
)
def test_what_is_shown(known: list[str], text: str, shown: str) -> None:
    masker = Masker(known)
    data = text.encode(errors="surrogateescape")
    assert masker.text(text) == shown
    assert passed(masker.stream(), [data]) == shown.encode()
    assert passed(masker.stream(), [bytes([byte]) for byte in data]) == shown.encode()


KEY = "-----BEGIN KEY-----\nMIIEvQIBADANBgkq\r\n  hkiG9w0BAQEFAASC\nBKcwgg==\nab=\n-----END KEY-----\n"


def test_lines_of_a_pasted_key_are_secrets_too() -> None:
    masker = Masker([KEY])
    assert masker.text(f"key: {KEY}") == "key: ***\n"
    assert masker.text("hkiG9w0BAQEFAASC") == "***"
    assert masker.text("[1] MIIEvQIBADANBgkq\n[2] hkiG9w0BAQEFAASC\n[3] BKcwgg==\n") == "[1] ***\n[2] ***\n[3] ***\n"
    assert masker.text("ab=") == "ab="
    assert masker.text(json.dumps(KEY)) == '"***\\n"'
    assert masker.text(json.dumps(KEY.splitlines()[:3])) == '["***", "***", "  ***"]'
    assert passed(masker.stream(), KEY.encode().splitlines(keepends=True)[1:3]) == b"***\r\n  ***\n"


AWKWARD = 'k"ey/+ é\\%~(1)=23'


def small_digits(text: str) -> str:
    return re.sub("%..", lambda found: found[0].lower(), quote(text, safe=""))


@pytest.mark.parametrize(
    ("write", "shown"),
    [
        pytest.param(json.dumps, '"***"', id="json"),
        pytest.param(partial(json.dumps, ensure_ascii=False), '"***"', id="json-utf-8"),
        pytest.param(partial(quote, safe=""), "***", id="url"),
        pytest.param(quote, "***", id="url-path"),
        pytest.param(partial(quote, safe="!'()*"), "***", id="encodeURIComponent"),
        pytest.param(small_digits, "***", id="url-small-digits"),
        pytest.param(quote_plus, "***", id="form"),
        pytest.param(lambda text: b64encode(text.encode()).decode(), "***", id="base64"),
        pytest.param(lambda text: urlsafe_b64encode(text.encode()).decode(), "***", id="base64-url"),
    ],
)
@pytest.mark.parametrize("secret", [AWKWARD, "hunter-42", "eyJhbGciOiJIUzI1NiJ9/+==", "a" * 300])
def test_a_secret_is_known_as_programs_write_it(write: Callable[[str], str], shown: str, secret: str) -> None:
    masker = Masker([secret])
    data = f"<{write(secret)}>".encode()
    assert passed(masker.stream(), [data]).decode() == masker.text(data.decode())
    assert passed(masker.stream(), [bytes([byte]) for byte in data]).decode() == masker.text(data.decode())
    assert masker.text(data.decode()) == f"<{shown}>"


@given(st.binary(max_size=7), st.text(letters, min_size=8).map(str.strip), st.binary(max_size=7))
def test_a_secret_is_known_inside_of_what_is_in_base64(before: bytes, secret: str, after: bytes) -> None:
    assume(len(secret) >= 8)
    shown = Masker([secret]).text(b64encode(before + secret.encode() + after).decode())
    rest = shown.replace("***", "").rstrip("=")
    assert len(rest) <= (len(before) + len(after) + 2) * 8 / 6


def test_a_secret_is_known_in_the_lines_that_base64_makes() -> None:
    shown = Masker([KEY * 20]).text(encodebytes((KEY * 20).strip().encode()).decode())
    assert set(shown.splitlines()) == {"***"}


@pytest.mark.parametrize(
    "secret",
    ["it's-a-secret", "'secret'", "''secret", 'a"secret', "$secret$(x)", "a b secret", "a'b\nsecret'c", "a'\"'$ \n'"],
)
@pytest.mark.parametrize("word", ["{}", "--key={}", "'{}' $x", "{}{}"])
def test_a_printed_launch_shows_no_secret(secret: str, word: str) -> None:
    def printed(value: str) -> str:
        text = word.replace("{}", value)
        return str(Launch(["run me", text], {"KEY": text}, f"/{text}", ["KEY"]))

    masker = Masker([secret])
    shown = masker.text(printed(secret))
    assert shown == printed("***")
    assert passed(masker.stream(), [printed(secret).encode()]) == shown.encode()


def test_what_cannot_become_a_secret_is_shown_at_once() -> None:
    stream = Masker(["hf_0123456789"]).stream()
    assert stream.feed(b"progress 10 %\r") == b"progress 10 %\r"
    assert stream.feed(b"half a secre") == b"half a secre"
    assert stream.feed(b"t: hf_01") == b"t: "
    assert stream.feed(b"2") == b""
    assert stream.feed(b"x") == b"hf_012x"
    assert stream.feed(b"hf_0123hf_01") == b"hf_0123"
    assert stream.feed(b"23456789") == b"***"
    assert stream.feed(b"hf_") == b""
    assert stream.finish() == b"hf_"
    assert stream.finish() == b""


def test_without_secrets_nothing_is_copied() -> None:
    masker, text, data, value = Masker([]), "text" * 5, b"data" * 5, {"a": ["b"]}
    assert masker.text(text) is text
    assert masker.value(value) is value
    assert masker.stream().feed(data) is data


QUOTED = 'se"cr\\et\n-é'


@examples(50)
@given(
    st.recursive(
        few | st.none() | st.booleans() | st.integers(), lambda inner: st.lists(inner, max_size=4), max_leaves=9
    )
)
@example({"a": [QUOTED, {"b": f"<{QUOTED}>"}], f"in {QUOTED}": (1, QUOTED)})
def test_values_are_masked_before_escapes_hide_what_is_secret(value: Any) -> None:
    masker = Masker([QUOTED, "ab"])
    shown = json.dumps(masker.value(value))
    assert json.dumps(QUOTED)[1:-1] not in shown
    assert "ab" not in shown


def test_the_shape_of_a_value_stays() -> None:
    value = {"key-0123": 1, "n": None, "b": True, "list": [1.5, ("key-0123", "x")], 7: {"key-4567": "key-0123key-4567"}}
    wanted = {"***": 1, "n": None, "b": True, "list": [1.5, ["***", "x"]], 7: {"***": "******"}}
    assert Masker(["key-0123", "key-4567"]).value(value) == wanted
    assert Masker(["key-0123", "key-4567"]).value({"key-0123": 1, "key-4567": 2}) == {"***": 1, "****": 2}


def test_more_secrets_come_to_those_that_are_known() -> None:
    """One that no environment can hold breaks nothing."""
    first = Masker(["secret-1", "half a pair \ud800"])
    both = first.with_more(["secret-2"])
    assert first.text("secret-1 secret-2 half a pair \ud800") == "*** secret-2 ***"
    assert both.text("secret-1 secret-2") == "*** ***"
    assert passed(first.stream(), [b"secret-1"]) == b"***"
