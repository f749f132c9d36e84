#!/usr/bin/env bash
# Builds tensorpress and runs its main job on a real file: compress, inspect, verify, restore, compare, load.
#   ./try.sh [FILE]      default: a small real model in samples/
# Works on a fresh Debian or Ubuntu; installs by apt what is missing.
set -euo pipefail

sample=samples/safetensors/silero_vad_16k.safetensors
case ${1:-} in
-h | --help) sed -n '2,4s/^# \{0,1\}//p' "$0" && exit 0 ;;
esac
[ $# -le 1 ] || { echo "usage: $0 [FILE]" >&2 && exit 2; }
file=$(realpath -- "${1:-$(dirname "$0")/$sample}")
cd "$(dirname "$0")"
# shellcheck source=.ci/deps.sh
. .ci/deps.sh
[ -f "$file" ] || { echo "no such file: $file" >&2 && exit 2; }

bold='' green='' plain=''
if [ -t 1 ] && [ "${TERM:-dumb}" != dumb ]; then bold=$'\e[1m' green=$'\e[32m' plain=$'\e[0m'; fi
say() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }

say "Building tensorpress (Release) in build/"
tp_install_build_tools
tp_install_device_tools
# The tests need more tools than this; test.sh turns them on.
[ -f build/CMakeCache.txt ] || cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DTP_TESTS=OFF >/dev/null
cmake --build build -j "$(tp_jobs)"
tensorpress=$PWD/build/tensorpress
"$tensorpress" --version

# Next to the build, not in /tmp: the file may be large, and /tmp may be memory. The commands below run in this
# folder, exactly as shown, on a link to the file.
work=$(mktemp -d "$PWD/build/try-XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"
name=$(basename -- "$file")
[ "${name:0:1}" != - ] || { echo "a file name that begins with '-' is not for this script" >&2 && exit 2; }
ln -s -- "$file" "$name"

# Shows a command, runs it, and leaves the milliseconds in $took.
run() {
    local from
    printf '%s$ tensorpress %s%s\n' "$bold" "$*" "$plain"
    from=$(date +%s%N)
    "$tensorpress" "$@" || return
    took=$((($(date +%s%N) - from) / 1000000))
    [ "$took" -gt 0 ] || took=1
}

say "1. Compress"
run compress "$name"
compress_ms=$took

say "2. What is inside: only the index is read"
run inspect "$name.tpress"

say "3. Verify: everything is decoded in memory and every checksum compared, then every byte with the original"
run verify "$name.tpress" --against "$name"

say "4. Restore, and compare with the original, bit for bit"
run decompress "$name.tpress" -o restored
restore_ms=$took
echo "$bold\$ cmp $name restored$plain"
cmp -- "$name" restored
echo "identical"

say "5. Load onto a device, decoding there, and compare what came back"
device=cpu
for candidate in cuda opencl; do
    status=0
    "$tensorpress" load "$name.tpress" --device "$candidate" -q >/dev/null 2>&1 || status=$?
    [ $status = 0 ] && device=$candidate && break
done
run load "$name.tpress" --device "$device" --verify

human() { # BYTES
    if [ "$1" -lt 1000000 ]; then
        printf '%s B' "$1"
    else
        awk -v n="$1" 'BEGIN { split("MB GB TB", unit); n /= 1e6; i = 1; while (n >= 1000 && i < 3) { n /= 1000; i++ }
            printf "%.2f %s", n, unit[i] }'
    fi
}
speed() { awk -v n="$1" -v ms="$2" 'BEGIN { printf "%.0f MB/s", n / ms / 1000 }'; }

original=$(stat -c %s -- "$file")
stored=$(stat -c %s -- "$name.tpress")
saved=$(awk -v a="$original" -v b="$stored" 'BEGIN { if (a > 0) printf "%.1f %%", 100 * (a - b) / a; else printf "-" }')
[ ${#name} -le 32 ] || name=${name:0:31}~

heads=(file original container saved compress restore loaded bit-exact)
cells=("$name" "$(human "$original")" "$(human "$stored")" "$saved" "$(speed "$original" "$compress_ms")"
    "$(speed "$original" "$restore_ms")" "$device" yes)
top='' middle='' bottom='' head='' row=''
for i in "${!heads[@]}"; do
    width=${#heads[i]}
    [ ${#cells[i]} -le "$width" ] || width=${#cells[i]}
    printf -v line '%*s' $((width + 2)) ''
    line=${line// /─}
    top+=${top:+┬}$line middle+=${middle:+┼}$line bottom+=${bottom:+┴}$line
    printf -v cell ' %-*s ' "$width" "${heads[i]}"
    head+=${head:+│}$bold$cell$plain
    if [ "$i" = 0 ]; then printf -v cell ' %-*s ' "$width" "${cells[i]}"; else printf -v cell ' %*s ' "$width" "${cells[i]}"; fi
    [ "${heads[i]}" != bit-exact ] || cell=$green$cell$plain
    row+=${row:+│}$cell
done
printf '\n┌%s┐\n│%s│\n├%s┤\n│%s│\n└%s┘\n' "$top" "$head" "$middle" "$row" "$bottom"
echo "Speeds are of whole commands, start, reading and writing included; on a small file the start is most of it."
echo "Next: ./test.sh builds and runs all tests; build/tensorpress --help lists the commands."
