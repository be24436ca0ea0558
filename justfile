# `just` lists what can be done here. The two commands that matter need no just: cargo demo, cargo test.

set shell := ["bash", "-euo", "pipefail", "-c"]

container := env("CONTAINER", "docker")
image := "ghcr.io/refit-rs/refit"
version := `sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1`

# List the recipes
default:
    @{{ just_executable() }} --list --unsorted

# Everything that CI asks, in its order
check:
    .ci/run

# Format the sources
fmt:
    cargo fmt

# Clippy, with warnings as errors
lint:
    cargo clippy --all-targets --locked -- -D warnings

# All tests, on a control plane that they bring up themselves; arguments choose some
test *ARGS:
    cargo test --locked {{ ARGS }}

# A cluster with five fake nodes, and a roll-out to watch; Ctrl-C ends it
demo *ARGS:
    cargo demo {{ ARGS }}

# Real nodes: kubelets and hosts that reboot (root, Debian); an argument chooses some
e2e FILTER="e2e::": _nodes
    cargo test --locked --test main -- --ignored --nocapture --test-threads=2 {{ FILTER }}

# The e2e suite of system-upgrade-controller, from a checkout of it, unmodified, against refit on real nodes
suc-suite CHECKOUT: _nodes
    REFIT_SUC_CHECKOUT="$(realpath {{ CHECKOUT }})" cargo test --locked --test main -- --ignored --nocapture suc_suite::

# The budgets, measured: time, requests, memory; how long a decision and a rehearsal take; a drain beside kubectl's
bench: (_ignored "bench")
    cargo test --profile long-tests --locked --lib -- --nocapture --include-ignored --test-threads=1 speed::

# Roll-outs at full length, with kills and faults (REFIT_SOAK=5: five; REFIT_SOAK_SEED: those of an earlier run); real nodes
soak: (_ignored "soak") e2e

# Storms: the controller against lost requests, dying processes and machines, and people, by the dice (REFIT_SEED: from that
# one on)
storm SEEDS="20000":
    REFIT_SEEDS={{ SEEDS }} cargo test --profile long-tests --locked --lib -- --nocapture rehearse::tests::storm::whatever

# Rewrite the generated files: crds/, docs/man/
generate:
    REFIT_UPDATE=1 cargo test --quiet --locked --lib committed

# The container image (just image=REGISTRY/NAME image; CONTAINER=podman for another builder)
image:
    {{ container }} build --file Containerfile --tag {{ image }}:v{{ version }} .

# The controller, from the sources, against the current kubeconfig
run *ARGS:
    cargo run -- --name system-upgrade-controller --namespace system-upgrade {{ ARGS }}

# Fails with what this machine lacks for real nodes.
_nodes:
    @tests/bed/node/missing.sh || { printf '\nno real nodes here: the above is missing\n' >&2; exit 1; }

# Long tests are ignored by `cargo test`; those of one kind have its name as their module. None is an error. One at a time:
# they keep the machine busy, or measure it.
_ignored KIND:
    cargo build --release --locked --bin refit
    cargo test --profile long-tests --locked --test main -- --ignored --list {{ KIND }}:: | grep -q ': test$'
    REFIT_TEST_BINARY="$(realpath "${CARGO_TARGET_DIR:-target}/release/refit")" \
        cargo test --profile long-tests --locked --test main -- --ignored --nocapture --test-threads=1 {{ KIND }}::
