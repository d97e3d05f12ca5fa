"""What the bench's own code never does: unpickle, run data as code, build shell lines, listen beyond loopback, go without
TLS checks. The syntax trees of all first-party files are walked; EXCEPTIONS says which finding is meant, and why."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("harness", "memfly", "baselines", "eval", "scripts", "hydra_plugins")

EXCEPTIONS: dict[tuple[str, str], str] = {}
"""(file, rule) -> reason."""

PICKLES = {"pickle", "_pickle", "cPickle", "dill", "cloudpickle", "jsonpickle", "shelve", "marshal", "joblib"}
"""Modules that read objects out of data; joblib.load among them."""
UNSAFE_CALLS = {
    "eval": "code of data",
    "exec": "code of data",
    "compile": "code of data",
    "__import__": "code of data",
    "code.interact": "code of data",
    "os.system": "shell",
    "os.popen": "shell",
    "subprocess.getoutput": "shell",
    "subprocess.getstatusoutput": "shell",
    "asyncio.create_subprocess_shell": "shell",
    "tempfile.mktemp": "guessable file",
    "os.tempnam": "guessable file",
    "yaml.load": "yaml",
    "yaml.load_all": "yaml",
    "yaml.unsafe_load": "yaml",
    "yaml.full_load": "yaml",
    "pandas.read_pickle": "pickle",
    "torch.hub.load": "code of data",
    "ssl._create_unverified_context": "tls",
}
SAFE_LOADERS = {"yaml.SafeLoader", "yaml.CSafeLoader"}
REFUSED_VALUES = {
    "shell": (True, "shell"),
    "allow_pickle": (True, "pickle"),
    "weights_only": (False, "pickle"),
    "trust_remote_code": (True, "code of data"),
    "verify": (False, "tls"),
    "verify_ssl": (False, "tls"),
    "check_hostname": (False, "tls"),
    "ssl": (False, "tls"),
}
"""Keyword -> the value that is refused, and the rule."""
METHODS = {"to_pickle": "pickle", "read_pickle": "pickle", "enable_load_extension": "code of data"}
EVERYWHERE = {"0.0.0.0", "::", "[::]"}
LISTENERS = {
    "bind": 0, "create_server": 1, "start_server": 1, "TCPSite": 1, "run_app": 1, "HTTPServer": 0,
    "ThreadingHTTPServer": 0, "TCPServer": 0, "ThreadingTCPServer": 0,
}  # fmt: skip
"""Call -> the place of the host, or of a tuple that begins with it."""
WITHOUT_HOST_EVERYWHERE = {"TCPSite", "start_server", "run_app"}
HOST_WORDS = ("host", "hostname", "hostnames", "address", "server_address")


class Walk(ast.NodeVisitor):
    """Findings of one file as (line, rule). Names are followed through its imports."""

    def __init__(self):
        self.found = []
        self._names = {}

    def add(self, node, rule):
        self.found.append((node.lineno, rule))

    def name(self, node):
        """A dotted name, as it was imported; "" for anything else."""
        if isinstance(node, ast.Name):
            return self._names.get(node.id, node.id)
        if isinstance(node, ast.Attribute) and (base := self.name(node.value)):
            return f"{base}.{node.attr}"
        return ""

    def visit_Import(self, node):
        for alias in node.names:
            if alias.asname:
                self._names[alias.asname] = alias.name
            self._module(node, alias.name)

    def visit_ImportFrom(self, node):
        self._module(node, node.module or "")
        for alias in node.names:
            whole = f"{node.module}.{alias.name}"
            self._names[alias.asname or alias.name] = whole
            if whole in UNSAFE_CALLS and not whole.startswith("yaml.load"):
                self.add(node, UNSAFE_CALLS[whole])

    def _module(self, node, module):
        if module.partition(".")[0] in PICKLES:
            self.add(node, "pickle")

    def visit_Constant(self, node):
        if isinstance(node.value, str) and node.value in EVERYWHERE:
            self.add(node, "listens everywhere")

    def visit_Call(self, node):
        self.generic_visit(node)
        name = self.name(node.func)
        last = node.func.attr if isinstance(node.func, ast.Attribute) else name.rpartition(".")[2]
        given = {word.arg: word.value for word in node.keywords if word.arg}
        plain = name.removeprefix("builtins.")
        if plain.startswith("yaml.load"):
            loader = given.get("Loader", node.args[1] if len(node.args) > 1 else None)
            if self.name(loader) not in SAFE_LOADERS:
                self.add(node, "yaml")
        elif plain in UNSAFE_CALLS:
            self.add(node, UNSAFE_CALLS[plain])
        elif last in METHODS:
            self.add(node, METHODS[last])
        if plain == "torch.load" and not _is(given.get("weights_only"), True):
            self.add(node, "pickle")
        for word, (value, rule) in REFUSED_VALUES.items():
            if word in given and not _is(given[word], not value):
                self.add(given[word], rule)
        if plain.startswith("subprocess.") or last in ("Popen", "create_subprocess_exec"):
            self._program(node, given)
        if last in LISTENERS:
            self._listener(node, given, last)

    def _program(self, node, given):
        """A program is called with a list of arguments, never with a line."""
        command = node.args[0] if node.args else given.get("args")
        if (
            isinstance(command, ast.JoinedStr)
            or (isinstance(command, ast.BinOp) and not _adds_lists(command))
            or (isinstance(command, ast.Constant) and " " in str(command.value))
        ):
            self.add(node, "shell")

    def _listener(self, node, given, name):
        hosts = [value for word, value in given.items() if word in HOST_WORDS]
        hosts += node.args[LISTENERS[name] :][:1]
        for host in hosts:
            first = host.elts[0] if isinstance(host, ast.Tuple | ast.List) and host.elts else host
            if isinstance(first, ast.Constant) and first.value in ("", None):
                self.add(node, "listens everywhere")
        if not hosts and name in WITHOUT_HOST_EVERYWHERE:
            self.add(node, "listens everywhere")


def _is(node, value):
    return isinstance(node, ast.Constant) and node.value is value


def _adds_lists(node):
    return any(isinstance(side, ast.List | ast.Tuple) for side in (node.left, node.right))


def findings(source):
    walk = Walk()
    walk.visit(ast.parse(source))
    return walk.found


def files():
    return [ROOT / "run.py", *sorted(file for package in PACKAGES for file in (ROOT / package).rglob("*.py"))]


def test_no_file_does_what_none_may():
    found = {}
    for file in files():
        place = str(file.relative_to(ROOT))
        for line, rule in findings(file.read_text(encoding="utf-8")):
            found.setdefault((place, rule), []).append(line)
    unmeant = [
        f"{place}:{lines[0]}: {rule}" for (place, rule), lines in found.items() if (place, rule) not in EXCEPTIONS
    ]
    assert unmeant == []
    assert set(EXCEPTIONS) <= set(found)  # an exception that nothing needs is taken out


def test_all_files_are_walked():
    walked = {str(file.relative_to(ROOT)) for file in files()}
    assert {"run.py", "harness/llm/servers.py", "memfly/leiden.py", "scripts/endpoint.py"} <= walked and len(
        walked
    ) > 100


BAD = {
    "pickle": """
import pickle
from pickle import loads
import cPickle as p
import dill
from joblib import load
import shelve
import marshal
import joblib.numpy_pickle
import numpy as np; np.load(f, allow_pickle=True)
import numpy; numpy.load(f, allow_pickle=flag)
import torch; torch.load(f)
import torch as t; t.load(f, weights_only=False)
from torch import load as read; read(f)
frame.to_pickle(f)
import pandas as pd; pd.read_pickle(f)
""",
    "code of data": """
eval(text)
exec(text)
compile(text, "f", "exec")
import builtins; builtins.eval(text)
__import__(name)
AutoModel.from_pretrained(name, trust_remote_code=True)
""",
    "shell": """
import os; os.system("ls")
from os import popen
import os as o; o.popen("ls")
import subprocess; subprocess.run(words, shell=True)
import subprocess as sp; sp.Popen(words, shell=flag)
subprocess.run("ls -l")
subprocess.run(f"ls {name}")
subprocess.check_output("ls " + name)
from subprocess import Popen; Popen("ls -l")
import asyncio; asyncio.create_subprocess_shell(text)
""",
    "yaml": """
import yaml; yaml.load(text)
import yaml as y; y.load(text, Loader=y.Loader)
from yaml import load; load(text, Loader)
yaml.unsafe_load(text)
""",
    "tls": """
session.get(url, verify=False)
session.get(url, ssl=False)
import ssl; ssl._create_unverified_context()
""",
    "guessable file": "import tempfile; tempfile.mktemp()\nfrom tempfile import mktemp",
    "listens everywhere": """
serve(host="0.0.0.0")
hosts = ["::"]
socket.bind(("", 0))
web.TCPSite(runner, None, 80)
web.TCPSite(runner)
asyncio.start_server(handler, port=80)
asyncio.start_server(handler, host="", port=80)
ThreadingHTTPServer(("", 80), Handler)
""",
}


@pytest.mark.parametrize(
    ("rule", "line"), [(rule, line) for rule, text in BAD.items() for line in text.split("\n") if line]
)
def test_each_rule_is_seen(rule, line):
    before = "" if "import" in line else "import subprocess, yaml, ssl\n"
    assert rule in {found for _, found in findings(before + line)}


GOOD = """
import re, os, subprocess, sys, tempfile, yaml, asyncio, ast
import numpy as np
import torch
re.compile(text)
ast.literal_eval(text)
model.eval()
db.execute("SELECT 1")
subprocess.run([sys.executable, *words], shell=False)
subprocess.Popen(command)
subprocess.run(["git"] + words)
asyncio.create_subprocess_exec(sys.executable, "-I", text)
yaml.safe_load(text)
yaml.load(text, Loader=yaml.SafeLoader)
np.load(f)
np.load(f, allow_pickle=False)
torch.load(f, weights_only=True)
tempfile.mkstemp()
session.get(url, verify=True)
probe.bind(("127.0.0.1", 0))
web.TCPSite(runner, host, port)
web.TCPSite(runner, "127.0.0.1", 0)
asyncio.start_server(handler, "127.0.0.1", 0)
asyncio.start_server(handler, host="localhost", port=0)
text = "0.0.0.0 connects to this machine"
"""


def test_what_is_sound_is_not_found():
    assert findings(GOOD) == []
