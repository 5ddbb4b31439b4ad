# make demo and make test need nothing but Python, a C/C++ compiler and make.
VENV ?= .venv
PYTHON ?=
RUN = $(VENV)/bin/python
GPU_TESTS = test/cuda test/emulator test/backends/test_cudla.py test/test_node_cudla.py

.DEFAULT_GOAL := help
.PHONY: help setup demo test golden test-gpu campaign lint types check docs lock clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup:  ## set up $(VENV); done once, then instantly
	@VENV="$(VENV)" PYTHON="$(PYTHON)" sh scripts/setup.sh

demo: setup  ## find objects in real pictures and a real clip, over DDS; see out/demo
	@$(RUN) -m dla_ros demo --out out/demo --force

test: setup  ## run the tests
	@$(RUN) -m pytest

golden: setup  ## every network against its golden results, on both backends
	@$(RUN) -m pytest test/test_golden.py

test-gpu: setup  ## the tests of the robot's path on real CUDA, with only the DLA emulated
	@DLA_ROS_REQUIRE_GPU=1 $(RUN) -m pytest $(GPU_TESTS)

campaign: setup  ## fail every call of CUDA and cuDLA in turn (about two minutes)
	@$(RUN) -m test.campaign

lint: setup  ## ruff
	@$(RUN) -m ruff check .

types: setup  ## mypy
	@$(RUN) -m mypy

check: lint types test  ## all that CI looks at

docs: setup  ## write the parameters table of the README from the code
	@$(RUN) scripts/update_readme.py

lock: setup  ## resolve requirements.in into requirements.lock
	@sh scripts/lock.sh "$(RUN)"

clean:  ## remove all that is made here
	rm -rf .venv* build install log out .hypothesis .mypy_cache .pytest_cache .ruff_cache
