"""What `cmake --install` makes: all of it is there, works from its prefix and from another, and programs build on it.

    install.py --build FOLDER --source FOLDER --cmake PROGRAM --cc PROGRAM --nm PROGRAM --readelf PROGRAM
               [--flags FLAGS] [--libdir lib] [--version 0.1.0]
    install.py --cxx PROGRAM ... the same, with only a C++ program (exit status 77: no compiler is named)

Programs are built away from the source: with the C compiler alone through pkg-config, and through find_package.
"""
import argparse
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

parser = argparse.ArgumentParser()
for name in ("build", "source", "cmake", "cc", "nm", "readelf", "version"):
    parser.add_argument(f"--{name}", required=True)
parser.add_argument("--libdir", default="lib")
parser.add_argument("--flags", default="")
parser.add_argument("--cxx", nargs="*", help="the C++ part alone, with these compilers")
arguments = parser.parse_args()
SOURCE = pathlib.Path(arguments.source)
HOUSE = SOURCE / "tests/house"
SAMPLE = SOURCE / "samples/safetensors/silero_vad_16k.safetensors"
FLAGS = shlex.split(arguments.flags)
STRICT = ["-Wall", "-Wextra", "-Werror", "-pedantic-errors"]


def run(*command, status=0, env=None):
    command = [str(part) for part in command]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | (env or {}))
    if done.returncode != status:
        sys.exit(f"{shlex.join(command)}: status {done.returncode}, not {status}\n{done.stdout}{done.stderr}")
    return done.stdout


def install(prefix):
    run(arguments.cmake, "--install", arguments.build, "--prefix", prefix)
    # What the build's own settings make of libdir is taken from there; nothing else varies.
    library = f"{arguments.libdir}/libtensorpress"
    package = f"{arguments.libdir}/cmake/tensorpress/tensorpress-"
    abi = re.search(r"#define TP_ABI_VERSION (\d+)", (SOURCE / "include/tensorpress.h").read_text())[1]
    wanted = {
        "bin/tensorpress", "include/tensorpress.h",
        f"{library}.a", f"{library}.so", f"{library}.so.{abi}", f"{library}.so.{arguments.version}",
        f"{arguments.libdir}/pkgconfig/tensorpress.pc",
        f"{package}config.cmake", f"{package}config-version.cmake", f"{package}shared.cmake", f"{package}static.cmake",
        "share/man/man1/tensorpress.1", "share/bash-completion/completions/tensorpress",
        "share/zsh/site-functions/_tensorpress", "share/fish/vendor_completions.d/tensorpress.fish",
        "share/doc/tensorpress/LICENSE", "share/doc/tensorpress/README.md",
    } | {f"share/doc/tensorpress/docs/{path.name}" for path in (SOURCE / "docs").iterdir()}
    found = {str(path.relative_to(prefix)) for path in prefix.rglob("*") if not path.is_dir()}
    # The package has a file more for each kind of build (Release, Debug) that was installed.
    kinds = {name for name in found if re.search(r"/tensorpress-(shared|static)-[a-z]+\.cmake$", name)}
    if found - kinds != wanted or len(kinds) != 2:
        sys.exit(f"missing: {sorted(wanted - found)}; not expected: {sorted(found - wanted)}")
    for path in prefix.rglob("*"):
        # Files that name the place would not survive a move. (What was compiled may know its source.)
        if path.suffix in (".pc", ".cmake", ".1") and not path.is_symlink():
            text = path.read_bytes()
            if any(str(place).encode() in text for place in (prefix, SOURCE, arguments.build)):
                sys.exit(f"{path} names the place of the installation, or of the build")
        if path.name.startswith("libtensorpress.so") or path.name == "tensorpress" and path.parent.name == "bin":
            if re.search("R(UN)?PATH", run(arguments.readelf, "-d", path)):
                sys.exit(f"{path} has a search path of its own")


def needs_library(program):
    return "libtensorpress.so" in run(arguments.readelf, "-d", program)


def try_example(program, container, env=None):
    shown = run(program, container, "conv1.bias", env=env)
    if "conv1.bias: 512 bytes" not in shown or "bit-exact" not in shown:
        sys.exit(f"{program}: unexpected output:\n{shown}")


def pkg_config(prefix, *options):
    # The prefix first; what it needs besides comes from the system.
    return shlex.split(run("pkg-config", *options, "tensorpress",
                           env={"PKG_CONFIG_PATH": str(prefix / arguments.libdir / "pkgconfig")}))


def build_with_pkg_config(prefix, work, container):
    if pkg_config(prefix, "--modversion") != [arguments.version]:
        sys.exit("pkg-config has another version")
    sources = {"example": SOURCE / "docs/example.c", "small": HOUSE / "small.c"}
    env = {"LD_LIBRARY_PATH": str(prefix / arguments.libdir)}
    # As the archive and nothing else: the linker prefers a shared library where it finds one.
    alone = work / "alone"
    shutil.copytree(prefix, alone, symlinks=True)
    for path in (alone / arguments.libdir).glob("*.so*"):
        path.unlink()
    for kind, place, options in (("shared", prefix, []), ("static", alone, ["--static"])):
        for name, source in sources.items():
            program = work / f"{name}-{kind}"
            run(arguments.cc, "-std=c11", *STRICT, *FLAGS, source, "-o", program,
                *pkg_config(place, *options, "--cflags", "--libs"))
            if needs_library(program) != (kind == "shared"):
                sys.exit(f"{program} is not {kind}")
            run(program, *([container, "conv1.bias"] if name == "example" else []), env=env)
        try_example(work / f"example-{kind}", container, env)
    shutil.rmtree(alone)


PROJECT = """cmake_minimum_required(VERSION 3.22)
project(user C)
find_package(tensorpress @WANTED@)
foreach(kind shared static)
  set(target tensorpress::tensorpress)
  if(kind STREQUAL static)
    set(target tensorpress::tensorpress_static)
  endif()
  add_executable(example-${kind} @SOURCE@/docs/example.c)
  add_executable(small-${kind} @SOURCE@/tests/house/small.c)
  target_link_libraries(example-${kind} PRIVATE ${target})
  target_link_libraries(small-${kind} PRIVATE ${target})
endforeach()
"""


def configure(prefix, folder, wanted, status=0):
    folder.mkdir()
    (folder / "CMakeLists.txt").write_text(PROJECT.replace("@WANTED@", wanted).replace("@SOURCE@", str(SOURCE)))
    run(arguments.cmake, "-G", "Ninja", "-S", folder, "-B", folder / "build", f"-DCMAKE_PREFIX_PATH={prefix}",
        f"-DCMAKE_C_COMPILER={arguments.cc}", f"-DCMAKE_C_FLAGS={arguments.flags}", status=status)


def build_with_cmake(prefix, work, container):
    major, minor, _ = arguments.version.split(".")
    configure(prefix, work / "user", f"{major}.{minor} REQUIRED COMPONENTS shared static")
    run(arguments.cmake, "--build", work / "user/build")
    for kind in ("shared", "static"):
        try_example(work / f"user/build/example-{kind}", container)
        run(work / f"user/build/small-{kind}")
        if needs_library(work / f"user/build/small-{kind}") != (kind == "shared"):
            sys.exit(f"find_package: small-{kind} is not {kind}")


def refuse_others(prefix, work):
    """Versions that this one does not stand for, and a component that is none."""
    major, minor, _ = arguments.version.split(".")
    for number, wanted in enumerate((f"{major}.{int(minor) + 1}", f"{int(major) + 1}.0", "COMPONENTS other")):
        configure(prefix, work / f"wrong-{number}", f"{wanted} REQUIRED", status=1)


def build_cxx(prefix, work):
    for number, cxx in enumerate(arguments.cxx):
        for standard in ("c++11", "c++20"):
            program = work / f"cxx-{number}-{standard}"
            run(cxx, f"-std={standard}", *STRICT, *FLAGS, HOUSE / "small.cpp", "-o", program,
                *pkg_config(prefix, "--cflags", "--libs"))
            run(program, env={"LD_LIBRARY_PATH": str(prefix / arguments.libdir)})
        print(f"{cxx}: C++11, C++20")


def main():
    if arguments.cxx == []:
        print("there is no C++ compiler")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        first, second = work / "first", work / "elsewhere/prefix"
        install(first)
        if arguments.cxx:
            build_cxx(first, work)
            return 0
        run(sys.executable, HOUSE / "symbols.py", arguments.nm, SOURCE / "include/tensorpress.h",
            first / arguments.libdir / "libtensorpress.so", arguments.readelf,
            first / arguments.libdir / "libtensorpress.a")
        second.parent.mkdir()
        for number, prefix in enumerate((first, second)):
            if number > 0:
                first.rename(second)
            here = work / f"work-{number}"
            here.mkdir()
            if not run(prefix / "bin/tensorpress", "--version").startswith(f"tensorpress {arguments.version} "):
                sys.exit("the program has another version")
            container = here / "silero.tpress"
            run(prefix / "bin/tensorpress", "compress", "-q", SAMPLE, "-o", container)
            build_with_pkg_config(prefix, here, container)
            build_with_cmake(prefix, here, container)
        refuse_others(second, work)
    return 0


sys.exit(main())
