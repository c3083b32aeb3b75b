"""SSH keys derived from the job's secret: known before any pod starts, worthless in another epoch."""

from __future__ import annotations

from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

SALT = b"a4-agent/ssh/v1"


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
        # NamedTuple's own would show the secret in a traceback.
        return f"JobKeys(epoch={self.epoch!r})"


def _private_text(key: Ed25519PrivateKey) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode()


def _public_text(key: Ed25519PrivateKey) -> str:
    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
