"""TLS on loopback: an authority that signs certificates, and a server that takes the TLS off before another one."""

import contextlib
import ipaddress
import select
import socket
import ssl
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

POSTGRES = b"S"
"""What a PostgreSQL server answers to the wish for TLS, which has eight bytes."""


class Authority:
    """Signs certificates, and keeps them as files of a folder."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        made = _certificate(self._name, self._name, self._key).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        self.file = folder / f"{name}.crt"
        self.file.write_bytes(made.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str) -> tuple[Path, Path]:
        """The files of a certificate for a host or a user, and of its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        try:
            known_as: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(name))
        except ValueError:
            known_as = x509.DNSName(name)
        made = (
            _certificate(_name(name), self._name, key)
            .add_extension(x509.SubjectAlternativeName([known_as]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        certificate, private = self._folder / f"{name}.crt", self._folder / f"{name}.key"
        certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
        form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        private.write_bytes(key.private_bytes(serialization.Encoding.PEM, *form))
        private.chmod(0o600)
        return certificate, private

    def context(self, host: str, *, clients: "Authority | None" = None, protocol: str | None = None) -> ssl.SSLContext:
        """How a host speaks TLS. With `clients`, only with those who have a certificate of that authority; with
        `protocol`, that one is agreed on.
        """
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.load_cert_chain(*self.issue(host))
        if protocol is not None:
            made.set_alpn_protocols([protocol])
        if clients is not None:
            made.verify_mode = ssl.CERT_REQUIRED
            made.load_verify_locations(clients.file)
        return made


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _certificate(name: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - timedelta(days=1))
        .not_valid_after(datetime.now(UTC) + timedelta(days=1))
    )


class TlsServer:
    """Speaks TLS, and passes what is in it on to a port of this machine.

    With `greeting`, that is said first, after eight bytes came. `seen` is what clients sent, after the TLS was taken
    off; `names` are those of their certificates.
    """

    def __init__(self, target: int, context: ssl.SSLContext, greeting: bytes = b"") -> None:
        self._target = target
        self._context = context
        self._greeting = greeting
        self._server = socket.create_server(("127.0.0.1", 0))
        self._threads: list[threading.Thread] = []
        self._ended = False
        self.port: int = self._server.getsockname()[1]
        self.seen = bytearray()
        self.names: list[str] = []

    def __enter__(self) -> Self:
        self._begin(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended = True
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for thread in self._threads:
            thread.join()

    def _begin(self, work: Callable[..., None], *given: object) -> None:
        thread = threading.Thread(target=work, args=given)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                self._begin(self._serve, self._server.accept()[0])

    def _serve(self, client: socket.socket) -> None:
        client.settimeout(10)
        with client, contextlib.suppress(OSError):
            if self._greeting:
                client.recv(8)
                client.sendall(self._greeting)
            # Not by asyncio: that hangs up without telling a client what is wrong with its certificate.
            with self._context.wrap_socket(client, server_side=True) as tls:
                if certificate := tls.getpeercert(binary_form=True):
                    names = x509.load_der_x509_certificate(certificate).subject
                    self.names += [str(each.value) for each in names.get_attributes_for_oid(NameOID.COMMON_NAME)]
                with socket.create_connection(("127.0.0.1", self._target), 10) as plain:
                    self._pass_on(tls, plain)

    def _pass_on(self, tls: ssl.SSLSocket, plain: socket.socket) -> None:
        while not self._ended:
            ready, _, _ = select.select([tls, plain], [], [], 0.1)
            for source, sink in ((tls, plain), (plain, tls)):
                if source not in ready:
                    continue
                data = source.recv(65_536)
                while isinstance(source, ssl.SSLSocket) and source.pending():
                    data += source.recv(65_536)
                if not data:
                    return
                if source is tls:
                    self.seen.extend(data)
                sink.sendall(data)
