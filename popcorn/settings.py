"""Which server the client talks to and as whom: the environment first, then ~/.popcorn.yaml, as the public client keeps it."""

import os
from collections.abc import Mapping
from pathlib import Path

import yaml

from popcorn.client_errors import UsageFault
from popcorn.connection import Connection

DEFAULT_URL = "http://127.0.0.1:8000"  # what `make serve` listens on
URL_VARIABLE, TOKEN_VARIABLE = "POPCORN_API_URL", "POPCORN_CLI_ID"
FILE_NAME = ".popcorn.yaml"


def connection_from(environment: Mapping[str, str] = os.environ, home: Path | None = None) -> Connection:
    """The server of POPCORN_API_URL, called with POPCORN_CLI_ID or else the `cli_id` of ~/.popcorn.yaml.

    Raises UsageFault for a file or an address that cannot be used.
    """
    token = environment.get(TOKEN_VARIABLE) or _token_in((home or Path.home()) / FILE_NAME)
    if token and not (token.isascii() and token.isprintable()):
        raise UsageFault("the token holds characters that no token has; copy it again")
    return Connection(environment.get(URL_VARIABLE) or DEFAULT_URL, token)


def _token_in(path: Path) -> str | None:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        raise UsageFault(f"{path} cannot be read as YAML; it holds one line, `cli_id: TOKEN`") from None
    token = content.get("cli_id") if isinstance(content, dict) else None
    return str(token) if token else None
