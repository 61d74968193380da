# Throw-away certificates for TLS tests: a CA, a server and a client signed by it, written as PEM files.
# Needs the cryptography package (the dev extra); never part of a service.
import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_VALID_FROM = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
_VALID_UNTIL = dt.datetime(2099, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    ca: str
    server_cert: str
    server_key: str
    client_cert: str
    client_key: str


def write_certificates(folder: Path) -> CertificateFiles:
    """Make a CA and two certificates for 127.0.0.1 and localhost below `folder`."""
    ca_key, ca = _sign("ca", None, None)
    server_key, server = _sign("server", ca, ca_key)
    client_key, client = _sign("client", ca, ca_key)
    return CertificateFiles(
        _write(folder / "ca.pem", _to_pem(ca)),
        _write(folder / "server.pem", _to_pem(server)),
        _write(folder / "server.key", _to_pem(server_key)),
        _write(folder / "client.pem", _to_pem(client)),
        _write(folder / "client.key", _to_pem(client_key)),
    )


def _sign(
    name: str, issuer: x509.Certificate | None, issuer_key: ec.EllipticCurvePrivateKey | None
) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"test {name}")])
    names = [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")]
    signer = key if issuer_key is None else issuer_key
    is_ca = issuer is None
    # Key usage and key identifiers: from Python 3.13 on, ssl refuses chains without them.
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_VALID_FROM)
        .not_valid_after(_VALID_UNTIL)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
        .add_extension(_build_key_usage(is_ca=is_ca), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
        .sign(signer, hashes.SHA256())
    )
    return key, certificate


def _build_key_usage(*, is_ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_ca,
        crl_sign=is_ca,
        encipher_only=False,
        decipher_only=False,
    )


def _to_pem(thing: x509.Certificate | ec.EllipticCurvePrivateKey) -> bytes:
    if isinstance(thing, x509.Certificate):
        return thing.public_bytes(serialization.Encoding.PEM)
    return thing.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _write(path: Path, pem: bytes) -> str:
    path.write_bytes(pem)
    path.chmod(0o600)
    return str(path)
