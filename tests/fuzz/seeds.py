"""Generates the seed corpora: small inputs that reach every format, codec and mode from the start.

safetensors/  headers of the samples, and files of every dtype, well formed and odd
gguf/         the samples (of large ones the beginning), and small files of every version and byte order
zip/          PyTorch checkpoints, DDUF, NPZ and NPY: the samples, and small files of every kind
pickle/       the pickles of those checkpoints
container/    containers of such files at every level and codec
frame/        the frames of those containers, and the goldens, valid and damaged
df11/         elements, units and texts as fuzz_df11.c takes them
stream/       every shape of a stream and every choice of fuzz_stream.c, with few and with many kinds of bytes
"""
import argparse
import hashlib
import io
import json
import pathlib
import random
import shutil
import struct
import subprocess
import tempfile
import zipfile

BITS = {
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32,
    "F32": 32, "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}
LEVELS = ["fast", "default", "max"]
CODECS = ["auto", "raw", "lz4", "bg-lz4", "rans", "df11"]


def save(folder, data):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / hashlib.sha1(data).hexdigest()).write_bytes(data)


def safetensors(tensors, metadata=None, pad=b" ", tail=b""):
    """tensors: (name, dtype, shape, bytes)"""
    header, offset = {}, 0
    if metadata is not None:
        header["__metadata__"] = metadata
    for name, dtype, shape, data in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += pad * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(data for *_, data in tensors) + tail


def weights(rng, dtype, count):
    """Values as trained weights have them, in the bits of a dtype."""
    values = [rng.gauss(0, 0.02) for _ in range(count)]
    if dtype == "F64":
        return struct.pack(f"<{count}d", *values)
    if dtype == "F16":
        return struct.pack(f"<{count}e", *values)
    single = struct.pack(f"<{count}f", *values)
    if dtype in ("F32", "C64"):
        return single
    if dtype == "BF16":
        return b"".join(single[i + 2:i + 4] for i in range(0, len(single), 4))
    # 8-bit floats and integers of every width: small values, both signs.
    size = max(1, BITS[dtype] // 8)
    if dtype.startswith("F8") or dtype in ("I8", "U8", "BOOL"):
        top = [single[i + 2:i + 4] for i in range(0, len(single), 4)]
        return bytes((word[1] & 0x80) | ((word[1] << 4 | word[0] >> 4) & 0x7F) for word in top)
    return b"".join(int(value * 5000).to_bytes(size, "little", signed=True) if not dtype.startswith("U")
                    else abs(int(value * 5000)).to_bytes(size, "little") for value in values)


def odd_headers():
    """Headers by hand: what the format forbids, and what it allows and nobody expects."""
    def raw(text, data=b"", length=None):
        text = text if isinstance(text, bytes) else text.encode()
        return struct.pack("<Q", len(text) if length is None else length) + text + data

    entry = '"%s":{"dtype":"F32","shape":[%s],"data_offsets":[%d,%d]}'
    yield b""
    yield b"\x02"
    yield raw("{}")
    yield raw("{}", length=1 << 40)
    yield raw("{}", length=100_000_001)
    yield raw("[]")
    yield raw("   {}   ")
    yield raw(b"{}\0\0\0\0\0\0")
    yield raw('{"__metadata__":null}')
    yield raw('{"__metadata__":{"a":"b"},' + entry % ("x", "2", 0, 8) + "}", bytes(8))
    yield raw("{" + entry % ("x", "2", 0, 8) + "}", bytes(8) + b"tail")
    yield raw("{" + entry % ("x", "2", 4, 12) + "}", bytes(12))
    yield raw("{" + entry % ("x", "2", 0, 8) + "}", bytes(5))
    yield raw("{" + entry % ("x", "2", 0, 8) + "," + entry % ("y", "2", 4, 12) + "}", bytes(12))
    yield raw("{" + entry % ("x", "2", 0, 8) + "," + entry % ("y", "2", 0, 8) + "}", bytes(8))
    yield raw("{" + entry % ("x", "2", 0, 8) + "," + entry % ("x", "1", 8, 12) + "}", bytes(12))
    yield raw("{" + entry % ("x", "9223372036854775808,4", 0, 8) + "}", bytes(8))
    yield raw("{" + entry % ("x", "0,9223372036854775808,4", 0, 0) + "}")
    yield raw("{" + entry % ("\\u0000\\ud83d\\ude00\\n\\\"", "", 0, 4) + "}", bytes(4))
    yield raw(b'{"\xff\xfe":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}', bytes(4))
    yield raw('{"x":{"dtype":"FUTURE","shape":[1],"data_offsets":[0,4],"more":{"a":[1,2,{"b":null}]}}}', bytes(4))
    yield raw('{"x":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4e0]}}', bytes(4))
    yield raw('{"x":{"dtype":"F32","shape":[-1],"data_offsets":[4,0]}}', bytes(4))
    yield raw('{"x":' + "[" * 200 + "]" * 200 + "}")
    yield raw('{"x":{"dtype":"F32","shape":[' + ",".join(["1"] * 500) + '],"data_offsets":[0,4]}}', bytes(4))


def small_ggufs():
    """A key, an array and two tensors, in each version and byte order; also cut short, and with absurd counts."""
    for version in (1, 2, 3):
        for order in "<>":
            word = order + ("I" if version == 1 else "Q")  # counts and lengths

            def text(value):
                return struct.pack(word, len(value)) + value

            def kind(number):
                return struct.pack(order + "I", number)

            def build(tensors=2, length=2):
                return (b"GGUF" + kind(version) + struct.pack(word, tensors) + struct.pack(word, 3)
                        + text(b"general.alignment") + kind(4) + struct.pack(order + "I", 32)
                        + text(b"name") + kind(8) + text(b"seed")
                        + text(b"list") + kind(9) + kind(5) + struct.pack(word, length) + struct.pack(order + "2i", 1, -1)
                        + text(b"a") + kind(1) + struct.pack(word, 4) + kind(0) + struct.pack(order + "Q", 0)
                        + text(b"b") + kind(2) + struct.pack(word, 32) + struct.pack(word, 1) + kind(8)
                        + struct.pack(order + "Q", 32))

            header = build()
            whole = header + bytes(-len(header) % 32) + bytes(64 + 34)
            yield whole
            yield whole[:-5]
            yield whole[:len(header) - 3]
            yield build(tensors=0xFFFFFFFF)
            yield build(length=0xFFFFFFFF)


def pickles():
    """Of state dicts, by protocol 2 and in the opcodes of protocol 4."""
    def text(value):
        return b"X" + struct.pack("<I", len(value)) + value

    def storage(kind, key, count):
        return b"(" + text(b"storage") + b"ctorch\n" + kind + b"\n" + text(key) + text(b"cpu") + b"K" + bytes([count]) + b"tQ"

    def tensor(kind, key, count, dtype=b""):
        version = b"3" if dtype else b"2"
        return (b"ctorch._utils\n_rebuild_tensor_v" + version + b"\n(" + storage(kind, key, count)
                + b"K\0K\4\x85K\1\x85\x89ccollections\nOrderedDict\n)R" + dtype + b"tR")

    float8 = b"ctorch\nfloat8_e4m3fn\n"
    yield (b"\x80\2}q\0(" + text(b"a") + b"q\1" + tensor(b"FloatStorage", b"0", 4) + b"q\2h\1h\2"
           + text(b"b") + tensor(b"HalfStorage", b"1", 4) + text(b"c") + tensor(b"UntypedStorage", b"2", 16, float8) + b"u.")
    yield (b"\x80\4\x95\0\0\0\0\0\0\0\0}\x94(\x8c\1a\x94(\x8c\7storage\x94\x8c\5torch\x8c\x0cFloatStorage\x93\x94\x8c\x010"
           b"\x8c\3cpuK\4t\x94QK\1u.")


def zips(rng):
    """Checkpoints with those pickles, a DDUF and an NPZ file, each with and without zip64's fields; an NPY file."""
    tensors = safetensors([("x", "BF16", [4], rng.randbytes(8))])
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n"
    array = b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + rng.randbytes(24)
    yield array
    kinds = [[("m/data.pkl", pickle), ("m/byteorder", b"little")] + [(f"m/data/{i}", rng.randbytes(16)) for i in range(3)]
             for pickle in pickles()]
    kinds.append([("model_index.json", b"{}"), ("unet/x.safetensors", tensors), ("vae/y.safetensors", tensors)])
    kinds.append([("a.npy", array), ("b.npy", array)])
    for files in kinds:
        for wide in (False, True):
            data = io.BytesIO()
            with zipfile.ZipFile(data, "w") as out:
                for name, content in files:
                    with out.open(zipfile.ZipInfo(name), "w", force_zip64=wide) as entry:
                        entry.write(content)
            yield data.getvalue()


def df11(rng):
    """By the first byte: 0 elements with changes to their unit, 2 arrays of any bytes, 3 a text."""
    for n in (1, 10, 500, 3000, 9000):
        for changes in range(8):
            yield bytes([0, changes, 32 * changes, 0]) + weights(rng, "BF16", n) + rng.randbytes(4 * changes)
    yield bytes([2]) + struct.pack("<HHBB", 500, 600, 4, 1) + b"\0\0" + rng.randbytes(1000)
    patterns = {"model\\.layers\\.\\d+": ["a.b", "c"], "[xyz]_(?:1|\\w{2,3})+?": []}
    config = {"version": "0.5.0", "threads_per_block": [512], "bytes_per_thread": 8, "pattern_dict": patterns}
    yield b"\3" + json.dumps(patterns).encode()
    yield b"\3" + json.dumps({"model_type": "llama", "dfloat11_config": config, "tie_word_embeddings": True}).encode()
    yield b"\3" + safetensors([], {"format": "pt", "tensorpress.shapes": json.dumps({"a.weight": [2, 3], "b": []})})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tensorpress", type=pathlib.Path, required=True)
    parser.add_argument("--samples", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    rng = random.Random(1)
    shutil.rmtree(arguments.out, ignore_errors=True)

    for data in odd_headers():
        save(arguments.out / "safetensors", data)
    for path in sorted(arguments.samples.rglob("*")):
        if path.suffix == ".safetensors":
            data = path.read_bytes()
            length = struct.unpack("<Q", data[:8])[0]
            save(arguments.out / "safetensors", data[:8 + length + 4096])
        elif path.suffix == ".gguf":
            save(arguments.out / "gguf", path.read_bytes()[:20000])
        elif path.suffix in (".pt", ".pth") and path.stat().st_size < 20000:
            save(arguments.out / "zip", path.read_bytes())
    for data in small_ggufs():
        save(arguments.out / "gguf", data)
    for data in pickles():
        save(arguments.out / "pickle", data)
    for data in df11(rng):
        save(arguments.out / "df11", data)
    for data in zips(rng):
        save(arguments.out / "zip", data)

    inputs = []
    for dtype, bits in BITS.items():
        count = 4096 if bits < 16 else 2048
        data = weights(rng, dtype, count) if bits >= 8 else rng.randbytes(count * bits // 8)
        unit = count if dtype != "C64" else count // 2
        inputs.append(safetensors([("weight", dtype, [unit], data)]))
        save(arguments.out / "safetensors", safetensors([("weight", dtype, [8], bytes(bits))], {"format": "pt"}))
    zeros = bytes(8192)
    upcast = b"".join(b"\0\0" + rng.randbytes(2) for _ in range(2048))
    inputs.append(safetensors([("zeros", "BF16", [4096], zeros), ("upcast", "F32", [2048], upcast)], {}, tail=b"end"))
    inputs.append(safetensors([(f"layer.{i}", "F16", [1], struct.pack("<e", i)) for i in range(40)]))
    # Skewed low bytes (wide streams), rare exponents (exceptions), repeats (lz4 in a split frame), small integers.
    skewed = b"".join(bytes([abs(int(rng.gauss(0, 9))), rng.randrange(256)]) + rng.randbytes(1) + b"\x3c"
                      for _ in range(4096))
    rare = b"".join(struct.pack("<H", rng.randrange(65536) if rng.random() < 0.01 else 0x3C00 + rng.randrange(256))
                    for _ in range(4096))
    small = bytes(int(rng.gauss(0, 12)) & 0xFF for _ in range(8192))
    inputs += [safetensors([("x", dtype, [len(data) // (BITS[dtype] // 8)], data)]) for dtype, data in
               [("F32", skewed), ("BF16", rare), ("BF16", rng.randbytes(512) * 16), ("I8", small)]]
    # Pairs need more elements than the others before they pay.
    inputs.append(safetensors([("big", "BF16", [65536], weights(rng, "BF16", 65536))]))
    inputs.append(b"no checkpoint at all, " * 40)
    inputs.append(b"")
    for data in inputs:
        if len(data) < 20000:
            save(arguments.out / "safetensors", data)

    for shape in range(18):
        for flags in range(12):
            body = [rng.randbytes(1500), bytes(rng.choice((0x3C, 0x3D, 0xBC)) for _ in range(1500))][flags & 1]
            save(arguments.out / "stream", bytes([shape, flags]) + struct.pack("<I", rng.randrange(3000)) + body)
    for path in sorted((pathlib.Path(__file__).resolve().parent.parent / "goldens").glob("*.tpf")):
        save(arguments.out / "frame", path.read_bytes())
    with tempfile.TemporaryDirectory() as folder:
        source, container = pathlib.Path(folder) / "x.safetensors", pathlib.Path(folder) / "x.tpress"
        for data in inputs:
            source.write_bytes(data)
            for level, codec in [(level, "auto") for level in LEVELS] + [("default", codec) for codec in CODECS[1:]]:
                subprocess.run([arguments.tensorpress, "compress", "-f", "-q", "-j1", "--level", level,
                                "--codec", codec, source, "-o", container], check=True)
                packed = container.read_bytes()
                save(arguments.out / "container", packed)
                index = struct.unpack_from("<Q", packed, len(packed) - 128)[0]
                at = 128
                while at < index:
                    size = struct.unpack_from("<I", packed, at + 20)[0]
                    save(arguments.out / "frame", packed[at:at + size])
                    at += size
    for folder in sorted(arguments.out.iterdir()):
        files = list(folder.iterdir())
        print(f"{folder.name}: {len(files)} seeds, {sum(path.stat().st_size for path in files)} bytes")


main()
