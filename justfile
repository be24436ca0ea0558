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

# Real nodes: kubelets that reboot (root, Debian)
e2e: (_ignored "e2e")

# The budgets, measured: time, requests, memory
bench: (_ignored "bench")

# Roll-outs at full length, with kills and faults (REFIT_SOAK=5: five; REFIT_SOAK_SEED: those of an earlier run)
soak: (_ignored "soak")

# Rewrite the generated files: crds/
generate:
    REFIT_UPDATE=1 cargo test --quiet --locked --lib crd::tests

# The container image (just image=REGISTRY/NAME image; CONTAINER=podman for another builder)
image:
    {{ container }} build --file Containerfile --tag {{ image }}:v{{ version }} .

# The controller, from the sources, against the current kubeconfig
run *ARGS:
    cargo run -- --name system-upgrade-controller --namespace system-upgrade {{ ARGS }}

# Long tests are ignored by `cargo test`; those of one kind have its name as their module. None is an error. One at a time:
# they keep the machine busy, or measure it.
_ignored KIND:
    cargo build --release --locked --bin refit
    cargo test --profile long-tests --locked --test main -- --ignored --list {{ KIND }}:: | grep -q ': test$'
    REFIT_TEST_BINARY="$(realpath "${CARGO_TARGET_DIR:-target}/release/refit")" \
        cargo test --profile long-tests --locked --test main -- --ignored --nocapture --test-threads=1 {{ KIND }}::
