"""libtensorpress.so shows exactly the functions that tensorpress.h declares."""
import re
import subprocess
import sys

nm, header, library = sys.argv[1:]
text = open(header).read()
text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
text = re.sub(r"^\s*#.*(?:\\\n.*)*$", "", text, flags=re.M)
declared = set(re.findall(r"\b(tp_[a-z0-9_]+)\s*\(", text))
output = subprocess.run([nm, "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
# Sanitizers add symbols of their own, in the reserved name space.
visible = {line.split()[-1].split("@")[0] for line in output.splitlines()}
visible = {name for name in visible if not name.startswith("_")}
for name in sorted(declared - visible):
    print(f"declared in tensorpress.h and not in the library: {name}")
for name in sorted(visible - declared):
    print(f"visible and not in tensorpress.h: {name}")
print(f"{len(visible)} functions are visible, {len(declared)} are declared")
sys.exit(declared != visible or not declared)
