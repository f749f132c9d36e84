"""The kernels compiled for every CUDA architecture that is built, and what the compiler made of them. No GPU needed.

    cubins.py --nvcc PATH --kernels FOLDER --architectures 75,90 [--limits FILE] [--nvdisasm PATH]

Registers and spills come from the compiler. Instructions are counted with nvdisasm, if there is one (the toolkit has
it, and so has a Python package, nvidia-cuda-nvdisasm): the steady state of a stream kernel is its loop over groups of
1024 elements, on the path that a full group of a stream with one table takes: the shortest way around the loop with a
vote for each step (and a few that older architectures need to come together). What is printed is that path's length
by 32 elements, as a whole and by the kind of unit that executes it.
"""
import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

# What runs where, by the start of the mnemonic: the integer pipe (half of the lanes), multiply-add, load and store,
# population count, the uniform pipe, control. What is not listed counts as integer.
UNITS = [
    ("load/store", r"LDG|LDS|STG|STS|LD\b|ST\b|LDC|ATOM|SHFL"),
    ("popcount", r"POPC|FLO|S2R|S2UR|I2F|MUFU"),
    ("multiply", r"IMAD|FFMA|IDP"),
    ("uniform", r"U[A-Z]|R2UR"),
    ("control", r"BRA|EXIT|BSYNC|BSSY|WARPSYNC|CALL|RET|NOP|BAR"),
]
GROUP = 32  # 32 elements each


def unit_of(mnemonic):
    for name, pattern in UNITS:
        if re.match(pattern, mnemonic):
            return name
    return "integer"


class Kernel:
    """Basic blocks: label or number -> (instructions, successors)."""

    def __init__(self, lines):
        blocks, order, name = {}, [], "entry"
        blocks[name] = []
        order.append(name)
        count = 0
        for line in lines:
            label = re.match(r"(\.L_x_\d+):", line)
            if label:
                name = label.group(1)
                blocks[name] = []
                order.append(name)
                continue
            instruction = re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+(?:(@!?U?P\w+)\s+)?([A-Z][\w.]*)(.*);", line)
            if not instruction:
                continue
            predicate, mnemonic, rest = instruction.groups()
            if predicate is None and re.match(r"\s*!?U?P\d", rest):
                predicate = rest.split(",")[0].strip()  # BRA.U UP0, `(.L_x_1)
            target = re.search(r"`\((\.L_x_\d+)\)", rest) if mnemonic.startswith(("BRA", "BREAK")) else None
            blocks[name].append((mnemonic, target.group(1) if target else None, predicate))
            if target or mnemonic == "EXIT":
                count += 1
                name = f"after_{count}"
                blocks[name] = []
                order.append(name)
        self.blocks, self.order = blocks, order
        self.next = {}
        for at, name in enumerate(order):
            after = order[at + 1] if at + 1 < len(order) else None
            last = blocks[name][-1] if blocks[name] else None
            edges = []
            if last and last[1]:
                edges.append(last[1])
            unconditional = last and last[2] is None and (last[1] or last[0] == "EXIT")
            if after and not unconditional:
                edges.append(after)
            self.next[name] = edges

    def loops(self):
        """(head, tail) of each backward branch."""
        place = {name: at for at, name in enumerate(self.order)}
        for name in self.order:
            for target in self.next[name]:
                if target in place and place[target] <= place[name]:
                    yield target, name

    def shortest_round(self, votes):
        """The instructions of the shortest way around a loop with so many votes."""
        place = {name: at for at, name in enumerate(self.order)}
        best = None
        for head, tail in self.loops():
            ways = {(head, 0): []}
            for name in self.order[place[head]:place[tail] + 1]:
                here = [m for m, _, _ in self.blocks[name] if m != "NOP"]
                voted = sum(m.startswith("VOTE") for m in here)
                for (at, before), way in list(ways.items()):
                    if at != name:
                        continue
                    way, total = way + here, before + voted
                    if head in self.next[name] and votes <= total <= votes + 4 and (best is None or len(way) < len(best)):
                        best = way
                    for target in self.next[name]:
                        if place.get(target, -1) <= place[name]:
                            continue
                        known = ways.get((target, total))
                        if known is None or len(way) < len(known):
                            ways[(target, total)] = way
        return best


def kernels_of(nvdisasm, cubin):
    text = subprocess.run([nvdisasm, "-c", cubin], check=True, capture_output=True, text=True).stdout
    parts = re.split(r"^\.text\.(\w+):\n", text, flags=re.M)
    for name, body in zip(parts[1::2], parts[2::2]):
        yield name, Kernel(body.splitlines())


def votes_of(name):
    return 16 if "pairs" in name else 32


def limits_of(path):
    """Lines 'KERNEL INSTRUCTIONS REGISTERS REGISTERS-BEFORE-sm_80', '-' for no limit; # begins a comment."""
    limits = {}
    for line in path.read_text().splitlines():
        words = line.split("#")[0].split()
        if words:
            limits[words[0]] = [None if word == "-" else float(word) for word in words[1:]]
    return limits


def compile_kernels(nvcc, kernels, architecture, cubin):
    """Registers and spilled bytes of each kernel."""
    run = subprocess.run([nvcc, "-O3", f"-arch=sm_{architecture}", "-cubin", "-Xptxas", "-v", "-o", cubin,
                          str(kernels / "kernels.cu")], capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"sm_{architecture}: {run.stderr}")
    used, name, spilled = {}, None, 0
    for line in run.stderr.splitlines():
        entry = re.search(r"Compiling entry function '(\w+)'", line)
        spill = re.search(r"(\d+) bytes spill stores", line)
        registers = re.search(r"Used (\d+) registers", line)
        if entry:
            name = entry.group(1)
        elif spill:
            spilled = int(spill.group(1))
        elif registers:
            used[name] = int(registers.group(1)), spilled
        elif "warning" in line:
            sys.exit(f"sm_{architecture}: {line}")
    return used


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nvcc", required=True)
    parser.add_argument("--kernels", required=True, type=pathlib.Path)
    parser.add_argument("--architectures", required=True)
    parser.add_argument("--limits", type=pathlib.Path)
    parser.add_argument("--nvdisasm")
    arguments = parser.parse_args()
    limits = limits_of(arguments.limits) if arguments.limits else {}
    nvdisasm = arguments.nvdisasm or shutil.which("nvdisasm")
    faults = []
    names = [name for name, _ in UNITS if name != "control"]
    print(f"{'':8} {'kernel':24} {'registers':>9} {'spilled':>8} {'instructions':>13} {'integer':>10}"
          + "".join(f"{name:>12}" for name in names))
    for architecture in arguments.architectures.split(","):
        with tempfile.TemporaryDirectory() as folder:
            cubin = f"{folder}/kernels.cubin"
            used = compile_kernels(arguments.nvcc, arguments.kernels, architecture, cubin)
            ways = dict(kernels_of(nvdisasm, cubin)) if nvdisasm else {}
        for name in sorted(set(limits) - set(used)):
            faults.append(f"sm_{architecture} {name}: is limited and was not compiled")
        for name, (registers, spilled) in sorted(used.items()):
            line = f"sm_{architecture:5} {name:24} {registers:9} {spilled:8}"
            most, *most_registers = limits.get(name, [None, None, None])
            most_registers = most_registers[int(architecture) < 80]
            if limits and name not in limits:
                faults.append(f"sm_{architecture} {name}: has no limits")
            if spilled:
                faults.append(f"sm_{architecture} {name}: {spilled} bytes are spilled")
            if most_registers is not None and registers > most_registers:
                faults.append(f"sm_{architecture} {name}: {registers} registers, at most {most_registers:.0f}")
            if name in ways and most != 0:
                way = ways[name].shortest_round(votes_of(name))
                if way is None:
                    faults.append(f"sm_{architecture} {name}: no loop found")
                    way = []
                count = {unit: 0 for unit in names + ["integer", "control"]}
                for mnemonic in way:
                    count[unit_of(mnemonic)] += 1
                line += f" {len(way) / GROUP:13.2f} {count['integer'] / GROUP:10.2f}"
                line += "".join(f"{count[unit] / GROUP:12.2f}" for unit in names)
                if most is not None and len(way) / GROUP > most:
                    faults.append(f"sm_{architecture} {name}: {len(way) / GROUP:.2f} instructions by 32 elements, "
                                  f"at most {most}")
            print(line)
    if not nvdisasm:
        print("instructions are not counted: no nvdisasm")
    for fault in faults:
        print(fault)
    return 1 if faults else 0


sys.exit(main())
