"""The layers hold: each folder reaches the headers that it may use and no others.

A folder's own include paths (as CMake gives them to its sources) are tried with the compiler: permitted headers
must compile, forbidden ones must not be found. System headers lie on one path for all, so the sources are read
for those.
"""
import argparse
import pathlib
import re
import subprocess
import sys

# folder -> (headers that must compile, headers that must not be found)
PROJECT_HEADERS = {
    "codec": (["tensorpress.h", "codec/frame.h"], ["formats/formats.h", "convert/container.h", "convert/pipeline.h"]),
    "formats": (["tensorpress.h", "formats/formats.h"], ["codec/frame.h", "codec/bytes.h", "convert/container.h"]),
    "convert": (["tensorpress.h", "codec/frame.h", "formats/formats.h"], ["gpu/device.h"]),
    "gpu": (["tensorpress.h", "codec/frame.h", "convert/reader.h", "gpu/device.h"], ["formats/formats.h"]),
}

# folder -> what its sources may not include, as a pattern over the text between the quotes or brackets
FORBIDDEN = {
    "codec": r"(cjson|cJSON|pcre2|openssl|pthread|threads\.h|fcntl|unistd|sys/|formats/|convert/|gpu/)",
    "formats": r"(lz4|xxhash|openssl|pthread|threads\.h|fcntl|unistd|sys/|codec/|convert/|gpu/)",
    "convert": r"(cjson|cJSON|pcre2|codec/kernels/|gpu/)",
    "gpu": r"(cjson|cJSON|pcre2|openssl|formats/)",
}
# the command is no layer of its own: it may print JSON
EXCEPT = {"convert": ["cli"]}


def compiles(cc, include_paths, header):
    command = [cc, "-std=gnu11", "-D_GNU_SOURCE", "-fsyntax-only", "-x", "c"]
    for path in include_paths:
        command += ["-I", path]
    run = subprocess.run(command + ["-"], input=f'#include "{header}"\n', capture_output=True, text=True)
    return run.returncode == 0, run.stderr


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cc", required=True)
    parser.add_argument("--source", type=pathlib.Path, required=True)
    parser.add_argument("--layer", nargs=2, action="append", required=True, metavar=("NAME", "PATHS"))
    arguments = parser.parse_args()
    faults = []
    for layer, paths in arguments.layer:
        include_paths = [path for path in paths.split(":") if path]
        may, must_not = PROJECT_HEADERS[layer]
        for header in may:
            good, message = compiles(arguments.cc, include_paths, header)
            if not good:
                faults.append(f"{layer}: {header} does not compile:\n{message}")
        for header in must_not:
            good, message = compiles(arguments.cc, include_paths, header)
            # Another error than "not found" would mean that the header was reached.
            if good or not re.search(re.escape(header) + r"'?.*(No such file|not found)", message):
                faults.append(f"{layer}: {header} is within reach")
        folder = arguments.source / layer
        sources = [path for path in sorted(folder.rglob("*.[ch]"))
                   if path.relative_to(folder).parts[0] not in EXCEPT.get(layer, [])]
        if not sources:
            faults.append(f"{layer}: no sources")
        for path in sources:
            for number, line in enumerate(path.read_text().splitlines(), 1):
                include = re.match(r'\s*#\s*include\s+["<]([^">]+)[">]', line)
                if include and re.match(FORBIDDEN[layer], include.group(1)):
                    faults.append(f"{path.relative_to(arguments.source)}:{number}: {layer} must not use {include.group(1)}")
    for fault in faults:
        print(fault)
    return 1 if faults else 0


sys.exit(main())
