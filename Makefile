# The commands to remember; `make` alone lists them. Each does the set-up that it needs.
SHELL := /bin/sh
# As many as there are cores run real clusters (tests/scheduling.py), which also wait; the others never do.
WORKERS ?= $(shell expr $$(nproc) + 2)
PYTHON ?= python3
export PYTHON
# Containers often set it: every process would compile what it imports, and pytest all tests once per worker.
unexport PYTHONDONTWRITEBYTECODE
bin := .venv/bin
PYTEST := -n $(WORKERS) --dist loadscope

.DEFAULT_GOAL := help
.PHONY: help setup test test-faults test-durations test-long test-steady test-torch test-gpu test-image test-kubernetes kube-up kube-down demo demo-torch bench docs man lint format clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## programs and virtual environments, for everything below
	@scripts/setup.sh test

test: ## style, types and all tests but the long ones; ARGS="-k name" for some, WORKERS=1 one at a time
	@scripts/test.sh $(PYTEST) -m "not faults and not long" --durations=5 --durations-min=1 $(ARGS)

test-durations: ## write to tests/durations.json what each test takes, one at a time, on an idle machine; ARGS="FILE ..." for some files
	@scripts/test.sh -m "not faults and not long" --record-durations $(ARGS)

test-faults: ## kill matrices and other long proofs
	@scripts/setup.sh test
	@$(bin)/pytest $(PYTEST) -m "faults and not long" --durations=10 $(ARGS)

test-long: ## the rest of long matrices, every test of docs/maintainers/faults.md N=10 times, then FAULTS=200 at random, from SEED=: hours, and never in CI
	@scripts/setup.sh test
	@status=0; \
	$(bin)/pytest $(PYTEST) -m long || status=1; \
	$(bin)/python -m tests.kubernetes.programs >/dev/null \
		&& $(bin)/pytest -o faulthandler_timeout=7200 -m long tests/kubernetes || status=1; \
	$(bin)/python scripts/steady.py --runs $(or $(N),10) --limit 14400 $(if $(SEED),--seed $(SEED)) -- $(PYTEST) \
		$$(grep -o 'tests/[^`]*::[^`]*' docs/maintainers/faults.md | sort -u) || status=1; \
	$(bin)/python -m tests.workbench.soak $(if $(FAULTS),--faults $(FAULTS)) $(if $(SEED),--seed $(SEED)) || status=1; \
	exit $$status

test-steady: ## run the tests N=5 times, each in another order, and count failures; HOGS=1 on busy cores, SEED= of the first
	@scripts/setup.sh test
	@$(bin)/python scripts/steady.py $(if $(N),--runs $(N)) $(if $(SEED),--seed $(SEED)) $(if $(filter-out 0,$(HOGS)),--hogs) \
		-- $(PYTEST) -m "not faults and not long" $(ARGS)

test-torch: ## the tests of what depends on torch with other releases of it: RELEASES="2.12 2.14"; 5 GB and some minutes each
	@scripts/setup.sh test
	@scripts/test-torch.sh $(or $(RELEASES),2.4 2.10 2.11 2.15)

test-gpu: ## tests that need GPUs; PORTABLE=directory of scripts/portable-tools.sh where nothing can be installed
	@ls /dev/nvidia[0-9]* >/dev/null 2>&1 || { echo "make test-gpu: this machine has no GPU" >&2; exit 1; }
	@[ -n "$(PORTABLE)" ] || scripts/setup.sh test
	@PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 $(if $(PORTABLE),scripts/use-portable-tools.sh $(PORTABLE) -- python,$(bin)/python) \
		-m pytest -rs -o faulthandler_timeout=300 tests/gpu $(ARGS)

test-image: ## the CPU image, really built: root, podman, four minutes
	@scripts/setup.sh image
	@scripts/test-image.sh $(bin)/pytest -o faulthandler_timeout=1200 tests/image $(ARGS)

test-kubernetes: ## the chart before a real API server, JobSet, Kueue and a real kubelet: root, Go; the first time 13 minutes and 7 GB of caches
	@scripts/setup.sh kubernetes
	@$(bin)/python -m tests.kubernetes.programs >/dev/null
	@scripts/test-image.sh $(bin)/python -m tests.image.archive >/dev/null
	@$(bin)/pytest -o faulthandler_timeout=1800 -m "not long" --durations=10 tests/kubernetes $(ARGS)

kube-up: ## the same control plane with eight simulated nodes, to stay: prints how to use it; ARGS="--image NAME" for your images
	@scripts/setup.sh kubernetes
	@$(bin)/python -m tests.kubernetes.up up $(ARGS)

kube-down: ## end it
	@$(bin)/python -m tests.kubernetes.up down

demo: ## four pods with two fake GPUs each on this machine: they form a cluster and run over MPI
	@scripts/setup.sh demo
	@$(bin)/a4-agent local run --pods 4 --gpus-per-pod 2 --results a4-results connectivity $(ARGS)
	@printf '%s\n' '' 'Next, after `. .venv/bin/activate`:' \
		'  a4-agent local run --pods 4 --missing 2 --env A4_PEER_TIMEOUT_SECONDS=15 none    # a pod that never comes' \
		'  a4-agent local up --pods 4 --wait; a4-agent local exec 1                         # a shell in a pod that stays' \
		'  a4-agent local down                                                              # end it'

demo-torch: ## the same pods train a small model with PyTorch's DDP; loads torch, and says first how much that is
	@scripts/setup.sh demo-torch
	@$(bin)/a4-agent local run --pods 4 --gpus-per-pod 2 --results a4-results --env A4_PYTHON=$(CURDIR)/.venv-torch/bin/python \
		ddp $(ARGS)
	@printf '%s\n' '' 'Next, after `. .venv/bin/activate`, a script on pods that stay:' \
		'  a4-agent local up --pods 4 --gpus-per-pod 2 --env A4_PYTHON=$$PWD/.venv-torch/bin/python --wait' \
		'  a4-agent local exec 0 -- a4-agent torchrun -- $$PWD/examples/train.py' \
		'  a4-agent local down'

bench: ## what docs/performance.md says: starts of clusters, commands on all pods, releases; ARGS=--json, --curve
	@scripts/setup.sh bench
	@$(bin)/python -m bench $(ARGS)

docs: ## the pages of docs/ as a site, in site/
	@scripts/setup.sh docs
	@NO_MKDOCS_2_WARNING=1 $(bin)/python -m mkdocs build --strict
	@echo "$(bin)/python -m http.server --directory site"

man: ## the manual page, build/a4-agent.1
	@scripts/setup.sh demo
	@mkdir -p build
	@$(bin)/python -m scripts.man_page >build/a4-agent.1
	@echo "man -l build/a4-agent.1"

lint: ## style and types only
	@scripts/setup.sh lint
	@$(bin)/ruff check .
	@$(bin)/ruff format --check .
	@$(bin)/mypy

format: ## put the code into the one style
	@scripts/setup.sh lint
	@$(bin)/ruff check --fix .
	@$(bin)/ruff format .

clean: ## remove environments, caches and build output
	rm -rf .venv .venv-* .venv.* .helm build dist site *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find agent entrypoints tests -name __pycache__ -type d -exec rm -rf {} +
