"""A stand-in for the `vllm` program: `fake_vllm.py serve <model> --port N ...` with /health and chat completions.

Among the arguments, `--fake <mode>`: crash (ends while starting), never (is never healthy), stubborn (ignores
SIGTERM), tidy (a process of it, which ignores SIGTERM, has something to do after its end). It logs its arguments, the ids of itself and of one worker process, which only a group kill ends, and of the
environment what the bench says something about.
"""

import json
import os
import signal
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def option(name):
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else None


MODE = option("--fake")
TOLD = ("HF_HUB_OFFLINE", "VLLM_HOST_IP", "VLLM_NO_USAGE_STATS", "GLOO_SOCKET_IFNAME")


class Handler(BaseHTTPRequestHandler):
    asked = 0

    def answer(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        Handler.asked += 1
        self.answer(503 if MODE == "never" or Handler.asked < 2 else 200, {"path": self.path})

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers["Authorization"] != f"Bearer {os.environ['VLLM_API_KEY']}":
            return self.answer(401, {"error": "wrong key"})
        message = {"role": "assistant", "content": f"a reply of {sys.argv[2]}"}
        return self.answer(200, {"choices": [{"message": message, "finish_reason": "stop"}]})

    def log_message(self, *args):
        pass


TIDIES = """
import signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("tidier ready", flush=True)
sys.stdin.read()
subprocess.run([sys.executable, "-c", ""])
print("tidied", file=sys.stderr)
"""


def main():
    worker = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    environment = {name: os.environ.get(name) for name in TOLD}
    facts = {"argv": sys.argv[1:], "pids": [os.getpid(), worker.pid], "environment": environment}
    print(json.dumps(facts), flush=True)
    if MODE == "crash":
        print("Traceback (most recent call last):\n  ...\nValueError: no such model", file=sys.stderr)
        sys.exit(3)
    if MODE == "tidy":
        tidier = subprocess.Popen([sys.executable, "-c", TIDIES], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        tidier.stdout.readline()
    if MODE == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ThreadingHTTPServer((option("--host"), int(option("--port"))), Handler).serve_forever()


main()
