"""Keeping secrets out of everything that is shown or stored.

What is hidden is the union of all places where a secret stands: where two overlap, no piece of either is left.
"""

from __future__ import annotations

import json
import re
from binascii import b2a_base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, AnyStr

from agent.cutting import visible

MARK = "***"
LEAST_LENGTH = 8
"""Shorter values, and shorter lines of a longer value, are common words and not masked."""
# What Python's quote_plus and quote, and JavaScript's encodeURIComponent, escape.
_RESERVED = (rb"[^A-Za-z0-9_.~-]", rb"[^A-Za-z0-9_.~/-]", rb"[^A-Za-z0-9_.~!'()*-]")
_URL_SAFE = str.maketrans("+/", "-_")
_BASE64_LINE = 76
"""The length of lines that the program base64 and Python write; other programs write one line."""
_OWN_NAME = re.compile("[a-z_]+")
"""Names in the agent's own JSON: masked, they could not be read again."""


class Masker:
    """Replaces secrets by `***`. Without secrets everything passes as it is, uncopied."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = frozenset(secrets) - {""}
        forms = {form for secret in self._secrets for form in _forms(secret)}
        self._texts = sorted(forms, key=len, reverse=True)
        self._bytes = [_encoded(form) for form in self._texts]

    def with_more(self, secrets: Iterable[str]) -> Masker:
        more = self._secrets.union(secrets)
        return Masker(more) if more != self._secrets else self

    def text(self, text: str) -> str:
        spans = _spans(text, self._texts)
        return "".join(_shown(text, spans, MARK)) if spans else text

    def value(self, value: Any) -> Any:
        """`value`, JSON-able, with every string in it masked: before json.dumps, whose escapes would hide secrets."""
        if not self._secrets:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return self._mapping(value)
        if isinstance(value, (list, tuple)):
            return [self.value(item) for item in value]
        return value

    def stream(self) -> MaskedStream:
        return MaskedStream(self._bytes)

    def _mapping(self, mapping: Mapping[Any, Any]) -> dict[Any, Any]:
        masked: dict[Any, Any] = {}
        for key, item in mapping.items():
            if isinstance(key, str) and not _OWN_NAME.fullmatch(key):
                key = self.text(key)
            while key in masked:
                key = f"{key}*"  # two secrets as keys: neither entry is lost
            masked[key] = self.value(item)
        return masked


class MaskedStream:
    """Bytes in, bytes out, without the secrets, however the writes cut them.

    Kept back is only what could still become a secret: the longest end of what came that begins one.
    """

    def __init__(self, secrets: Sequence[bytes]) -> None:
        self._secrets = secrets
        self._held = b""
        self._hidden = 0
        """So many bytes of `_held` belong to a secret whose mark is out already."""

    def feed(self, data: bytes) -> bytes:
        if not self._secrets:
            return data
        data = self._held + data
        return self._pass(data, _open_end(data, self._secrets))

    def finish(self) -> bytes:
        """What was kept back; nothing more can come to it."""
        return self._pass(self._held, len(self._held))

    def _pass(self, data: bytes, until: int) -> bytes:
        """Show `data` up to `until` and hold the rest."""
        self._held = data[until:]
        if not until:
            return b""
        spans = _spans(data, self._secrets)
        if not spans and not self._hidden:
            return data[:until]
        if self._hidden:
            spans = _merged([(0, self._hidden), *spans])
        pieces = _shown(data, spans, MARK.encode(), until)
        if self._hidden:
            pieces = pieces[2:]  # nothing, and the mark that is out already
        self._hidden = max([0, *(end - until for start, end in spans if start < until)])
        return b"".join(pieces)


# Cached, because each pod that tells secrets makes a new masker of all that are known.
@lru_cache(maxsize=1024)
def _forms(secret: str) -> frozenset[str]:
    """What to look for: the secret without the space around it, and each long line of it alone, as a log shows it.

    Each also as shlex.quote writes it inside its quotes, and so a printed launch shows it; as our own messages show
    control characters; and as programs write it in JSON and URLs, the whole also in base64.
    """
    lines = {line.strip() for line in secret.splitlines()}
    whole = secret.strip() or secret
    plain = {whole} | {line for line in lines if _is_long(line)}
    forms = plain | {form.replace("'", "'\"'\"'") for form in plain}
    forms |= {visible(form) for form in forms}
    for form in filter(_is_long, plain):
        forms.update(json.dumps(form, ensure_ascii=ascii_alone)[1:-1] for ascii_alone in (True, False))
        forms.update(_in_url(_encoded(form)))
    return frozenset(forms).union(_in_base64(_encoded(whole)) if _is_long(whole) else ())


def _in_url(data: bytes) -> Iterator[str]:
    """As libraries differ: which characters stay, whether digits are small, and what a space is."""
    for reserved in _RESERVED:
        text = re.sub(reserved, lambda found: b"%%%02X" % found[0][0], data).decode()
        for form in (text, re.sub("%..", lambda found: found[0].lower(), text)):
            yield from (form, form.replace("%20", "+"))


def _in_base64(data: bytes) -> Iterator[str]:
    """Also as a part of what is encoded, such as user:password. Three bytes make four characters: those that have bits
    of what stands before or after are left out. Long secrets also in lines."""
    for before in range(3):
        text = b2a_base64(bytes(before) + data, newline=False).decode()
        begin, end = (before * 8 + 5) // 6, (before + len(data)) * 8 // 6
        for form in (text[begin:end], text[begin:]):
            yield from (form, form.translate(_URL_SAFE))
    text = b2a_base64(data, newline=False).decode()
    yield from filter(_is_long, (text[at : at + _BASE64_LINE] for at in range(0, len(text), _BASE64_LINE)))


def _is_long(form: str) -> bool:
    return len(form) >= LEAST_LENGTH


def _encoded(text: str) -> bytes:
    try:
        return text.encode(errors="surrogateescape")
    except UnicodeEncodeError:  # from JSON; no environment has held it
        return text.encode(errors="surrogatepass")


def _spans(text: AnyStr, secrets: Sequence[AnyStr]) -> list[tuple[int, int]]:
    """Where secrets stand, in order; overlapping ones as one.

    A `find` for each is six times faster than one regular expression: it looks at every twentieth byte or so.
    """
    found = []
    for secret in secrets:
        at = text.find(secret)
        while at >= 0:
            found.append((at, at + len(secret)))
            at = text.find(secret, at + 1)
    return _merged(sorted(found)) if found else found


def _merged(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    merged = [spans[0]]
    for start, end in spans[1:]:
        last_start, last_end = merged[-1]
        # Neighbours that do not overlap get a mark each.
        if start < last_end:
            merged[-1] = (last_start, max(end, last_end))
        else:
            merged.append((start, end))
    return merged


def _shown(text: AnyStr, spans: Sequence[tuple[int, int]], mark: AnyStr, until: int | None = None) -> list[AnyStr]:
    """The pieces of text[:until] between the spans, and a mark for each span that begins in it."""
    pieces: list[AnyStr] = []
    at = 0
    until = len(text) if until is None else until
    for start, end in spans:
        if start >= until:
            break
        pieces += [text[at:start], mark]
        at = end
    pieces.append(text[at:until])
    return pieces


def _open_end(data: bytes, secrets: Sequence[bytes]) -> int:
    """Where the longest end of `data` begins that is the beginning, but not all, of a secret."""
    length = begin = len(data)
    for secret in secrets:
        at = data.find(secret[:1], max(0, length - len(secret) + 1), begin)
        while at >= 0 and not secret.startswith(data[at:]):
            at = data.find(secret[:1], at + 1, begin)
        if at >= 0:
            begin = at
    return begin
