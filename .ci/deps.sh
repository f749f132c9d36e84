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

tp_apt_update() {
    [ -z "${tp_apt_updated:-}" ] || return 0
    tp_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq </dev/null
    tp_apt_updated=1
}

tp_apt_install() {
    [ $# -gt 0 ] || return 0
    if ! command -v apt-get >/dev/null 2>&1; then
        echo "missing, and there is no apt-get here: please install the equivalents of: $*" >&2
        return 1
    fi
    tp_say "installing $*"
    tp_apt_update
    tp_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" \
        </dev/null >/dev/null
}

# Whether there is such a package.
tp_apt_has() {
    tp_apt_update
    apt-cache show "$1" >/dev/null 2>&1
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

# What a build with -DTP_TESTS=ON needs.
tp_install_unit_test_tools() {
    tp_missing=()
    tp_need_header cmocka libcmocka-dev
    tp_need_command python3 python3
    tp_need_command g++ g++ # for the header as C++, and for nvcc
    # For packages from Python's index: the official DFloat11 encoder, and CUDA's tools where the toolkit is not there.
    python3 -c 'import ensurepip, venv' 2>/dev/null || tp_missing+=(python3-venv)
    tp_apt_install "${tp_missing[@]+"${tp_missing[@]}"}"
}

tp_install_test_tools() {
    tp_install_unit_test_tools
    tp_missing=()
    tp_need_command clang clang
    tp_need_command llvm-symbolizer llvm # without it the sanitizers' reports name no function
    tp_need_command groff groff-base # the manual page
    tp_need_command zsh zsh          # completion
    tp_need_command fish fish
    # OpenCL kernels with every access checked. Not every release has it.
    if ! command -v oclgrind >/dev/null 2>&1 && tp_apt_has oclgrind; then tp_missing+=(oclgrind); fi
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

# A cross compiler for AArch64 and an emulator.
tp_install_cross_tools() {
    tp_missing=()
    tp_need_command aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu
    [ -e /usr/aarch64-linux-gnu/include/stdio.h ] || tp_missing+=(libc6-dev-arm64-cross)
    tp_need_command qemu-aarch64 qemu-user
    tp_apt_install "${tp_missing[@]+"${tp_missing[@]}"}"
}

# AArch64 builds of development packages and the libraries that they need, unpacked into FOLDER/root. apt gets lists of
# its own for that: making the architecture one of the system's would change what every later apt-get does.
tp_unpack_arm64() { # FOLDER PACKAGE...
    local folder=$1 package
    shift
    [ ! -e "$folder/complete" ] || return 0
    rm -rf "$folder"
    mkdir -p "$folder"/lists/partial "$folder"/cache/archives/partial "$folder"/packages "$folder"/root
    : >"$folder/status"
    local apt=(apt-get -qq -o "Dir::State::lists=$PWD/$folder/lists" -o "Dir::State::status=$PWD/$folder/status"
        -o "Dir::Cache=$PWD/$folder/cache" -o APT::Architecture=arm64 -o APT::Architectures=arm64
        -o APT::Sandbox::User= -o "Debug::NoLocking=1")
    # Sources without this architecture fail; what matters is whether the packages are found.
    "${apt[@]}" update >"$folder/update.log" 2>&1 </dev/null || true
    if (cd "$folder/packages" && "${apt[@]}" download "$@" </dev/null &&
        for package in *.deb; do dpkg-deb -f "$package" Depends; done | tr -d ' ' | tr ',' '\n' | sed 's/[(|].*//' |
        grep '^lib' | grep -v '^libc6$' | sort -u | xargs "${apt[@]}" download); then
        for package in "$folder"/packages/*.deb; do dpkg-deb -x "$package" "$folder/root"; done
    else
        cat "$folder/update.log" >&2
        echo "no AArch64 builds of these packages: $*" >&2
        return 1
    fi
    touch "$folder/complete"
}

# Python packages in an environment of their own: FOLDER, once.
tp_python_packages() { # FOLDER PACKAGE...
    local folder=$1
    shift
    [ "$(cat "$folder/complete" 2>/dev/null)" != "$*" ] || return 0
    rm -rf "$folder"
    tp_say "installing $* in $folder"
    python3 -m venv "$folder" &&
        "$folder/bin/python" -m pip install --quiet --disable-pip-version-check "$@" </dev/null &&
        echo "$*" >"$folder/complete"
}

# A program of the packages in such an environment; the path goes to stdout.
tp_python_program() { # FOLDER NAME
    find "$PWD/$1/lib" -type f -name "$2" -perm -u+x -print -quit | grep .
}

# Cores that this process may use.
tp_jobs() { nproc 2>/dev/null || echo 2; }
