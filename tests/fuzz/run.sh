#!/usr/bin/env bash
# Runs the fuzz targets of a build made with -DTP_FUZZ=ON, one after the other.
#   tests/fuzz/run.sh [--seconds N] [--target NAME] [BUILD]
# Seconds per target: --seconds, or $TP_FUZZ_SECONDS, or 30. BUILD: default build-fuzz in the project's folder.
# New inputs stay in BUILD/tests/fuzz/corpus/NAME, so that a later run goes on from there; what fails is kept in
# BUILD/tests/fuzz/failures.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

seconds=${TP_FUZZ_SECONDS:-30}
target=
while [ $# -gt 0 ]; do
    case $1 in
    --seconds) seconds=${2:?--seconds needs a number} && shift ;;
    --target) target=${2:?--target needs a name} && shift ;;
    -h | --help) sed -n '2,6s/^# \{0,1\}//p' "$0" && exit 0 ;;
    -*) echo "unknown option $1" >&2 && exit 2 ;;
    *) break ;;
    esac
    shift
done
build=$(cd "${1:-$here/../../build-fuzz}" && pwd)
bin=$build/tests/fuzz

if [ ! -d "$bin/seeds" ]; then
    python3 "$here/seeds.py" --tensorpress "$build/tensorpress" --samples "$here/../../samples" --out "$bin/seeds"
fi

run_target() {
    local name=$1 short=${1#fuzz_} folders
    mkdir -p "$bin/corpus/$name" "$bin/failures"
    folders=("$bin/corpus/$name")
    # Inputs that failed once stay in the project, and are tried first ever after.
    for folder in "$bin/seeds/$short" "$here/found/$short"; do
        [ ! -d "$folder" ] || folders+=("$folder")
    done
    local options=(-max_total_time="$seconds" -rss_limit_mb=2048 -timeout=20 -print_final_stats=1
        -artifact_prefix="$bin/failures/$name-")
    [ ! -f "$here/$short.dict" ] || options+=(-dict="$here/$short.dict")
    [ ! -f "$here/$short.options" ] || mapfile -t -O "${#options[@]}" options <"$here/$short.options"
    printf '%s: %s s\n' "$name" "$seconds"
    "$bin/$name" "${options[@]}" "${folders[@]}"
}

if [ -n "$target" ]; then
    run_target "$target"
else
    for source in "$here"/fuzz_*.c; do run_target "$(basename "$source" .c)"; done
fi
