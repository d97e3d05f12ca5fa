"""What a run says of itself holds no secret."""

import importlib

import pytest

from harness import sources
from harness.run_facts import without_secrets


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("http://bob:s3cret@127.0.0.1:8000/v1?key=s3cret#s3cret", "http://127.0.0.1:8000/v1"),
        ("https://host/v1?api_key=s3cret", "https://host/v1"),
        ("https://user@host:1/a/b", "https://host:1/a/b"),
        ("http://[::1]:8000/v1", "http://[::1]:8000/v1"),
        (None, None),
    ],
)
def test_an_address_in_the_manifest_holds_no_secret(url, kept):
    assert without_secrets(url) == kept


def test_the_code_version_follows_every_package_and_the_systems_own(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "ROOT", tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(place, text=""):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_text(text)

    def version(system="twig.system:Twig"):
        sources.source_hash.cache_clear()
        importlib.invalidate_caches()
        return sources.code_version(system)

    for name in ("branch/__init__.py", "branch/a.py", "twig/system.py"):
        write(name)
    seen = [version()]
    for name, text in (("branch/a.py", "1"), ("twig/system.py", "2"), ("branch/b.py", "")):
        write(name, text)
        seen.append(version())
    assert len(set(seen)) == 4
    write("notes/c.py", "no package")
    write("branch/read.me", "no code")
    assert version() == seen[-1] and len(seen[-1]) == 12
    sources.source_hash.cache_clear()
