#!/usr/bin/env bash
# Builds the program of the committed sources twice, in two folders, and compares the results.
set -euo pipefail
cd "$(dirname "$0")/../../.."
target=$1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
for name in one another; do
    mkdir "$dir/$name"
    git archive HEAD | tar --extract --directory "$dir/$name"
    (
        cd "$dir/$name"
        export RUSTFLAGS="--remap-path-prefix=$PWD=/refit --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo"
        cargo zigbuild --release --locked --quiet --bin refit --target "$target"
    )
    program="$dir/$name/target/$target/release/refit"
    size=$(stat --format %s "$program")
    digest=$(sha256sum "$program" | cut -d ' ' -f 1)
    printf '%s: %s, %d bytes\n' "$name" "$digest" "$size"
    [[ ${first:=$digest} == "$digest" ]] || { printf 'the two builds differ\n' >&2; exit 1; }
    # The budget is 20 MB. A release is not held up by a few percent more, but nobody should miss it.
    ((size < 20000000)) || printf 'more than 20 MB\n' >&2
    ((size < 25000000)) || exit 1
done
if readelf --program-headers "$program" | grep -q INTERP; then
    printf 'the program is not static\n' >&2
    exit 1
fi
