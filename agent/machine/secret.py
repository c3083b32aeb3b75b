"""The job's secret, from which all SSH keys derive."""

from __future__ import annotations

SECRET_BYTES = 32
"""The least; HKDF needs no more."""

HOW_TO_MAKE_ONE = (
    "make one and mount it: kubectl create secret generic NAME "
    "--from-literal=job-secret=$(openssl rand -hex 32), then mount NAME at /etc/a4-agent/secret"
)


def read_secret(path: str) -> bytes:
    """The secret. Raises ValueError with a sentence that says what is wrong and how to make one."""
    try:
        with open(path, "rb") as file:
            secret = file.read()  # as it is: all pods mount the same bytes, a newline at the end included
    except OSError as error:
        raise ValueError(f"A4_SECRET_FILE={path} cannot be read ({error.strerror}); {HOW_TO_MAKE_ONE}") from error
    if len(secret) < SECRET_BYTES:
        raise ValueError(
            f"A4_SECRET_FILE={path} holds {len(secret)} bytes; {SECRET_BYTES} are the least; {HOW_TO_MAKE_ONE}"
        )
    return secret
