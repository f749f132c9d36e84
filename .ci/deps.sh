# shellcheck shell=bash
# Sourced by try.sh and test.sh: installs with apt what is missing, and nothing else.
# Needs a Debian or Ubuntu of 2022 or later (CMake 3.22); elsewhere, install the tools by hand and it only looks.

tp_say() { printf '\n== %s\n' "$*"; }

tp_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null 2>&1; then
        sudo "$@"
    else
        echo "this needs root, and there is no sudo: run as root: $*" >&2
        return 1
    fi
}

tp_apt_install() {
    [ $# -gt 0 ] || return 0
    if ! command -v apt-get >/dev/null 2>&1; then
        echo "missing, and there is no apt-get here: please install the equivalents of: $*" >&2
        return 1
    fi
    tp_say "installing $*"
    if [ -z "${tp_apt_updated:-}" ]; then
        tp_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq </dev/null
        tp_apt_updated=1
    fi
    tp_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" \
        </dev/null >/dev/null
}

tp_missing=()
tp_need_command() { # COMMAND PACKAGE
    command -v "$1" >/dev/null 2>&1 || tp_missing+=("$2")
}
tp_need_header() { # PKG-CONFIG-NAME PACKAGE
    # Without pkg-config nothing can be asked; apt skips what is there already.
    pkg-config --exists "$1" 2>/dev/null || tp_missing+=("$2")
}

tp_install_build_tools() {
    tp_missing=()
    tp_need_command gcc gcc
    # The C library's headers only come with gcc where recommended packages are installed.
    [ -e /usr/include/stdio.h ] || tp_missing+=(libc6-dev)
    tp_need_command cmake cmake
    tp_need_command ninja ninja-build
    tp_need_command pkg-config pkg-config
    tp_need_header libcjson libcjson-dev
    tp_need_header libpcre2-8 libpcre2-dev
    tp_need_header liblz4 liblz4-dev
    tp_need_header libxxhash libxxhash-dev
    tp_need_header libcrypto libssl-dev
    tp_apt_install "${tp_missing[@]+"${tp_missing[@]}"}"
}

tp_clang_has_runtime() {
    local dir good=1
    dir=$(mktemp -d)
    echo 'int LLVMFuzzerTestOneInput(const unsigned char *d, unsigned long n) { return d && n ? 0 : 0; }' >"$dir/a.c"
    clang -fsanitize=fuzzer,address,undefined "$dir/a.c" -o "$dir/a" 2>/dev/null || good=0
    rm -rf "$dir"
    [ $good = 1 ]
}

tp_install_test_tools() {
    tp_missing=()
    tp_need_header cmocka libcmocka-dev
    tp_need_command clang clang
    tp_need_command llvm-symbolizer llvm # without it the sanitizers' reports name no function
    tp_need_command python3 python3
    tp_apt_install "${tp_missing[@]+"${tp_missing[@]}"}"
    # Which package holds the sanitizers' and libFuzzer's run time differs between releases, and so does
    # whether it needs the C++ library's development files.
    if ! tp_clang_has_runtime; then
        local version
        version=$(clang -dumpversion | cut -d. -f1)
        tp_apt_install "libclang-rt-$version-dev" || tp_apt_install "libclang-common-$version-dev"
        tp_clang_has_runtime || tp_apt_install g++
        tp_clang_has_runtime || {
            echo "clang cannot link with -fsanitize=fuzzer,address,undefined" >&2
            return 1
        }
    fi
}

# OpenCL's headers, and PoCL: OpenCL on the processor, for machines without a GPU's driver.
tp_install_device_tools() {
    tp_missing=()
    [ -e /usr/include/CL/cl.h ] || tp_missing+=(opencl-headers)
    ldconfig -p 2>/dev/null | grep -q libOpenCL.so.1 || tp_missing+=(ocl-icd-libopencl1)
    ls /etc/OpenCL/vendors/*.icd >/dev/null 2>&1 || tp_missing+=(pocl-opencl-icd)
    tp_apt_install "${tp_missing[@]+"${tp_missing[@]}"}"
}

# Cores that this process may use.
tp_jobs() { nproc 2>/dev/null || echo 2; }
