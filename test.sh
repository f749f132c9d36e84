#!/usr/bin/env bash
# Builds and tests everything: gcc Release, clang Release (warnings), NEON under an emulator, clang with ASan and UBSan,
# fuzzing. Works on a fresh Debian or Ubuntu; may be run again at any time.
set -euo pipefail
cd "$(dirname "$0")"
# shellcheck source=.ci/deps.sh
. .ci/deps.sh

usage() {
    cat <<END
usage: ./test.sh [--quick] [--fuzz-seconds N] [--device cuda]
  --quick            no fuzzing
  --fuzz-seconds N   seconds per fuzz target (default: \$TP_FUZZ_SECONDS or 30)
  --device cuda      only the tests of the device level, on a GPU: without one they fail
END
}

fuzz_seconds=${TP_FUZZ_SECONDS:-30}
quick=
device=
while [ $# -gt 0 ]; do
    case $1 in
    --quick) quick=1 ;;
    --fuzz-seconds) fuzz_seconds=${2:?--fuzz-seconds needs a number} && shift ;;
    --device) device=${2:?--device needs a name} && shift ;;
    -h | --help) usage && exit 0 ;;
    *) usage >&2 && exit 2 ;;
    esac
    shift
done
case $device in '' | cuda) ;; *) echo "not a device that can be asked for: $device" >&2 && exit 2 ;; esac
case $fuzz_seconds in '' | *[!0-9]*) echo "not a number of seconds: $fuzz_seconds" >&2 && exit 2 ;; esac

passed=0 failed=0 skipped=0 step='' summary=()
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
    printf '\n%d passed, %d failed, %d skipped\n' $passed $failed $skipped
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

# What may be skipped: what only other machines have. Everything else is installed below, so that a test that is
# skipped has not found what is there.
may_skip='^gpu_cuda_'

# Runs a build's tests and adds to the counts, from ctest's own lines. It counts what was skipped as passed.
run_ctest() { # DIRECTORY CTEST-ARGUMENTS...
    local directory=$1 line bad all left_out name said
    shift
    ctest --test-dir "$directory" --output-on-failure --no-tests=error -j "$jobs" "$@" 2>&1 |
        tee "$directory/ctest.log" || true
    line=$(grep -E '^[0-9]+% tests passed, [0-9]+ tests? failed out of [0-9]+' "$directory/ctest.log") || {
        echo "no tests ran in $directory" >&2
        return 1
    }
    bad=$(sed -E 's/.* passed, ([0-9]+) tests? failed out of ([0-9]+).*/\1/' <<<"$line")
    all=$(sed -E 's/.* passed, ([0-9]+) tests? failed out of ([0-9]+).*/\2/' <<<"$line")
    left_out=0 said=
    while read -r name; do
        if [[ $name =~ $may_skip ]]; then
            left_out=$((left_out + 1)) said+=" $name"
        else
            bad=$((bad + 1))
            echo "$name was skipped and may not be" >&2
        fi
    done < <(sed -nE 's/^ *[0-9]+\/[0-9]+ Test +#[0-9]+: ([^ ]+) \.*\*\*\*Skipped .*/\1/p' "$directory/ctest.log")
    passed=$((passed + all - bad - left_out)) failed=$((failed + bad)) skipped=$((skipped + left_out))
    line="$((all - bad - left_out)) of $all tests passed"
    [ $bad -eq 0 ] || line+=", $bad failed"
    [ $left_out -eq 0 ] || line+=", $left_out skipped:$said"
    done_step "$line"
}

# nvcc, as CMake looks for it, and nvdisasm, which counts the kernels' instructions; what is not there is installed
# from the package index, for this build only. The limits of instructions hold for this version and for 13.0.
cuda_release=13.5.37
cuda_program() { # NAME
    PATH=$PATH:${CUDA_HOME:-}/bin:${CUDA_PATH:-}/bin:/usr/local/cuda/bin command -v "$1"
}
find_cuda_tools() { # FOLDER TOOL...; sets cuda_arguments
    local folder=$1 tool packages=()
    shift
    cuda_arguments=()
    for tool; do
        cuda_program "$tool" >/dev/null && continue
        case $tool in
        nvcc) packages+=(nvidia-cuda-{nvcc,crt,runtime}==$cuda_release nvidia-nvvm==$cuda_release) ;;
        nvdisasm) packages+=(nvidia-cuda-nvdisasm==$cuda_release) ;;
        esac
    done
    [ ${#packages[@]} -eq 0 ] || tp_python_packages "$folder" "${packages[@]}"
    for tool; do
        local path
        path=$(cuda_program "$tool" || tp_python_program "$folder" "$tool")
        cuda_arguments+=("-DTP_${tool^^}=$path")
        echo "$path"
    done
}

if [ -n "$device" ]; then
    start "device level, $device"
    tp_install_build_tools
    tp_install_unit_test_tools
    tp_install_device_tools
    find_cuda_tools build-gcc/cuda nvcc
    configure_and_build build-gcc gcc -DCMAKE_BUILD_TYPE=Release -DTP_TESTS=ON "${cuda_arguments[@]}"
    build-gcc/tensorpress load samples/safetensors/silero_vad_16k.safetensors --device "$device" --verify
    may_skip='^$'
    run_ctest build-gcc -R '^gpu_' -E '^gpu_(oclgrind|cubins)'
    exit
fi

start "tools"
tp_install_build_tools
tp_install_test_tools
tp_install_device_tools
command -v oclgrind || may_skip+='|^gpu_oclgrind_' # no such package
gcc --version | head -n 1
clang --version | head -n 1
cmake --version | head -n 1
done_step

start "scripts"
for script in try.sh test.sh .ci/run .ci/*.sh tests/*/*.sh; do bash -n "$script"; done
find tests bench -name '*.py' -print0 | xargs -0 python3 -c '
import sys
for path in sys.argv[1:]:
    compile(open(path, encoding="utf-8").read(), path, "exec")'
done_step

start "gcc, Release"
find_cuda_tools build-gcc/cuda nvcc nvdisasm
configure_and_build build-gcc gcc -DCMAKE_BUILD_TYPE=Release -DTP_TESTS=ON -DTP_ORACLE=ON "${cuda_arguments[@]}"
run_ctest build-gcc

start "clang, Release: warnings"
# The device kernels are compiled once, above; that takes a minute where nvcc is there.
configure_and_build build-clang clang -DCMAKE_BUILD_TYPE=Release -DTP_TESTS=ON -DTP_CUDA=OFF
done_step

start "NEON, under an emulator"
if [ "$(uname -m)" = aarch64 ]; then
    done_step "not needed: the first step ran on such a processor"
else
    tp_install_cross_tools
    if tp_unpack_arm64 build-neon liblz4-dev libcmocka-dev; then
        if SYSROOT=$PWD/build-neon/root tests/cross/neon.sh; then
            passed=$((passed + 1))
            done_step
        else
            failed=$((failed + 1))
            done_step FAILED
        fi
    elif grep -q '^ID=ubuntu' /etc/os-release; then # whose archive keeps other architectures elsewhere
        skipped=$((skipped + 1))
        done_step "skipped: this machine's package sources have no AArch64 packages"
    else
        false
    fi
fi

start "clang, ASan and UBSan"
export ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=1:allocator_may_return_null=1
export UBSAN_OPTIONS=print_stacktrace=1
configure_and_build build-asan clang -DCMAKE_BUILD_TYPE=Debug -DTP_TESTS=ON -DTP_SANITIZE=ON -DTP_CUDA=OFF -DTP_OPENCL=OFF
run_ctest build-asan

if [ -z "$quick" ] && [ "$fuzz_seconds" -gt 0 ]; then
    start "fuzzing, $fuzz_seconds s a target"
    configure_and_build build-fuzz clang -DCMAKE_BUILD_TYPE=Debug -DTP_TESTS=OFF -DTP_SANITIZE=ON -DTP_FUZZ=ON \
        -DTP_IGNORE_HASHES=ON -DTP_CUDA=OFF
    TP_FUZZ_SECONDS=$fuzz_seconds run_ctest build-fuzz
fi

[ $failed -eq 0 ]
