"""Where a backbone answers, as far as its configuration says."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from harness.spec import BackboneSpec

OPENAI_URL = "https://api.openai.com/v1"


def is_loopback(url: str) -> bool:
    """Whether an address is this machine's own: 127.0.0.1 and its like, localhost, 0.0.0.0 (which connects to it)."""
    host = urlsplit(url).hostname or ""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    return address.is_loopback or address.is_unspecified


def is_unpriced(spec: BackboneSpec) -> bool:
    """Whether calls may cost what nobody knows: they leave this machine, and no price is given. Prices of 0 that have a date
    are given."""
    url = spec.base_url or (OPENAI_URL if spec.kind == "openai" else None)
    price = spec.price
    known = price.prompt > 0 or price.completion > 0 or price.date is not None
    return url is not None and not is_loopback(url) and not known
