# Bearer tokens: a file comes in, a yes or no to an Authorization value goes out. The token is never shown.
import hmac
import logging
import stat
from pathlib import Path

from otel_llmprism.config.errors import ConfigError
from otel_llmprism.config.secret import Secret

_LOGGER = logging.getLogger(__name__)
_OTHERS_MAY_READ = stat.S_IRGRP | stat.S_IROTH


class BearerToken:
    """Compares in constant time, whatever the length of what was sent."""

    def __init__(self, token: Secret) -> None:
        self._expected = token.reveal().encode()

    def allows(self, authorization: bytes) -> bool:
        """Say whether an Authorization header's value carries the token; the scheme in any case."""
        scheme, _, sent = authorization.strip().partition(b" ")
        is_same = hmac.compare_digest(sent.strip(), self._expected)
        return is_same and scheme.lower() == b"bearer"


def load_token(token_file: str) -> BearerToken | None:
    """Read the token (surrounding blanks dropped); None without a file; raises ConfigError."""
    if not token_file:
        return None
    path = Path(token_file)
    try:
        token = path.read_text(encoding="ascii").strip()
        mode = path.stat().st_mode
    except OSError as error:
        raise ConfigError(
            f"token_file: cannot read {path}: {error.strerror}; check path and owner"
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"token_file: {path} holds more than ASCII; make a new token") from error
    if not token:
        raise ConfigError(f"token_file: {path} is empty; write a token into it, such as 32 random hex digits")
    if mode & _OTHERS_MAY_READ:
        _LOGGER.warning("token_file: others may read %s; run chmod 600 on it", path)
    return BearerToken(Secret(token))
