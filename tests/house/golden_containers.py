#!/usr/bin/env python3
"""Containers made once must restore for ever, by tensorpress and by the second decoder; damaged ones must fail.

usage: golden_containers.py FOLDER TENSORPRESS DECODER.py
"""
import os
import subprocess
import sys
import tempfile

GOOD = {
    "hello.tpress": "hello",
    "empty.tpress": "empty",
    "runai_test.safetensors.tpress": "runai_test.safetensors",
    "weights-fast.tpress": "weights.safetensors",
    "weights-default.tpress": "weights.safetensors",
    "weights-max.tpress": "weights.safetensors",
    "weights-bg-lz4.tpress": "weights.safetensors",
    "weights-rans.tpress": "weights.safetensors",
}


def flip(at):
    def change(data):
        data[at] ^= 1
        return data

    return change


# What is done to weights-default.tpress, the exit status, and what the error line says.
BAD = [
    ("magic", flip(0), 1, "not a tensorpress container"),
    ("header", flip(20), 1, "header"),
    ("frame", flip(700), 1, "hash of the stored bytes does not match"),
    ("index", flip(-130), 1, "index: damaged"),
    ("footer", flip(-100), 1, "footer: damaged"),
    ("half of it", lambda data: data[: len(data) // 2], 1, "no footer"),
    ("a byte more", lambda data: data + b"\0", 1, "no footer"),
    ("nothing", lambda data: data[:0], 1, "not a tensorpress container"),
]


def run(command):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def main():
    folder, tensorpress, decoder = sys.argv[1:]
    failures = []

    def check(name, condition, detail=""):
        if not condition:
            failures.append("%s: %s" % (name, detail))

    with tempfile.TemporaryDirectory() as work:
        for name, original in GOOD.items():
            container, expected = os.path.join(folder, name), os.path.join(folder, original)
            restored = os.path.join(work, "c-" + name)
            result = run([tensorpress, "decompress", "-q", container, "-o", restored])
            check(name, result.returncode == 0, result.stderr)
            if result.returncode == 0:
                check(name, open(restored, "rb").read() == open(expected, "rb").read(), "differs")
            restored = os.path.join(work, "python-" + name)
            result = run([sys.executable, "-B", decoder, container, "-o", restored])
            check(name, result.returncode == 0, "second decoder: " + result.stdout + result.stderr)
            if result.returncode == 0:
                check(name, open(restored, "rb").read() == open(expected, "rb").read(), "second decoder: differs")
        good = open(os.path.join(folder, "weights-default.tpress"), "rb").read()
        for what, change, status, message in BAD:
            damaged = os.path.join(work, "damaged.tpress")
            with open(damaged, "wb") as f:
                f.write(change(bytearray(good)))
            for verb in (["verify", damaged], ["decompress", damaged, "-o", os.path.join(work, "never")]):
                result = run([tensorpress] + verb)
                check(what, result.returncode == status, "exit %d: %s" % (result.returncode, result.stderr))
                check(what, message in result.stderr, "says " + result.stderr)
                check(what, not os.path.exists(os.path.join(work, "never")), "left an output")
            result = run([sys.executable, "-B", decoder, damaged])
            check(what, result.returncode == 1, "second decoder: exit %d" % result.returncode)
    print("\n".join(failures))
    print("%d containers, %d failures" % (len(GOOD) + len(BAD), len(failures)))
    sys.exit(1 if failures else 0)


main()
