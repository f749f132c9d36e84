"""libtensorpress.so shows exactly the functions that tensorpress.h declares.

    symbols.py NM TENSORPRESS.H LIBTENSORPRESS.SO [READELF LIBTENSORPRESS.A]

In the archive other functions are global too, for the linker; they are hidden, and have names that nobody else has.
"""
import re
import subprocess
import sys

nm, header, library, *archive = sys.argv[1:]
text = open(header).read()
text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
text = re.sub(r"^\s*#.*(?:\\\n.*)*$", "", text, flags=re.M)
declared = set(re.findall(r"\b(tp_[a-z0-9_]+)\s*\(", text))
output = subprocess.run([nm, "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
# Sanitizers add symbols of their own, in the reserved name space.
visible = {line.split()[-1].split("@")[0] for line in output.splitlines()}
visible = {name for name in visible if not name.startswith("_")}
faults = [f"declared in tensorpress.h and not in the library: {name}" for name in sorted(declared - visible)]
faults += [f"visible and not in tensorpress.h: {name}" for name in sorted(visible - declared)]
print(f"{len(visible)} functions are visible, {len(declared)} are declared")
if archive:
    output = subprocess.run([archive[0], "-sW", archive[1]], check=True, capture_output=True, text=True).stdout
    # number, value, size, type, binding, visibility, section, name
    symbols = re.findall(r"^ +\d+: \w+ +\w+ (?!FILE|SECTION)\w+ +(?:GLOBAL|WEAK) +(\w+) +(?!UND)\w+ (\w+)", output,
                         flags=re.M)
    shown = {name for visibility, name in symbols if visibility == "DEFAULT" and not name.startswith("_")}
    faults += [f"the archive shows or lacks: {name}" for name in sorted(shown ^ declared)]
    faults += [f"the archive has a name that may be another's: {name}" for _, name in symbols
               if not re.match(r"_|tp_", name)]
    print(f"{len(symbols)} global names in the archive")
for fault in faults:
    print(fault)
sys.exit(1 if faults or not declared else 0)
