"""One certificate authority, and what it signs for the API server and its clients."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = datetime.timedelta(days=1)


class Pair(NamedTuple):
    """A certificate and its key, PEM."""

    certificate: bytes
    key: bytes


class Authority:
    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        name = _name("test-bed-ca", "")
        basic = x509.BasicConstraints(ca=True, path_length=None)
        self._certificate = (
            _builder(name, name, self._key.public_key()).add_extension(basic, True).sign(self._key, hashes.SHA256())
        )
        self.certificate = self._certificate.public_bytes(serialization.Encoding.PEM)

    def server(self, name: str, addresses: Sequence[str], names: Sequence[str] = ()) -> Pair:
        others = [*map(x509.DNSName, names), *(x509.IPAddress(ipaddress.ip_address(each)) for each in addresses)]
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
        return self._signed(name, "", usage, x509.SubjectAlternativeName(others))

    def client(self, name: str, group: str) -> Pair:
        """Kubernetes takes the name for the user's and the organisation for a group."""
        return self._signed(name, group, x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]))

    def _signed(self, name: str, group: str, *extensions: x509.ExtensionType) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_name(name, group), self._certificate.subject, key.public_key())
        for extension in extensions:
            builder = builder.add_extension(extension, False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return Pair(certificate.public_bytes(serialization.Encoding.PEM), private_pem(key))


def signing_pair() -> Pair:
    """For tokens of service accounts: the public and the private key, PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return Pair(key.public_key().public_bytes(serialization.Encoding.PEM, form), private_pem(key))


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _name(name: str, group: str) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
    return x509.Name([*parts, *([x509.NameAttribute(NameOID.ORGANIZATION_NAME, group)] if group else [])])


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.timezone.utc)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - DAY)
        .not_valid_after(now + DAY)
    )
