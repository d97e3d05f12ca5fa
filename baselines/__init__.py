"""The compared systems, one file each (arXiv ids in their docstrings), behind the same protocol as MemFly."""
