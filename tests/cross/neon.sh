#!/bin/sh
# Builds the codec and its tests for AArch64 with a cross compiler and runs them under qemu-user: the NEON kernels
# are compared with the portable ones on every shape, and both with the reference in plain C.
#
#     tests/cross/neon.sh [GROUP...]      groups of tests/codec/main.c; default: all that kernels enter
#
# CC (default aarch64-linux-gnu-gcc) and QEMU (default qemu-aarch64) may name others. On Debian:
#     dpkg --add-architecture arm64 && apt-get update
#     apt-get install gcc-aarch64-linux-gnu qemu-user libxxhash-dev liblz4-dev:arm64 libcmocka-dev:arm64
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
CC=${CC:-aarch64-linux-gnu-gcc}
QEMU=${QEMU:-qemu-aarch64}
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT INT TERM
for tool in $CC $QEMU; do
    command -v "$tool" >/dev/null || { echo "$tool is missing; see the head of $0" >&2; exit 2; }
done

mkdir "$build/include"
ln -s "$root/codec" "$build/include/codec"
flags="-std=gnu11 -O2 -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -Wall -Wextra -Wshadow -Wconversion -Werror"
flags="$flags -I$build/include -I$root/include"
for source in "$root"/codec/*.c "$root"/codec/kernels/portable.c "$root"/codec/kernels/neon.c; do
    $CC $flags -c "$source" -o "$build/codec_$(basename "$source" .c).o"
done
for source in "$root"/tests/codec/*.c; do
    $CC $flags -DTP_GOLDENS_DIR="\"$root/tests/goldens\"" -c "$source" -o "$build/test_$(basename "$source" .c).o"
done
# One test lets allocations fail.
$CC "$build"/*.o -Wl,--wrap=malloc,--wrap=calloc,--wrap=aligned_alloc -lcmocka -llz4 -lm -o "$build/test_codec"

[ $# -gt 0 ] || set -- kernels streams combinations round-trips goldens corruption
for group; do
    echo "== $group"
    "$QEMU" "$build/test_codec" "$group"
done
