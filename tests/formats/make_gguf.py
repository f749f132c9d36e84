"""Makes samples/gguf/all_types.gguf and big_endian.gguf with the `gguf` package, and what its reader says of them.

    python3 -m venv v && v/bin/pip install gguf==0.19.0 && v/bin/python tests/formats/make_gguf.py

The files are kept, so that the tests need no package. The weights are those of samples/safetensors/
silero_vad_16k.safetensors. Types that the package can store but not quantise to hold random bytes. Q8_1 is left
out: for the package its blocks have 40 bytes, in ggml 36, and no program stores it.
"""
import json
import pathlib
import struct

import numpy as np
from gguf import GGUFEndian, GGUFReader, GGUFValueType, GGUFWriter
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import quantize

SAMPLES = pathlib.Path(__file__).resolve().parents[2] / "samples"
INTEGERS = {"I8": np.int8, "I16": np.int16, "I32": np.int32, "I64": np.int64}


def real_weights():
    data = (SAMPLES / "safetensors" / "silero_vad_16k.safetensors").read_bytes()
    size = struct.unpack_from("<Q", data)[0]
    header = json.loads(data[8:8 + size])
    entries = [entry for name, entry in header.items() if name != "__metadata__" and entry["dtype"] == "F32"]
    largest = max(entries, key=lambda entry: entry["data_offsets"][1] - entry["data_offsets"][0])
    begin, end = (8 + size + offset for offset in largest["data_offsets"])
    return np.frombuffer(data[begin:end], np.float32)


def add_keys(writer):
    """A key of every type of value."""
    for kind, value in [("UINT8", 255), ("INT8", -1), ("UINT16", 65535), ("INT16", -1), ("UINT32", 2**32 - 1),
                        ("INT32", -1), ("FLOAT32", 0.5), ("BOOL", True), ("STRING", "text \u00e4\u6f22"),
                        ("UINT64", 2**64 - 1), ("INT64", -1), ("FLOAT64", 0.25)]:
        writer.add_key_value(f"test.{kind.lower()}", value, GGUFValueType[kind])
        writer.add_key_value(f"test.array.{kind.lower()}", [value] * 3, GGUFValueType.ARRAY, GGUFValueType[kind])


def add_tensors(writer, weights, rng, names, rows):
    for name in names:
        kind = GGMLQuantizationType[name]
        values = weights[:256 * rows].reshape(rows, 256)
        if name in INTEGERS:
            writer.add_tensor(f"plain.{name}", (values * 100).astype(INTEGERS[name]))
            continue
        if name == "F64":
            writer.add_tensor("plain.F64", values.astype(np.float64))
            continue
        elements, size = GGML_QUANT_SIZES[kind]
        try:
            prefix = "plain" if elements == 1 else "quantised"
            writer.add_tensor(f"{prefix}.{name}", quantize(values, kind), raw_dtype=kind)
        except NotImplementedError:
            stored = rng.integers(0, 256, (rows, 256 // elements * size), np.uint8)
            writer.add_tensor(f"random.{name}", stored, raw_dtype=kind)


def finish(writer, path):
    writer.write_header_to_file(path)
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    listing = [{"name": tensor.name, "dtype": tensor.tensor_type.name, "shape": tensor.shape.tolist(),
                "offset": int(tensor.data_offset), "nbytes": int(tensor.n_bytes)}
               for tensor in GGUFReader(path).tensors]
    lines = ",\n".join("  " + json.dumps(entry) for entry in listing)
    path.with_suffix(".json").write_text(f"[\n{lines}\n]\n")
    print(path.name, path.stat().st_size, "bytes,", len(listing), "tensors")


def main():
    weights, rng = real_weights(), np.random.default_rng(1)

    writer = GGUFWriter(None, "test")
    add_keys(writer)
    add_tensors(writer, weights, rng, [kind.name for kind in GGMLQuantizationType if kind.name != "Q8_1"], 4)
    # Shapes; sizes that need padding.
    writer.add_tensor("shape.one", weights[:1])
    writer.add_tensor("shape.vector", weights[:7].astype(np.float16))
    writer.add_tensor("shape.cube", weights[:2 * 3 * 5].reshape(2, 3, 5))
    writer.add_tensor("shape.four", weights[:2 * 3 * 5 * 7].reshape(2, 3, 5, 7).astype(np.float16))
    blocks = quantize(weights[:32 * 3].reshape(3, 32), GGMLQuantizationType.Q8_0)
    writer.add_tensor("shape.blocks", blocks, raw_dtype=GGMLQuantizationType.Q8_0)
    finish(writer, SAMPLES / "gguf" / "all_types.gguf")

    writer = GGUFWriter(None, "test", endianess=GGUFEndian.BIG)
    writer.add_custom_alignment(64)
    add_keys(writer)
    add_tensors(writer, weights, rng, ["F32", "F16", "F64", "I8", "I16", "I32", "I64", "Q8_0"], 1)
    finish(writer, SAMPLES / "gguf" / "big_endian.gguf")


main()
