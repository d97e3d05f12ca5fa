"""`python -m harness.locomo.download`: fetch LoCoMo-10 into data/locomo10.json and verify it (`make data`).

The file is CC BY-NC 4.0 and never part of the repository. Its sha256 is checked, not its size: a public copy of
equal size differs in one URL.
"""

from __future__ import annotations

import hashlib
import logging
import sys
from pathlib import Path

from harness.errors import DataError
from harness.locomo.fingerprint import LOCOMO10_FILE_SHA256
from harness.locomo.loader import LOCOMO10_FILE

URL = (
    "https://raw.githubusercontent.com/snap-research/locomo/3eb6f2c585f5e1699204e3c3bdf7adc5c28cb376/data/locomo10.json"
)
_TIMEOUT_S = 60


def download(target: Path = LOCOMO10_FILE, *, url: str = URL, sha256: str = LOCOMO10_FILE_SHA256) -> bool:
    """Put the verified file at `target`. False if it was there already, and right.

    The bytes go to a temporary file beside the target, which is renamed only after its sha256 (hex) was checked.
    Raises DataError when it cannot be had or is another file; what stood at `target` before then still stands.
    """
    import pooch
    import requests

    try:
        if target.is_file() and hashlib.sha256(target.read_bytes()).hexdigest() == sha256:
            return False
        pooch.get_logger().setLevel(logging.WARNING)
        pooch.retrieve(
            url,
            known_hash=f"sha256:{sha256}",
            fname=target.name,
            path=target.parent,
            downloader=pooch.HTTPDownloader(timeout=_TIMEOUT_S),
        )
    except requests.HTTPError as error:
        raise DataError(f"{url} answers {error.response.status_code}; {_ELSEWHERE}") from None
    except requests.RequestException as error:
        raise DataError(f"{url} cannot be reached ({type(error).__name__}); {_ELSEWHERE}") from None
    except ValueError:
        raise DataError(f"{url} is not the expected file (its sha256 is not {sha256[:12]}...); {_ELSEWHERE}") from None
    except OSError as error:
        raise DataError(f"{target} cannot be written ({error.strerror}); make room or give rights there") from None
    return True


_ELSEWHERE = "nothing was kept; try again, or name a copy with dataset.path=FILE or LOCOMO_PATH"


def main() -> int:
    """Exit status: 0 when the file is there and verified, 2 with one line on stderr when it is not."""
    try:
        fetched = download()
    except DataError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("error: interrupted; nothing was kept", file=sys.stderr)
        return 2
    print(f"{LOCOMO10_FILE}: {'fetched' if fetched else 'already there'}, sha256 verified (LoCoMo-10, CC BY-NC 4.0)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
