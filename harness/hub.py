"""The Hugging Face hub: switched off for what the bench loads by itself, as the person set it for what it starts."""

from __future__ import annotations

import json
import os
from pathlib import Path

_OFFLINE = "HF_HUB_OFFLINE"
_WEIGHTS = "model.safetensors"
_found: dict[str, str | None] = {}
"""What the person had set before the bench changed it."""


def switch_off() -> None:
    """No library in this process asks the hub from here on."""
    _found.setdefault(_OFFLINE, os.environ.get(_OFFLINE))
    os.environ[_OFFLINE] = "1"


def environment() -> dict[str, str]:
    """This process's environment for a child that may use the hub if the person lets it: a server whose weights
    have to be downloaded must not inherit what was switched off for the embedder's sake."""
    inherited = dict(os.environ)
    for name, value in _found.items():
        inherited.pop(name, None)
        if value is not None:
            inherited[name] = value
    return inherited


def is_forbidden() -> bool:
    """Whether the person keeps everything from the hub, as its libraries read the variable."""
    return (environment().get(_OFFLINE) or "").upper() in ("1", "ON", "YES", "TRUE")


def cache_folder() -> Path:
    """Where the hub's libraries keep downloads, by the environment variables they read."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if folder := os.environ.get(name):
            return Path(folder).expanduser()
    caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.environ.get("HF_HOME") or f"{caches}/huggingface").expanduser() / "hub"


def has_weights(model: str, revision: str | None) -> bool:
    """Whether `model` (a folder, or a hub name at `revision`, default main) lies on this machine with all its
    safetensors files."""
    folder = Path(model).expanduser()
    if not folder.is_dir():
        repository = cache_folder() / f"models--{model.replace('/', '--')}"
        reference = repository / "refs" / (revision or "main")
        commit = reference.read_text().strip() if reference.is_file() else revision
        if commit is None:
            return False
        folder = repository / "snapshots" / commit
    index = folder / f"{_WEIGHTS}.index.json"
    try:
        names = set(json.loads(index.read_text())["weight_map"].values())
    except FileNotFoundError:
        names = {_WEIGHTS}
    return all((folder / name).is_file() for name in names)
