#!/bin/sh
# Builds the codec and its tests for AArch64 with a cross compiler and runs them under qemu-user: the NEON kernels
# are compared with the portable ones on every shape, and both with the reference in plain C.
#
#     tests/cross/neon.sh [GROUP...]      groups of tests/codec/main.c; default: all that kernels enter
#
# CC (default aarch64-linux-gnu-gcc) and QEMU (default qemu-aarch64) may name others. AArch64 builds of lz4 and cmocka
# are needed: below the folder SYSROOT, where it is set (test.sh fills one), else among the system's (on Debian:
# liblz4-dev:arm64 and libcmocka-dev:arm64). The headers, xxHash's too, are the host's.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
CC=${CC:-aarch64-linux-gnu-gcc}
QEMU=${QEMU:-qemu-aarch64}
jobs=$(nproc 2>/dev/null || echo 2)
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT INT TERM
for tool in $CC $QEMU; do
    command -v "$tool" >/dev/null || { echo "$tool is missing; see the head of $0" >&2; exit 2; }
done

mkdir "$build/include"
ln -s "$root/codec" "$build/include/codec"
flags="-std=gnu11 -O2 -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -Wall -Wextra -Wshadow -Wconversion -Werror"
flags="$flags -I$build/include -I$root/include -DTP_GOLDENS_DIR=\"$root/tests/goldens\" -DTP_SANITIZED=0"
compile() { # PREFIX SOURCE...
    prefix=$1
    shift
    for source; do printf '%s\0%s\0' "$source" "$build/${prefix}_$(basename "$source" .c).o"; done |
        CC=$CC flags=$flags xargs -0 -P "$jobs" -n 2 sh -c '$CC $flags -c "$0" -o "$1"'
}
compile codec "$root"/codec/*.c "$root"/codec/kernels/portable.c "$root"/codec/kernels/neon.c
compile test "$root"/tests/codec/*.c
libraries=${SYSROOT:+$SYSROOT/usr/lib/aarch64-linux-gnu}
# The C library comes with the cross compiler. One test lets allocations fail.
[ -z "$libraries" ] || export QEMU_LD_PREFIX="${QEMU_LD_PREFIX:-/usr/aarch64-linux-gnu}"
$CC "$build"/*.o -Wl,--wrap=malloc,--wrap=calloc,--wrap=aligned_alloc \
    ${libraries:+-L"$libraries" "-Wl,-rpath,$libraries"} -lcmocka -llz4 -lm -o "$build/test_codec"

# An emulator takes ten times as long: of the tests that flip every bit, not all do.
export TP_TEST_BIT_STEP="${TP_TEST_BIT_STEP:-61}"
[ $# -gt 0 ] || set -- kernels streams combinations round-trips goldens corruption
for group; do
    echo "== $group"
    "$QEMU" "$build/test_codec" "$group"
done
