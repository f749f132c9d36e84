#!/usr/bin/env python3
"""Whatever the system around it does, tensorpress writes no wrong byte and tells the truth.

    test_faults.py --tensorpress PROGRAM --shim LIBRARY [--full] [--matrix FILE] [--only WORD] [--sanitized]

Every operation runs under every fault. After each run: the exit status is one that the fault allows; with status 0
the output is complete, otherwise its name is absent, holds what it held before, or is complete; nothing else was
left in the folder; stderr holds one line, or none after success; the input is as it was; the program itself has
freed what it allocated. --full (or TP_FAULTS=full in the environment) takes every call in turn and 200 random
moments for kill -9; by default some of each. --matrix writes what came out as JSON for render_table.py.
"""
import argparse
import array
import collections
import concurrent.futures
import contextlib
import ctypes
import hashlib
import itertools
import json
import os
import random
import resource
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import threading
import time

parser = argparse.ArgumentParser()
parser.add_argument("--tensorpress", required=True)
parser.add_argument("--shim", required=True)
parser.add_argument("--full", action="store_true", default=os.environ.get("TP_FAULTS") == "full")
parser.add_argument("--matrix")
parser.add_argument("--only", default="", help="run the sections or operations whose name holds this word")
parser.add_argument("--sanitized", action="store_true", help="the program is built with AddressSanitizer")
arguments = parser.parse_args()

FULL, SANITIZED = arguments.full, arguments.sanitized
SHIM = os.path.abspath(arguments.shim)
TIMEOUT = 120
SEED = 4
# How many of the calls of one name fail in turn; kill -9 at so many moments.
EACH = 10**6 if FULL else 2 if SANITIZED else 3
EACH_ALLOCATION = 10**6 if FULL else 10
RANDOM_KILLS = 200 if FULL else 20 if SANITIZED else 40
OLD = b"what was here before"


class Skip(Exception):
    """Why something cannot be tried here."""


# ------------------------------------------------------------------------------------------------ the world

ROOT = tempfile.mkdtemp(prefix="tensorpress-faults-")
os.chmod(ROOT, 0o755)
# A copy, so that other users can run it wherever the build lies.
PROGRAM = shutil.copy(arguments.tensorpress, os.path.join(ROOT, "tensorpress"))
numbers = itertools.count()
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it, and so would the program


def path(*parts):
    return os.path.join(ROOT, *parts)


def read(name):
    with open(name, "rb") as f:
        return f.read()


def write(name, data):
    with open(name, "wb") as f:
        f.write(data)


def new_folder():
    name = path(f"run{next(numbers)}")
    os.mkdir(name)
    return name


def snapshot(name):
    """A file's bytes, or a folder's paths with modes and bytes; None where there is nothing."""
    if not os.path.lexists(name):
        return None
    if not os.path.isdir(name):
        return read(name)
    found = {}
    for root, folders, files in os.walk(name):
        for entry in folders:
            found[os.path.relpath(os.path.join(root, entry), name)] = "folder"
        for entry in files:
            full = os.path.join(root, entry)
            found[os.path.relpath(full, name)] = (stat.S_IMODE(os.stat(full).st_mode),
                                                  hashlib.sha256(read(full)).hexdigest())
    return found


def largest_file(name):
    if not os.path.isdir(name):
        return os.path.getsize(name)
    return max(os.path.getsize(os.path.join(root, f)) for root, _, files in os.walk(name) for f in files)


def safetensors(tensors, rows=None):
    offset, items = 0, {}
    for name, dtype, size, data in tensors:
        shape = [rows, len(data) // size // rows] if rows else [len(data) // size]
        items[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    header = json.dumps(items).encode()
    return struct.pack("<Q", len(header)) + header + b"".join(t[3] for t in tensors)


def bf16(count, seed):
    rng = random.Random(seed)
    block = array.array("f", (rng.gauss(0, 0.02) for _ in range(4096))).tobytes()
    high, noise = block[3::4], random.Random(seed + 1).randbytes(count)
    data = bytearray(2 * count)
    data[0::2] = noise
    data[1::2] = (high * (count // 4096 + 1))[:count]
    return bytes(data)


def run(*args, **more):
    return subprocess.run([PROGRAM, *args], check=True, timeout=TIMEOUT, **more)


def make_inputs():
    """A checkpoint that becomes a handful of frames of different kinds, one twice; and a model folder."""
    os.mkdir(path("in"))
    weights = bf16(600_000, 1)
    write(path("in/model.safetensors"), safetensors([
        ("weights", "BF16", 2, weights), ("again", "BF16", 2, weights), ("zeros", "F32", 4, bytes(1_200_000)),
        ("small", "F32", 4, array.array("f", (i * 0.37 for i in range(3000))).tobytes()),
        ("ids", "I64", 8, array.array("q", range(150_000)).tobytes())]))
    os.makedirs(path("in/repo/sub/deep"))
    os.makedirs(path("in/repo/empty"))
    write(path("in/repo/config.json"), b'{"model_type": "test"}\n')
    write(path("in/repo/sub/first.safetensors"), safetensors([("w", "BF16", 2, weights)]))
    write(path("in/repo/sub/deep/second.safetensors"), safetensors([("w", "BF16", 2, weights)]))
    write(path("in/repo/nothing"), b"")
    run("compress", "-q", path("in/model.safetensors"), "-o", path("in/model.safetensors.tpress"))
    run("compress", "-q", path("in/repo"), "-o", path("in/repo.tpress"))
    run("compress", "-q", "-", "-o", path("in/stdin.tpress"), stdin=open(path("in/model.safetensors"), "rb"))
    write(path("in/tensor"), weights)
    os.mkdir(path("in/bf16"))
    write(path("in/bf16/config.json"), b'{"model_type": "test"}\n')
    write(path("in/bf16/model.safetensors"), safetensors([(f"layer.{i}.weight", "BF16", 2, weights[:400_000])
                                                          for i in range(2)], rows=200))
    run("convert", "-q", path("in/bf16"), "-o", path("in/df11"), "--to", "df11")
    for root, _, files in os.walk(path("in")):
        for name in files:
            os.utime(os.path.join(root, name), (10**9, 10**9))


class Operation:
    """A command; `out` and `expected`: the name it gives and what must be there. column: of the table."""

    def __init__(self, name, column, args, expected=None, out=None, old=False, unnamed=True, stdin=None,
                 to_stdout=False, stdout=b""):
        self.name, self.column, self.args, self.out, self.old = name, column, args, out, old
        self.unnamed, self.stdin, self.to_stdout, self.stdout = unnamed, stdin, to_stdout, stdout
        self.expected = snapshot(expected) if expected else None
        self.largest = largest_file(expected) if expected else 0


def make_operations():
    model, container = path("in/model.safetensors"), path("in/model.safetensors.tpress")
    repo, packed = path("in/repo"), path("in/repo.tpress")
    compress, decompress = ("compress", "-q", "-j2"), ("decompress", "-q", "-j2")
    to = ("-o", "out")
    return [
        Operation("compress", "compress", (*compress, model, *to), container, "out"),
        Operation("compress -f", "compress", (*compress, "-f", model, *to), container, "out", old=True),
        Operation("compress, named", "compress", (*compress, model, *to), container, "out", unnamed=False),
        Operation("compress -f, named", "compress", (*compress, "-f", "--verify", model, *to), container, "out",
                  old=True, unnamed=False),
        Operation("compress -", "compress", (*compress, "-", *to), path("in/stdin.tpress"), "out", stdin=model),
        Operation("compress --direct", "compress", (*compress, "--direct", model, *to), container, "out"),
        Operation("compress -c", "compress", (*compress, "-c", model), container, to_stdout=True),
        Operation("compress FOLDER", "compress FOLDER", (*compress, repo, *to), packed, "out"),
        Operation("decompress", "decompress", (*decompress, container, *to), model, "out"),
        Operation("decompress -f", "decompress", (*decompress, "-f", container, *to), model, "out", old=True),
        Operation("decompress, named", "decompress", (*decompress, container, *to), model, "out", unnamed=False),
        Operation("decompress --direct", "decompress", (*decompress, "--direct", container, *to), model, "out"),
        Operation("decompress -c", "decompress", (*decompress, "-c", container), model, to_stdout=True),
        Operation("decompress --file", "decompress",
                  (*decompress, packed, "--file", "sub/first.safetensors", *to),
                  path("in/repo/sub/first.safetensors"), "out"),
        Operation("decompress FOLDER", "decompress FOLDER", (*decompress, packed, *to), repo, "out"),
        Operation("verify", "verify", ("verify", "-j2", container), stdout=b"bit-exact\n"),
        Operation("verify --against", "verify", ("verify", "-j2", container, "--against", model),
                  stdout=b"bit-exact\n"),
        Operation("verify --direct", "verify", ("verify", "-j2", "--direct", container, "--against", model),
                  stdout=b"bit-exact\n"),
        Operation("verify FOLDER", "verify", ("verify", "-j2", packed, "--against", repo), stdout=b"bit-exact\n"),
        Operation("extract", "extract", ("extract", "-q", container, "weights", *to), path("in/tensor"), "out"),
        Operation("extract, plain", "extract", ("extract", "-q", model, "weights", *to), path("in/tensor"), "out"),
        Operation("extract -c", "extract", ("extract", "-q", container, "weights", "-c"), path("in/tensor"),
                  to_stdout=True),
        Operation("load", "load", ("load", container, "--device", "cpu", "--verify"), stdout=b"bit-exact\n"),
        Operation("load, plain", "load", ("load", model, "--device", "cpu", "--verify"), stdout=b"bit-exact\n"),
        Operation("convert", "convert", ("convert", "-q", "-j2", path("in/bf16"), *to, "--to", "df11"),
                  path("in/df11"), "out"),
        Operation("convert, back", "convert", ("convert", "-q", "-j2", path("in/df11"), *to, "--to", "safetensors"),
                  path("in/bf16"), "out"),
    ]


# --------------------------------------------------------------------------------------------- one run

class Run:
    """One run of an operation, and everything that can be seen afterwards."""

    def __init__(self, operation, fault=None, environment=None, folder=None, args=None, stdout=None, limit=None,
                 prefix=(), kill_after=None, kill_with=signal.SIGKILL, preload=True, victim=None):
        self.operation = operation
        self.folder = folder or new_folder()
        own_folder = folder is None
        number = next(numbers)
        report, out_file = path(f"report{number}"), path(f"stdout{number}")
        env = {k: v for k, v in os.environ.items() if not k.startswith("TP_FAULT")}
        env["LC_ALL"] = "C"
        if preload:
            env["LD_PRELOAD"] = SHIM
            env["TP_FAULT_REPORT"] = report
            # The sanitizers want to be loaded first, which only matters for malloc; that stays theirs.
            env["ASAN_OPTIONS"] = env.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"
            if fault:
                env["TP_FAULT"] = fault
            if not operation.unnamed:
                env["TP_FAULT_NO_TMPFILE"] = "1"
            if victim:
                env["TP_FAULT_PATH"] = victim
        env.update(environment or {})
        if operation.old:
            write(os.path.join(self.folder, "out"), OLD)
        with contextlib.ExitStack() as stack:
            stdin = subprocess.DEVNULL
            if operation.stdin:
                feeder = stack.enter_context(subprocess.Popen(["cat", operation.stdin], stdout=subprocess.PIPE))
                stdin = feeder.stdout
            if stdout is None:
                stdout = stack.enter_context(open(out_file, "wb"))
            process = subprocess.Popen([*prefix, PROGRAM, *(args or operation.args)], cwd=self.folder, env=env,
                                       stdin=stdin, stdout=stdout, stderr=subprocess.PIPE, preexec_fn=limit)
            if stdin is not subprocess.DEVNULL:
                stdin.close()
            if kill_after is not None:
                time.sleep(kill_after)
                process.send_signal(kill_with)
            try:
                self.stderr = process.communicate(timeout=TIMEOUT)[1]
                self.status = process.returncode
            except subprocess.TimeoutExpired:
                process.kill()
                self.stderr = process.communicate()[1]
                self.status = "hangs"
        self.stdout = b""
        if os.path.exists(out_file):
            self.stdout = read(out_file)
            os.unlink(out_file)
        self.calls, self.leaks = collections.Counter(), []
        if os.path.exists(report):
            for line in read(report).decode().splitlines():
                name, value = line.split()
                if name == "leak":
                    self.leaks.append(value)
                else:
                    self.calls[name] = int(value)
            os.unlink(report)
        self.left = sorted(name for name in os.listdir(self.folder) if name != "out")
        self.state = self.find_state()
        if own_folder:
            shutil.rmtree(self.folder)

    def find_state(self):
        """What is at the final name: complete, before (as before the run) or WRONG."""
        o = self.operation
        if o.to_stdout:
            if self.stdout == o.expected:
                return "complete"
            return "before" if o.expected.startswith(self.stdout) else "WRONG"
        if not o.out:
            if self.stdout.endswith(o.stdout):
                return "complete"
            return "before" if not self.stdout else "WRONG"
        found = snapshot(os.path.join(self.folder, o.out))
        if found == o.expected:
            return "complete"
        return "before" if found == (OLD if o.old else None) else "WRONG"

    def outcome(self):
        status = self.status
        if isinstance(status, int) and status < 0:
            status = {-signal.SIGKILL: "killed", -signal.SIGINT: "130", -signal.SIGTERM: "143"}.get(status, status)
        # 3*: an error, yet what was asked for is there whole (its folder could not be synced).
        return f"{status}{'*' if self.state == 'complete' and self.status != 0 else ''}"


lock = threading.Lock()
matrix = collections.OrderedDict()  # (section, fault) -> column -> Counter of outcomes
skipped = collections.OrderedDict()  # section -> why it was not run
problems = []
runs = 0


def judge(section, label, r, allowed, detail="", leftovers=False, error_lines=1):
    """Files the run in the table, and complains about what it did wrong. allowed: exit statuses."""
    global runs
    wrong = []
    if r.status not in allowed:
        wrong.append(f"status {r.status}, allowed {sorted(allowed)}")
    if r.state == "WRONG":
        wrong.append("wrong bytes at the final name")
    if r.status == 0 and r.state != "complete":
        wrong.append(f"status 0, but the output is not complete ({r.state})")
    if r.left and not leftovers:
        wrong.append(f"left behind: {r.left}")
    if leftovers and len(r.left) > 1:
        wrong.append(f"more than one temporary name left: {r.left}")
    lines = r.stderr.splitlines()
    if SANITIZED and r.status == -signal.SIGKILL:  # the leak checker, a process of its own, was at work already
        lines = [line for line in lines if b"==Unable to get registers from thread" not in line]
    if r.status == 0 and lines:
        wrong.append("stderr after success")
    if isinstance(r.status, int) and r.status > 0 and (
            len(lines) != error_lines or (lines and not lines[-1].startswith(b"tensorpress: "))):
        wrong.append(f"{len(lines)} lines on stderr")
    if isinstance(r.status, int) and r.status < 0 and lines:
        wrong.append("stderr after a signal")
    if r.leaks:
        wrong.append(f"not freed, allocated at {r.leaks}")
    with lock:
        runs += 1
        matrix.setdefault((section, label), {}).setdefault(r.operation.column, collections.Counter())[
            r.outcome()] += 1
        if wrong:
            text = f"{r.operation.name}: {label}{' ' + detail if detail else ''}: {'; '.join(wrong)}"
            problems.append(f"{text}\n    stderr: {r.stderr[:600]!r}")
            print("FAILED " + problems[-1], flush=True)


def chosen(count, most):
    """1 .. count, or `most` of them, the first and last among them."""
    if count <= most:
        return list(range(1, count + 1))
    return sorted({1 + round(i * (count - 1) / (most - 1)) for i in range(most)})


class Pool:
    """Runs jobs side by side; an exception in one of them ends the test."""

    def __enter__(self):
        self.executor = concurrent.futures.ThreadPoolExecutor(max(2, os.cpu_count() or 1))
        self.futures = []
        return self

    def add(self, function, *args):
        self.futures.append(self.executor.submit(function, *args))

    def __exit__(self, kind, value, trace):
        self.executor.shutdown()
        for future in self.futures:
            future.result()


def wanted(*names):
    return any(arguments.only in name for name in names)


# ------------------------------------------------------------------------------------- calls that fail

# What each call can answer. With "ok" the program must go on (a call is interrupted, or does a part); with "fail"
# it must give up with status 3; with "any" both are right, since some such calls are only made to look first.
FAULTS = {
    "open": [("EIO EMFILE ENOMEM", "any"), ("EINTR", "ok")],
    "openat": [("EIO EMFILE ENOSPC", "any"), ("EINTR", "ok")],
    "tmpfile": [("EIO ENOSPC EROFS", "any"), ("EINTR", "ok")],
    "read": [("EIO", "fail"), ("EINTR", "ok"), ("short", "ok")],
    "pread": [("EIO ENOMEM", "fail"), ("EINTR", "ok"), ("short", "ok")],
    "write": [("EIO ENOSPC EDQUOT EFBIG", "fail"), ("EINTR", "ok"), ("short", "ok")],
    "pwrite": [("EIO ENOSPC EDQUOT EFBIG", "fail"), ("EINTR", "ok"), ("short", "ok")],
    "fsync": [("EIO ENOSPC", "fail"), ("EINTR", "ok")],
    "fsync_folder": [("EIO", "fail"), ("EINTR", "ok")],
    "syncfs": [("EIO ENOSPC", "fail")],
    "ftruncate": [("EIO ENOSPC EFBIG", "fail"), ("EINTR", "ok")],
    "fallocate": [("ENOSPC", "any"), ("EINTR", "ok")],
    "linkat": [("EIO ENOSPC EACCES", "fail")],
    "renameat": [("EIO ENOSPC", "fail")],
    "renameat2": [("EIO ENOSPC", "fail"), ("EINVAL ENOSYS", "ok")],
    "mkdirat": [("EIO ENOSPC", "fail")],
    "fchmod": [("EIO EPERM", "fail")],
    "fchmodat": [("EIO EPERM", "fail")],
    "close": [("EIO", "any"), ("EINTR", "ok")],
    "stat": [("EIO ENOMEM", "any")],
    "statvfs": [("EIO", "any")],
    "fdopendir": [("ENOMEM", "fail")],
    "readdir": [("EIO", "fail")],
    "access": [("EIO", "any")],
    "lseek": [("EIO", "any")],
    "poll": [("EINTR", "ok")],
    "getrandom": [("EAGAIN", "fail"), ("EINTR", "ok")],
    "thread": [("EAGAIN", "any")],
}
SHOWN = {"tmpfile": "openat(O_TMPFILE)", "fsync_folder": "fsync of the folder", "stat": "stat, fstat, fstatat",
         "statvfs": "fstatvfs", "thread": "pthread_create"}
ALLOWED = {"ok": {0}, "fail": {3}, "any": {0, 3}}


def failing_calls():
    section = "A call fails"
    if not wanted(section, *(o.name for o in operations)):
        return

    def one(operation, call, what, expect, where):
        r = Run(operation, f"{call}:{where}:{what}")
        if r.calls["hits"] == 0:
            return  # threads do not always take the same turns
        label = f"`{SHOWN.get(call, call)}` {'does a part' if what == 'short' else what}"
        judge(section, label, r, ALLOWED[expect], f"at {call} {where}")

    with Pool() as pool:
        for call, answers in FAULTS.items():
            for operation in operations:
                count = baseline[operation.name].calls[call]
                if not count or not wanted(section, operation.name):
                    continue
                for whats, expect in answers:
                    # By default the variants of an operation get one errno of each kind.
                    for what in whats.split()[:None if FULL or operation.name == operation.column else 1]:
                        for n in chosen(count, EACH):
                            pool.add(one, operation, call, what, expect, str(n))
                        # All of them; an interruption comes again and again.
                        if what in ("EIO", "short"):
                            pool.add(one, operation, call, what, expect, "1+")
                        if what == "EINTR":
                            pool.add(one, operation, call, what, expect, "1%2")


def out_of_memory():
    section = "No memory"
    if not wanted(section, *(o.name for o in operations)):
        return
    if SANITIZED:
        skipped[section] = "the sanitizers bring their own malloc"
        return

    def one(operation, where):
        args = [a if a != "-j2" else "-j1" for a in operation.args]
        r = Run(operation, f"malloc:{where}:ENOMEM", args=args)
        if r.calls["hits"]:
            label = "all allocations from one on fail" if where.endswith("+") else "one allocation fails"
            judge(section, label, r, {0, 3}, f"at malloc {where}")

    def limited(operation, megabytes):
        size = megabytes << 20
        r = Run(operation, limit=lambda: resource.setrlimit(resource.RLIMIT_AS, (size, size)), preload=False)
        judge(section, "address space limited", r, {0, 3}, f"to {megabytes} MiB")

    def smallest():
        for megabytes in range(4, 64):
            size = megabytes << 20
            done = subprocess.run([PROGRAM, "--version"], capture_output=True, check=False,
                                  preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (size, size)))
            if done.returncode == 0:
                return megabytes + 1
        raise Skip("the program does not start under a limit")

    with Pool() as pool:
        start = smallest()
        for operation in operations:
            if not wanted(section, operation.name):
                continue
            count = baseline[operation.name].calls["malloc"]
            for n in chosen(count, EACH_ALLOCATION):
                pool.add(one, operation, str(n))
                pool.add(one, operation, f"{n}+")
            if operation.unnamed:
                for megabytes in range(start, 160, 3 if FULL else 20):
                    pool.add(limited, operation, megabytes)


# ------------------------------------------------------------------------------------------- signals

def killed_leaves_name(operation):
    """Where a kill can find the output under a temporary name. An unnamed file that is to replace another gets one
    for the moment between linkat and renameat, for no call does both."""
    return (operation.old or not operation.unnamed or not unnamed_works or
            operation.column in ("decompress FOLDER", "convert"))


def signals_at_calls():
    """Deterministic moments: just before each call that changes or reads something."""
    section = "Signals"
    if not wanted(section):
        return
    statuses = {"kill": -signal.SIGKILL, "int": -signal.SIGINT, "term": -signal.SIGTERM}
    labels = {"kill": "SIGKILL before a call", "int": "SIGINT before a call", "term": "SIGTERM before a call"}

    def one(operation, call, what, n):
        r = Run(operation, f"{call}:{n}:{what}")
        if r.status == 0 and not r.calls["hits"]:
            return
        # The other signals let the program clean up.
        judge(section, labels[what], r, {statuses[what]}, f"at {call} {n}",
              leftovers=what == "kill" and killed_leaves_name(operation))

    calls = ["open", "openat", "tmpfile", "pread", "read", "write", "pwrite", "ftruncate", "fsync", "linkat", "renameat",
             "renameat2", "unlinkat", "fsync_folder", "mkdirat", "fchmod", "fchmodat", "syncfs", "close"]
    with Pool() as pool:
        for operation in operations:
            for call in calls:
                for n in chosen(baseline[operation.name].calls[call], 10**6 if FULL else 2):
                    pool.add(one, operation, call, "kill", n)
                    # By default one of the two that the program takes alike.
                    for what in ("int", "term") if FULL else (("int", "term")[n % 2],):
                        pool.add(one, operation, call, what, n)


def signals_at_random():
    section = "Signals"
    if not wanted(section):
        return
    rng = random.Random(SEED)
    writing = [o for o in operations if o.out]

    def one(operation, number, after):
        r = Run(operation, preload=not operation.unnamed, kill_after=after, kill_with=number)
        judge(section, f"{number.name} at a random moment", r, {0, -number}, f"after {after * 1e3:.1f} ms",
              leftovers=number == signal.SIGKILL and killed_leaves_name(operation))

    with Pool() as pool:
        for i in range(RANDOM_KILLS):
            operation = writing[i % len(writing)]
            pool.add(one, operation, signal.SIGKILL, rng.uniform(0, 1.2) * seconds[operation.name])
        for i in range(RANDOM_KILLS // 4):
            operation = writing[i % len(writing)]
            for number in (signal.SIGINT, signal.SIGTERM):
                pool.add(one, operation, number, rng.uniform(0, 1.2) * seconds[operation.name])


# -------------------------------------------------------------------------------------------- places

def full_and_closed_stdout():
    section = "Places"
    if not wanted(section):
        return
    model, container = path("in/model.safetensors"), path("in/model.safetensors.tpress")
    commands = [("compress", ("compress", "-q", "-c", model)), ("compress", ("compress", "--dry-run", model)),
                ("decompress", ("decompress", "-q", "-c", container)), ("verify", ("verify", container)),
                ("extract", ("extract", "-q", container, "weights", "-c")),
                ("inspect", ("inspect", container)), ("inspect", ("inspect", "--json", "--tensors", model)),
                ("other verbs", ("--help",)), ("other verbs", ("--version",))]
    for column, args in commands:
        operation = Operation(" ".join(args[:1]), column, args)
        operation.stdout = None
        for label in ("stdout is full", "stdout is closed", "stdout is a pipe that nobody reads"):
            if label == "stdout is full":
                with open("/dev/full", "wb") as full:
                    r = Quiet(operation, full)
            elif label == "stdout is closed":
                r = Quiet(operation, subprocess.DEVNULL, limit=lambda: os.close(1))
            else:
                readable, writable = os.pipe()
                os.close(readable)
                with os.fdopen(writable, "wb") as pipe:
                    r = Quiet(operation, pipe)
            judge(section, label, r, {3})


class Quiet(Run):
    """A run of which only status and stderr tell something."""

    def find_state(self):
        return "complete" if self.status == 0 else "before"

    def __init__(self, operation, stdout, **more):
        super().__init__(operation, stdout=stdout, preload=False, **more)


def file_size_limit():
    section = "Places"
    if not wanted(section):
        return

    def one(operation, size):
        r = Run(operation, limit=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)), preload=False)
        largest = operation.largest
        if operation.stdin:
            largest = max(largest, os.path.getsize(operation.stdin))
        judge(section, "file size limited", r, {0} if size >= largest else {3}, f"to {size} bytes")

    with Pool() as pool:
        for operation in operations:
            if not operation.out or operation.old or not operation.unnamed:
                continue
            size = operation.largest
            for limit in sorted({0, 1, 4096, size // 3, size - 1, size, 2 * size}
                                | (set(range(0, size, size // 20)) if FULL else set())):
                pool.add(one, operation, limit)


def in_own_mounts(function):
    """Calls the function in a child with mounts of its own and takes over what it files."""
    global runs
    libc = ctypes.CDLL(None, use_errno=True)
    new_mounts, new_user = 0x00020000, 0x10000000
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(readable)
            user, group = os.getuid(), os.getgid()
            if libc.unshare(new_mounts if user == 0 else new_mounts | new_user) != 0:
                raise Skip(f"no mounts of its own: {os.strerror(ctypes.get_errno())}")
            if user != 0:
                for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
                    write(f"/proc/self/{name}", text.encode())
            private = 1 << 18 | 1 << 14  # MS_PRIVATE | MS_REC
            if libc.mount(b"none", b"/", None, private, None) != 0:
                raise Skip(f"mounts cannot be made private: {os.strerror(ctypes.get_errno())}")
            matrix.clear()
            problems.clear()
            runs = 0
            why = None
            function(libc)
            status = 0
        except Skip as skip:
            why, status = str(skip), 0
        except BaseException as failure:  # the parent says it
            why = f"test failed: {failure!r}"
            problems.append(why)
        finally:
            filed = [[*key, {c: dict(v) for c, v in columns.items()}] for key, columns in matrix.items()]
            with os.fdopen(writable, "w") as pipe:
                json.dump({"matrix": filed, "problems": problems, "runs": runs, "skipped": why}, pipe)
            os._exit(status)
    os.close(writable)
    with os.fdopen(readable) as pipe:
        told = json.load(pipe)
    os.waitpid(child, 0)
    for section, label, columns in told["matrix"]:
        for column, outcomes in columns.items():
            matrix.setdefault((section, label), {}).setdefault(column, collections.Counter()).update(outcomes)
    problems.extend(told["problems"])
    runs += told["runs"]
    if told["skipped"] and not told["problems"]:
        raise Skip(told["skipped"])


def full_file_system(libc):
    """A small tmpfs, filled but for some pages: from none to more than the output takes."""
    section = "Places"
    place = path("small")
    os.mkdir(place)
    if libc.mount(b"tmpfs", place.encode(), b"tmpfs", 0, b"size=8m,mode=700") != 0:
        raise Skip(f"no tmpfs can be mounted: {os.strerror(ctypes.get_errno())}")
    writing = [o for o in operations if o.out]
    for operation in writing:
        size = len(operation.expected) if isinstance(operation.expected, bytes) else 2_500_000
        pages = size // 4096
        frees = range(0, pages + 8, max(1, pages // 40)) if FULL else (0, 1, 3, pages // 2, pages - 1)
        # Without the look at the free space the writing itself meets the end of it.
        for free in frees:
            for fault in (None, "statvfs:1+:EIO"):
                folder = os.path.join(place, "folder")
                os.mkdir(folder)
                room = os.statvfs(place)
                if operation.old:
                    free += 1  # for what is there before
                with open(os.path.join(place, "filler"), "wb") as filler:
                    try:
                        os.posix_fallocate(filler.fileno(), 0, max(1, (room.f_bavail - free)) * 4096)
                    except OSError:
                        raise Skip("the tmpfs cannot be filled") from None
                r = Run(operation, fault, folder=folder)
                # Holes take no room: the output may fit where its size does not.
                judge(section, "file system is full", r, {0, 3}, f"{free} pages left, {fault}")
                os.unlink(os.path.join(place, "filler"))
                shutil.rmtree(folder)
    # Where stdin is kept until it can be read at any place.
    spool = next(o for o in operations if o.stdin)
    with open(os.path.join(place, "filler"), "wb") as filler:
        os.posix_fallocate(filler.fileno(), 0, (os.statvfs(place).f_bavail - 20) * 4096)
    judge(section, "file system of `$TMPDIR` is full", Run(spool, environment={"TMPDIR": place}), {3})
    os.unlink(os.path.join(place, "filler"))
    if os.listdir(place):
        problems.append(f"left in TMPDIR: {os.listdir(place)}")
    # Read-only as a whole.
    folder = os.path.join(place, "folder")
    os.mkdir(folder)
    if libc.mount(b"tmpfs", place.encode(), b"tmpfs", 1 | 32, b"size=8m") == 0:  # MS_RDONLY | MS_REMOUNT
        for operation in writing:
            if not operation.old:
                judge(section, "file system is read-only", Run(operation, folder=folder), {3})


def read_only_folder():
    """As a user whom permissions bind."""
    section = "Places"
    prefix = ()
    user = os.getuid()
    if user == 0:
        if not shutil.which("setpriv"):
            raise Skip("setpriv is needed to become another user")
        prefix, user = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"), 65534
        done = subprocess.run([*prefix, PROGRAM, "--version"], capture_output=True, check=False)
        if done.returncode != 0:
            raise Skip(f"the program does not run as another user: {done.stderr.decode().strip()}")

    def one(operation, label, mode, allowed):
        folder = new_folder()
        if os.getuid() == 0:
            os.chown(folder, user, user)
        if operation.old:
            write(os.path.join(folder, "out"), OLD)
        os.chmod(folder, mode)
        r = ReadOnly(operation, folder=folder, prefix=prefix, preload=False)
        judge(section, label, r, allowed)
        os.chmod(folder, 0o700)
        shutil.rmtree(folder)

    for operation in operations:
        if operation.out:
            one(operation, "folder is read-only", 0o500, {3})
            one(operation, "folder may be written, not listed", 0o300, {0})
    for operation in operations:
        if operation.column in ("compress", "decompress", "verify", "extract") and not operation.stdin:
            secret = path("in", "secret")
            write(secret, b"x")
            os.chmod(secret, 0)
            args = [secret if a.startswith(path("in")) else a for a in operation.args]
            folder = new_folder()
            os.chmod(folder, 0o777)
            r = Run(operation, args=args, folder=folder, prefix=prefix, preload=False)
            judge(section, "input may not be read", r, {3})
            os.unlink(secret)
            shutil.rmtree(folder)


class ReadOnly(Run):
    """A run whose folder may not be listed by us either, unless we are root."""

    def __init__(self, operation, folder, **more):
        if operation.old:
            operation = Operation(**{k: getattr(operation, k) for k in (
                "name", "column", "args", "out", "old", "unnamed", "stdin", "to_stdout", "stdout")})
            operation.expected = next(o.expected for o in operations if o.name == operation.name)
        self.mode = stat.S_IMODE(os.stat(folder).st_mode)
        super().__init__(operation, folder=folder, **more)


# -------------------------------------------------------------------------------------- changing input

def changing_input():
    """The input is truncated or changed behind the program's back, just before each of its reads."""
    section = "Input changes meanwhile"
    if not wanted(section):
        return

    def copied(operation, folder):
        """The operation on a copy of its input in the folder."""
        args, source = [], None
        for a in operation.args:
            if a.startswith(path("in")) and source is None:
                source = a
                a = os.path.join(folder, os.path.basename(a))
                if os.path.isdir(source):
                    shutil.copytree(source, a)
                else:
                    shutil.copy2(source, a)
            args.append(a)
        return args, os.path.join(folder, os.path.basename(source))

    def one(operation, call, n, what):
        inputs, folder = new_folder(), new_folder()
        args, source = copied(operation, inputs)
        inside = os.path.isdir(source)
        victim = source if not inside else os.path.join(
            source, "appeared" if what == "add" else "sub/first.safetensors")
        r = Run(operation, f"{call}:{n}:{what}", args=args, folder=folder, victim=victim)
        if r.calls["hits"] and operation.args[0] == "compress":
            judge_compressed(r, source, folder, operation, what, call, n)
        elif r.calls["hits"]:
            # What is read and damaged is found (1); what ends too early could not be read (3).
            several = operation.args[0] == "verify"
            judge(section, label_of(what), r, {0, 1, 3}, f"at {call} {n}",
                  error_lines=len(r.stderr.splitlines()) if several and r.status == 1 else 1)
        shutil.rmtree(inputs)
        shutil.rmtree(folder)

    def judge_compressed(r, source, folder, operation, what, call, n):
        """Status 0 is right where the container holds what was there before the change, or after it."""
        out = os.path.join(folder, "out")
        if r.status == 0 and r.state == "WRONG" and os.path.exists(out):
            restored = os.path.join(folder, "restored")
            done = subprocess.run([PROGRAM, "decompress", "-q", out, "-o", restored], capture_output=True, check=False,
                                  timeout=TIMEOUT)
            if done.returncode == 0 and snapshot(restored) == snapshot(source):
                r.state = "complete"
        judge(section, label_of(what), r, {0, 3}, f"at {call} {n}")

    def label_of(what):
        return {"truncate": "truncated", "change": "one bit changed", "add": "a file appears",
                "remove": "a file vanishes"}[what]

    with Pool() as pool:
        for operation in operations:
            if operation.stdin or operation.to_stdout or operation.old or not operation.unnamed:
                continue
            counts = baseline[operation.name].calls
            folder = operation.name == "compress FOLDER"
            for what in ("truncate", "change", *(("add", "remove") if folder else ())):
                for call in ("pread", "fsync", *(("openat",) if folder else ())):
                    for n in chosen(counts[call], EACH):
                        pool.add(one, operation, call, n, what)


# ----------------------------------------------------------------------------------------------- all

def guarded(name, function):
    begin = time.monotonic()
    try:
        function()
    except Skip as skip:
        skipped[name] = str(skip)
        print(f"NOT RUN {name}: {skip}", flush=True)
    print(f"{name}: {time.monotonic() - begin:.1f} s", flush=True)


def main():
    make_inputs()
    global operations, baseline, seconds, unnamed_works
    operations = make_operations()
    baseline, seconds = {}, {}
    before = snapshot(path("in"))
    try:
        descriptor = os.open(ROOT, os.O_TMPFILE | os.O_RDWR)
        os.close(descriptor)
        unnamed_works = True
    except OSError:
        unnamed_works = False
    for operation in operations:
        begin = time.monotonic()
        r = baseline[operation.name] = Run(operation)
        seconds[operation.name] = time.monotonic() - begin
        judge("No fault", "none", r, {0})
        if not r.calls:
            problems.append(f"{operation.name}: the shim is not in effect")
    if not problems:
        guarded("A call fails", failing_calls)
        guarded("No memory", out_of_memory)
        guarded("Signals, at calls", signals_at_calls)
        guarded("Signals, at random", signals_at_random)
        guarded("stdout", full_and_closed_stdout)
        guarded("file size limit", file_size_limit)
        if wanted("Places"):
            guarded("full and read-only file systems", lambda: in_own_mounts(full_file_system))
            guarded("read-only folders", read_only_folder)
        guarded("Input changes", changing_input)
    if snapshot(path("in")) != before:
        problems.append("an input was changed")
    if arguments.matrix:
        rows = [{"section": section, "fault": label, "outcomes": {c: dict(sorted(v.items())) for c, v in columns.items()}}
                for (section, label), columns in matrix.items()]
        with open(arguments.matrix, "w", encoding="utf-8") as f:
            json.dump({"full": FULL, "sanitized": SANITIZED, "runs": runs, "failed": len(problems), "rows": rows,
                       "not_run": skipped}, f, indent=1)
            f.write("\n")
    for name, why in skipped.items():
        print(f"not run: {name}: {why}")
    if problems:
        print("\n" + "\n".join(problems))
    print(f"{runs} runs, {len(problems)} failed, {len(skipped)} parts not run")
    return 1 if problems else 0


try:
    code = main()
finally:
    shutil.rmtree(ROOT, ignore_errors=True)
sys.exit(code)
