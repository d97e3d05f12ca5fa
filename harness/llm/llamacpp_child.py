"""A llama.cpp server in its own process: `python -P llamacpp_child.py <JSON options>`, the API key in the environment.

Apart from the bench because native code may neither block its exit nor crash it. Prints {"url": ...} on stdout once
the model is loaded; llama.cpp's own output goes to stderr. Runs until it is killed.
"""

from __future__ import annotations

import json
import os
import signal
import sys

KEY_VARIABLE = "MEMFLY_BENCH_SERVER_KEY"


def main() -> None:
    options = json.loads(sys.argv[1])
    announce = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    # Threads that spin at every barrier collapse as soon as another process takes a core (measured beside a load of
    # 7 on two cores: 20 to 38 s a call spinning, 5 s yielding). Read by OpenMP when the library is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = options["path"]
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [os.environ.pop(KEY_VARIABLE)]
    params.cors_origins = "http://127.0.0.1"
    params.ui = False
    params.n_gpu_layers = 0
    params.n_parallel = options["slots"]
    params.n_ctx = options["window"] * options["slots"]
    params.fit_params = False  # the window is part of the run's identity: never shrunk to what memory is free
    params.cpuparams.n_threads = options["threads"]
    params.cpuparams_batch.n_threads = options["threads"]
    params.cache_prompt = True
    params.cache_ram_mib = options["cache_mib"]
    server = xllamacpp.Server(params)
    print(json.dumps({"url": server.listening_address}), file=announce, flush=True)
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
