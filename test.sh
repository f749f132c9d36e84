#!/usr/bin/env bash
# Builds and tests everything: gcc Release, clang Release (warnings), clang with ASan and UBSan, fuzzing.
# Works on a fresh Debian or Ubuntu; may be run again at any time.
set -euo pipefail
cd "$(dirname "$0")"
# shellcheck source=.ci/deps.sh
. .ci/deps.sh

usage() {
    cat <<END
usage: ./test.sh [--quick] [--fuzz-seconds N]
  --quick            no fuzzing
  --fuzz-seconds N   seconds per fuzz target (default: \$TP_FUZZ_SECONDS or 30)
END
}

fuzz_seconds=${TP_FUZZ_SECONDS:-30}
quick=
while [ $# -gt 0 ]; do
    case $1 in
    --quick) quick=1 ;;
    --fuzz-seconds) fuzz_seconds=${2:?--fuzz-seconds needs a number} && shift ;;
    -h | --help) usage && exit 0 ;;
    *) usage >&2 && exit 2 ;;
    esac
    shift
done
case $fuzz_seconds in '' | *[!0-9]*) echo "not a number of seconds: $fuzz_seconds" >&2 && exit 2 ;; esac

passed=0 failed=0 step='' summary=()
begin=$SECONDS

# A step that ends before its tests ran (a build that fails) counts as one failure, so that the last line never
# says "0 failed" about a run that did not end well.
finish() {
    local status=$?
    trap - EXIT
    if [ -n "$step" ]; then
        failed=$((failed + 1))
        done_step FAILED
    fi
    tp_say "summary ($((SECONDS - begin)) s)"
    printf '%s\n' "${summary[@]+"${summary[@]}"}"
    [ $failed -eq 0 ] || status=1
    printf '\n%d passed, %d failed\n' $passed $failed
    exit $status
}
trap finish EXIT

jobs=$(tp_jobs)

start() { step=$1 step_begin=$SECONDS && tp_say "$step"; }
done_step() {
    summary+=("$(printf '%-40s %s (%d s)' "$step" "${1:-ok}" $((SECONDS - step_begin)))")
    step=''
}

configure_and_build() { # DIRECTORY COMPILER CMAKE-ARGUMENTS...
    local directory=$1 compiler=$2
    shift 2
    cmake -S . -B "$directory" -G Ninja -DCMAKE_C_COMPILER="$compiler" -DTP_WERROR=ON "$@" >/dev/null
    cmake --build "$directory" -j "$jobs"
}

# Runs a build's tests and adds to the counts, from ctest's own last lines.
run_ctest() { # DIRECTORY CTEST-ARGUMENTS...
    local directory=$1 line bad all
    shift
    ctest --test-dir "$directory" --output-on-failure --no-tests=error -j "$jobs" "$@" 2>&1 |
        tee "$directory/ctest.log" || true
    line=$(grep -E '^[0-9]+% tests passed, [0-9]+ tests? failed out of [0-9]+' "$directory/ctest.log") || {
        echo "no tests ran in $directory" >&2
        return 1
    }
    bad=$(sed -E 's/.* passed, ([0-9]+) tests? failed out of ([0-9]+).*/\1/' <<<"$line")
    all=$(sed -E 's/.* passed, ([0-9]+) tests? failed out of ([0-9]+).*/\2/' <<<"$line")
    passed=$((passed + all - bad)) failed=$((failed + bad))
    done_step "$((all - bad)) of $all tests passed"
}

start "tools"
tp_install_build_tools
tp_install_test_tools
tp_install_device_tools
gcc --version | head -n 1
clang --version | head -n 1
cmake --version | head -n 1
done_step

start "scripts"
for script in try.sh test.sh .ci/run .ci/*.sh tests/fuzz/*.sh; do bash -n "$script"; done
find tests bench -name '*.py' -print0 | xargs -0 python3 -c '
import sys
for path in sys.argv[1:]:
    compile(open(path, encoding="utf-8").read(), path, "exec")'
done_step

start "gcc, Release"
configure_and_build build-gcc gcc -DCMAKE_BUILD_TYPE=Release -DTP_TESTS=ON
run_ctest build-gcc -LE slow

start "clang, Release: warnings"
# The device kernels are compiled once, above; that takes a minute where nvcc is there.
configure_and_build build-clang clang -DCMAKE_BUILD_TYPE=Release -DTP_TESTS=ON -DTP_CUDA=OFF
done_step

start "clang, ASan and UBSan"
export ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=1:allocator_may_return_null=1
export UBSAN_OPTIONS=print_stacktrace=1
configure_and_build build-asan clang -DCMAKE_BUILD_TYPE=Debug -DTP_TESTS=ON -DTP_SANITIZE=ON -DTP_CUDA=OFF -DTP_OPENCL=OFF
# The device kernels as C (the stand-in driver) are run by gcc above: clang's UBSan does not take their text yet.
run_ctest build-asan -E gpu_stand-in

if [ -z "$quick" ] && [ "$fuzz_seconds" -gt 0 ]; then
    start "fuzzing, $fuzz_seconds s a target"
    configure_and_build build-fuzz clang -DCMAKE_BUILD_TYPE=Debug -DTP_TESTS=OFF -DTP_SANITIZE=ON -DTP_FUZZ=ON \
        -DTP_IGNORE_HASHES=ON -DTP_CUDA=OFF
    TP_FUZZ_SECONDS=$fuzz_seconds run_ctest build-fuzz
fi

[ $failed -eq 0 ]
