# Two commands do all the set-up on a fresh machine: `make bench` and `make test`.
PYTHON ?= python3
PY := .venv/bin/python
ARGS ?=

.PHONY: help setup bench test lint emulate emulate-nvfp4 integrity sweep serve peers gpu submission toolchain docs clean

help:
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: .venv/.core ## .venv with what the main job needs (PYTHON=/path/to/python reuses that interpreter's torch)

.venv/.%: pyproject.toml scripts/setup_venv.sh
	@scripts/setup_venv.sh "$(PYTHON)" $*

bench: setup ## evaluate submission.py (ARGS="..." goes to eval.py)
	@$(PY) eval.py --mode benchmark $(ARGS)

lint: .venv/.test ## ruff, pyright, the layers
	$(PY) -m ruff check --no-cache .
	$(PY) -m pyright
	.venv/bin/lint-imports

test: .venv/.test lint ## everything that CI runs; without the toolchain the tests that need it are skipped
	-@scripts/toolchain.sh
	$(PY) scripts/bundle.py --check
	$(PY) scripts/docs_tables.py --check
	$(PY) scripts/integrity.py --docs --check
	$(PY) -m pytest -n 2 --dist worksteal -m "not slow and not gpu" $(ARGS)

emulate: .venv/.test toolchain ## every HIP kernel that dispatch can choose, through the emulator
	$(PY) scripts/emulate.py $(ARGS)

emulate-nvfp4: .venv/.test toolchain ## the same for the NVFP4 problem
	$(PY) scripts/emulate_nvfp4.py $(ARGS)

integrity: setup ## the cheats and the honest controls of exploits/ against the harness
	$(PY) scripts/integrity.py $(ARGS)

sweep: .venv/.sweep ## re-tune the split tables of configs/dispatch.yml
	$(PY) -m sweep $(ARGS)

serve: .venv/.serve ## the local leaderboard: popcorn server, runner and pages on http://127.0.0.1:8000
	$(PY) -m leaderboard serve $(ARGS)

peers: setup ## the submission and the public MLA kernels that are installed, in turn
	$(PY) scripts/bench_peers.py $(ARGS)

gpu: .venv/.test ## what only a GPU can tell: GPU tests, measurements, the integrity corpus, a sweep
	$(PY) scripts/on_gpu.py $(ARGS)

submission: setup ## regenerate submission.py from kernels/
	$(PY) scripts/bundle.py

toolchain: .venv/.gfx950 ## clang, lld and llvm tools with gfx950
	@scripts/toolchain.sh

docs: setup ## regenerate the tables in docs/ from committed results
	$(PY) scripts/docs_tables.py

clean: ## remove the environment and caches
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis .import_linter_cache
