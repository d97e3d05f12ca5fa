"""The README's recipe for a new memory system, followed to the letter in a copy of the repository."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PARTS = ("harness", "memfly", "baselines", "eval", "conf", "tests", "hydra_plugins")


def test_a_new_memory_system_runs_and_keeps_the_contracts(tmp_path):
    for part in PARTS:
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("run.py", "pyproject.toml"):
        shutil.copy(ROOT / file, tmp_path / file)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    recipe = text[text.index("**A memory system**") : text.index("**A backbone**")]
    (yaml,) = re.findall(r"```yaml\n(.*?)```", recipe, re.DOTALL)
    assert "cp tests/stub_system.py baselines/mine.py" in recipe
    (tmp_path / "conf/memory/mine.yaml").write_text(yaml)
    shutil.copy(tmp_path / "tests/stub_system.py", tmp_path / "baselines/mine.py")

    def python(*arguments):
        return subprocess.run([sys.executable, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False)

    done = python("run.py", "memory=mine", "backbone=scripted", "embedder=hashing", "dataset.max_questions=2")
    assert done.returncode == 0, done.stderr
    assert "evidence, mean a question: 10.0 items" in done.stdout
    done = python("-m", "pytest", "-p", "no:cacheprovider", "tests/test_contracts.py", "-k", "mine")
    assert done.returncode == 0, done.stdout
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) >= 10
