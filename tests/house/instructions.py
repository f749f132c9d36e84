"""No kernel has instructions that the check for its level (codec/dispatch.c) does not cover.

    instructions.py OBJDUMP OBJECT...

Templates are shared between levels, so an intrinsic may stray; a compiler that is given the wrong flags says nothing.
"""
import re
import subprocess
import sys

VBMI = r"vperm(i2|t2)?b|vpmultishiftqb|vp(compress|expand)[bw]|vpsh[lr]dv?[wdq]|vpopcnt[bw]|vpshufbitqmb"
NEVER = (r"vpopcnt[dq]|vpdp\w+|vpmadd52\w+|vgf2p8\w+|vaes\w+|vpclmul\w+|vcvtne\w+|vpconflict[dq]|vplzcnt[dq]|vfn?m\w+|"
         r"lzcnt\w?")
AVX512 = r".*%(zmm\d+|k[0-7]|[xy]mm(1[6-9]|2\d|3[01]))"
# file -> (what must occur, or the test sees nothing; what must not)
LEVELS = {
    "avx2": (r".*%ymm\d+", f"{NEVER}|{VBMI}|{AVX512}"),
    "avx512bw": (r".*%zmm\d+", f"{NEVER}|{VBMI}"),
    "avx512": (VBMI, NEVER),
}

objdump, *objects = sys.argv[1:]
faults = []
for level, (wanted, forbidden) in LEVELS.items():
    paths = [path for path in objects if re.search(rf"/{level}\.c\.", path)]
    if len(paths) != 1:
        faults.append(f"{level}: {len(paths)} objects")
        continue
    run = subprocess.run([objdump, "-d", "--no-show-raw-insn", *paths], check=True, capture_output=True, text=True)
    lines = [line.split("\t", 1)[1].lstrip() for line in run.stdout.splitlines() if "\t" in line]
    found = [line for line in lines if re.match(rf"({forbidden})\b", line)]
    print(f"{level}: {len(lines)} instructions, {len(found)} that it must not have")
    faults += [f"{level}: {line}" for line in found[:10]]
    if not any(re.match(rf"({wanted})\b", line) for line in lines):
        faults.append(f"{level}: none of the instructions that it is for")
for fault in faults:
    print(fault)
sys.exit(1 if faults else 0)
