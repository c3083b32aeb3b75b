"""Which variables hold secrets, by name and by value, and which of them results may store."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.decide.masking import MARK, Masker
from agent.decide.secret_variables import argument_secrets, hidden, listed, secret_values, storable
from tests.laws import examples
from tests.variable_names import PLAIN, SECRET

CANARY = "canary-0123"


def test_names_that_say_secret_and_names_that_do_not() -> None:
    both = [*SECRET, *PLAIN]
    assert [name for name in both if secret_values({name: CANARY}, ()) == {CANARY}] == SECRET
    assert hidden(dict.fromkeys(both, CANARY), ()) == dict.fromkeys(SECRET, MARK) | dict.fromkeys(PLAIN, CANARY)
    assert set(hidden(dict.fromkeys(SECRET, "tiny"), ()).values()) == {MARK}


NO_SECRETS = [
    *("8589934592", "-1", "1e-05", "0.123456789", "1.", ".5", "true", "FALSE", "none"),
    *("/run/secrets/token", "/var/run/secrets/kubernetes.io/serviceaccount/token", "/etc/ssl/private/KEY.pem"),
    *("/mnt/tokens/", "/root/.cache/huggingface/token", ""),
]
"""Whatever their variable is called."""
LIKE_THEM = [
    *("12345678901234567890", "0123456789abcdef", "true-love", "1.2.3.4.5", "/mysecret", "//double", "/a b/c d"),
    *("/k7MDENG/bPxRfiCYEXAMPLEKEY", "/wJalrXUtnFEMI/K7MDENG/bPxRfi", "relative/path"),
]


@pytest.mark.parametrize("value", [*NO_SECRETS, *LIKE_THEM])
def test_values_that_are_no_secrets_and_those_that_only_look_like_it(value: str) -> None:
    found = {value} if value in LIKE_THEM else set()
    assert secret_values({"HF_TOKEN": value}, ()) == found
    assert hidden({"HF_TOKEN": value}, ()) == {"HF_TOKEN": MARK if found else value}


@examples(200)
@given(st.binary(min_size=30, max_size=30))
def test_a_random_key_that_begins_with_a_slash_is_no_path(key: bytes) -> None:
    text = "/" + base64.b64encode(key).decode()[1:]
    assert secret_values({"AWS_SECRET_ACCESS_KEY": text}, ()) == {text}


def test_short_and_common_values_are_hidden_but_not_looked_for() -> None:
    environ = {"HF_TOKEN": "short", "DB_PASS": " short  \n", "API_KEY": "workload"}
    assert secret_values(environ, ()) == set(), "a word of the agent's own files"
    assert secret_values({"MY_TOKEN": "workload-4711"}, ()) == {"workload-4711"}
    assert hidden(environ, ()) == dict.fromkeys(environ, MARK)
    assert Masker(["inventory"]).value({"inventory": ["inventory"]}) == {"inventory": [MARK]}
    assert argument_secrets(["http://u:a@host", "http://u:hunter-42@host"]) == {"hunter-42"}


def test_what_is_listed_is_secret_whatever_it_is_called_and_looks_like() -> None:
    secrets = {"CLUSTER": "a-quiet-name", "PORT": "8", "SIZE": "8589934592", "MODEL": "/models/large"}
    environ = {"A4_SECRET_ENV": "CLUSTER,PORT  SIZE, MODEL", **secrets, "OTHER": "a-loud-name"}
    names = listed(environ)
    assert names == [*secrets] and listed({}) == []
    assert secret_values(environ, names) == {"a-quiet-name", "8589934592", "/models/large"}
    assert {name for name, value in hidden(environ, names).items() if value == MARK} == set(names)


def test_a_private_key_is_secret_in_any_variable() -> None:
    key = '{"private_key": "-----BEGIN PRIVATE KEY-----\\nMIIE\\n-----END PRIVATE KEY-----\\n"}'
    assert secret_values({"GOOGLE_APPLICATION_CREDENTIALS": key}, ()) == {key}


@pytest.mark.parametrize(
    ("value", "secrets", "shown"),
    [
        ("https://user:hunter-42@host/x", {"hunter-42"}, "https://user:***@host/x"),
        ("redis://:hunter-42@host", {"hunter-42"}, "redis://:***@host"),
        ("postgres://u:a@hunter-42@host/db", {"a@hunter-42"}, "postgres://u:***@host/db"),
        ("http://u:hunter%2D42@proxy:8080", {"hunter%2D42", "hunter-42"}, "http://u:***@proxy:8080"),
        ("http://u:first-one@a,http://u:other-one@b", {"first-one", "other-one"}, "http://u:***@a,http://u:***@b"),
        ("-i https://u:hunter-42@a --proxy b:80", {"hunter-42"}, "-i https://u:***@a --proxy b:80"),
        ("https://u:tiny@host", set(), "https://u:***@host"),
        ("https://ghp_0123456789abcdefghij@github.com/a/b", {"ghp_0123456789abcdefghij"}, "https://***@github.com/a/b"),
        ("ssh://git@github.com/a/b", set(), "ssh://git@github.com/a/b"),
        ("https://host:8080/a@b", set(), "https://host:8080/a@b"),
        ("https://host:8080?mail=somebody@example", set(), "https://host:8080?mail=somebody@example"),
        ("https://host/x?page=2&access_token=hunter-42", {"hunter-42"}, "https://host/x?page=2&access_token=***"),
        ("https://host/x?X-Goog-Signature=0123abcd#end", {"0123abcd"}, "https://host/x?X-Goog-Signature=***#end"),
        (
            "https://host/x?sv=2024-01-01&sig=ab%2Fcdefg",
            {"ab%2Fcdefg", "ab/cdefg"},
            "https://host/x?sv=2024-01-01&sig=***",
        ),
        (
            "https://host/x?next=https://other/y?token=hunter-42,https://host/z?token=hunter-43",
            {"hunter-42,https://host/z?token=hunter-43", "hunter-42", "hunter-43"},
            "https://host/x?next=https://other/y?token=***",
        ),
        ("https://host/x?max_token=123456789", set(), "https://host/x?max_token=123456789"),
        ("/x?access_token=hunter-42", {"hunter-42"}, "/x?access_token=***"),
        (
            "?sv=2024-01-01&sig=ab%2Fcdefghijklm%3D&se=1",
            {"ab%2Fcdefghijklm%3D", "ab/cdefghijklm="},
            "?sv=2024-01-01&sig=***&se=1",
        ),
        ("somebody:password@host", set(), "somebody:password@host"),
    ],
)
def test_passwords_in_urls(value: str, secrets: set[str], shown: str) -> None:
    assert secret_values({"PIP_INDEX_URL": value}, ()) == secrets
    assert hidden({"PIP_INDEX_URL": value}, ()) == {"PIP_INDEX_URL": shown}


def test_results_store_what_the_agent_set_and_what_is_known_to_be_harmless() -> None:
    kept = {"A4_RUN": "script-1", "LIBRARY": "/added", "NCCL_DEBUG": "INFO", "PATH": "/bin", "RANK": "0"}
    masked = {"NCCL_AUTH_TOKEN": "tiny", "OMPI_LISTED": "tiny", "UCX_PROXY": "http://u:tiny@host"}
    others = dict.fromkeys(["PATHOLOGY", "RANKING", "MY_LEARNING_RATE", "LISTED"], "no")
    assert storable({**kept, **masked, **others}, ["LIBRARY"], ["LISTED", "OMPI_LISTED"]) == {
        **kept,
        "NCCL_AUTH_TOKEN": MARK,
        "OMPI_LISTED": MARK,
        "UCX_PROXY": "http://u:***@host",
    }


CURL = """curl -H 'Authorization: Bearer canary-0123' -H 'X-Api-Key: none' https://host"""


@pytest.mark.parametrize(
    ("words", "secrets"),
    [
        (["--token=canary-0123"], {CANARY}),
        (["--token", CANARY, "--model", "large-model"], {CANARY}),
        (["--password", "two words"], {"two words"}),
        (["--password=two words; and more"], {"two words; and more"}),
        (["-api_key", CANARY, "+wandb.api_key=canary-4567"], {CANARY, "canary-4567"}),
        (
            ["bash", "-c", "HF_TOKEN=canary-0123 python train.py --wandb-key 'canary-4567' data"],
            {CANARY, "canary-4567"},
        ),
        (["bash", "-c", CURL], {CANARY}),
        (["--header", "Authorization: canary-0123"], {CANARY}),
        (["AccountName=somebody;AccountKey=canary-0123;EndpointSuffix=core.windows.net"], {CANARY}),
        (["bash", "-c", 'train --token "$HF_TOKEN" --api-key=${API_KEY_OF_ALL}'], set()),
        (["--use-auth-token", "train-data", "--token", "--model", "--hf-token"], set()),
        (["--eos-token=<|end-of-text|>", "--max-tokens", "123456789", "--tokenizer=some/tokenizer"], set()),
        (["--token-file=/run/secrets/token", "--password", "/run/secrets/password", "--token", "12345678"], set()),
        (["--sort-key=last-name", "--key", "last-name", "--master-port=29500", "a=b=c"], set()),
    ],
)
def test_secrets_in_arguments(words: list[str], secrets: set[str]) -> None:
    assert argument_secrets(words) == secrets


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("AUTH_HEADER", "Bearer canary-0123", CANARY),
        ("HEADERS", "Accept: */*, Authorization: Basic canary-0123", CANARY),
        ("NETRC", "machine github.com login me password canary-0123\nmachine b login c password d", CANARY),
        ("EXTRA_ARGS", "--lr 0.1 --hf-token canary-0123", CANARY),
        ("JAVA_OPTS", "-Xmx1g -Dapi.token=canary-0123", CANARY),
        ("DATABASE", "host=db user=me password='canary 0123'", "canary 0123"),
    ],
)
def test_secrets_in_a_part_of_a_value(name: str, value: str, secret: str) -> None:
    """A program prints the part alone."""
    assert secret in secret_values({name: value}, ())
    assert secret not in hidden({name: value}, ())[name]


CHAINS = ["token=", "?api_key=", "&sig=", "--hf-token=", "a=", ";", '"', "'", " ", "https://", "canary-0123"]


@examples(100)
@given(st.lists(st.sampled_from(CHAINS), min_size=1, max_size=200))
def test_what_is_looked_for_is_no_longer_than_some_copies_of_the_text(pieces: list[str]) -> None:
    """Assignments in one another would be as many secrets as there are, each as long as the text: 14 s for 10 KB."""
    text = "".join(pieces)
    assert sum(map(len, argument_secrets([text]))) <= 8 * len(text)


@pytest.mark.parametrize("name", ["TOKEN=", "?token=", "KEY=?sig="])
def test_the_innermost_of_many_values_is_hidden_wherever_it_stands(name: str) -> None:
    text = f"https://host/?a=b{name * 2000}{CANARY} and {CANARY}"
    assert CANARY in argument_secrets([text])
    assert CANARY not in hidden({"ARGS": text}, ())["ARGS"]
