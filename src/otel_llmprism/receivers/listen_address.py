# HOST:PORT -> a listening socket, or one error that says what is in the way and what to do.
import errno
import ipaddress
import logging
import socket
from dataclasses import dataclass

from otel_llmprism.config.errors import ConfigError

_LOGGER = logging.getLogger(__name__)
_BACKLOG = 256
_MENDS = {
    errno.EADDRINUSE: "another program listens there; stop it or choose another port",
    errno.EACCES: "ports below 1024 need a privilege; choose a higher one",
    errno.EADDRNOTAVAIL: "no interface of this machine has that address; choose 127.0.0.1 or 0.0.0.0",
}


class ListenError(RuntimeError):
    """Nothing can listen on the address now; the text names the mend."""


@dataclass(frozen=True, slots=True)
class ListenAddress:
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def parse_listen_address(text: str) -> ListenAddress:
    """Read HOST:PORT or [IPV6]:PORT; raises ConfigError that names the form."""
    host, _, port = text.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ConfigError(f"{text!r}: put an IPv6 address into brackets, as in [::1]:4317")
    if not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ConfigError(f"{text!r} is no HOST:PORT; write for example 127.0.0.1:4317")
    return ListenAddress(host, int(port))


def bind_socket(address: ListenAddress) -> socket.socket:
    """Return a listening socket; raises ListenError."""
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise ListenError(f"cannot listen on {address}: {error.strerror}; give an address") from error
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(place)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise ListenError(describe_bind_failure(address, error)) from error
    return listener


def describe_bind_failure(address: ListenAddress, error: OSError) -> str:
    """Say on one line why `address` cannot be listened on, and the mend."""
    mend = _MENDS.get(error.errno or 0, "choose another address")
    return f"cannot listen on {address}: {error.strerror}; {mend}"


def warn_if_open(what: str, address: ListenAddress, *, has_tls: bool, has_token: bool) -> None:
    """Warn when others on the network can reach `what` unencrypted or unasked; it is allowed."""
    missing = [name for name, is_there in (("TLS", has_tls), ("a token", has_token)) if not is_there]
    if missing and not address.is_loopback:
        _LOGGER.warning("%s listens on %s without %s", what, address, " and ".join(missing))
