"""Built memories shared between runs: what differs in recall alone is built once.

<cache.path>/memories/<build hash>/<sample>/{<table>.jsonl ..., built.json, manifest.json}

The build hash covers all that a memory is made from, code and packages included, so what is found under it is the
memory that would be built now; its replies are in the reply cache beside it. A folder appears whole, by a rename, and
is checked against its manifest whenever it is read.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from harness.errors import RecordError
from harness.locomo.schema import Conversation
from harness.memory import MemoryStats, MemorySystem
from harness.prompts import prompt_hashes
from harness.records import dumps, safe_name, table_texts, write_atomic
from harness.sources import package_of, package_versions, source_hash
from harness.spec import RunSpec, build_values, identity_values

FORMAT = 1
"""Version of a stored memory's layout; part of the build hash, so another one is never met."""


@dataclass(frozen=True)
class StoredMemory:
    """tables: name -> its JSON lines. built: the facts of built.json. too_long: the texts of its building that the
    embedder saw only the beginning of. run_id, run: the run that built it, its id and its folder's name (the same for
    every life of a run, which run.fresh=true begins anew)."""

    tables: Mapping[str, str]
    built: dict[str, Any]
    too_long: tuple[str, ...]
    run_id: str
    run: str

    def rows(self) -> dict[str, list[dict[str, Any]]]:
        return {name: [json.loads(row) for row in text.split("\n") if row] for name, text in self.tables.items()}

    def stats(self) -> MemoryStats:
        """The counts, with the types that MemorySystem.stats gives."""
        facts = {f.name: self.built[f.name] for f in dataclasses.fields(MemoryStats)}
        spread = {name: tuple(values) for name, values in facts["distributions"].items()}
        return MemoryStats(**(facts | {"notices": tuple(facts["notices"]), "distributions": spread}))


def made_from(spec: RunSpec, system: type[MemorySystem]) -> dict[str, Any]:
    """All that a memory is made from but the conversation, as plain values."""
    return {
        "format": FORMAT,
        "system": spec.system,
        "memory": build_values(spec.memory),
        "backbone": identity_values(spec.backbone),
        "embedder": identity_values(spec.embedder),
        "seed": spec.seed,
        "prompts": prompt_hashes(system.prompt_files),
        "code": source_hash("harness", package_of(spec.system)),
        "packages": package_versions(),
    }


def build_hash(spec: RunSpec, system: type[MemorySystem], conversation: Conversation) -> str:
    """sha256 (hex) of all that a conversation's memory is made from."""
    values = made_from(spec, system) | {"conversation": dataclasses.asdict(conversation)}
    canonical = json.dumps(values, sort_keys=True, ensure_ascii=True, separators=(",", ":"), default=_plain)
    return hashlib.sha256(canonical.encode()).hexdigest()


def _plain(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} in what a memory is built from")


class SharedMemories:
    """The memories of one run's system as it finds them and leaves them. `notices`: what was damaged or differs.

    A system that does not override MemorySystem.restore shares nothing: all methods do nothing for it.
    RecordError: the folder cannot be read or written.
    """

    def __init__(self, folder: Path, spec: RunSpec, system: type[MemorySystem], run_id: str, run: str):
        self.folder = folder
        self.run_id = run_id
        self.run = run
        self.notices: list[str] = []
        self.active = system.restore is not MemorySystem.restore
        self._spec = spec
        self._system = system

    async def restore(
        self, conversation: Conversation, make: Callable[[], MemorySystem]
    ) -> tuple[MemorySystem, StoredMemory] | None:
        """The memory of a conversation as it was stored, or None. `make`: an empty one.

        What does not export again what was stored is not used, and said.
        """
        place = self._place(conversation)
        stored = await asyncio.to_thread(self._read, place)
        if stored is None:
            return None
        system = make()
        await system.restore(await asyncio.to_thread(stored.rows), stored.stats(), conversation)
        if await asyncio.to_thread(lambda: table_texts(system.export())) != stored.tables:
            self._set_aside(place, "it does not restore to what was stored")
            return None
        return system, stored

    async def keep(
        self, conversation: Conversation, tables: Mapping[str, str], built: Mapping[str, Any], too_long: frozenset[str]
    ) -> None:
        """Store a memory that was built, unless one is there already or is being stored. Another one that is there is
        left and said in `notices`."""
        facts = {**built, "too_long": sorted(too_long)}
        await asyncio.to_thread(self._write, self._place(conversation), tables, facts)

    def forget(self) -> None:
        """Remove the stored memories of this run's model: replies they were made of are about to be replaced. (Of every
        system: an ablation's extractions are those of the whole.)"""
        for file in self.folder.glob("*/*/manifest.json"):
            try:
                model = json.loads(file.read_bytes())["model"]
            except (OSError, ValueError, KeyError, TypeError):
                model = self._spec.backbone.model  # damaged: no loss
            if model == self._spec.backbone.model:
                shutil.rmtree(file.parent, ignore_errors=True)

    def _place(self, conversation: Conversation) -> Path:
        return self.folder / build_hash(self._spec, self._system, conversation) / safe_name(conversation.sample_id)

    def _read(self, place: Path) -> StoredMemory | None:
        try:
            if not (place / "manifest.json").is_file():
                return None
            manifest = json.loads((place / "manifest.json").read_bytes())
            content = {name: (place / name).read_bytes() for name in manifest["files"]}
            for name, digest in manifest["files"].items():
                if hashlib.sha256(content[name]).hexdigest() != digest:
                    raise ValueError(f"{name} is not what was written")
            built = json.loads(content.pop("built.json"))
            tables = {name.removesuffix(".jsonl"): text.decode() for name, text in content.items()}
            return StoredMemory(tables, built, tuple(built.pop("too_long")), manifest["run_id"], manifest["run"])
        except (ValueError, KeyError, TypeError, AttributeError, FileNotFoundError) as error:
            self._set_aside(place, str(error) or type(error).__name__)
            return None
        except OSError as error:
            raise RecordError(
                f"{place}: the shared memory cannot be read ({error.strerror}); mend it, or use run.share_memory=false"
            ) from error

    def _write(self, place: Path, tables: Mapping[str, str], built: Mapping[str, Any]) -> None:
        from filelock import FileLock, Timeout

        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            # Whoever holds the lock may take away what a killed writer left; whoever does not get it has nothing to do.
            with FileLock(place.parent / ".lock", timeout=0):
                for leftover in place.parent.glob(".*.tmp"):
                    shutil.rmtree(leftover)
                if place.exists():
                    self._compare(place, tables)
                    return
                made = place.parent / f".{place.name}.tmp"
                made.mkdir()
                texts = {f"{name}.jsonl": text for name, text in tables.items()}
                texts["built.json"] = dumps(built, indent=True)
                for name, text in texts.items():
                    write_atomic(made / name, text)
                files = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}
                of = {"run_id": self.run_id, "run": self.run, "model": self._spec.backbone.model}
                manifest = {"format": FORMAT, **of, "files": files}
                write_atomic(made / "manifest.json", dumps(manifest, indent=True) + "\n")
                os.rename(made, place)
        except Timeout:
            return
        except OSError as error:
            raise RecordError(
                f"{place}: the shared memory cannot be written ({error.strerror}); make room, or use "
                "run.share_memory=false"
            ) from error

    def _compare(self, place: Path, tables: Mapping[str, str]) -> None:
        """Say so where another process stored a memory of the same hash, built meanwhile, that is not this one."""
        stored = self._read(place)
        if stored is not None and stored.tables != tables:
            self.notices.append(
                f"{place.name}: another run built another memory from the same requests, which got different replies; "
                "each run keeps its own"
            )

    def _set_aside(self, place: Path, why: str) -> None:
        target = place.with_name(f"{place.name}.damaged-{uuid.uuid4().hex[:4]}")
        try:
            place.rename(target)
        except FileNotFoundError:
            return  # another process has done it
        except OSError as error:
            raise RecordError(f"{place}: damaged, and cannot be set aside ({error.strerror}); delete it") from error
        self.notices.append(f"a shared memory was damaged ({why}), set aside as {target} and built again")


def shared_memories(spec: RunSpec, system: type[MemorySystem], run_id: str, run: str) -> SharedMemories | None:
    """The store a run uses, or None: under cache.mode=use alone. off and refresh ask everything themselves, and an
    archive that is replayed holds every reply.

    cache.mode=refresh replaces replies that stored memories of its model were made of, so it forgets these.
    """
    memories = SharedMemories(Path(spec.cache.path) / "memories", spec, system, run_id, run)
    if spec.cache.mode == "refresh":
        memories.forget()
    used = spec.run.share_memory and spec.cache.mode == "use" and memories.active
    return memories if used else None
