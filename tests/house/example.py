"""docs/example.c is the program that docs/library.md shows, and it does what the text says."""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

parser = argparse.ArgumentParser()
parser.add_argument("--example", required=True)
parser.add_argument("--tensorpress", required=True)
parser.add_argument("--source", type=pathlib.Path, required=True)
arguments = parser.parse_args()

program = (arguments.source / "docs/example.c").read_text()
blocks = re.findall(r"^```c\n(.*?)^```$", (arguments.source / "docs/library.md").read_text(), flags=re.M | re.S)
if program not in blocks:
    sys.exit("docs/library.md does not show docs/example.c as it is")


def run(*command, status=0):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != status:
        sys.exit(f"{command}: status {done.returncode}, not {status}\n{done.stdout}{done.stderr}")
    return done


with tempfile.TemporaryDirectory() as folder:
    sample = arguments.source / "samples/safetensors/silero_vad_16k.safetensors"
    container = pathlib.Path(folder) / "silero.tpress"
    run(arguments.tensorpress, "compress", sample, "-o", container)
    shown = run(arguments.example, container, "conv1.bias").stdout
    if "stft_conv.weight" not in shown or "conv1.bias: 512 bytes" not in shown or "bit-exact" not in shown:
        sys.exit(f"unexpected output:\n{shown}")
    if "no such" not in run(arguments.example, container, "no.such.tensor", status=1).stderr:
        sys.exit("an unknown tensor is not reported")
    data = bytearray(container.read_bytes())
    data[1000] ^= 1  # in the first frame, which holds all of this small file's tensors or their beginning
    container.write_bytes(data)
    damaged = run(arguments.example, container, "stft_conv.weight", status=1)
    if "stft_conv.weight: " in damaged.stdout or not damaged.stderr:
        sys.exit(f"damage is not reported:\n{damaged.stdout}{damaged.stderr}")
