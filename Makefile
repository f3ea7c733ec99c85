# Everything here needs Python 3.11 (3.10 or newer), gcc/g++ and make; the rest is installed into .venv.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin

.PHONY: setup demo test lint types wheel-test sanitize clean

setup: .venv/.ready

.venv/.ready: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "make: Python 3.10 or newer is needed (python3.11)"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[cpu,dev]'
	@touch $@

# A model with custom operators: written to a file, exported, validated.
demo: setup
	@mkdir -p demo
	cd demo && ../$(BIN)/python ../examples/demo_model.py
	cd demo && ../$(BIN)/deployops export model.pt --model ../examples/demo_model.py:Denoiser --ops ../examples/snake.py \
		--input 'noisy:float32[batch=1..64,8,time=16..4096%4]' -o model.onnx
	cd demo && ../$(BIN)/deployops validate model.pt --model ../examples/demo_model.py:Denoiser --ops ../examples/snake.py \
		--onnx model.onnx

test: setup
	$(BIN)/python -m pytest -n auto -q

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# mypy wants the package under its own name; the folder of a clone may have any.
types: setup
	@mkdir -p .build && ln -sfn .. .build/deployops
	MYPYPATH=.build $(BIN)/mypy -p deployops

# The tests of the kernels once more, with AddressSanitizer and UndefinedBehaviorSanitizer.
sanitize: setup
	$(BIN)/python tests/sanitize.py

wheel-test: setup
	$(BIN)/python tests/wheel.py

clean:
	rm -rf .venv .build build dist demo *.egg-info
