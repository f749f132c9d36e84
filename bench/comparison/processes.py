"""Whole commands on a large file: time and memory as the kernel counts them (wait4), programs taking turns."""
import filecmp
import os
import pathlib
import shutil
import statistics
import subprocess
import sys

LARGE = 1 << 30
RUNNER = pathlib.Path(__file__).with_name("runner.py")


def run(command, cores):
    """[seconds, user, system, peak bytes, smallest peak that can be seen]; None if the program reports an error."""
    runner = [sys.executable, "-I", "-S", str(RUNNER), str(cores)]
    done = subprocess.run([*runner, *command], stdout=subprocess.PIPE, check=False)
    return None if done.returncode else [float(word) for word in done.stdout.split()]


class Program:
    # Compress and decompress are the same, and there is one file at a time: making more new ones than the others
    # do would need memory that a hypervisor may have taken back, which costs much more.
    copies = False

    def __init__(self, name, setting, threads, target, compress, decompress):
        self.name, self.setting, self.threads, self.target = name, setting, threads, target
        self.commands = {"compress": compress, "decompress": decompress}
        self.results = {"compress": [], "decompress": []}
        self.failure = None
        self.stored = None


def programs(build, source, folder, peers, threads_list, versions):
    """peers: the folder of the environment's programs, or None."""
    tensorpress, back = str(build / "tensorpress"), str(folder / "restored")
    found = []
    for threads in threads_list:
        n = str(threads)
        to = str(folder / f"{source.name}.tpress")
        found.append(Program("tensorpress", "default", threads, to,
                             [tensorpress, "compress", "-q", "-j", n, str(source), "-o", to],
                             [tensorpress, "decompress", "-q", "-j", n, to, "-o", back]))
        if peers and (peers / "lmz").exists():
            to = str(folder / f"{source.name}.lmz")
            python, lmz = str(peers / "python"), str(peers / "lmz")
            found.append(Program(f"lmz {versions.get('lmzip')}", "", threads, to,
                                 [python, lmz, "compress", "-q", "-j", n, str(source), to],
                                 [python, lmz, "decompress", "-q", "-j", n, to, back]))
        zstd = shutil.which("zstd")
        for level in ("-1", "-3") if zstd and peers else ():
            to = str(folder / f"{source.name}.zst")
            found.append(Program(f"zstd {versions.get('zstd command')}", level, threads, to,
                                 [zstd, "-q", level, f"-T{n}", str(source), "-o", to],
                                 [zstd, "-q", "-d", to, "-o", back]))
    to = str(folder / "copy")
    copy = Program("cp", "", 1, to, *[[shutil.which("cp"), str(source), to]] * 2)
    copy.copies = True
    return [*found, copy]


def turn(program, source, folder, check):
    back = folder / "restored"
    for verb in ("compress", "decompress"):
        result = run(program.commands[verb], program.threads)
        if result is None:
            program.failure = f"{verb} ends with an error"
            break
        program.results[verb].append(result)
        if verb == "compress":
            program.stored = os.path.getsize(program.target)
        if program.copies:
            os.unlink(program.target)
    if check and not program.failure and not program.copies and not filecmp.cmp(source, back, shallow=False):
        program.failure = "does not restore its input"
    for path in (back, program.target):
        if os.path.exists(path):
            os.unlink(path)


def measure(build, source, folder, peers, threads_list, versions, rounds):
    found = programs(build, source, folder, peers, threads_list, versions)
    size = os.path.getsize(source)
    with open(source, "rb") as file:  # into the page cache
        while file.read(1 << 24):
            pass
    # The first round warms and checks; it does not count.
    for number in range(-1, rounds):
        print(f"  round {number + 2} of {rounds + 1}", file=sys.stderr)
        for program in found if number % 2 == 0 else reversed(found):
            if program.failure:
                continue
            turn(program, source, folder, number == -1)
            if number == -1:
                program.results = {"compress": [], "decompress": []}
    rows = []
    for program in found:
        row = {"program": program.name, "setting": program.setting, "threads": program.threads}
        if program.failure:
            row["failure"] = program.failure
        else:
            row["stored_bytes"] = program.stored
            for verb, results in program.results.items():
                seconds, user, system, peak, least = (statistics.median(column) for column in zip(*results))
                row[verb] = {"seconds": round(seconds, 4), "user_s": round(user, 4), "system_s": round(system, 4),
                             "MBps": round(size / seconds / 1e6, 1), "peak_MB": round(peak / 1e6, 1),
                             "least_peak_MB": round(least / 1e6, 1)}
        rows.append(row)
    return {"raw_bytes": size, "rounds": rounds, "rows": rows}
