"""Keys derived from the job's secret, against an independent computation and OpenSSH itself."""

from __future__ import annotations

import hashlib
import hmac
import subprocess
from base64 import b64encode
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from hypothesis import given
from hypothesis import strategies as st

from agent.decide.keys import JobKeys

SECRET = b"0123456789abcdef0123456789abcdef"
KEYS = JobKeys(SECRET, "uid.0.0")

secrets = st.binary(min_size=32, max_size=64)
epochs = st.text("abcdefghijklmnopqrstuvwxyz0123456789-./", min_size=1, max_size=40)


def seed(secret: bytes, epoch: str, role: str) -> bytes:
    """RFC 5869 for one block."""
    extracted = hmac.new(b"a4-agent/ssh/v1", secret, hashlib.sha256).digest()
    return hmac.new(extracted, f"{epoch}/{role}".encode() + b"\x01", hashlib.sha256).digest()


def by_hand(secret: bytes, epoch: str, role: str) -> str:
    """The public key in OpenSSH's wire form."""
    public = Ed25519PrivateKey.from_private_bytes(seed(secret, epoch, role)).public_key().public_bytes_raw()
    fields = (b"ssh-ed25519", public)
    return "ssh-ed25519 " + b64encode(b"".join(len(f).to_bytes(4, "big") + f for f in fields)).decode()


@given(secrets, epochs, st.integers(0, 99_999))
def test_public_keys_are_hkdf_and_ed25519(secret: bytes, epoch: str, index: int) -> None:
    """And others read the private text."""
    keys = JobKeys(secret, epoch)
    assert keys.client_public() == by_hand(secret, epoch, "client")
    assert keys.host_public(index) == by_hand(secret, epoch, f"host/{index}")
    for text, role in ((keys.client_private(), "client"), (keys.host_private(index), f"host/{index}")):
        read = load_ssh_private_key(text.encode(), None)
        assert isinstance(read, Ed25519PrivateKey)
        assert read.private_bytes_raw() == seed(secret, epoch, role)


@pytest.mark.parametrize("role", ["client", "host"])
def test_openssh_reads_the_private_text_and_makes_the_same_public_key(role: str, tmp_path: Path) -> None:
    private = KEYS.client_private() if role == "client" else KEYS.host_private(7)
    public = KEYS.client_public() if role == "client" else KEYS.host_public(7)
    path = tmp_path / "key"
    path.write_text(private)
    path.chmod(0o600)
    shown = subprocess.run(["ssh-keygen", "-y", "-f", str(path)], capture_output=True, text=True)
    assert shown.stdout.split()[:2] == public.split(), shown.stderr


def test_the_secret_is_not_in_the_repr() -> None:
    assert repr(KEYS) == "JobKeys(epoch='uid.0.0')"
