"""What several tests share: the repository, the full data file where it is, runs in a child process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def pytest_configure(config):
    os.environ["HF_HUB_OFFLINE"] = "1"


@pytest.fixture(scope="session")
def locomo_path():
    """The LoCoMo-10 file (LOCOMO_PATH, data/ or ../shared/data); it is never part of this repository."""
    places = [os.environ.get("LOCOMO_PATH"), ROOT / "data" / "locomo10.json", ROOT.parent / "shared/data/locomo10.json"]
    for place in places:
        if place and Path(place).is_file():
            return Path(place)
    pytest.skip("the LoCoMo-10 file is not here: `make data`, or set LOCOMO_PATH")


@pytest.fixture(scope="module")
def hydra_context():
    """Hydra at conf/, for tests that compose configurations in this process."""
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    from harness.compose import register_defaults

    register_defaults()
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        yield


@pytest.fixture
def run_door(tmp_path):
    """Run `python run.py` in a child process with its records under tmp_path. Returns the finished process.

    `bare`: a script that takes no Hydra overrides. `cache`: another cache than one under tmp_path.
    """

    def door(*overrides, script=("run.py",), env=None, check=None, cache=tmp_path / "cache", bare=False):
        environment = {k: v for k, v in os.environ.items() if not k.endswith("_API_KEY")} | (env or {})
        places = [f"run.dir={tmp_path}/runs", f"cache.path={cache}", f"hydra.sweep.dir={tmp_path}/sweep"]
        asks_only = bare or (overrides and overrides[0] in ("--help", "--cfg"))
        done = subprocess.run(
            [sys.executable, *script, *overrides, *([] if asks_only else places)],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if check is not None:
            assert done.returncode == check, done.stderr
        return done

    return door
