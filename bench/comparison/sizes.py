"""Sizes of whole files, each program at its default settings."""
import subprocess

from . import data
from .codecs import ZipNN

ZIPNN = {"BF16": "bf16", "F16": "f16", "F32": "f32", "F8_E4M3": "e4m3", "F8_E5M2": "e5m2"}


def zipnn_size(metadata, tensors):
    """In the way of ZipNN's safetensors script: each tensor alone, or as it is if that is smaller, and the header;
    None if it does not take a dtype."""
    import zipnn_core
    total = len(data.safetensors_header(metadata, tensors))
    for _, dtype, _, raw in tensors:
        if dtype == "F64":
            return None
        size = len(raw)
        if dtype in ZIPNN and size >= 64:
            buffers, bits, order, chunk = ZipNN.MODES[ZIPNN[dtype]]
            image = zipnn_core.zipnn_core(bytes(32), bytearray(raw), buffers, bits, order, 0, chunk, 0.95, 10, 1)
            size = min(size, len(image))
        total += size
    return total


def lmz_size(path):
    import lmz
    to = path.with_suffix(".lmz")
    lmz.compress(str(path), str(to))
    size = to.stat().st_size
    to.unlink()
    return size


def measure(build, folder, metadata, tensors, kind, versions):
    path, container = folder / "sized.safetensors", folder / "sized.tpress"
    path.write_bytes(data.safetensors_header(metadata, tensors) + b"".join(raw for *_, raw in tensors))
    tensorpress = str(build / "tensorpress")
    subprocess.run([tensorpress, "compress", "-q", str(path), "-o", str(container)], check=True)
    subprocess.run([tensorpress, "verify", "-q", str(container), "--against", str(path)], check=True)
    row = {"name": kind, "raw_bytes": path.stat().st_size, "tensorpress": container.stat().st_size,
           "zipnn": zipnn_size(metadata, tensors) if versions.get("zipnn") else None,
           "lmz": lmz_size(path) if versions.get("lmzip") else None,
           "versions": {name: versions.get(name) for name in ("zipnn", "lmzip")}}
    path.unlink()
    container.unlink()
    return row
