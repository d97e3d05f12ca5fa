"""What no configuration may hold: a key, be it in an address, in the place of a variable's name or among a server's arguments.

Refused before anything is written; no message repeats the value. Standard library alone: the door looks at its command
line before it loads anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import urlsplit

_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")
_NAMED = re.compile(r"\bapi_key_env['\"]?\s*[=:]\s*['\"]?([^\s'\"}\]]+)")
_ADDRESS = re.compile(r"\bbase_url['\"]?\s*[=:].*?://\S*[@?#]")
_KEY_OPTION = re.compile(r"--(?:api[-_]key|hf[-_]token)\b")
_OWN_OPTIONS = ("host", "port", "api-key", "hf-token")

ADDRESS = (
    "backbone.base_url must hold no password, no query and no fragment; name the key's variable in backbone.api_key_env"
)
VARIABLE = (
    "backbone.api_key_env is the name of an environment variable, in capitals: OPENAI_API_KEY; never the key itself"
)
ARGUMENTS = (
    "backbone.server.args must not hold --host, --port, --api-key or --hf-token: a server that is started here listens on "
    "loopback with a key of its own; HF_TOKEN comes from the environment"
)


def fault_of_address(url: str) -> str | None:
    """Why an address cannot be used; None: it is one of http or https that holds nothing but host, port and path."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname)
        _ = parts.port  # raises for one that is no number
    except ValueError:
        usable = False
    if any(sign in url for sign in "@?#"):  # of a password with a slash in it, no reader of addresses finds the end
        return ADDRESS
    return None if usable else "backbone.base_url must be an http or https address such as http://127.0.0.1:8000/v1"


def fault_of_variable(name: str) -> str | None:
    """Why a name cannot be a variable's: keys have small letters or dashes, which names of variables have not."""
    return None if _VARIABLE.fullmatch(name) else VARIABLE


def fault_of_server(arguments: Iterable[str]) -> str | None:
    """Why a server cannot be given these arguments. vLLM takes `_` for `-`, and an option by its first letters."""
    for argument in arguments:
        name = argument.partition("=")[0].removeprefix("--").replace("_", "-")
        if argument.startswith("--") and name and any(own.startswith(name) for own in _OWN_OPTIONS):
            return ARGUMENTS
    return None


def fault_of_command(arguments: Iterable[str]) -> str | None:
    """Why a command line cannot be taken, however it sets the options (group.option=value, a dictionary, a list of values).

    References (${oc.env:NAME}) are left to whoever sees the composed values."""
    for argument in arguments:
        if _ADDRESS.search(argument):
            return ADDRESS
        if _KEY_OPTION.search(argument):
            return ARGUMENTS
        for names in _NAMED.findall(argument):
            if "${" not in names and any(
                name and name != "null" and fault_of_variable(name) for name in names.split(",")
            ):
                return VARIABLE
    return None
