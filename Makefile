# Penstock. `make help` lists what there is to do. Every goal works as the first command typed after a clone.
SHELL := /bin/bash
CARGO_TARGET_DIR ?= $(CURDIR)/target
override CARGO_TARGET_DIR := $(abspath $(CARGO_TARGET_DIR))
export CARGO_TARGET_DIR
PREFIX ?= /usr/local
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
DESTDIR ?=
CFLAGS ?= -O2 -g
# rustup may have been installed by setup.sh in this very run.
CARGO = $$( home=$${CARGO_HOME:-$$HOME/.cargo}; [ -x "$$home/bin/cargo" ] && echo "$$home/bin/cargo" || echo cargo )
# rustup's name for the compiler of rust-toolchain.toml, if that is another one.
RUSTUP_TOOLCHAIN ?= $(shell tools/toolchain.sh)
ifneq ($(RUSTUP_TOOLCHAIN),)
export RUSTUP_TOOLCHAIN
endif
# The profile of what is built: `proof` for the tests.
PROFILE ?= release
BIN := $(CARGO_TARGET_DIR)/$(PROFILE)
PROGRAMS := $(CARGO_TARGET_DIR)/programs
CC_FLAGS := -std=c11 -D_GNU_SOURCE -Wall -Wextra $(CFLAGS)

.DEFAULT_GOAL := help

help: ## this list
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1|\2/p' $(MAKEFILE_LIST) | awk -F '|' '{ printf "  make %-14s %s\n", $$1, $$2 }'

setup: ## install what is missing to build and to test (Debian packages, .venv, Rust where it is absent)
	@tools/setup.sh build test guest

setup-build:
	@tools/setup.sh build

setup-lint:
	@tools/setup.sh build lint

build: setup-build rust cuda programs shims ## penstock, penstockd, wtrd, libpenstock_opencl.so, libwater.so and the C programs

rust:
	@[ -x $(BIN)/penstock ] || echo "building Penstock: some minutes the first time"
	@$(CARGO) build --profile $(PROFILE) --quiet $(RUST_TARGETS)
RUST_TARGETS := --workspace

# What tools/test.sh runs: programs and tests in one build.
tested: RUST_TARGETS := --workspace --all-targets
tested: rust cuda programs shims simulation

# In a build of its own, because all other programs must not have what it runs in.
simulation:
	@$(CARGO) build --profile $(PROFILE) --quiet -p penstock-simulate --features world --all-targets

# What CUDA programs load, in a folder of its own: `penstock run` shows it to them.
cuda: rust ## libcudart.so.12 and .13, libcuda.so.1 and what programs with a static runtime need, into target/release/cuda
	@tools/cuda/link.sh $(BIN)

# libWater's way to each MPI whose compiler is here; without one, libWater works in one process and on the pool.
# And for CUDA programs, the library that lets them pass device memory to this MPI.
shims: $(foreach mpi,openmpi mpich,$(if $(shell command -v mpicc.$(mpi)),$(BIN)/libwtr_mpi_$(mpi).so $(BIN)/cuda/libpenstock_mpi_$(mpi).so))

$(BIN)/libwtr_mpi_%.so: crates/faces/water/shim/wtr_mpi.c $(wildcard crates/faces/water/shim/*.h)
	@mkdir -p $(@D)
	@mpicc.$* -std=c11 -D_GNU_SOURCE -Wall -Wextra -O2 -shared -fPIC -o $@ $<

$(BIN)/cuda/libpenstock_mpi_%.so: $(wildcard crates/faces/cuda/mpi/*.[ch])
	@mkdir -p $(@D)
	@mpicc.$* -std=c11 -D_GNU_SOURCE -Wall -Wextra -O2 -shared -fPIC -fvisibility=hidden -o $@ $(filter %.c,$^) -ldl -lpthread

programs: $(PROGRAMS)/matmul $(PROGRAMS)/clbench $(PROGRAMS)/limits $(PROGRAMS)/penstock-bench

$(PROGRAMS)/matmul: $(wildcard examples/matmul/*.[ch] examples/common/*.[ch])
	@mkdir -p $(@D)
	@$(CC) $(CC_FLAGS) -o $@ $(filter %.c,$^) -lOpenCL -lpthread -lm

$(PROGRAMS)/clbench: bench/clbench.c bench/measures.c bench/clbench.h
	@mkdir -p $(@D)
	@$(CC) $(CC_FLAGS) -o $@ $(filter %.c,$^) -lOpenCL

$(PROGRAMS)/limits: bench/limits.c
	@mkdir -p $(@D)
	@$(CC) $(CC_FLAGS) -o $@ $(filter %.c,$^) -lpthread

$(PROGRAMS)/wtrbench: bench/wtrbench.c $(wildcard crates/faces/water/include/*.h)
	@mkdir -p $(@D)
	@$(CC) $(CC_FLAGS) -Icrates/faces/water/include -o $@ $< -L$(BIN) -lwater -lOpenCL -Wl,-rpath,$(BIN)

$(PROGRAMS)/penstock-bench: bench/run.py
	@mkdir -p $(@D)
	@install -m 755 $< $@

# Without link-time optimisation, and only what the demonstration runs: the first build takes minutes.
demo: setup-demo $(PROGRAMS)/matmul ## the matrix product on a pool of two nodes, beside the same program on local PoCL
	@$(CARGO) build --profile quick -p penstock-cli -p penstock-opencl
	@$(CARGO_TARGET_DIR)/quick/penstock demo

setup-demo:
	@tools/setup.sh build demo

test: ## the proof of correctness: installs, builds, runs; the last line counts the cases (about 15 minutes)
	@tools/test.sh

test-all: ## `make test` and all that takes long: random campaigns, fuzzing, each attack at each level (hours)
	@echo "all lanes: about three hours on two cores"
	@tools/setup.sh programs package slurm
	@tools/lammps.sh
	@tools/test.sh --lane all

perf: ## what judges time, rates, shares and memory; nothing else may run beside it (about 20 minutes)
	@tools/test.sh --lane perf

test-ucx: ## heaps between nodes over UCX, in a build with it (installs libucx0 and libucx-dev)
	@tools/test-ucx.sh

test-programs: setup build ## the slow real programs on all pools: clpeak, OpenMM, OpenCV (about 5 minutes), LAMMPS (a build of 10 minutes)
	@tools/setup.sh programs
	@tools/lammps.sh
	@PENSTOCK_BIN=$(BIN) tools/test.sh --only programs --lane all

test-suites: setup-build build ## CUDA suites on CPU devices: our cases of CUB and Thrust, numba-cuda's and CuPy's own tests (hours); ON=intel, SUITE=NAME, FILES=PARTS
	@tools/setup.sh suites
	@PENSTOCK_BIN=$(BIN) tests/suites/run.py --long $(if $(ON),--device $(ON)) $(if $(SUITE),--suite $(SUITE)) $(FILES)

bench: setup build ## measure the pool beside local PoCL; writes target/bench/ (about 5 minutes); BESIDE=FOLDER: beside another build, too
	@$(PROGRAMS)/penstock-bench --output $(CARGO_TARGET_DIR)/bench $(if $(BESIDE),--beside $(abspath $(BESIDE)))

bench-water: setup build $(PROGRAMS)/wtrbench ## what libWater's runtime costs: empty commands per second, and beside OpenCL's own calls
	@$(CARGO) run --release --quiet -p penstock-water --example throughput
	@$(PROGRAMS)/wtrbench

bench-cuda: setup build ## CUDA programs beside hand-written OpenCL ones on the same device, and what CUDA's calls cost
	@bench/cuda/run.py

bench-comm: setup build ## kernels that talk to each other, beside the ways through the host: ping-pong, bandwidth, barrier (about 7 minutes)
	@$(BIN)/penstock bench comm --bars

deb: build ## Debian packages of the command, the daemon and the headers, into target/package
	@tools/setup.sh package
	@PENSTOCK_BIN=$(BIN) tools/package/deb.sh

wheel: build ## a wheel with the command, the libraries and the Python package of libWater, into target/package
	@tools/setup.sh package
	@PENSTOCK_BIN=$(BIN) tools/package/wheel.sh

test-packages: setup build ## make the packages, install them in an empty Debian and an empty environment, and use them (some minutes, as root)
	@tools/setup.sh package
	@PENSTOCK_BIN=$(BIN) tools/test.sh --only packages --lane all

test-slurm: setup build ## jobs of Slurm on a cluster of namespaces on this host (some minutes, as root; installs Slurm, and starts no service)
	@tools/setup.sh slurm
	@PENSTOCK_BIN=$(BIN) tests/slurm/run.py --required
	@PENSTOCK_BIN=$(BIN) tests/slurm/run.py --required --cgroups

gpu-kit: setup build ## pack our programs and tests for a machine with an NVIDIA GPU, into target/gpu-kit (some minutes)
	@tools/setup.sh cuda
	@PENSTOCK_BIN=$(BIN) tools/gpu-kit/build.sh

bench-ggas: setup build ## the applications of examples/ggas, communicating inside their kernels and by the host
	@bench/ggas.py

bench-share: setup build ## eight programs that share two devices, beside one that has both
	@bench/share.py --turns 6 --seconds 10

bench-share-guests: setup build ## the same with each program in an emulated guest (about 5 minutes)
	@tools/setup.sh guest
	@bench/share.py --guests

study-md: setup build ## LAMMPS and OpenMM on the pool beside the local driver, ten runs each (hours; a build of 10 minutes)
	@tools/setup.sh programs guest openmm
	@tools/lammps.sh
	@PENSTOCK_BIN=$(BIN) .venv/bin/python bench/md/run.py $(if $(ONLY),--only '$(ONLY)') $(if $(RUNS),--runs $(RUNS)) $(if $(WAYS),--ways $(WAYS))

faults: setup build ## end clients, workers and daemons 100 times each in the middle of their work (about 10 minutes)
	@tests/faults/run.py --times 100

guest-faults: setup build ## kill 100 guests in the middle of their work, and let others fall silent, over vsock and over shared memory (about 20 minutes)
	@tools/setup.sh guest
	@tests/guests/faults.py --times 100
	@tests/guests/faults.py --times 100 --transport shm

fuzz: setup-build ## every decoder for 5 minutes each (installs cargo-fuzz)
	@tools/fuzz.sh

format: setup-lint ## format all sources: Rust, C, CUDA and Python
	@tools/format.sh

lint: setup-lint ## formatting, Clippy, documentation, spelling, and the rules of tools/policy
	@$(CARGO) clippy --quiet --workspace --all-targets -- -D warnings
	@RUSTDOCFLAGS="-D warnings" $(CARGO) doc --quiet --workspace --no-deps
	@tools/test.sh --only lint

check: setup-lint ## what needs no device and no daemon: lint, and the tests of the crates that decide (for the inner loop)
	@tools/check.sh

planted: setup-lint ## show that each rule and each runner of the tests fails on a planted violation (some minutes)
	@tools/policy/planted.sh
	@tools/proof/planted.py

install: ## copy what `make build` made to PREFIX (default /usr/local), below DESTDIR if that is given
	@[ -x $(BIN)/penstock ] || { echo "nothing to install: run \`make build\` first" >&2; exit 1; }
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib/penstock $(DESTDIR)$(PREFIX)/include/CL
	install -m 755 $(BIN)/penstock $(BIN)/penstockd $(BIN)/penstock-check $(BIN)/wtrd $(DESTDIR)$(PREFIX)/bin
	install -m 644 $(BIN)/libpenstock_opencl.so $(DESTDIR)$(PREFIX)/lib/penstock
	install -d $(DESTDIR)$(PREFIX)/lib/penstock/cuda
	for library in $(BIN)/cuda/*.so*; do if [ -L $$library ]; then cp -Pf $$library $(DESTDIR)$(PREFIX)/lib/penstock/cuda; elif [ -e $$library ]; then install -m 644 $$library $(DESTDIR)$(PREFIX)/lib/penstock/cuda; fi; done
	install -m 755 $(PROGRAMS)/matmul $(PROGRAMS)/clbench $(PROGRAMS)/limits $(PROGRAMS)/penstock-bench $(DESTDIR)$(PREFIX)/lib/penstock
	install -m 644 $(BIN)/libwater.so $(BIN)/libpenstock_energy.so $(DESTDIR)$(PREFIX)/lib
	for shim in $(BIN)/libwtr_mpi_*.so; do [ ! -e $$shim ] || install -m 644 $$shim $(DESTDIR)$(PREFIX)/lib/penstock; done
	install -m 644 crates/faces/water/include/wtr.h crates/faces/water/include/wtr_ext.h crates/tools/energy/include/penstock_energy.h crates/pool/ggas/include/ggas.h include/penstock_cuda.h $(DESTDIR)$(PREFIX)/include
	install -d $(DESTDIR)$(PREFIX)/lib/pkgconfig
	sed 's|@PREFIX@|$(abspath $(PREFIX))|; s|@VERSION@|$(VERSION)|' crates/faces/water/libwater.pc.in >$(DESTDIR)$(PREFIX)/lib/pkgconfig/libwater.pc
	install -d $(DESTDIR)$(PREFIX)/lib/penstock/vendors
	echo $(abspath $(PREFIX))/lib/penstock/libpenstock_opencl.so >$(DESTDIR)$(PREFIX)/lib/penstock/vendors/penstock.icd
	for header in include/CL/*.h; do [ ! -e $$header ] || install -m 644 $$header $(DESTDIR)$(PREFIX)/include/CL; done
	install -d $(addprefix $(DESTDIR)$(PREFIX)/share/man/,man1 man5 man8)
	$(BIN)/penstock man $(DESTDIR)$(PREFIX)/share/man/man1
	for page in wtrd.1 pool.toml.5 limits.toml.5 penstockd.8; do install -m 644 man/$$page $(DESTDIR)$(PREFIX)/share/man/man$${page##*.} || exit; done
	install -d $(addprefix $(DESTDIR)$(PREFIX)/lib/systemd/,system user)
	sed 's|@PREFIX@|$(abspath $(PREFIX))|' packaging/penstockd.service.in >$(DESTDIR)$(PREFIX)/lib/systemd/system/penstockd.service
	sed 's|@PREFIX@|$(abspath $(PREFIX))|' packaging/penstock.service.in >$(DESTDIR)$(PREFIX)/lib/systemd/user/penstock.service
	install -d $(DESTDIR)$(PREFIX)/share/penstock
	install -m 644 packaging/worker-users.conf $(DESTDIR)$(PREFIX)/share/penstock
	install -d $(DESTDIR)$(PREFIX)/share/penstock/prometheus
	install -m 644 packaging/prometheus/rules.yml packaging/prometheus/grafana.json $(DESTDIR)$(PREFIX)/share/penstock/prometheus
	sed 's|@PREFIX@|$(abspath $(PREFIX))|' packaging/prometheus/penstock-metrics.service.in >$(DESTDIR)$(PREFIX)/share/penstock/prometheus/penstock-metrics.service
	install -d $(DESTDIR)$(PREFIX)/share/bash-completion/completions $(DESTDIR)$(PREFIX)/share/zsh/site-functions $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	$(BIN)/penstock completions bash >$(DESTDIR)$(PREFIX)/share/bash-completion/completions/penstock
	$(BIN)/penstock completions zsh >$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_penstock
	$(BIN)/penstock completions fish >$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/penstock.fish

uninstall: ## remove from PREFIX what `make install` copied there
	rm -rf $(DESTDIR)$(PREFIX)/lib/penstock
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/,bin/penstock bin/penstockd bin/penstock-check bin/wtrd lib/libwater.so lib/libpenstock_energy.so lib/pkgconfig/libwater.pc include/penstock_energy.h include/wtr.h include/wtr_ext.h include/CL/cl_penstock.h include/CL/cl_ext_penstock.h include/ggas.h include/penstock_cuda.h)
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/lib/systemd/,system/penstockd.service user/penstock.service)
	rm -rf $(DESTDIR)$(PREFIX)/share/penstock
	rm -f $(DESTDIR)$(PREFIX)/share/man/man1/penstock.1 $(DESTDIR)$(PREFIX)/share/man/man1/penstock-*.1
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/share/man/,man1/wtrd.1 man5/pool.toml.5 man5/limits.toml.5 man8/penstockd.8)
	rm -f $(DESTDIR)$(PREFIX)/share/bash-completion/completions/penstock $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_penstock $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/penstock.fish

clean: ## remove what was built; .venv and .cache stay
	@rm -rf $(CARGO_TARGET_DIR)

.PHONY: deb wheel test-packages test-slurm test-suites bench-water bench-cuda bench-comm bench-ggas gpu-kit bench-share bench-share-guests study-md cuda shims simulation tested help setup setup-build setup-lint setup-demo build rust programs demo test test-all perf test-ucx test-programs bench faults guest-faults fuzz format lint check planted install uninstall clean
