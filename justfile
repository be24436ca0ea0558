# `just` lists the recipes. The two most important commands need no just: cargo run -- rehearse PLAN, cargo test.

set shell := ["bash", "-euo", "pipefail", "-c"]

container := env("CONTAINER", "docker")
image := "ghcr.io/refit-rs/refit"
version := `sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1`

# List the recipes
default:
    @{{ just_executable() }} --list --unsorted

# Everything that CI runs, in its order
check:
    .ci/run

# Format the sources
fmt:
    cargo fmt --all

# Clippy, with warnings as errors
lint:
    cargo clippy --workspace --all-targets --locked -- -D warnings

# All tests that need only Rust, with a tenth of the seeds and of the swept writes (REFIT_SAMPLE=1: all of them); arguments select some
test *ARGS:
    cargo test --locked {{ ARGS }}

# The tests on a real control plane, which they build and start themselves (Go); arguments select some
cluster *ARGS:
    cargo cluster {{ ARGS }}

# A roll-out on a real control plane with five simulated nodes; Ctrl-C ends it
demo *ARGS:
    cargo demo {{ ARGS }}

# Tests on real kubelets and hosts that reboot (root, Debian); an argument selects some
e2e FILTERS="e2e:: node::namespaces:: agent_bus::": _nodes
    cargo test --locked --test cluster -- --ignored --nocapture --test-threads=2 {{ FILTERS }}

# The page in a headless Chromium, checked by axe-core, which npm fetches (chromium, npm)
browser:
    folder="$(mktemp -d)"; trap 'rm -rf "$folder"' EXIT; cd "$folder"; npm pack --silent axe-core@4.14.1 >/dev/null; tar xzf axe-core-4.14.1.tgz; \
        cd "{{ justfile_directory() }}"; REFIT_AXE="$folder/package/axe.min.js" \
        cargo test --locked --test cluster -- --ignored --nocapture --test-threads=1 dashboard::browser::

# The picture in README.md again, after a change of the page (chromium)
picture:
    folder="$(mktemp -d)"; trap 'rm -rf "$folder"' EXIT; \
        cargo run --quiet --locked -- rehearse examples/k3s-upgrade.yaml --nodes 12 --quiet --html "$folder/page.html"; \
        chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=1200,745 \
        --screenshot="$PWD/docs/images/rollout.png" "file://$folder/page.html"

# The e2e suite of system-upgrade-controller, from a checkout of it, unmodified, against refit on real nodes
suc-suite CHECKOUT: _nodes
    REFIT_SUC_CHECKOUT="$(realpath {{ CHECKOUT }})" cargo test --locked --test cluster -- --ignored --nocapture --test-threads=1 suc_suite::the_e2e

# Migration and the way back, with system-upgrade-controller built from a checkout, on simulated kubelets
suc-migration CHECKOUT:
    REFIT_SUC_CHECKOUT="$(realpath {{ CHECKOUT }})" cargo test --locked --test cluster -- --ignored --nocapture --test-threads=1 suc_suite::migrate::

# The e2e suite of node-maintenance-operator, unmodified, against refit on a control plane with simulated kubelets: the compiled tests of its package test/e2e
nmo-suite PROGRAM:
    REFIT_NMO_SUITE="$(realpath {{ PROGRAM }})" cargo test --locked --test cluster -- --ignored --nocapture nmo_suite::

# What depends on the API server, on the oldest Kubernetes that the tests know (its first build takes ten minutes); arguments select some
oldest *ARGS="definition:: schema:: jobs:: lifecycle:: permissions:: node_account:: agent_labels:: maintenance:: node_ops:: drain:: chart:: leader:: plan_status::":
    REFIT_KUBERNETES=1.32 cargo cluster {{ ARGS }}

# Benchmarks against their budgets: time, requests and memory of the controller, decisions, rehearsals, drains beside kubectl's
bench: (_ignored "bench")
    cargo test --profile long-tests --locked --package refit-rollout --lib -- --nocapture --include-ignored --test-threads=1 speed::

# Roll-outs at full length, with kills and faults (REFIT_SOAK=5: five; REFIT_SOAK_SEED: those of an earlier run); every scenario on a real control plane; real nodes; a day with 5,000 nodes
soak: (_ignored "soak") hostile scenarios e2e
    cargo test --profile long-tests --locked --package refit-testkit --lib -- --nocapture --ignored --test-threads=1 soak::

# 100,000 hostile inputs for each parser (`cargo test`: 100)
hostile CASES="100000":
    REFIT_CASES={{ CASES }} cargo test --profile long-tests --locked --package refit-channel --lib -- --nocapture tests::hostile::
    REFIT_CASES={{ CASES }} cargo test --profile long-tests --locked --test main -- --nocapture hostile_input::

# Attacks on a Plan for 50 nodes, one at a time, as a table (three quarters of an hour; REFIT_ATTACK=Secrets,windows: those with one of these words)
attacks: (_ignored "attacks::long")

# The scenarios that run only in process elsewhere, on a real control plane; an argument selects some
scenarios FILTER="::real":
    cargo cluster --ignored --nocapture {{ FILTER }}

# Simulations with random faults of requests, processes and machines, and random user actions (REFIT_SEED: from that seed on)
simulate SEEDS="20000":
    REFIT_SEEDS={{ SEEDS }} cargo test --profile long-tests --locked --package refit-testkit --lib -- --nocapture tests::simulation::whatever

# Rewrite the generated files: crds/, docs/plan.md, tests/README.md, the tables of docs/operations.md and docs/metrics.md, prometheusrule.yaml, deploy/refit.yaml, deploy/chart
generate:
    # Twice: the chart and the single file contain the CRD, which another crate writes after them.
    for _ in 1 2; do REFIT_UPDATE=1 cargo test --quiet --locked --lib committed -- --test-threads=1; done

# The man pages, one for each command, in a folder below this one; they are made of `--help`
man FOLDER="target/man":
    REFIT_MAN={{ FOLDER }} cargo test --quiet --locked --package refit --lib -- --ignored the_man_pages_are_written

# The container image (just image=REGISTRY/NAME image; CONTAINER=podman for another builder)
image:
    {{ container }} build --file Containerfile --tag {{ image }}:v{{ version }} .

# Licences, sources, duplicates and advisories of the dependencies (cargo install cargo-deny)
deny *ARGS="advisories bans licenses sources":
    cargo deny --config .deny.toml check {{ ARGS }}

# The dependencies as a CycloneDX SBOM, refit.cdx.json (cargo install cargo-cyclonedx)
sbom:
    cargo cyclonedx --format json --spec-version 1.5 --override-filename refit.cdx

# The static program of a platform, twice, in two folders: both must be the same (pip install ziglang cargo-zigbuild)
reproducible TARGET="x86_64-unknown-linux-musl":
    tests/testenv/scripts/reproducible.sh {{ TARGET }}

# The controller, from the sources, against the current kubeconfig
run *ARGS:
    cargo run -- --name system-upgrade-controller --namespace system-upgrade {{ ARGS }}

# Lists what this machine lacks for tests on real nodes, and fails if anything is missing.
_nodes:
    @tests/testenv/scripts/missing.sh || { printf '\nno real nodes here: the above is missing\n' >&2; exit 1; }

# `just cluster` ignores long tests; those of one kind are in the module of that name. It is an error if there are none. They run
# one at a time, because they load the machine or measure it.
_ignored KIND:
    cargo build --release --locked --bin refit
    cargo test --profile long-tests --locked --test cluster -- --ignored --list {{ KIND }}:: | grep -q ': test$'
    REFIT_TEST_BINARY="$(realpath "${CARGO_TARGET_DIR:-target}/release/refit")" \
        cargo test --profile long-tests --locked --test cluster -- --ignored --nocapture --test-threads=1 {{ KIND }}::
