"""Built memories shared between runs: found only where nothing they are made from differs, and whole."""

import asyncio
import dataclasses
import json
import multiprocessing
from dataclasses import replace
from pathlib import Path

import pytest
from contract_bench import SMALL, Bench, composed
from stub_system import Stub

from harness.built import SharedMemories, build_hash, shared_memories
from harness.errors import RecordError
from harness.memory import MemorySystem
from harness.records import table_texts
from harness.spec import CacheSpec, RunOptions
from memfly.system import MemFly

LIVELY = (
    "backbone=scripted",
    "embedder=hashing",
    "memory.scoring=pairwise",
    "memory.tau_merge=0.1",  # the stand-in's scores are low: these make merges and links happen
    "memory.tau_link=0.1",
    "dataset.max_sessions=2",
    "dataset.max_questions=6",
)


def results(tmp_path, label):
    """(metrics without wall time, answers without latencies and code, built.json and tables of each memory) of a run."""
    folder = the_run(tmp_path, label)
    metrics = json.loads((folder / "metrics.json").read_text())
    del metrics["wall_s"]
    answers = [json.loads(line) for line in (folder / "answers.jsonl").read_text().split("\n") if line]
    for record in answers:
        del record["latency_s"], record["code"], record["crc"]
    answers.sort(key=lambda record: (record["sample_id"], record["qa_index"]))
    built = {path.parent.name: json.loads(path.read_text()) for path in folder.glob("memory/*/built.json")}
    tables = {str(path.relative_to(folder)): path.read_bytes() for path in folder.glob("memory/*/*.jsonl")}
    return metrics, answers, built, tables


def the_run(tmp_path, label):
    (folder,) = (tmp_path / "runs").glob(f"{label}-scripted-*")
    return folder


def shared_lines(metrics):
    return [line for line in metrics["table"]["lines"] if line.startswith("memory: shared with ")]


def stored(tmp_path):
    """Folders of the sound memories, that of sample-1 first."""
    found = [path.parent for path in (tmp_path / "cache" / "memories").glob("*/*/manifest.json")]
    return sorted((place for place in found if "damaged" not in place.name), key=lambda place: place.name)


def test_ablations_of_retrieval_share_a_memory_and_no_number_tells(run_door, tmp_path):
    run_door(*LIVELY, check=0)
    first = results(tmp_path, "memfly")
    paid_by = the_run(tmp_path, "memfly").name
    places = stored(tmp_path)
    assert len(places) == 2 and not shared_lines(first[0])

    run_door(*LIVELY, "ablation=no_topic", check=0)
    metrics, answers, built, tables = results(tmp_path, "memfly-no_topic")
    assert stored(tmp_path) == places
    assert {facts["usage"]["computed_calls"] for facts in built.values()} == {0}
    assert {facts["shared_from"] for facts in built.values()} == {paid_by}
    (line,) = shared_lines(metrics)
    assert line == f"memory: shared with {paid_by}; its building counts as replies from the cache"

    (tmp_path / "runs").rename(tmp_path / "with")
    run_door(*LIVELY, "ablation=no_topic", "run.share_memory=false", check=0)
    alone = results(tmp_path, "memfly-no_topic")
    metrics["table"]["lines"].remove(line)
    assert {**metrics, "usage": {}} == {**alone[0], "usage": {}}
    assert metrics["usage"]["calls"] == alone[0]["usage"]["calls"]
    for mine, other in zip(answers, alone[1], strict=True):
        paid = {"usage": {}}
        assert mine | paid == other | paid
    assert tables == alone[3] == first[3]
    for name, facts in alone[2].items():
        del built[name]["shared_from"]
        assert built[name] == facts  # replies that another run paid for count alike, by the memory or one by one


def test_what_changes_the_building_shares_nothing(run_door, tmp_path):
    run_door(*LIVELY, check=0)
    run_door(*LIVELY, "ablation=no_link", check=0)
    metrics, _, built, _ = results(tmp_path, "memfly-no_link")
    assert not shared_lines(metrics)
    assert not any("shared_from" in facts for facts in built.values())
    assert len(stored(tmp_path)) == 4


@pytest.mark.parametrize("damage", ["cut", "changed", "gone", "no manifest"])
def test_a_damaged_memory_is_set_aside_said_and_built_again(run_door, tmp_path, damage):
    run_door(*LIVELY, check=0)
    first = results(tmp_path, "memfly")
    one, two = stored(tmp_path)
    file = one / ("manifest.json" if damage == "no manifest" else "notes.jsonl")
    if damage == "gone":
        file.unlink()
    elif damage == "changed":
        file.write_text(file.read_text().replace("context", "content", 1))
    else:
        file.write_bytes(file.read_bytes()[:-20])
    run_door(*LIVELY, "ablation=no_ier", check=0)
    metrics, _, built, tables = results(tmp_path, "memfly-no_ier")
    assert tables == first[3]
    assert ["shared_from" in built[place.name] for place in (one, two)] == [False, True]
    lines = metrics["table"]["lines"]
    assert "1 of 2 conversations" in shared_lines(metrics)[0]
    assert [
        line
        for line in lines
        if line.startswith("a shared memory was damaged (") and f"set aside as {one}.damaged-" in line
    ]
    assert {place.parent for place in stored(tmp_path)} == {one.parent, two.parent}
    assert (one / "notes.jsonl").read_bytes() == tables[f"memory/{one.name}/notes.jsonl"]


def test_modes(tmp_path):
    spec, system = composed("memfly")
    folder = tmp_path / "memories" / "hash"

    def opened(mode="use", **run):
        folder.mkdir(parents=True, exist_ok=True)
        return shared_memories(
            replace(spec, cache=CacheSpec(mode=mode, path=str(tmp_path)), run=RunOptions(**run)), system, "me", "run"
        )

    assert opened() is not None
    assert opened(share_memory=False) is opened("off") is opened("replay") is None and folder.exists()
    for model in ("scripted", "other"):
        (folder / model).mkdir()
        (folder / model / "manifest.json").write_text(json.dumps({"model": model}))
    spec = replace(spec, backbone=replace(spec.backbone, model="scripted"))
    assert opened("refresh") is None
    assert [path.name for path in folder.iterdir()] == [
        "other"
    ]  # the replies that the first was made of are being replaced
    here = replace(spec, cache=CacheSpec(path=str(tmp_path)))
    assert shared_memories(here, Stub, "me", "run") is None  # it cannot be restored


def test_the_hash_knows_all_a_memory_is_made_from(monkeypatch):
    spec, system = composed("memfly", *SMALL)
    (one, two) = Bench("memfly", Path()).dataset.samples
    talk = one.conversation
    turn = replace(talk.sessions[0].turns[0], text="Something else.")
    session = replace(talk.sessions[0], turns=(turn, *talk.sessions[0].turns[1:]))
    base = build_hash(spec, system, talk)

    def other(**changed):
        return build_hash(replace(spec, **changed), system, talk)

    different = [
        build_hash(spec, system, two.conversation),
        build_hash(spec, system, replace(talk, sessions=(session, *talk.sessions[1:]))),
        build_hash(spec, system, replace(talk, sessions=talk.sessions[:1])),
        other(seed=1),
        other(system="memfly.system:Other"),
        other(memory=replace(spec.memory, tau_link=0.4)),
        other(memory=replace(spec.memory, rrf_k=60.0)),
        other(backbone=replace(spec.backbone, revision="x")),
        other(embedder=replace(spec.embedder, dim=64)),
    ]
    with monkeypatch.context() as patch:
        patch.setattr("harness.built.source_hash", lambda *packages: "other code")
        different.append(build_hash(spec, system, talk))
    with monkeypatch.context() as patch:
        patch.setattr("harness.built.prompt_hashes", lambda files: {file: "other" for file in files})
        different.append(build_hash(spec, system, talk))
    with monkeypatch.context() as patch:
        patch.setattr("harness.built.package_versions", lambda: {"leidenalg": "0"})
        different.append(build_hash(spec, system, talk))
    assert len({base, *different}) == len(different) + 1

    equal = [
        build_hash(spec, system, talk),
        other(memory=replace(spec.memory, topic=False, k_final=5, i_max=0)),
        other(trials=3),
        other(ablation="label"),
        other(backbone=replace(spec.backbone, concurrency_start=1)),
        other(dataset=replace(spec.dataset, max_questions=1)),
    ]
    assert set(equal) == {base}


TABLES = table_texts({"notes": [{"id": 0, "text": "a\u2028b"}], "edges": []})
FACTS = {"sample_id": "s", **dataclasses.asdict(MemorySystem.stats(None)), "calls": 3}


class Kept(Stub):
    """A system that restores to what `again` says."""

    again = TABLES

    async def restore(self, tables, stats, conversation):
        self.tables, self.counts = tables, stats

    def export(self):
        return self.tables if self.again is TABLES else {"notes": []}


def store(tmp_path, run_id="me", system=Kept):
    spec, _ = composed("memfly", *SMALL)
    return SharedMemories(
        tmp_path / "memories", replace(spec, system="memfly.system:MemFly"), system, run_id, f"folder of {run_id}"
    )


TALK = Bench("memfly", Path()).dataset.samples[0].conversation


def put(memories, facts=FACTS, tables=TABLES):
    asyncio.run(memories.keep(TALK, tables, facts, frozenset({"long text"})))


def get(memories):
    return asyncio.run(memories.restore(TALK, lambda: Kept(None, None)))


def test_what_was_kept_comes_back(tmp_path):
    assert get(store(tmp_path)) is None
    put(store(tmp_path, "one"), FACTS | {"distributions": {"s": (0.1, 1 / 3)}, "notices": ("n",)})
    system, found = get(store(tmp_path, "two"))
    assert system.tables == {"notes": [{"id": 0, "text": "a\u2028b"}], "edges": []}
    assert system.counts.distributions == {"s": (0.1, 1 / 3)} and system.counts.notices == ("n",)
    assert (found.run_id, found.too_long, found.built["calls"]) == ("one", ("long text",), 3)


def test_the_first_stays_and_nothing_is_left_beside_it(tmp_path):
    put(store(tmp_path, "one"))
    put(store(tmp_path, "two"))
    assert get(store(tmp_path))[1].run_id == "one"
    (place,) = (tmp_path / "memories").glob("*/*[!k]")
    killed = place.parent / f".{place.name}.tmp"
    killed.mkdir()
    (killed / "notes.jsonl").write_text("half")
    put(store(tmp_path, "three"))
    assert sorted(path.name for path in place.parent.iterdir()) == [".lock", place.name]


def test_another_memory_of_the_same_requests_is_said(tmp_path):
    put(store(tmp_path, "one"))
    same, other = store(tmp_path, "two"), store(tmp_path, "three")
    put(same)
    put(other, tables=TABLES | {"notes": ""})
    assert same.notices == []
    assert other.notices == [
        f"{TALK.sample_id}: another run built another memory from the same requests, which got different replies; "
        "each run keeps its own"
    ]
    assert get(store(tmp_path))[0].tables["notes"]  # the first stays


def _race(tmp_path, name, start):
    start.wait()
    put(store(tmp_path, name))


def test_two_processes_that_build_the_same_memory(tmp_path):
    context = multiprocessing.get_context("fork")
    start = context.Barrier(2)
    racers = [context.Process(target=_race, args=(tmp_path, name, start)) for name in ("one", "two")]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert [racer.exitcode for racer in racers] == [0, 0]
    assert get(store(tmp_path))[1].run_id in ("one", "two")


def test_a_memory_that_restores_to_something_else_is_not_used(tmp_path, monkeypatch):
    put(store(tmp_path))
    monkeypatch.setattr(Kept, "again", None)
    memories = store(tmp_path)
    assert get(memories) is None
    (notice,) = memories.notices
    assert notice.startswith("a shared memory was damaged (it does not restore to what was stored), set aside as ")


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "memories").write_text("")
    with pytest.raises(RecordError, match=r"cannot be written .*; make room, or use run.share_memory=false"):
        put(store(tmp_path))


def test_a_memory_that_an_outage_touched_is_not_shared(tmp_path, monkeypatch):
    """Asked again, the reply may come: the next run builds its own."""
    from harness.errors import EndpointError
    from harness.llm.transport import ScriptedTransport

    send = ScriptedTransport.send
    failed = []

    async def unsteady(self, request):
        if not failed:
            failed.append(request)
            raise EndpointError("timeout", "no reply", fatal=False)
        return await send(self, request)

    monkeypatch.setattr(ScriptedTransport, "send", unsteady)
    bench = Bench("memfly", tmp_path / "one", shared=tmp_path / "shared").run()
    assert sum(facts["errors"] for facts in bench.built) == 1
    assert len(list((tmp_path / "shared").glob("*/*/manifest.json"))) == 1  # the other conversation's


def test_memfly_can_be_restored():
    assert MemFly.restore is not MemorySystem.restore
