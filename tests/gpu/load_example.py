"""docs/load_example.c is the program that docs/gpu.md shows, and it does what the text says.

usage: load_example.py EXAMPLE TENSORPRESS SOURCE
"""
import pathlib
import re
import subprocess
import sys
import tempfile

example, tensorpress, source = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
blocks = re.findall(r"^```c\n(.*?)^```$", (source / "docs/gpu.md").read_text(), flags=re.M | re.S)
if (source / "docs/load_example.c").read_text() not in blocks:
    sys.exit("docs/gpu.md does not show docs/load_example.c as it is")


def run(*command, status=0):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != status:
        sys.exit(f"{command}: status {done.returncode}, not {status}\n{done.stdout}{done.stderr}")
    return done.stdout, done.stderr


with tempfile.TemporaryDirectory() as folder:
    sample = source / "samples/safetensors/silero_vad_16k.safetensors"
    other = source / "samples/gguf/all_types.gguf"
    container = pathlib.Path(folder) / "silero.tpress"
    run(tensorpress, "compress", "-q", sample, "-o", container)
    shown, _ = run(example, "cpu", "conv?.bias", container, sample, other)
    names = [line.split(":")[0] for line in shown.splitlines()]
    if len(names) < 4 or len(names) % 2 or names[: len(names) // 2] != names[len(names) // 2:]:
        sys.exit(f"unexpected tensors: {names}")
    shown, _ = run(example, "cpu", "*", container, other)
    if shown.count(" bytes\n") < 20:
        sys.exit(f"tensors are missing:\n{shown}")
    run(example, "cpu", "*", status=2)
    _, errors = run(example, "cpu:1", "*", container, status=2)
    if "device 'cpu:1'" not in errors:
        sys.exit(f"unexpected: {errors}")
    data = bytearray(container.read_bytes())
    data[1000] ^= 1
    container.write_bytes(data)
    _, errors = run(example, "cpu", "*", container, status=1)
    if "frame" not in errors or "tensor '" not in errors:
        sys.exit(f"damage is not reported: {errors}")
