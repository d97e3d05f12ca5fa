"""On which addresses processes listen, out of /proc."""

import os
import re
from pathlib import Path

LOOPBACK = {"0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F"}
"""127.0.0.1, ::1 and ::ffff:127.0.0.1 as /proc/net writes them on machines that put the low byte first."""


def listening(pids):
    """(address, port) of every TCP socket on which one of the processes listens; the address as /proc/net writes it."""
    inodes = set()
    for pid in pids:
        try:
            entries = list(Path(f"/proc/{pid}/fd").iterdir())
        except FileNotFoundError:  # it has ended
            continue
        for entry in entries:
            try:
                inodes.update(re.findall(r"^socket:\[(\d+)\]$", os.readlink(entry)))
            except FileNotFoundError:
                continue
    found = set()
    for table in ("tcp", "tcp6"):
        if not (file := Path(f"/proc/net/{table}")).is_file():  # a machine without IPv6
            continue
        for line in file.read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                address, _, port = fields[1].partition(":")
                found.add((address, int(port, 16)))
    return found


def family(pid):
    """A process and all it has started that still belongs to it."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
    members = {pid}
    while more := {child for child, parent in parents.items() if parent in members} - members:
        members |= more
    return members
