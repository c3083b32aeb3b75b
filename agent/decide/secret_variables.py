"""Which variables and arguments hold secrets, by their names and values, and which values results may store.

A name is judged by its last words: HF_TOKEN and hfToken end in TOKEN, TOKENIZER_MODEL and MAX_NUM_TOKENS do not. The
chart has the same rule and the same words: scripts/secret_names.py writes chart/templates/_secret_names.tpl from those
here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise

from agent.decide.environment import is_named
from agent.decide.masking import LEAST_LENGTH, MARK, Masker

KEYS_OF = (
    "ACCESS", "ACCOUNT", "ADMIN", "ANTHROPIC", "API", "APP", "APPLICATION", "AUTH", "CLIENT", "DECRYPTION", "DEPLOY",
    "ENCRYPTION", "FERNET", "GPG", "HF", "HMAC", "JWT", "LICENSE", "MASTER", "NGC", "OPENAI", "PGP", "PRIVATE", "RSA",
    "SA", "SECRET", "SERVICE", "SESSION", "SHARED", "SIGNING", "SSH", "SSL", "STORAGE", "SUBSCRIPTION", "TLS", "WANDB",
)  # fmt: skip
"""KEY alone says nothing: PARTITION_KEY, SSH_PUBLIC_KEY."""
SECRET = (
    "_SECRETS", "_PASS", "_PWD", "_PAT", "_PSK", "_JWT", "_BEARER", "_AUTHORIZATION", "_COOKIE",
    "_CRED", "_CREDS", "_CREDENTIAL", "_CREDENTIALS",
    "_ACCESS_TOKENS", "_API_TOKENS", "_AUTH_TOKENS", "_HF_TOKENS",
    "_ACCESS_KEY_ID", "_AUTH_CONFIG", "_CONFIG_AUTH", "_BASIC_AUTH", "_PROXY_AUTH", "_REDIS_AUTH", "_REGISTRY_AUTH",
    "_AUTH_HEADER", "_AUTH_HEADERS", "_AUTHORIZATION_HEADER", "_AUTHORIZATION_HEADERS", "_OTLP_HEADERS",
    "_CONNECTION_STRING", "_NETRC", "_SAS", "_SAS_URL", "_VAULT_SECRET_ID",
    "_WEBHOOK", "_WEBHOOKS", "_WEBHOOK_URL", "_WEBHOOK_URLS",
    *(f"_{word}_KEY" for word in KEYS_OF), *(f"_{word}_KEYS" for word in KEYS_OF),
    # Also at the end of a longer word, as in PGPASSWORD and K8STOKEN.
    "TOKEN", "SECRET",
    "PASSWORD", "PASSWORDS", "PASSWD", "PASSPHRASE", "PASSCODE", "SSHPASS", "DBPASS", "MYSQLPASS",
    "APIKEY", "ACCESSKEY", "SECRETKEY", "PRIVATEKEY",
)  # fmt: skip
"""What names of secrets end in."""
NOT_SECRET = (
    # Of tokenizers and models.
    *(f"_{word}{joint}TOKEN" for joint in ("_", "") for word in (
        "AUDIO", "BEGIN", "BOS", "CLS", "END", "EOS", "EXTRA", "IMAGE", "MASK", "MAX", "NEXT", "NUM", "PAD", "PAGE",
        "PER", "PREFIX", "SEP", "SPECIAL", "START", "STOP", "SUFFIX", "UNK", "VIDEO",
    )),
    *(f"_{word}_PASS" for word in (
        "ALL", "BACKWARD", "BAND", "BY", "FIRST", "FORWARD", "HIGH", "LOW", "MULTI", "NUM", "ONE", "PER", "SECOND",
        "SINGLE", "TWO",
    )),
    "_FILE_PAT", "_GLOB_PAT", "_MATCH_PAT", "_REGEX_PAT",
    "_PULL_SECRET", "_PULL_SECRETS", "PULLSECRET",  # the name of an object
    "_APPLICATION_CREDENTIALS",  # a path: Google's libraries take nothing else
)  # fmt: skip
"""What the names of other things end in, though the list above has their last word."""
SAY_NOTHING = (
    "BASE", "B", "CONTENT", "CONTENTS", "DATA", "DEV", "ENCODED", "JSON", "NEW", "OLD", "PEM", "PROD", "READ", "RO",
    "RW", "STAGING", "TEST", "VALUE", "WRITE",
)  # fmt: skip
"""Last words that do not count, as numbers do not: HF_TOKEN_2, API_KEY_BASE64."""
_SAY_NOTHING, _NUMBERS = tuple(f"_{word}" for word in SAY_NOTHING), "0123456789_"
SECRET_ENV = "A4_SECRET_ENV"
STORED = (
    "A4_*", "CUDA_*", "DEEP_EP_*", "FI_*", "GLOO_*", "MASTER_*", "MKL_*", "NCCL_*", "NVIDIA_*", "NVSHMEM_*", "NVTE_*",
    "OMP_*", "OMPI_*", "PYTORCH_*", "TORCH_*", "TORCHELASTIC_*", "UCX_*", "GPUS_PER_NODE", "HOSTNAME_PREFIX",
    "JOB_IDENTIFIER",
    "LD_LIBRARY_PATH", "LD_PRELOAD", "NNODES", "NODE_RANK", "PATH", "PYTHONPATH", "RANK", "TOKENIZERS_PARALLELISM",
    "TRAINING_MODE", "WORLD_SIZE",
)  # fmt: skip
"""Variables whose values results may store though the agent has not set them: names or, with a star at the end,
beginnings of names."""
_NUMBER = r"[+-]?([0-9]{1,19}(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?"
_SWITCH = r"(?i:true|false|yes|no|on|off|none|null)"
# Keys in base64 may begin with a slash, too: some part of them has digits beside capitals, or the first one a capital.
_PATH = r"/[a-z0-9._-]{2,}(/([a-z0-9._-]+|[A-Za-z._-]+))+/?"
_PLAIN = f"{_NUMBER}|{_SWITCH}|{_PATH}"
"""Values that are no secrets, whatever their variable is called."""
_USERINFO = r"""://([^/\s:@?"']*)(?::([^/\s?"']*))?@"""
"""User and password of a URL."""
_PARAMETER = r"[?&]([^\s?&=]+)="
"""A name in the query of a URL, which may stand in that of another."""
_PARAMETER_END = re.compile(r"""[\s&#"']|\Z""")
_SIGNATURES = ("sig", "signature")
"""What names of parameters end in that let whoever has the URL in."""
_SAS_SIGNATURE = r"""(?:^|[?&;\s"'])sig=([^\s&;#"']{16,})"""
"""The signature in an Azure URL, also where only the query is given."""
_ASSIGNED = r"(?<![\w.-])([\w.-]+)="
"""A name in a longer text, whose value may be that of another: --env=HF_TOKEN=VALUE, AccountKey=VALUE;…"""
_ASSIGNED_END = re.compile(r"""[\s&;,"']|\Z""")
_OPTION = r"--?[A-Za-z][\w.-]*"
_SWITCHES = ("ASK", "DISABLE", "ENABLE", "NO", "REQUIRE", "SKIP", "USE")
"""First words of options that have no value, such as --use-auth-token."""
_HEADERS = (
    r"""(?i:\bauthorization["']?\s*[:=]\s*["']?(?:(?:basic|bearer|digest|token)\s+)?)([^\s"',;]+)""",
    r"(?i:\bbearer\s+)([A-Za-z0-9._~+/=-]{16,})",
)
_NETRC = r"\bmachine\s+\S+\s[^#]{0,200}?\bpassword\s+(\S+)"
_TOKEN_LENGTH = 20
"""The user of a URL is a token if it is so long: https://<token>@host."""
_PRIVATE_KEY = "PRIVATE KEY-----"
_WORDS = ("workload", "not judged")
"""Words that stand in files of the agent, and say there what is what: they keep no secret."""


def listed(environ: Mapping[str, str]) -> list[str]:
    """The variables that A4_SECRET_ENV names."""
    return environ.get(SECRET_ENV, "").replace(",", " ").split()


def secret_values(environ: Mapping[str, str], names: Collection[str]) -> set[str]:
    """What must never be shown of these variables. `names`: those that are secret whatever they are called."""
    found = {value for name, value in environ.items() if is_secret(name, value, names)}
    found |= {match[1] for value in found if (match := re.fullmatch(r"\w+ (\S+)", value))}  # Bearer TOKEN
    return _looked_for(found.union(*(_text_secrets(value) for value in environ.values())))


def argument_secrets(words: Sequence[str]) -> set[str]:
    """What must never be shown of the arguments of a run."""
    found = _values_of_options(words)
    for word in words:
        name, assigned, value = word.partition("=")
        if assigned and re.fullmatch(_OPTION, name) and _says_secret(name, value):
            found.add(value)
    return _looked_for(found.union(*map(_text_secrets, words)))


def _looked_for(secrets: Iterable[str]) -> set[str]:
    return {secret for secret in secrets if len(secret.strip()) >= LEAST_LENGTH}.difference(_WORDS)


def _text_secrets(text: str) -> set[str]:
    """The secrets in a value or an argument: in URLs, options, assignments, headers, and lines of .netrc."""
    found = url_secrets(text)
    if "=" in text:
        pairs = chain(_quoted(text), _unquoted(text, _ASSIGNED, _ASSIGNED_END, _assigns_secret))
        found |= {value for name, value in pairs if _says_secret(name, value)}
    if re.search(r"\s", text):
        found |= _values_of_options([part.strip("\"'") for part in text.split()])
        found |= {secret for pattern in (*_HEADERS, _NETRC) for secret in re.findall(pattern, text)}
    return found


def _quoted(text: str) -> Iterator[tuple[str, str]]:
    """Names and values in NAME="VALUE" and NAME='VALUE'."""
    for match in re.finditer(_ASSIGNED, text):
        begin = match.end() + 1
        quote = text[match.end() : begin]
        if quote in ('"', "'") and (end := text.find(quote, begin)) > begin:
            yield match[1], text[begin:end].strip("\"'")


def _unquoted(
    text: str, names: str, ends: re.Pattern[str], wanted: Callable[[str, str], bool]
) -> Iterator[tuple[str, str]]:
    """Names and values that are wanted by name and first character.

    Values in one another (TOKEN=KEY=VALUE) end at the same place. Of more than two only the outermost and the innermost
    are looked for, since each of them would be as long as the text. The innermost hides all but names wherever one of
    the others stands.
    """
    begun: dict[int, list[tuple[str, int]]] = {}
    end = 0
    for match in re.finditer(names, text):
        begin = match.end()
        if begin >= end:
            end = next(ends.finditer(text, begin)).start()
        if begin < end and wanted(match[1], text[begin]):
            begun.setdefault(end, [])[1:] = [(match[1], begin)]
    return ((name, text[begin:end]) for end, pairs in begun.items() for name, begin in pairs)


def _values_of_options(words: Sequence[str]) -> set[str]:
    """Words that follow an option such as --password."""
    return {
        value
        for option, value in pairwise(words)
        if re.fullmatch(_OPTION, option) and not value.startswith("-") and _says_secret(option, value)
    }


def _says_secret(name: str, value: str) -> bool:
    """Is the value of this argument a secret, by its name? What a shell will put in the place of `$…` is looked for by
    itself."""
    return not value.startswith("$") and is_secret(name, value, ()) and not _is_switch(name)


def _assigns_secret(name: str, first: str) -> bool:
    """Does `_says_secret` hold for longer values of which this is the first character?"""
    return first != "$" and is_secret_name(name) and not _is_switch(name)


def _is_switch(name: str) -> bool:
    return re.split("[^A-Za-z]", name.lstrip("-"))[0].upper() in _SWITCHES


def hidden(environ: Mapping[str, str], names: Collection[str]) -> dict[str, str]:
    """The variables as they may be shown. Short secrets are replaced too, but for those in the query of a URL."""
    return {name: MARK if is_secret(name, value, names) else without_secrets(value) for name, value in environ.items()}


def storable(environ: Mapping[str, str], added: Collection[str], names: Collection[str]) -> dict[str, str]:
    """Those that results may store: what the agent has set (`added`), and what STORED names; secrets hidden."""
    kept = {name: value for name, value in environ.items() if name in added or is_named(name, STORED)}
    return hidden(kept, names)


def is_secret(name: str, value: str, names: Collection[str]) -> bool:
    """Is the value as a whole a secret? `names`: see secret_values."""
    if not value:
        return False
    by_name = is_secret_name(name) and not re.fullmatch(_PLAIN, value)
    return name in names or by_name or _PRIVATE_KEY in value


def url_secrets(text: str) -> set[str]:
    """Passwords and tokens of the URLs in a text, as they are written and as they are meant."""
    found = set(re.findall(_SAS_SIGNATURE, text)) if "sig=" in text else set()
    if "://" not in text and not found:
        return set()
    for match in re.finditer(_USERINFO, text):
        user, password = match.groups("")
        found |= {password, user if len(user) >= _TOKEN_LENGTH else ""} - {""}
    pairs = _unquoted(text, _PARAMETER, _PARAMETER_END, _lets_in)
    found |= {value for _, value in pairs if len(value) >= LEAST_LENGTH}
    if "%" in text:
        from urllib.parse import unquote

        found |= {unquote(secret) for secret in found}
    return found


def _lets_in(name: str, _: str) -> bool:
    """Is the value of this parameter of a URL a secret?"""
    return is_secret_name(name) or name.lower().endswith(_SIGNATURES)


def without_secrets(text: str) -> str:
    """The text as it may be shown.

    A short password of a URL is hidden in its own place alone: marks for the same letters elsewhere would tell it.
    """
    long = [secret for secret in _text_secrets(text) if len(secret) >= LEAST_LENGTH]
    masked = Masker(long).text(text)
    return re.sub(_USERINFO, lambda found: f"://{found[1]}:{MARK}@" if found[2] else found[0], masked)


def is_secret_name(name: str) -> bool:
    """Does the name alone say that the value is secret?"""
    name = re.sub("[^A-Za-z0-9]+", "_", re.sub("([a-z0-9])([A-Z])", r"\1_\2", name))
    words = f"_{name.strip('_').upper()}"
    while (shorter := words.rstrip(_NUMBERS)) != words or words.endswith(_SAY_NOTHING):
        words = shorter if shorter != words else words.rpartition("_")[0]
    return words.endswith(SECRET) and not words.endswith(NOT_SECRET) and words != "_PWD"  # a directory
