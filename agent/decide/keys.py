"""SSH keys derived from the job's secret: known before any pod starts, worthless in another epoch."""

from __future__ import annotations

import struct
from base64 import b64encode
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

SALT = b"a4-agent/ssh/v1"
KIND = b"ssh-ed25519"
BLOCK = 8
"""What is not encrypted is padded to a multiple of so many bytes."""


class JobKeys(NamedTuple):
    """All SSH keys of one epoch. Public keys are `ssh-ed25519 AAAA…`, private ones OpenSSH PEM text."""

    secret: bytes
    epoch: str

    def client_private(self) -> str:
        return _private_text(self._key("client"))

    def client_public(self) -> str:
        return _public_text(self._key("client"))

    def host_private(self, index: int) -> str:
        return _private_text(self._key(f"host/{index}"))

    def host_public(self, index: int) -> str:
        return _public_text(self._key(f"host/{index}"))

    def _key(self, role: str) -> Ed25519PrivateKey:
        info = f"{self.epoch}/{role}".encode()
        seed = HKDF(algorithm=SHA256(), length=32, salt=SALT, info=info).derive(self.secret)
        return Ed25519PrivateKey.from_private_bytes(seed)

    def __repr__(self) -> str:
        return f"JobKeys(epoch={self.epoch!r})"


# Both forms are written here: cryptography's own module for them imports ciphers and bcrypt, which costs each pod's
# start 15 ms of CPU.


def _private_text(key: Ed25519PrivateKey) -> str:
    """The form of OpenSSH's PROTOCOL.key, without a passphrase."""
    public, seed = key.public_key().public_bytes_raw(), key.private_bytes_raw()
    check, comment = bytes(8), b""
    private = check + _strings(KIND, public, seed + public, comment)
    private += bytes(range(1, 1 + -len(private) % BLOCK))
    encryption = _strings(b"none", b"none", b"")
    keys = struct.pack(">I", 1) + _strings(_strings(KIND, public), private)
    text = b64encode(b"openssh-key-v1\0" + encryption + keys).decode()
    lines = (text[at : at + 70] for at in range(0, len(text), 70))
    return "\n".join(["-----BEGIN OPENSSH PRIVATE KEY-----", *lines, "-----END OPENSSH PRIVATE KEY-----", ""])


def _public_text(key: Ed25519PrivateKey) -> str:
    return f"ssh-ed25519 {b64encode(_strings(KIND, key.public_key().public_bytes_raw())).decode()}"


def _strings(*values: bytes) -> bytes:
    """Strings of SSH: each with its length before it."""
    return b"".join(struct.pack(">I", len(value)) + value for value in values)
