#!/usr/bin/env python3
"""Checks the command line against docs/cli.md.

    test_cli.py TENSORPRESS [SAMPLES_FOLDER] [NAME ...]

Runs every test (or those whose name holds one of NAME) in a fresh folder of its own.
"""
import array
import contextlib
import hashlib
import json
import os
import pty
import random
import re
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

TP = os.path.abspath(sys.argv[1])
SCRIPT = os.path.abspath(__file__)
SAMPLES = os.path.abspath(sys.argv[2]) if len(sys.argv) > 2 else ""
# A run under a sanitizer is several times slower.
TIMEOUT = 120


class Skip(Exception):
    pass


class Result:
    def __init__(self, args, code, out, err):
        self.args, self.code, self.out, self.err = args, code, out, err

    def __str__(self):
        return f"{self.args}: status {self.code}, stdout {self.out[:300]!r}, stderr {self.err[:600]!r}"


def tp(*args, stdin=b"", **more):
    """Runs the program; stdin is bytes (through a pipe) or a file."""
    args = [os.fsencode(a) for a in args]
    if isinstance(stdin, bytes):
        more["input"] = stdin
    else:
        more["stdin"] = stdin
    more.setdefault("stdout", subprocess.PIPE)
    done = subprocess.run([TP, *args], stderr=subprocess.PIPE, timeout=TIMEOUT, **more)
    return Result(args, done.returncode, done.stdout or b"", done.stderr)


def ok(result, quiet_stderr=False):
    assert result.code == 0, result
    assert not quiet_stderr or result.err == b"", result
    return result


def error(result, code, *texts):
    """One line `tensorpress: ...` on stderr, nothing on stdout; usage errors end in what to do."""
    assert result.code == code, result
    assert result.out == b"", result
    assert result.err.count(b"\n") == 1 and result.err.endswith(b"\n"), result
    assert result.err.startswith(b"tensorpress: "), result
    assert not re.search(rb"[\x00-\x09\x0b-\x1f\x7f]", result.err), result
    if code == 2:
        assert b"; " in result.err, result
    for text in texts:
        assert os.fsencode(text) in result.err, (text, result)
    return result


def files(folder="."):
    return sorted(os.path.relpath(os.path.join(root, name), folder)
                  for root, _, names in os.walk(folder) for name in names)


def read(path):
    with open(path, "rb") as f:
        return f.read()


def write(path, data):
    with open(path, "wb") as f:
        f.write(data)
    return path


def weights(count, seed=1):
    """BF16 of a normal distribution."""
    rng = random.Random(seed)
    values = array.array("f", (rng.gauss(0, 0.02) for _ in range(count)))
    raw = values.tobytes()
    out = bytearray(2 * count)
    out[0::2], out[1::2] = raw[2::4], raw[3::4]
    return bytes(out)


def safetensors(entries, header=None):
    """entries: (name, dtype, shape, bytes). header: raw header in its place."""
    if header is None:
        offset, items = 0, {}
        for name, dtype, shape, data in entries:
            items[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(data)]}
            offset += len(data)
        header = json.dumps(items).encode()
    return struct.pack("<Q", len(header)) + header + b"".join(e[3] for e in entries)


BF16_ROWS, BF16_COLUMNS = 300, 70


def model(path="model.safetensors"):
    """A small checkpoint of several dtypes, one tensor twice."""
    w = weights(BF16_ROWS * BF16_COLUMNS)
    ids = array.array("q", range(1000)).tobytes()
    f32 = array.array("f", (random.Random(2).gauss(0, 1) for _ in range(500))).tobytes()
    write(path, safetensors([
        ("weight", "BF16", [BF16_ROWS, BF16_COLUMNS], w),
        ("tied", "BF16", [BF16_ROWS, BF16_COLUMNS], w),
        ("norm", "F32", [500], f32),
        ("ids", "I64", [10, 100], ids),
        ("scalar", "F32", [], struct.pack("<f", 1.5)),
        ("nothing", "F16", [0, 4], b""),
    ]))
    return path


def container(path="model.safetensors"):
    model(path)
    ok(tp("compress", "-q", path), quiet_stderr=True)
    return path + ".tpress"


def sample_files():
    if not os.path.isdir(SAMPLES):
        return []
    return sorted(os.path.join(SAMPLES, n) for n in os.listdir(SAMPLES) if n.endswith(".safetensors"))


def load_json(data):
    """Strict: no duplicate keys, no NaN."""
    def pairs(items):
        keys = [k for k, _ in items]
        assert len(set(keys)) == len(keys), keys
        return dict(items)

    def constant(name):
        raise AssertionError(name)
    return json.loads(data.decode("utf-8"), object_pairs_hook=pairs, parse_constant=constant)


VERBS = ["compress", "decompress", "verify", "inspect", "extract", "bench", "doctor", "convert", "load"]
CODECS = ["auto", "raw", "lz4", "bg-lz4", "rans", "df11"]
LEVELS = ["fast", "default", "max"]


# ------------------------------------------------------------------------------------- help and version

def test_help():
    for args in (["--help"], ["-h"]):
        r = ok(tp(*args), quiet_stderr=True)
        for verb in VERBS:
            assert re.search(rb"^  %s " % verb.encode(), r.out, re.M), verb
    for verb in VERBS:
        long, short = ok(tp(verb, "--help"), True), ok(tp(verb, "-h"), True)
        assert long.out == short.out
        assert long.out.startswith(b"usage: tensorpress %s" % verb.encode())
        assert b"Examples:\n  tensorpress" in long.out or b"\n  cat " in long.out
        assert all(len(line) <= 120 and line == line.rstrip() for line in long.out.splitlines())
        ok(tp(verb, "some", "--help"), True)
    # a verb that writes a folder says so
    assert b"--output PATH          the folder to make\n" in ok(tp("convert", "--help")).out
    assert b"--output PATH          write to PATH; - is stdout\n" in ok(tp("compress", "--help")).out


def test_version():
    r = ok(tp("--version"), True)
    assert re.fullmatch(rb"tensorpress \d+\.\d+\.\d+ \(container format \d+\.\d+\)\n", r.out), r
    assert ok(tp("compress", "--version"), True).out == r.out


def test_no_verb():
    error(tp(), 2, "--help")
    error(tp("frobnicate"), 2, "frobnicate", "tensorpress --help")
    error(tp("--json", "inspect"), 2, "--json")
    error(tp(""), 2)


# -------------------------------------------------------------------------------------------- usage

def test_usage_errors():
    model()
    os.mkdir("folder")
    write("other", b"x")
    write("plain.bin", b"plain bytes")
    container("c.safetensors")
    before = files()
    cases = [
        (["compress"], "INPUT"),
        (["decompress"], "FILE"),
        (["verify"], "FILE"),
        (["inspect"], "FILE"),
        (["extract"], "FILE"),
        (["extract", "model.safetensors"], "NAME"),
        (["compress", "model.safetensors", "other"], "other"),
        (["compress", "-c", "model.safetensors", "other"], "other"),
        (["doctor", "other"], "other"),
        (["compress", ""], "empty"),
        (["decompress", ""], "empty"),
        (["inspect", ""], "empty"),
        (["compress", "model.safetensors", "-o", ""], "empty"),
        (["compress", "model.safetensors", "--output="], "empty"),
        (["verify", "c.safetensors.tpress", "--against", ""], "empty"),
        (["decompress", "c.safetensors.tpress", "--file", "", "-o", "x"], "empty"),
        # options that the verb does not have
        (["compress", "model.safetensors", "--slice", "0:1"], "--slice"),
        (["compress", "model.safetensors", "--frobnicate"], "--frobnicate"),
        (["compress", "model.safetensors", "-x"], "-x"),
        (["compress", "model.safetensors", "-qx"], "-x"),
        (["inspect", "model.safetensors", "-o", "x"], "-o"),
        (["inspect", "model.safetensors", "--json", "-q"], "-q"),
        (["verify", "c.safetensors.tpress", "-f"], "-f"),
        (["decompress", "c.safetensors.tpress", "-l", "fast"], "-l"),
        (["decompress", "c.safetensors.tpress", "--sha256"], "--sha256"),
        (["extract", "c.safetensors.tpress", "norm", "-c", "--level", "max"], "--level"),
        (["doctor", "--json"], "--json"),
        (["bench", "--force"], "--force"),
        # values
        (["compress", "model.safetensors", "-o"], "-o"),
        (["compress", "model.safetensors", "--output"], "--output"),
        (["compress", "model.safetensors", "--quiet=yes"], "--quiet"),
        (["compress", "model.safetensors", "--force=1"], "--force"),
        (["compress", "model.safetensors", "--outp", "x"], "--output"),
        (["compress", "model.safetensors", "--lev=max"], "--level"),
        (["compress", "model.safetensors", "-l", "best"], "best"),
        (["compress", "model.safetensors", "-l", ""], "level"),
        (["compress", "model.safetensors", "--codec", "zstd"], "zstd"),
        (["compress", "model.safetensors", "--codec", "LZ4"], "LZ4"),
        (["bench", "--kernel", "sse9"], "sse9"),
        *[(["compress", "model.safetensors", "-j", n], "-j")
          for n in ("0", "-1", "", "two", "2x", "1.5", " 2", "99999999999999999999999")],
        *[(["decompress", "c.safetensors.tpress", "-o", "x", "--max-output", n], "--max-output")
          for n in ("0", "-1", "", "x", "1Q", "1.5G", "99999999999T", "10 G")],
        # outputs
        (["compress", "-"], "-o"),
        (["decompress", "-"], "-o"),
        (["decompress", "other"], "-o"),
        (["decompress", ".tpress"], "-o"),
        (["compress", "model.safetensors", "-c", "-o", "x"], "-c"),
        (["compress", "model.safetensors", "-o", "x", "-c"], "-c"),
        (["compress", "model.safetensors", "-co", "x"], "-c"),
        (["compress", "model.safetensors", "-o", "x", "-o", "y"], "y"),
        (["compress", "model.safetensors", "-o", "other"], "-f"),
        (["compress", "model.safetensors", "-o", "folder"], "folder"),
        (["compress", "model.safetensors", "-f", "-o", "folder"], "folder"),
        (["compress", "model.safetensors", "-f", "-o", "folder/"], "folder"),
        (["compress", "model.safetensors", "-f", "-o", "/dev/null"], "/dev/null"),
        (["decompress", "c.safetensors.tpress"], "-f"),
        (["decompress", "c.safetensors.tpress", "-o", "other"], "-f"),
        (["decompress", "c.safetensors.tpress", "-o", "x", "--file", "nope"], "nope"),
        # extract
        (["extract", "model.safetensors", "norm"], "-o"),
        (["extract", "model.safetensors", "nope", "-c"], "nope"),
        (["extract", "model.safetensors", "nor", "-c"], "nor"),
        (["extract", "plain.bin", "norm", "-c"], "norm"),
        (["extract", "c.safetensors.tpress", "norm", "-c", "--file", "nope"], "nope"),
        (["extract", "model.safetensors", "norm", "-o", "other"], "-f"),
        (["extract", "model.safetensors", "norm", "-o", "model.safetensors", "-f"], "input"),
        *[(["extract", f, "ids", "-c", "--slice", s], "slice") for f in ("model.safetensors", "c.safetensors.tpress")
          for s in ("0:11", "11:", "5:4", "-1:2", "0:-1", "5", "", "a:b", "1:2:3", "0x0:1", " 0:1",
                    "0:18446744073709551616")],
        (["extract", "model.safetensors", "scalar", "-c", "--slice", "0:1"], "slice"),
        # folders
        (["compress", "."], "-o"),
        (["compress", "folder/.."], "-o"),
        (["compress", "/"], "-o"),
        (["compress", "folder", "-o", "folder/x"], "inside"),
        (["compress", "folder/", "-o", "./folder/x"], "inside"),
        (["compress", ".", "-o", "x"], "inside"),
        (["compress", "folder", "-o", "other"], "-f"),
    ]
    for args, text in cases:
        error(tp(*args), 2, text)
        assert files() == before, (args, files())
    assert read("other") == b"x"


def test_options_anywhere():
    model()
    ways = [
        ["compress", "model.safetensors", "-q", "-o", "out", "-l", "max", "-j", "2"],
        ["compress", "-q", "-o", "out", "-l", "max", "-j2", "model.safetensors"],
        ["compress", "--output=out", "--quiet", "model.safetensors", "--level=max", "--threads=2"],
        ["compress", "--output", "out", "-q", "--threads", "2", "--level", "max", "--", "model.safetensors"],
        ["compress", "-qoout", "-lmax", "model.safetensors"],
        ["compress", "-fqo", "out", "model.safetensors", "-lmax"],
        ["compress", "model.safetensors", "-fqlmax", "-oout"],
        # the last of several wins
        ["compress", "model.safetensors", "-l", "fast", "-l", "max", "-v", "-q", "-q", "-oout", "-j1", "-j2", "-f", "-f"],
    ]
    wanted = None
    for way in ways:
        for more in ({}, {"POSIXLY_CORRECT": "1"}):
            r = ok(tp(*way, env={**os.environ, **more}), quiet_stderr=True)
            assert r.out == b""
            data = read("out")
            os.remove("out")
            wanted = wanted or data
            assert data == wanted, way
    assert files() == ["model.safetensors"]


def test_double_dash():
    model("-odd.safetensors")
    error(tp("compress", "-odd.safetensors"), 2)
    ok(tp("compress", "-q", "--", "-odd.safetensors"))
    assert files() == ["-odd.safetensors", "-odd.safetensors.tpress"]
    ok(tp("inspect", "--json", "--", "-odd.safetensors"))
    error(tp("compress", "--", "x", "-q"), 2, "-q")
    # an option's value may start with a dash
    ok(tp("compress", "-q", "-o", "-out", "./-odd.safetensors"))
    assert os.path.exists("-out")


# ------------------------------------------------------------------------------------------ compress

def test_round_trips():
    model()
    write("empty.bin", b"")
    write("one.bin", b"x")
    write("text.txt", b"some text, again and again\n" * 4000)
    write("random.bin", random.Random(3).randbytes(100000))
    write("header_only.safetensors", safetensors([]))
    for path in ["model.safetensors", "empty.bin", "one.bin", "text.txt", "random.bin", "header_only.safetensors",
                 *sample_files()]:
        original = read(path)
        base = os.path.basename(path)
        for codec, level in [("auto", l) for l in LEVELS] + [(c, "default") for c in CODECS[1:]]:
            ok(tp("compress", "-q", "--codec", codec, "-l", level, "--verify", path, "-o", "c"), True)
            ok(tp("decompress", "-q", "c", "-o", "back"), True)
            assert read("back") == original, (path, codec, level)
            ok(tp("verify", "c", "--against", path), True)
            assert load_json(ok(tp("inspect", "--json", "c")).out)["files"][0]["path"] == base
            os.remove("c")
            os.remove("back")
        assert read(path) == original, "the input was changed"


def test_default_names():
    model()
    os.mkdir("d")
    ok(tp("compress", "model.safetensors"))
    assert files() == ["model.safetensors", "model.safetensors.tpress"]
    os.rename("model.safetensors", "moved")
    ok(tp("decompress", "model.safetensors.tpress"))
    assert read("model.safetensors") == read("moved")
    shutil.copy("model.safetensors.tpress", "d/x.tpress")
    ok(tp("decompress", "d/x.tpress"))
    assert read("d/x") == read("moved")
    # a container is a file of bytes like any other
    ok(tp("compress", "-q", "model.safetensors.tpress"), True)
    assert os.path.exists("model.safetensors.tpress.tpress")


def test_summary_and_quiet():
    model()
    r = ok(tp("compress", "model.safetensors"))
    assert r.out == b"" and r.err.count(b"\n") == 1 and b"MB/s" in r.err and b" s," in r.err and b"%" in r.err, r
    assert b"%d" % os.path.getsize("model.safetensors") in r.err
    assert b"%d" % os.path.getsize("model.safetensors.tpress") in r.err
    r = ok(tp("compress", "-fv", "model.safetensors"))
    assert r.err.count(b"\n") > 1, r
    assert ok(tp("compress", "-fq", "model.safetensors"), True).out == b""
    # an error is told also with -q
    error(tp("compress", "-q", "model.safetensors"), 2)


def test_force():
    model()
    write("out", b"old")
    error(tp("compress", "model.safetensors", "-o", "out"), 2, "out", "-f")
    assert read("out") == b"old"
    ok(tp("compress", "-qf", "model.safetensors", "-o", "out"), True)
    assert len(read("out")) > 100
    for data in (b"old", b""):
        write("model", data)
        error(tp("decompress", "out", "-o", "model"), 2, "-f")
        assert read("model") == data
    ok(tp("decompress", "-f", "out", "-o", "model"))
    assert read("model") == read("model.safetensors")
    # a link that leads nowhere is something that exists
    os.symlink("nowhere", "link")
    error(tp("compress", "model.safetensors", "-o", "link"), 2, "link")
    assert os.path.islink("link") and not os.path.exists("nowhere")
    # after a failure the old content is there
    damaged = bytearray(read("out"))
    damaged[len(damaged) // 2] ^= 1
    write("damaged", bytes(damaged))
    write("kept", b"kept")
    error(tp("decompress", "-f", "damaged", "-o", "kept"), 1)
    assert read("kept") == b"kept"
    assert all("tpress-" not in f for f in files())


def test_output_is_input():
    model()
    before = read("model.safetensors")
    os.link("model.safetensors", "hard")
    os.symlink("model.safetensors", "soft")
    os.symlink("model.safetensors.tpress", "soft.tpress")
    for name in ("model.safetensors", "./model.safetensors", "hard", "soft"):
        for force in ([], ["-f"]):
            error(tp("compress", *force, "model.safetensors", "-o", name), 2, "input")
            with open("model.safetensors", "rb") as f:
                error(tp("compress", *force, "-", "-o", name, stdin=f), 2, "input")
    error(tp("compress", "-f", "soft", "-o", "model.safetensors"), 2, "input")
    with open("model.safetensors", "r+b") as f:
        r = tp("compress", "-c", "model.safetensors", stdout=f)
        error(r, 2, "input")
    ok(tp("compress", "-q", "model.safetensors"))
    stored = read("model.safetensors.tpress")
    error(tp("decompress", "-f", "model.safetensors.tpress", "-o", "soft.tpress"), 2, "input")
    error(tp("decompress", "-f", "soft.tpress", "-o", "model.safetensors.tpress"), 2, "input")
    error(tp("extract", "-f", "model.safetensors.tpress", "norm", "-o", "soft.tpress"), 2, "input")
    assert read("model.safetensors") == before and read("model.safetensors.tpress") == stored
    assert os.path.islink("soft") and os.path.samefile("hard", "model.safetensors")


def test_stdin_stdout():
    path = model()
    data = read(path)
    ok(tp("compress", "-q", path, "-o", "named"))
    # -c and -o - give what -o would
    for way in (["-c"], ["-o", "-"], ["--stdout"], ["--output=-"], ["-o-"]):
        assert ok(tp("compress", "-q", path, *way), True).out == read("named"), way
        assert ok(tp("decompress", "named", *way), True).out == data, way
    # a pipe and a file as stdin give the same container, stored as "stdin"
    ok(tp("compress", "-q", "-", "-o", "piped", stdin=data), True)
    with open(path, "rb") as f:
        ok(tp("compress", "-q", "-", "-o", "redirected", stdin=f), True)
    assert read("piped") == read("redirected")
    shutil.copy(path, "stdin")
    ok(tp("compress", "-q", "stdin", "-o", "same"), True)
    assert read("piped") == read("same")
    described = load_json(ok(tp("inspect", "--json", "piped")).out)
    assert described["files"][0]["path"] == "stdin"
    assert ok(tp("compress", "-qc", "-", stdin=data), True).out == read("piped")
    # and back
    ok(tp("decompress", "-", "-o", "back", stdin=read("piped")), True)
    assert read("back") == data
    with open("piped", "rb") as f:
        assert ok(tp("decompress", "-", "-c", stdin=f), True).out == data
    assert ok(tp("decompress", "-", "-c", stdin=read("named")), True).out == data
    assert ok(tp("verify", "-", stdin=read("named")), True).out.startswith(b"stdin: 1 file")
    assert load_json(ok(tp("inspect", "--json", "-", stdin=data), True).out)["format"] == "safetensors"
    assert ok(tp("extract", "-", "ids", "-c", stdin=data), True).out == array.array("q", range(1000)).tobytes()
    assert "stdin.tpress" not in files()
    # a folder is named, not redirected
    folder = os.open(".", os.O_RDONLY)
    error(tp("inspect", "-", stdin=folder), 2, "stdin", "folder")
    os.close(folder)
    # a file named "-"
    shutil.copy(path, "./-")
    ok(tp("compress", "-q", "./-"), True)
    assert os.path.exists("-.tpress")


def test_determinism():
    os.mkdir("a")
    os.mkdir("b")
    big = weights(3 << 20)
    ids = array.array("i", range(300000)).tobytes()
    data = safetensors([("w", "BF16", [3 << 20], big), ("i", "I32", [300000], ids), ("w2", "BF16", [3 << 20], big)])
    write("a/m.safetensors", data)
    write("b/m.safetensors", data)
    os.utime("b/m.safetensors", (0, 0))
    os.chmod("b/m.safetensors", 0o600)
    digests = set()
    for folder, threads in (("a", 1), ("a", 2), ("b", 8), ("b", 3)):
        ok(tp("compress", "-q", "-j", str(threads), f"{folder}/m.safetensors", "-o", "out", "-f"), True)
        digests.add(hashlib.sha256(read("out")).digest())
        ok(tp("verify", "-j", str(threads), "out", "--against", "a/m.safetensors"))
        ok(tp("decompress", "-q", "-j", str(threads), "-f", "out", "-o", "back"))
        assert read("back") == data
    assert len(digests) == 1
    assert len(read("out")) < 0.36 * len(data), "tied tensors are stored twice"


def test_direct():
    """Past the page cache, here and in memory: the same bytes of files of all sizes, and of a folder."""
    parts = [weights(3 << 19), bytes(3 << 20), random.Random(1).randbytes((1 << 20) + 77)]
    data = safetensors([(str(i), "U8", [len(part)], part) for i, part in enumerate(parts)])
    data += random.Random(2).randbytes(4 << 20)
    sizes = [0, 4095, (4 << 20) - 1, 4 << 20, len(data)]
    places = [os.getcwd()] + (["/dev/shm"] if os.access("/dev/shm", os.W_OK) else [])
    for place in places:
        with tempfile.TemporaryDirectory(dir=place) as folder:
            os.mkdir(os.path.join(folder, "in"))
            for size in sizes:
                write(os.path.join(folder, "in", f"m{size}.safetensors"), data[:size])
            inputs = [os.path.join("in", f"m{size}.safetensors") for size in sizes] + ["in"]
            for path in (os.path.join(folder, path) for path in inputs):
                expected, out, back = (os.path.join(folder, name) for name in ("expected", "out", "back"))
                ok(tp("compress", "-qf", path, "-o", expected), True)
                ok(tp("compress", "-qf", "--direct", "-j3", path, "-o", out), True)
                assert read(out) == read(expected), path
                ok(tp("decompress", "-q", "--direct", "-j1", out, "-o", back), True)
                ok(tp("verify", "-q", "--direct", "-j2", out, "--against", path), True)
                ok(tp("verify", "-q", out, "--against", back), True)
                if os.path.isdir(back):
                    shutil.rmtree(back)
                else:
                    assert ok(tp("decompress", "-q", "--direct", "-c", out)).out == read(path)
                    os.remove(back)
            assert sorted(os.listdir(folder)) == ["expected", "in", "out"]
    error(tp("extract", "--direct", "x", "y", "-o", "z"), 2, "--direct")


def test_dry_run():
    model()
    r = ok(tp("compress", "--dry-run", "model.safetensors"), True)
    assert files() == ["model.safetensors"]
    assert r.out.count(b"\n") == 1 and r.out.startswith(b"model.safetensors: "), r
    ok(tp("compress", "-q", "model.safetensors"))
    stored = b"%d" % os.path.getsize("model.safetensors.tpress")
    assert stored in r.out, (stored, r)
    # nothing is written: what exists is no obstacle, and stdin needs no name
    assert ok(tp("compress", "--dry-run", "model.safetensors"), True).out == r.out
    assert stored not in (b"",) and ok(tp("compress", "--dry-run", "-", stdin=read("model.safetensors")), True).out
    assert ok(tp("compress", "--dry-run", "-q", "model.safetensors"), True).out == b""
    assert files() == ["model.safetensors", "model.safetensors.tpress"]


def test_warnings():
    # overlapping ranges: the whole file as bytes
    header = (b'{"x":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"y":{"dtype":"U8","shape":[8],"data_offsets":[4,12]}}')
    write("overlap.safetensors", safetensors([("", "", [], bytes(range(12)))], header))
    r = ok(tp("compress", "overlap.safetensors", "-o", "c"))
    lines = [l for l in r.err.splitlines() if b"stored as bytes" in l]
    assert len(lines) == 1 and b"overlap.safetensors: stored as bytes: " in lines[0], r
    assert ok(tp("compress", "-fq", "overlap.safetensors", "-o", "c"), True).out == b""
    ok(tp("verify", "c", "--against", "overlap.safetensors"), True)
    plain = load_json(ok(tp("inspect", "--json", "overlap.safetensors"), True).out)
    assert list(plain) == ["path", "format", "reason", "size", "tensors"], plain
    assert plain["format"] == "bytes" and plain["tensors"] == [] and plain["reason"], plain
    # some tensors only
    header = b'{"x":{"dtype":"U99","shape":[8],"data_offsets":[0,8]},"y":{"dtype":"U8","shape":[4],"data_offsets":[8,12]}}'
    write("some.safetensors", safetensors([("", "", [], bytes(range(12)))], header))
    r = ok(tp("compress", "some.safetensors", "-o", "c", "-f"))
    assert b"some.safetensors: 1 of 2 tensors stored as bytes: " in r.err, r
    tensors = load_json(ok(tp("inspect", "--json", "some.safetensors"), True).out)["tensors"]
    assert tensors[0]["dtype"] == "U99" and tensors[0]["opaque"] is True and "opaque" not in tensors[1], tensors
    # a plain other file goes in without a word
    write("text.txt", b"text")
    r = ok(tp("compress", "text.txt", "-o", "c", "-f"))
    assert b"stored as bytes" not in r.err
    for broken in (b"", b"\x00" * 7, struct.pack("<Q", 1 << 44) + b"{}", struct.pack("<Q", 2) + b"[]", b"GGUF"):
        write("broken.safetensors", broken)
        r = ok(tp("compress", "broken.safetensors", "-o", "c", "-f"))
        ok(tp("verify", "c", "--against", "broken.safetensors"), True)


# ------------------------------------------------------------------------------------------- folders

def gguf(keys, tensors):
    """keys: {name: (type, struct format, value)}; every tensor is eight F32."""
    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys))
    for name, (kind, form, value) in keys.items():
        out += struct.pack("<Q", len(name)) + name.encode() + struct.pack("<i", kind) + struct.pack("<" + form, value)
    for i, name in enumerate(tensors):
        out += struct.pack("<Q", len(name)) + name.encode() + struct.pack("<IQiQ", 1, 8, 0, 32 * i)
    return out + bytes(-len(out) % 32) + bytes(range(32)) * len(tensors)


def split_gguf(folder, count=2, **changed):
    """Parts of a split, whose keys tell the truth but for `changed`."""
    names = [["a"], ["b", "c"], ["d"]][:count]
    for i in range(count):
        keys = {"split.no": (2, "H", i), "split.count": (2, "H", count),
                "split.tensors.count": (5, "i", sum(map(len, names)))}
        keys.update(changed if i == 0 else {})
        write(f"{folder}/q-{i + 1:05}-of-{count:05}.gguf", gguf({k: v for k, v in keys.items() if v}, names[i]))


def shard(names):
    return safetensors([(n, "BF16", [100], weights(100, ord(n[-1]))) for n in names])


def index_of(shards, total=None, **more):
    """The index of shards {file: names}; total: bytes, by default the true ones."""
    size = 200 * sum(len(names) for names in shards.values()) if total is None else total
    return json.dumps({"metadata": {"total_size": size},
                       "weight_map": {**{n: f for f, names in shards.items() for n in names}, **more}}).encode()


TWO_SHARDS = {"model-00001-of-00002.safetensors": ["x.a", "x.b"], "model-00002-of-00002.safetensors": ["x.c"]}


def repository(folder="repo"):
    """A model repository in which all agrees."""
    os.makedirs(folder)
    for name, names in TWO_SHARDS.items():
        write(f"{folder}/{name}", shard(names))
    write(f"{folder}/model.safetensors.index.json", index_of(TWO_SHARDS))
    write(f"{folder}/config.json", b"{}")
    write(f"{folder}/.gitattributes", b"*.safetensors filter=lfs\n")
    os.makedirs(f"{folder}/onnx/empty")
    write(f"{folder}/onnx/run.sh", b"#!/bin/sh\n")
    os.chmod(f"{folder}/onnx/run.sh", 0o755)
    write(f"{folder}/onnx/zero", b"")
    split_gguf(folder)
    return folder


def tree(folder, links=True):
    """{path: (kind, permission bits, content)}; links to files count as files."""
    found = {}
    for root, folders, names in os.walk(folder):
        for name in folders + names:
            path = os.path.join(root, name)
            mode = os.stat(path).st_mode & 0o777
            kind = "folder" if os.path.isdir(path) else "file"
            assert links or not os.path.islink(path), path
            found[os.path.relpath(path, folder)] = (kind, mode, None if kind == "folder" else read(path))
    return found


def test_folder_round_trip():
    repository()
    before = tree("repo")
    r = ok(tp("compress", "repo/"))
    assert r.out == b"" and r.err.startswith(b"repo.tpress: ") and r.err.count(b"\n") == 1, r
    count = sum(kind == "file" for kind, _, _ in before.values())
    size = sum(len(data or b"") for _, _, data in before.values())
    line = b"repo.tpress: %d files, 6 tensors, %d bytes: bit-exact\n" % (count, size)
    assert ok(tp("verify", "repo.tpress"), True).out == line
    for original in ("repo", "repo/", "./repo"):
        assert ok(tp("verify", "repo.tpress", "--against", original), True).out == line
    os.rename("repo", "original")
    ok(tp("decompress", "repo.tpress"), True)
    assert tree("repo", links=False) == before == tree("original")
    ok(tp("decompress", "repo.tpress", "-o", "other/", "-j1"), True)
    assert tree("other", links=False) == before
    # nothing of the folder's own name or place, of times, threads
    os.makedirs("deeper/place")
    shutil.copytree("original", "deeper/place/name")
    os.utime("deeper/place/name/config.json", (0, 0))
    for threads in (1, 2, 7):
        ok(tp("compress", "-q", "-j", str(threads), "deeper/place/name", "-o", "again", "-f"), True)
        assert read("again") == read("repo.tpress")
    assert ok(tp("compress", "-qc", "original"), True).out == read("again")
    r = ok(tp("compress", "--dry-run", "original/"), True)
    assert r.out.startswith(b"original: %d bytes would be stored in %d " % (size, len(read("again")))), r
    assert b" %d files, 6 tensors, " % count in r.out, r
    for level in LEVELS:
        ok(tp("compress", "-q", "-l", level, "--sha256", "--verify", "original", "-o", "x"), True)
        ok(tp("verify", "x", "--against", "repo"), True)
        os.remove("x")
    assert ok(tp("decompress", "-", "-o", "piped", stdin=read("repo.tpress")), True)
    assert tree("piped") == before
    # an empty folder, and "." with -o
    os.mkdir("empty")
    ok(tp("compress", "-q", "empty"), True)
    ok(tp("decompress", "empty.tpress", "-o", "empty2"), True)
    assert tree("empty2") == {} and os.path.isdir("empty2")
    ok(tp("compress", "-q", ".", "-o", "../out.tpress", cwd="original"), True)
    assert read("out.tpress") == read("again")


def test_folder_second_decoder():
    """The decoder written from docs/format.md alone restores the same folder."""
    decoder = os.path.join(os.path.dirname(SCRIPT), "..", "decoder", "tpress_decoder.py")
    repository()
    ok(tp("compress", "-q", "--sha256", "repo"), True)
    done = subprocess.run([sys.executable, decoder, "repo.tpress", "-o", "back"], capture_output=True, timeout=TIMEOUT)
    assert done.returncode == 0, done
    assert {p: (kind, data) for p, (kind, _, data) in tree("back").items()} == \
        {p: (kind, data) for p, (kind, _, data) in tree("repo").items()}
    listed = [line.split(b" ", 2) for line in done.stdout.splitlines()]
    assert [os.fsdecode(path) for _, _, path in listed] == sorted(tree("repo")), listed


def test_folder_links():
    """A model as huggingface_hub keeps it: links into a store of blobs."""
    os.makedirs("hub/blobs")
    os.makedirs("hub/snapshots/4f2c/sub")
    model("hub/blobs/8d1e")
    write("hub/blobs/77ab", b"{}")
    os.symlink("../../blobs/8d1e", "hub/snapshots/4f2c/model.safetensors")
    os.symlink("../../../blobs/77ab", "hub/snapshots/4f2c/sub/config.json")
    os.symlink("model.safetensors", "hub/snapshots/4f2c/same.safetensors")
    wanted = tree("hub/snapshots/4f2c")
    ok(tp("compress", "-q", "hub/snapshots/4f2c", "-o", "s.tpress"), True)
    ok(tp("decompress", "s.tpress"), True)
    assert tree("s", links=False) == wanted
    ok(tp("verify", "s.tpress", "--against", "hub/snapshots/4f2c"), True)
    ok(tp("compress", "-q", "hub/blobs/8d1e", "-o", "one.tpress"), True)
    assert os.path.getsize("s.tpress") < 1.1 * os.path.getsize("one.tpress"), "what is linked twice is stored twice"
    os.symlink("hub/snapshots/4f2c", "latest")
    ok(tp("compress", "-q", "latest"), True)
    assert read("latest.tpress") == read("s.tpress")
    # what cannot be stored is named
    os.makedirs("m/sub")
    write("m/sub/file", b"x")
    os.mkdir("elsewhere")

    def refused(path, text):
        for args in (["compress", "m"], ["compress", "m", "-o", "x"], ["compress", "m", "-c"], ["inspect", "m"],
                     ["verify", "s.tpress", "--against", "m"]):
            error(tp(*args), 3, path, text)
        os.remove(path)
    os.symlink("../../elsewhere", "m/sub/link")
    refused("m/sub/link", "link to a folder")
    os.symlink("nowhere", "m/sub/link")
    refused("m/sub/link", "leads nowhere")
    os.symlink("link", "m/sub/link")
    refused("m/sub/link", "leads nowhere")
    os.mkfifo("m/pipe")
    refused("m/pipe", "FIFO")
    os.symlink("/dev/null", "m/device")
    refused("m/device", "device")
    with socket.socket(socket.AF_UNIX) as s:
        s.bind("m/socket")
        refused("m/socket", "socket")
    assert not os.path.exists("m.tpress") and not os.path.exists("x")


def test_folder_modes():
    os.makedirs("m/closed/inner")
    for mode in (0o400, 0o444, 0o600, 0o640, 0o755, 0o777):
        write(f"m/{mode:o}", b"x")
        os.chmod(f"m/{mode:o}", mode)
    write("m/closed/inner/file", b"kept")
    os.chmod("m/closed/inner", 0o500)
    os.chmod("m/closed", 0o555)
    try:
        before = tree("m")
        old = os.umask(0o077)
        try:
            ok(tp("compress", "-q", "m"), True)
            ok(tp("decompress", "m.tpress", "-o", "back"), True)
        finally:
            os.umask(old)
        assert tree("back") == before
        # after a failure at the very end everything goes, closed folders too
        data = bytearray(read("m.tpress"))
        write("damaged", bytes(data[:-1]))
        error(tp("decompress", "damaged", "-o", "x"), 1)
        assert not os.path.exists("x")
        os.chmod("m/600", 0o644)
        r = tp("verify", "m.tpress", "--against", "m")
        assert r.code == 1 and b"'600'" in r.err and b"permissions 600" in r.err, r
    finally:
        for folder in ("m", "back"):
            if os.path.isdir(folder):
                subprocess.run(["chmod", "-R", "u+rwx", folder], check=True)


def test_folder_output():
    repository()
    ok(tp("compress", "-q", "repo", "-o", "c.tpress"), True)
    wanted = tree("repo")
    os.mkdir("empty")
    os.mkdir("full")
    write("full/kept", b"kept")
    write("file", b"kept")
    os.symlink("empty", "link")
    before = files()
    # an existing output; -f replaces an empty folder and nothing else
    error(tp("decompress", "c.tpress", "-o", "empty"), 2, "empty", "-f")
    for force in ([], ["-f"]):
        error(tp("decompress", *force, "c.tpress", "-o", "full"), 2, "full", "not empty")
        error(tp("decompress", *force, "c.tpress", "-o", "full/"), 2, "full", "not empty")
        error(tp("decompress", *force, "c.tpress", "-o", "link"), 2, "link")
        error(tp("decompress", *force, "c.tpress", "-o", "c.tpress"), 2, "c.tpress")
        for name in (".", "..", "/", "full/.."):
            error(tp("decompress", *force, "c.tpress", "-o", name), 2)
    error(tp("decompress", "c.tpress", "-o", "file"), 2, "file")
    error(tp("decompress", "-f", "c.tpress", "-o", "file"), 2, "file", "no folder")
    error(tp("decompress", "c.tpress", "-o", "no/such/folder"), 3, "no/such/folder")
    assert files() == before and read("file") == b"kept" and os.listdir("empty") == []
    ok(tp("decompress", "-f", "c.tpress", "-o", "empty"), True)
    assert tree("empty") == wanted
    # the default output is there
    os.mkdir("c")
    error(tp("decompress", "c.tpress"), 2, "c:", "-f")
    ok(tp("decompress", "-f", "c.tpress"), True)
    assert tree("c") == wanted
    error(tp("decompress", "-f", "c.tpress"), 2, "not empty")
    # -c has no meaning for a folder
    for args in (["-c"], ["-o", "-"], ["-cf"]):
        error(tp("decompress", "c.tpress", *args), 2, "folder", "--file")
    error(tp("decompress", "-", "-c", stdin=read("c.tpress")), 2, "folder")
    error(tp("decompress", "c.tpress", "-o", "x", "--max-output", "100"), 3)
    assert not os.path.exists("x")
    # of compress
    error(tp("compress", "repo", "-o", "repo/x"), 2, "inside")
    error(tp("compress", "repo", "-o", "repo/onnx/empty/x"), 2, "inside")
    os.symlink("repo/onnx", "shortcut")
    error(tp("compress", "repo", "-o", "shortcut/x"), 2, "inside")
    for name in (".", "./", "repo/..", "/", "//"):
        error(tp("compress", name), 2, "-o")
    error(tp("compress", "repo", "-o", "file"), 2, "file", "-f")
    with open("repo/x", "wb") as f:
        error(tp("compress", "-c", "repo", stdout=f), 2, "repo/x")
    os.remove("repo/x")
    os.link("c.tpress", "repo/hard")
    error(tp("compress", "-f", "repo", "-o", "c.tpress"), 2, "repo/hard")
    os.remove("repo/hard")
    fd = os.open("repo", os.O_RDONLY)
    try:
        r = subprocess.run([TP, "compress", "-", "-c"], stdin=fd, capture_output=True, timeout=TIMEOUT)
    finally:
        os.close(fd)
    assert r.returncode == 2 and b"folder" in r.stderr, r
    assert tree("repo") == wanted
    # folders where files are wanted
    error(tp("decompress", "repo", "-o", "x"), 1, "repo")
    error(tp("verify", "repo"), 1, "repo")
    for args in (["extract", "repo", "norm", "-c"], ["bench", "repo"]):
        error(tp(*args), 4, "repo")


def test_folder_file():
    repository()
    ok(tp("compress", "-q", "repo"), True)
    shutil.move("repo.tpress", "other.tpress")
    ok(tp("decompress", "other.tpress", "--file", "onnx/run.sh", "-o", "r"), True)
    assert read("r") == read("repo/onnx/run.sh")
    name = "model-00002-of-00002.safetensors"
    assert ok(tp("decompress", "other.tpress", "--file", name, "-c"), True).out == read(f"repo/{name}")
    assert ok(tp("decompress", "-", "--file", name, "-c", stdin=read("other.tpress")), True).out == read(f"repo/{name}")
    # the default name: its own, next to the container
    os.mkdir("d")
    shutil.copy("other.tpress", "d/other.tpress")
    ok(tp("decompress", "d/other.tpress", "--file", "onnx/zero"), True)
    assert read("d/zero") == b""
    error(tp("decompress", "d/other.tpress", "--file", "onnx/zero"), 2, "d/zero", "-f")
    ok(tp("decompress", "-f", "d/other.tpress", "--file", "onnx/zero"), True)
    for missing in ("nope", "onnx/", "./config.json", "/config.json", "../repo/config.json", "config.jso", "onnx/run.sh/"):
        error(tp("decompress", "other.tpress", "--file", missing, "-o", "x"), 2)
    error(tp("decompress", "other.tpress", "--file", "onnx", "-c"), 2, "onnx", "folder")
    error(tp("decompress", "other.tpress", "--file", name, "-c", "--max-output", "10"), 3)
    # extract: by name over all files, or in one
    assert ok(tp("extract", "other.tpress", "x.c", "-c"), True).out == weights(100, ord("c"))
    assert ok(tp("extract", "other.tpress", "x.c", "-c", "--file", name), True).out == weights(100, ord("c"))
    assert ok(tp("extract", "other.tpress", "x.c", "-c", "--slice", "5:7"), True).out == weights(100, ord("c"))[10:14]
    assert ok(tp("extract", "other.tpress", "b", "-c"), True).out == bytes(range(32))
    error(tp("extract", "other.tpress", "x.a", "-c", "--file", name), 2, "x.a")
    error(tp("extract", "other.tpress", "x.a", "-c", "--file", "nope"), 2, "nope")
    error(tp("extract", "other.tpress", "x.a", "-c", "--file", "onnx"), 2)


def test_folder_verify():
    repository()
    ok(tp("compress", "-q", "repo"), True)

    def differs(*texts):
        r = tp("verify", "repo.tpress", "--against", "repo")
        assert r.code == 1 and r.out == b"", r
        lines = r.err.decode().splitlines()
        assert len(lines) == 2 and all(l.startswith("tensorpress: ") for l in lines), r
        assert all(t in lines[0] for t in texts), (texts, r)
        assert lines[1] == "tensorpress: repo.tpress: intact, but differs from repo", r
    write("repo/more", b"")
    differs("repo/more: is not in repo.tpress")
    os.remove("repo/more")
    os.mkdir("repo/more")
    differs("repo/more: is not in repo.tpress")
    os.rmdir("repo/more")
    os.remove("repo/onnx/zero")
    differs("'onnx/zero'", "is not in repo")
    os.mkdir("repo/onnx/zero")
    os.chmod("repo/onnx/zero", 0o644)
    differs("'onnx/zero'", "is a file, but repo/onnx/zero is a folder")
    os.rmdir("repo/onnx/zero")
    write("repo/onnx/zero", b"")
    os.rmdir("repo/onnx/empty")
    differs("'onnx/empty'", "is not in repo")
    os.mkdir("repo/onnx/empty")
    write("repo/config.json", b"[]")
    differs("'config.json'", "differs from repo/config.json at byte 0")
    write("repo/config.json", b"{}\n")
    differs("'config.json'", "has 2 bytes")
    write("repo/config.json", b"{}")
    name = "repo/model-00002-of-00002.safetensors"
    data = read(name)
    write(name, data[:-1] + bytes([data[-1] ^ 1]))
    differs("'model-00002-of-00002.safetensors'", "tensor 'x.c'", f"at byte {len(data) - 1}")
    write(name, data)
    ok(tp("verify", "repo.tpress", "--against", "repo"), True)
    write("file", b"x")
    ok(tp("compress", "-q", "file"), True)
    error(tp("verify", "repo.tpress", "--against", "file"), 1, "folder", "file")
    error(tp("verify", "file.tpress", "--against", "repo"), 1, "folder", "file")
    error(tp("verify", "repo.tpress", "--against", "missing"), 3, "missing")
    if os.geteuid() != 0:
        os.chmod("repo/config.json", 0)
        error(tp("verify", "repo.tpress", "--against", "repo"), 3, "repo/config.json")
        error(tp("compress", "repo", "-o", "x"), 3, "repo/config.json")
        error(tp("inspect", "repo"), 3, "repo/config.json")
        error(tp("inspect", "repo", "--json"), 3, "repo/config.json")
    # damage names file and tensor
    size = 1 << 20
    os.mkdir("large")
    for i in range(2):
        write(f"large/{i}.safetensors", safetensors([("same", "BF16", [size], weights(size, i))]))
    ok(tp("compress", "-q", "large"), True)
    data = bytearray(read("large.tpress"))
    data[3 * len(data) // 4] ^= 1
    write("large.tpress", bytes(data))
    r = tp("verify", "large.tpress")
    lines = r.err.decode().splitlines()
    assert r.code == 1 and len(lines) == 2 and "file '1.safetensors': tensor 'same': " in lines[0], r
    error(tp("decompress", "large.tpress", "-o", "x"), 1, "large.tpress")
    assert not os.path.exists("x")
    ok(tp("decompress", "large.tpress", "--file", "0.safetensors", "-o", "x"), True)
    assert read("x") == read("large/0.safetensors")


def test_folder_inspect():
    repository()
    ok(tp("compress", "-q", "--sha256", "repo"), True)
    for name in ("repo", "repo/"):
        r = ok(tp("inspect", "--json", name), True)
        j = load_json(r.out)
        assert list(j) == ["format", "path", "size", "files"], j
        assert j["format"] == "folder" and j["path"] == "repo"
        expected = {p: len(data) for p, (kind, _, data) in tree("repo").items() if kind == "file"}
        assert j["size"] == sum(expected.values())
        assert [f["path"] for f in j["files"]] == sorted(expected)
        for f in j["files"]:
            assert list(f) == ["path", "format"] + ["reason"] * (f["format"] == "bytes") + ["size", "tensors"], f
            assert f["size"] == expected[f["path"]]
            alone = load_json(ok(tp("inspect", "--json", "repo/" + f["path"]), True).out)
            assert {**alone, "path": f["path"]} == f
    c = load_json(ok(tp("inspect", "--json", "repo.tpress"), True).out)
    assert [f["path"] for f in c["files"]] == sorted(expected) and c["original_size"] == j["size"]
    for f in c["files"]:
        assert f["sha256"] == hashlib.sha256(read("repo/" + f["path"])).hexdigest()
    text = ok(tp("inspect", "repo"), True).out
    assert text.startswith(b"repo: folder, ") and b"model-00001-of-00002.safetensors: safetensors" in text, text
    assert b"x.a" not in text and b"x.a" in ok(tp("inspect", "--tensors", "repo"), True).out
    text = ok(tp("inspect", "repo.tpress"), True).out
    assert b"%d files" % len(expected) in text, text
    # a container in a folder is a file of bytes, also a damaged one
    shutil.copy("repo.tpress", "repo/inner.tpress")
    write("repo/bad.tpress", b"\x89TPRS\r\n\x1a" + bytes(200))
    j = load_json(ok(tp("inspect", "--json", "repo"), True).out)
    assert {f["path"]: f["format"] for f in j["files"]}["inner.tpress"] == "bytes"
    # names that are not UTF-8
    os.mkdir(b"odd\xff")
    write(b"odd\xff/n\xfe\n", b"x")
    j = load_json(ok(tp("inspect", "--json", b"odd\xff"), True).out)
    assert bytes.fromhex(j["path_hex"]) == b"odd\xff" and bytes.fromhex(j["files"][0]["path_hex"]) == b"n\xfe\n"
    ok(tp("compress", "-q", b"odd\xff"), True)
    j = load_json(ok(tp("inspect", "--json", b"odd\xff.tpress"), True).out)
    assert bytes.fromhex(j["files"][0]["path_hex"]) == b"n\xfe\n"


def test_folder_index_and_shards():
    """Where an index and its shards, or the parts of a split, disagree: one warning line for each."""
    first, second = TWO_SHARDS

    def check(*texts, lines=1):
        for source in ("repo", "repo.tpress"):
            if source.endswith("tpress"):
                ok(tp("compress", "-qf", "repo"))
            r = ok(tp("inspect", "--json", source))
            load_json(r.out)
            assert r.err == ok(tp("inspect", source)).err, r
            assert r.err.count(b"\n") == lines, r
            assert all(l.startswith(b"tensorpress: " + source.encode()) for l in r.err.splitlines()), r
            for text in texts:
                assert text.encode() in r.err, (text, r)
        shutil.rmtree("repo")
        os.remove("repo.tpress")
        repository()
    repository()
    check(lines=0)
    index = "repo/model.safetensors.index.json"
    os.remove(f"repo/{second}")
    check("model.safetensors.index.json", "index and shards disagree: ", f"'{second}' is missing (1 tensor)")
    write(index, index_of({first: ["x.a", "x.b", "x.z", "x.y"], second: ["x.c"]}, 600))
    check("not in the shard that it names: 2 tensors, the first is 'x.y' ", first)
    write(index, index_of({first: ["x.a"], second: ["x.b", "x.c"]}))
    check("in another shard than it names: tensor 'x.b'", first)
    write(index, index_of({first: ["x.a"], second: ["x.c"]}, 600))
    check("not listed: tensor 'x.b'", first)
    write(index, index_of(TWO_SHARDS, 601))
    check("total_size is 601, but the tensors have 600 bytes")
    write(index, b'{"weight_map":{"x.a":"%s","x.a":"%s","x.b":"%s","x.c":"%s"}}'
          % (first.encode(), second.encode(), first.encode(), second.encode()))
    check("listed twice: tensor 'x.a'")
    write("repo/model-00003-of-00002.safetensors", shard(["x.d"]))
    check("it does not name 'model-00003-of-00002.safetensors'")
    write(f"repo/{first}", b"broken")
    check(f"'{first}' is no safetensors file")
    for text, why in ((b"", "no JSON"), (b"{}", "no weight_map"), (b"[1", "no JSON"),
                      (b'{"weight_map":{"a":1}}', "no file"), (b"\xff", "no JSON")):
        write(index, text)
        check("is no index of a model: ", why)
    # an index in a folder below is about the files there
    os.makedirs("repo/sub")
    write("repo/sub/model.safetensors.index.json", index_of(TWO_SHARDS))
    check("sub/model.safetensors.index.json", f"'{first}' is missing (2 tensors)", f"'{second}' is missing (1 tensor)")
    # names from an index can neither break a line nor drive a terminal
    write(index, index_of({first: ["x.a", "x.b", "\x1b[31m\n"], second: ["x.c"]}, 600))
    check("'\\x1b[31m\\x0a'")
    # split GGUF
    os.remove("repo/q-00001-of-00002.gguf")
    check("q-00002-of-00002.gguf", "the parts of the split disagree: ", "part 1 of 2 is missing")
    split_gguf("repo", **{"split.no": (2, "H", 1)})
    check("'q-00001-of-00002.gguf' says that it is part 2 of 2")
    split_gguf("repo", **{"split.count": (2, "H", 3)})
    check("'q-00001-of-00002.gguf' says that it is part 1 of 3")
    split_gguf("repo", **{"split.count": None})
    check("'q-00001-of-00002.gguf' does not say that it is part of a split")
    split_gguf("repo", **{"split.tensors.count": (5, "i", 9)})
    check("says that there are 3 tensors in all, another part 9", "say that there are 9 tensors in all, but hold 3")
    shutil.copy("repo/q-00001-of-00002.gguf", "repo/q-00003-of-00002.gguf")
    check("there is a part 3 of 2", "there more than once: tensor 'a'")
    split_gguf("repo", 3)  # a second split of the same name, and whole
    check(lines=0)
    write("repo/q-00002-of-00002.gguf", b"broken")
    check("'q-00002-of-00002.gguf' is no GGUF file")


def test_folder_shards_shrink():
    """Tensors that two shards share are stored once."""
    os.makedirs("m")
    common, own = weights(1 << 20, 1), [weights(1 << 18, i) for i in (2, 3)]
    for i in range(2):
        write(f"m/{i}.safetensors", safetensors([("common", "BF16", [1 << 20], common), (f"own{i}", "BF16", [1 << 18], own[i])]))
    ok(tp("compress", "-q", "m"), True)
    ok(tp("compress", "-q", "m/0.safetensors", "-o", "one"), True)
    assert os.path.getsize("m.tpress") < 1.25 * os.path.getsize("one"), (os.path.getsize("m.tpress"), os.path.getsize("one"))
    j = load_json(ok(tp("inspect", "--json", "m.tpress"), True).out)
    assert j["files"][0]["tensors"][0]["stored_nbytes"] > 0 and j["files"][1]["tensors"][0]["stored_nbytes"] == 0, j
    ok(tp("decompress", "m.tpress", "-o", "back"), True)
    assert tree("back") == tree("m")


def test_folder_warnings():
    repository()
    write("repo/1.safetensors", b"broken")
    write("repo/onnx/2.gguf", b"broken")
    r = ok(tp("compress", "repo"))
    lines = r.err.decode().splitlines()
    assert len(lines) == 3, r
    assert lines[0].startswith("tensorpress: repo/1.safetensors: stored as bytes: "), r
    assert lines[1].startswith("tensorpress: repo/onnx/2.gguf: stored as bytes: "), r
    ok(tp("compress", "-qf", "repo"), True)


def test_folder_many():
    """Ten thousand small files, with few descriptors."""
    os.mkdir("many")
    for i in range(10000):
        if i < 100:
            os.mkdir(f"many/{i}")
        write(f"many/{i % 100}/{i}", b"%d\n" % i)

    def few():
        resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
    start = time.monotonic()
    ok(tp("compress", "-q", "many", preexec_fn=few), True)
    ok(tp("decompress", "many.tpress", "-o", "back", preexec_fn=few), True)
    ok(tp("verify", "many.tpress", "--against", "back", preexec_fn=few), True)
    ok(tp("inspect", "many", preexec_fn=few), True)
    assert time.monotonic() - start < 60
    assert tree("back") == tree("many")


def big_folder():
    os.mkdir("m")
    rng = random.Random(1)
    for i in range(24):
        write(f"m/{i:02}", rng.randbytes(1 << 19) * 4)
    ok(tp("compress", "-q", "m", "-o", "c.tpress"), True)


def test_folder_signals():
    big_folder()
    before = sorted(os.listdir("."))
    wanted = tree("m")
    hit = 0
    for args in (["compress", "-l", "max", "-j1", "m", "-o", "out"], ["decompress", "-j1", "c.tpress", "-o", "out"],
                 ["verify", "-j1", "c.tpress", "--against", "m"]):
        for number in (signal.SIGINT, signal.SIGTERM):
            for delay in (0.003, 0.01, 0.03):
                with running(*args, stdout=subprocess.DEVNULL) as p:
                    time.sleep(delay)
                    p.send_signal(number)
                    code = p.wait(timeout=60)
                    assert code in (0, -number), (args, code, p.stderr.read())
                hit += code != 0
                left = [n for n in os.listdir(".") if n not in before]
                assert left == ([] if code != 0 or args[0] == "verify" else ["out"]) or left == ["out"], left
                if os.path.isdir("out"):
                    assert tree("out") == wanted
                    shutil.rmtree("out")
                elif os.path.exists("out"):
                    ok(tp("verify", "out", "--against", "m"))
                    os.remove("out")
    if not hit:
        raise Skip("every run was faster than its signal")


def test_folder_kill():
    """After SIGKILL the final name does not exist or is whole, and one temporary name stays at most."""
    big_folder()
    before = sorted(os.listdir("."))
    wanted = tree("m")
    seen = set()
    for delay in [0.002 * i for i in range(1, 30)]:
        with running("decompress", "-j1", "c.tpress", "-o", "out") as p:
            time.sleep(delay)
            p.kill()
            p.wait()
        left = [n for n in os.listdir(".") if n not in before]
        assert len(left) <= 1 and all(n == "out" or n.startswith(".out.tpress-") for n in left), left
        for name in left:
            seen.add(name == "out")
            if name == "out":
                assert tree("out") == wanted
            else:
                assert os.stat(name).st_mode & 0o077 == 0 or tree(name) == wanted
            shutil.rmtree(name)
    if False not in seen:
        raise Skip("every run was killed before it began or after it ended")


def test_folder_changes():
    """A folder that changes while it is read is an error, not a mixture."""
    os.mkdir("m")
    write("m/a", b"a")
    write("m/z", b"z" * 1000)
    os.mkfifo("pipe")
    # The output waits, so the folder can be changed in the middle.
    write("m/b", random.Random(1).randbytes(1 << 20))
    for change in (lambda: write("m/new", b"x"), lambda: os.remove("m/a"), lambda: write("m/z", b"y" * 999),
                   lambda: os.chmod("m/a", 0o600), lambda: os.mkdir("m/folder")):
        backup = tree("m")
        with running("compress", "-j1", "m", "-c", stdout=subprocess.PIPE) as p:
            first = p.stdout.read(200000)
            change()
            rest = p.stdout.read()
            code = p.wait(timeout=TIMEOUT)
            message = p.stderr.read()
        assert first and code == 3 and re.search(rb"while (it|the folder) was read", message), (code, message, len(rest))
        shutil.rmtree("m")
        os.mkdir("m")
        for path, (_, mode, data) in backup.items():
            write(f"m/{path}", data)
            os.chmod(f"m/{path}", mode)


# ------------------------------------------------------------------------- decompress, verify, extract

def test_decompress():
    path = container()
    size = os.path.getsize("model.safetensors")
    original = read("model.safetensors")
    os.mkdir("folder")
    error(tp("decompress", "missing.tpress"), 3, "missing.tpress")
    error(tp("decompress", "folder", "-o", "x"), 1, "folder")
    write("text.tpress", b"no container" * 100)
    error(tp("decompress", "text.tpress"), 1, "text.tpress")
    error(tp("decompress", "model.safetensors", "-o", "x"), 1)
    error(tp("decompress", "model.safetensors", "-c"), 1)
    write("empty.tpress", b"")
    error(tp("decompress", "empty.tpress"), 1, "empty.tpress")
    error(tp("decompress", "-", "-o", "x", stdin=b""), 1)
    # --max-output
    error(tp("decompress", path, "-o", "x", "--max-output", str(size - 1)), 3)
    error(tp("decompress", path, "-o", "x", "--max-output=1K"), 3)
    error(tp("decompress", path, "-c", "--max-output=1K"), 3)
    error(tp("decompress", "-", "-c", "--max-output=1K", stdin=read(path)), 3)
    error(tp("decompress", path, "--file", "model.safetensors", "-o", "x", "--max-output=1K"), 3)
    assert not os.path.exists("x")
    for limit in (str(size), "1M", "1MiB", "16G"):
        ok(tp("decompress", path, "-fo", "x", "--max-output", limit))
    # --file
    ok(tp("decompress", path, "-fo", "x", "--file", "model.safetensors"), True)
    assert read("x") == original
    assert ok(tp("decompress", path, "-c", "--file", "model.safetensors"), True).out == original
    error(tp("decompress", "model.safetensors", "-c", "--file", "model.safetensors"), 1)


def test_damage():
    path = container()
    data = read(path)
    write("after", data + b"x")
    write("short", data[:-1])
    write("half", data[:len(data) // 2])
    write("tiny", data[:8])
    before = files()
    for name in ("after", "short", "half", "tiny"):
        error(tp("verify", name), 1, name)
        error(tp("decompress", name, "-o", "x"), 1, name)
        error(tp("decompress", "-c", name), 1, name)
        error(tp("inspect", name, "--json"), 1, name) if name != "tiny" else None
        error(tp("extract", name, "norm", "-c"), 1, name) if name != "tiny" else None
    # newer versions: header and footer say so
    rng = random.Random(5)
    for _ in range(40):
        flipped = bytearray(data)
        flipped[rng.randrange(len(flipped))] ^= 1 << rng.randrange(8)
        write("flipped", bytes(flipped))
        r = tp("verify", "flipped")
        assert r.code == 1 and r.out == b"", r
        assert r.err.startswith(b"tensorpress: ") and r.err.endswith(b"\n")
        r = tp("decompress", "flipped", "-o", "x")
        error(r, 1)
        os.remove("flipped")
    assert files() == before


def test_verify():
    path = container()
    size = os.path.getsize("model.safetensors")
    line = b"%s: 1 file, 6 tensors, %d bytes: bit-exact\n" % (path.encode(), size)
    for args in ([path], [path, "--against", "model.safetensors"], ["-j2", path], ["--no-progress", path]):
        r = ok(tp("verify", *args), True)
        assert r.out == line, r
    assert ok(tp("verify", "-q", path), True).out == b""
    error(tp("verify", "missing.tpress"), 3, "missing.tpress")
    error(tp("verify", path, "--against", "missing"), 3, "missing")
    error(tp("verify", "model.safetensors"), 1, "model.safetensors")
    os.mkdir("folder")
    error(tp("verify", "folder"), 1, "folder")
    # a difference
    other = bytearray(read("model.safetensors"))
    other[-2000] ^= 1
    write("other", bytes(other))
    r = tp("verify", path, "--against", "other")
    assert r.code == 1 and r.out == b"" and r.err, r
    for length in (0, 10, size - 1):
        write("other", read("model.safetensors")[:length])
        r = tp("verify", path, "--against", "other")
        assert r.code == 1 and r.out == b"", r
    write("other", read("model.safetensors") + b"x")
    assert tp("verify", path, "--against", "other").code == 1
    write("text.txt", b"text")
    ok(tp("compress", "-q", "text.txt"))
    assert ok(tp("verify", "text.txt.tpress"), True).out == b"text.txt.tpress: 1 file, 0 tensors, 4 bytes: bit-exact\n"


def test_verify_names_damage():
    # tensors of frames of their own, so that damage in one leaves the others whole
    size = 1 << 20
    tensors = [(f"t{i}", "BF16", [size], weights(size, i)) for i in range(3)]
    write("m.safetensors", safetensors(tensors))
    ok(tp("compress", "-q", "m.safetensors"))
    data = bytearray(read("m.safetensors.tpress"))
    third = len(data) // 3
    for at in (third // 2, 2 * third + third // 2):
        data[at] ^= 0x10
    write("m.safetensors.tpress", bytes(data))
    for quiet in ([], ["-q"]):
        r = tp("verify", "m.safetensors.tpress", *quiet)
        assert r.code == 1 and r.out == b"", r
        lines = r.err.decode().splitlines()
        assert len(lines) == 3, r
        assert all(l.startswith("tensorpress: ") for l in lines), r
        assert "t0" in lines[0] and "t2" in lines[1] and "m.safetensors.tpress" in lines[2], r
    # extract works for what is whole
    assert ok(tp("extract", "m.safetensors.tpress", "t1", "-c"), True).out == tensors[1][3]
    error(tp("extract", "m.safetensors.tpress", "t0", "-o", "x"), 1, "m.safetensors.tpress: tensor 't0': frame ")
    assert not os.path.exists("x")
    # so does decompress --file, and an error names the file
    os.mkdir("folder")
    for name in ("a", "b"):
        write(f"folder/{name}", random.Random(name).randbytes(size))
    ok(tp("compress", "-q", "folder"))
    data = bytearray(read("folder.tpress"))
    data[len(data) // 4] ^= 1
    write("folder.tpress", bytes(data))
    error(tp("decompress", "folder.tpress", "--file", "a", "-o", "x"), 1, "folder.tpress: file 'a': frame ")
    assert not os.path.exists("x")
    assert ok(tp("decompress", "folder.tpress", "--file", "b", "-c"), True).out == read("folder/b")


def test_extract():
    path = container()
    w = weights(BF16_ROWS * BF16_COLUMNS)
    row = 2 * BF16_COLUMNS
    for source in ("model.safetensors", path):
        ok(tp("extract", source, "weight", "-o", "w"), True)
        assert read("w") == w
        os.remove("w")
        for way in (["-c"], ["-o", "-"]):
            assert ok(tp("extract", source, "tied", *way), True).out == w
        for text, a, b in (("0:300", 0, 300), (":", 0, 300), ("7:9", 7, 9), ("299:", 299, 300), (":1", 0, 1), ("5:5", 5, 5),
                           ("300:300", 300, 300)):
            r = ok(tp("extract", source, "weight", "--slice", text, "-c"), True)
            assert r.out == w[a * row:b * row], (text, r)
        assert ok(tp("extract", source, "scalar", "-c"), True).out == struct.pack("<f", 1.5)
        assert ok(tp("extract", source, "nothing", "-c"), True).out == b""
        assert ok(tp("extract", source, "nothing", "-c", "--slice", ":"), True).out == b""
        ok(tp("extract", source, "nothing", "-o", "n"), True)
        assert read("n") == b""
        os.remove("n")
        assert ok(tp("extract", source, "ids", "-c", "--file", "model.safetensors"), True).out
        error(tp("extract", source, "weight", "-o", "no/such/folder"), 3, "no/such/folder")
    error(tp("extract", "missing", "norm", "-c"), 3, "missing")
    # a large tensor goes in pieces
    large = weights(5 << 20)
    write("large.safetensors", safetensors([("pad", "U8", [3], b"abc"), ("large", "BF16", [5 << 20], large)]))
    ok(tp("compress", "-q", "large.safetensors"))
    for source in ("large.safetensors", "large.safetensors.tpress"):
        assert ok(tp("extract", source, "large", "-c"), True).out == large
        assert ok(tp("extract", source, "large", "-c", "--slice", "3000001:4999999"), True).out == large[6000002:9999998]
    # rows that are not whole bytes, and a tensor whose dtype is unknown
    header = json.dumps({"half": {"dtype": "F4", "shape": [4, 1], "data_offsets": [0, 2]},
                         "whole": {"dtype": "F4", "shape": [2, 2], "data_offsets": [2, 4]},
                         "odd": {"dtype": "U99", "shape": [2, 2], "data_offsets": [4, 8]}}).encode()
    write("odd.safetensors", safetensors([("", "", [], b"abcdefgh")], header))
    error(tp("extract", "odd.safetensors", "half", "-c", "--slice", "0:1"), 2, "half")
    assert ok(tp("extract", "odd.safetensors", "half", "-c"), True).out == b"ab"
    assert ok(tp("extract", "odd.safetensors", "whole", "-c", "--slice", "1:"), True).out == b"d"
    assert ok(tp("extract", "odd.safetensors", "odd", "-c"), True).out == b"efgh"
    # a tensor's name may be empty, a path not
    write("unnamed.safetensors", safetensors([("x", "U8", [1], b"x"), ("", "U8", [2], b"ab")]))
    assert ok(tp("extract", "unnamed.safetensors", "", "-c"), True).out == b"ab"
    error(tp("extract", "odd.safetensors", "", "-c"), 2, "no tensor ''")
    error(tp("extract", "", "x", "-c"), 2, "empty")
    # of duplicate names the first
    header = (b'{"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"x":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}')
    write("twice.safetensors", safetensors([("", "", [], b"ab")], header))
    assert ok(tp("extract", "twice.safetensors", "x", "-c"), True).out == b"a"
    assert len(load_json(ok(tp("inspect", "--json", "twice.safetensors"), True).out)["tensors"]) == 2
    # truncated: rows that are there
    write("cut.safetensors", read("large.safetensors")[:-1000])
    error(tp("extract", "cut.safetensors", "large", "-c"), 1, "large")
    error(tp("extract", "cut.safetensors", "large", "-o", "x"), 1)
    assert ok(tp("extract", "cut.safetensors", "large", "-c", "--slice", ":10"), True).out == large[:20]
    # load leaves it out, and says of which file
    r = ok(tp("load", "cut.safetensors"))
    assert r.err == b"tensorpress: cut.safetensors: 1 tensor left out: the file ends before its end\n", r
    assert ok(tp("load", "-q", "cut.safetensors"), True).out == b""
    assert not os.path.exists("x")


# ------------------------------------------------------------------------------------------- inspect

PLAIN_TENSOR = ["name", "dtype", "shape", "offset", "nbytes"]
STORED_TENSOR = PLAIN_TENSOR + ["stored_nbytes", "method"]
METHODS = {"raw", "constant", "lz4", "bg-lz4", "rans", "df11", "gguf", "mixed"}


def test_inspect_json():
    path = model("model.safetensors")
    ok(tp("compress", "-q", "--sha256", path, "-o", "with.tpress"))
    ok(tp("compress", "-q", path))
    plain = load_json(ok(tp("inspect", "--json", path), True).out)
    assert list(plain) == ["path", "format", "size", "tensors"], plain
    assert plain["path"] == path and plain["format"] == "safetensors" and plain["size"] == os.path.getsize(path)
    assert [t["name"] for t in plain["tensors"]] == ["weight", "tied", "norm", "ids", "scalar", "nothing"]
    data = read(path)
    start = 8 + struct.unpack("<Q", data[:8])[0]
    for t in plain["tensors"]:
        assert list(t) == PLAIN_TENSOR, t
    assert plain["tensors"][0]["shape"] == [BF16_ROWS, BF16_COLUMNS] and plain["tensors"][0]["offset"] == start
    assert plain["tensors"][4]["shape"] == [] and plain["tensors"][4]["nbytes"] == 4
    assert ok(tp("inspect", path, "--json", "--tensors"), True).out == ok(tp("inspect", path, "--json"), True).out

    sub = load_json(ok(tp("inspect", "--json", "./model.safetensors"), True).out)
    assert sub["path"] == "./model.safetensors"

    for name, sha in (("model.safetensors.tpress", False), ("with.tpress", True)):
        c = load_json(ok(tp("inspect", "--json", name), True).out)
        assert list(c) == ["format", "version", "size", "original_size", "ratio", "files"], c
        assert c["format"] == "tpress" and re.fullmatch(r"\d+\.\d+", c["version"])
        assert c["size"] == os.path.getsize(name) and c["original_size"] == len(data)
        assert abs(c["ratio"] - c["size"] / c["original_size"]) < 1e-6
        (f,) = c["files"]
        assert list(f) == ["path", "format", "size", "hash"] + ["sha256"] * sha + ["tensors"], f
        assert f["path"] == path and f["format"] == "safetensors" and f["size"] == len(data)
        assert re.fullmatch("[0-9a-f]{32}", f["hash"])
        if sha:
            assert f["sha256"] == hashlib.sha256(data).hexdigest()
        for t, p in zip(f["tensors"], plain["tensors"]):
            assert list(t) == STORED_TENSOR, t
            assert t["method"] in METHODS
            assert {k: t[k] for k in PLAIN_TENSOR} == p
        assert sum(t["stored_nbytes"] for t in f["tensors"]) <= c["size"]

    write("plain.bin", b"nothing known")
    b = load_json(ok(tp("inspect", "--json", "plain.bin"), True).out)
    assert list(b) == ["path", "format", "reason", "size", "tensors"]
    assert b["format"] == "bytes" and b["tensors"] == [] and b["size"] == 13
    write("empty", b"")
    assert load_json(ok(tp("inspect", "--json", "empty"), True).out)["format"] == "bytes"
    ok(tp("compress", "-q", "empty"))
    assert load_json(ok(tp("inspect", "--json", "empty.tpress"), True).out)["original_size"] == 0
    for sample in sample_files():
        s = load_json(ok(tp("inspect", "--json", sample), True).out)
        assert s["format"] == "safetensors" and all(list(t)[:5] == PLAIN_TENSOR for t in s["tensors"])
    error(tp("inspect", "missing", "--json"), 3, "missing")


def test_inspect_text():
    path = container()
    r = ok(tp("inspect", "model.safetensors"), True)
    assert b"safetensors" in r.out and b"BF16" in r.out and b"I64" in r.out and b"weight" not in r.out, r
    r = ok(tp("inspect", "--tensors", "model.safetensors"), True)
    assert b"weight" in r.out and b"[300, 70]" in r.out and b"nothing" in r.out
    r = ok(tp("inspect", path), True)
    assert b"tpress" in r.out and b"ratio" in r.out and b"method" in r.out and b"check" in r.out and b"%" in r.out
    r = ok(tp("inspect", "--tensors", path), True)
    assert b"weight" in r.out and b"[300, 70]" in r.out
    write("plain.bin", b"nothing known")
    assert b"bytes" in ok(tp("inspect", "plain.bin"), True).out


def test_exact_numbers():
    big = 2**53 + 1
    header = json.dumps({"x": {"dtype": "U8", "shape": [big], "data_offsets": [0, big]},
                         "y": {"dtype": "U8", "shape": [0, 2**63], "data_offsets": [big, big]}}).encode()
    write("big.safetensors", safetensors([("", "", [], bytes(100))], header))
    text = ok(tp("inspect", "--json", "big.safetensors"), True).out
    t = load_json(text)["tensors"]
    assert t[0]["nbytes"] == big and t[0]["shape"] == [big] and t[0]["truncated"] is True, t
    assert t[1]["shape"] == [0, 2**63], t
    ok(tp("compress", "-q", "big.safetensors"))
    ok(tp("verify", "big.safetensors.tpress", "--against", "big.safetensors"))
    c = load_json(ok(tp("inspect", "--json", "big.safetensors.tpress"), True).out)
    assert c["files"][0]["tensors"][0]["nbytes"] == big and c["files"][0]["tensors"][0]["truncated"] is True


def test_names():
    """Control bytes, quotes, emoji and what is not UTF-8, as tensor names."""
    names = ['line\nbreak', 'tab\t"quote"\\', '\x1b[31mred\x1b[0m', 'caf\u00e9 \U0001f600', '\u009b31m', '\u2028', '', '\x7f']
    entries = [(n, "U8", [2], bytes([i, i])) for i, n in enumerate(names)]
    write("n.safetensors", safetensors(entries))
    ok(tp("compress", "-q", "n.safetensors"))
    for source in ("n.safetensors", "n.safetensors.tpress"):
        j = load_json(ok(tp("inspect", "--json", source), True).out)
        tensors = j["tensors"] if "tensors" in j else j["files"][0]["tensors"]
        assert [t["name"] for t in tensors] == names, tensors
        assert not any("name_hex" in t for t in tensors)
        text = ok(tp("inspect", "--tensors", source), True).out
        assert not re.search(rb"[\x00-\x09\x0b-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80\xa8", text), text
        assert b"\\x1b[31mred" in text and b"line\\x0abreak" in text and "caf\u00e9 \U0001f600".encode() in text
        assert ok(tp("extract", source, names[2], "-c"), True).out == b"\x02\x02"
        assert ok(tp("extract", source, names[3], "-c"), True).out == b"\x03\x03"
    # safetensors headers must be UTF-8: this one is bytes, and its reason can be shown
    for name in (b"bad\xffname", b"\xed\xa0\x80", b"\xe2\x82", b"\x1b[31m"):
        header = b'{"%s":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}' % name
        write("r.safetensors", safetensors([("", "", [], b"a")], header))
        r = ok(tp("compress", "-f", "r.safetensors"))
        assert r.err.decode("utf-8") and b"\x1b" not in r.err and b"stored as bytes" in r.err, r
        j = load_json(ok(tp("inspect", "--json", "r.safetensors"), True).out)
        assert j["format"] == "bytes" and j["reason"], j
        text = ok(tp("inspect", "--tensors", "r.safetensors"), True).out
        assert text.decode("utf-8") and b"\x1b" not in text, text
    # an unknown dtype is shown as written, and safely
    header = json.dumps({"x": {"dtype": "\x1b[31m\n", "shape": [1], "data_offsets": [0, 1]}}).encode()
    write("d.safetensors", safetensors([("", "", [], b"a")], header))
    j = load_json(ok(tp("inspect", "--json", "d.safetensors"), True).out)
    assert j["format"] == "bytes" or j["tensors"][0]["dtype"] == "\x1b[31m\n", j
    assert b"\x1b" not in ok(tp("inspect", "--tensors", "d.safetensors"), True).out
    r = ok(tp("compress", "d.safetensors"))
    assert b"\x1b" not in r.err and r.err.count(b"\n") <= 2, r


def test_odd_paths():
    data = read(model())
    for name in (b"line\nbreak.safetensors", b"\x1b[31m.safetensors", b"bad\xff.safetensors", b"with space.safetensors",
                 "caf\u00e9.safetensors".encode()):
        write(name, data)
        ok(tp("compress", "-q", name))
        r = error(tp("compress", name), 2, "exists")
        assert r.err.decode("utf-8")
        j = load_json(ok(tp("inspect", "--json", name + b".tpress"), True).out)
        f = j["files"][0]
        assert (bytes.fromhex(f["path_hex"]) if "path_hex" in f else f["path"].encode()) == name, f
        assert ("path_hex" in f) == (b"\xff" in name)
        p = load_json(ok(tp("inspect", "--json", name), True).out)
        assert (bytes.fromhex(p["path_hex"]) if "path_hex" in p else p["path"].encode()) == name, p
        r = ok(tp("verify", name + b".tpress"), True)
        assert r.out.count(b"\n") == 1 and b"\x1b" not in r.out and r.out.decode("utf-8"), r
        for text in (ok(tp("inspect", name)).out, ok(tp("inspect", name + b".tpress")).out):
            assert b"\x1b" not in text and text.decode("utf-8")
        os.remove(name)
        ok(tp("decompress", name + b".tpress"))
        assert read(name) == data
        error(tp("inspect", b"missing" + name), 3)
    error(tp("compress", "x" * 5000), 3)
    ok(tp("compress", "-q", "-j1024", "model.safetensors", "-o", "many-threads"), True)
    error(tp("frob\x1b\nnicate"), 2)
    error(tp("compress", "--x\n\x1b=y"), 2)
    error(tp("compress", "model.safetensors", "-\x01"), 2)
    error(tp("extract", "model.safetensors", "\x1b]0;x\x07", "-c"), 2)


def test_many_tensors():
    count = 50000
    items = ",".join(f'"layer.{i}.weight":{{"dtype":"U8","shape":[1],"data_offsets":[{i},{i + 1}]}}' for i in range(count))
    write("many.safetensors", safetensors([("", "", [], bytes(i & 255 for i in range(count)))], b"{%s}" % items.encode()))
    ok(tp("compress", "-q", "many.safetensors"))
    for source in ("many.safetensors", "many.safetensors.tpress"):
        start = time.monotonic()
        j = load_json(ok(tp("inspect", "--json", source), True).out)
        tensors = j["tensors"] if "tensors" in j else j["files"][0]["tensors"]
        assert len(tensors) == count and tensors[-1]["name"] == f"layer.{count - 1}.weight"
        assert time.monotonic() - start < 20
        assert ok(tp("extract", source, "layer.300.weight", "-c"), True).out == bytes([300 & 255])
        text = ok(tp("inspect", "--tensors", source), True).out
        assert text.count(b"layer.") == count


# ------------------------------------------------------------------------------------ doctor and bench

def test_doctor():
    r = ok(tp("doctor"), True)
    for text in (b"tensorpress ", b"container format", b"lz4 ", b"OpenSSL", b"CPU: ", b"portable", b"self-test passed",
                 b"active", b"devices:\n"):
        assert text in r.out, (text, r)
    assert b"FAILED" not in r.out


def test_bench():
    container()
    for source in ("model.safetensors", "model.safetensors.tpress"):
        r = ok(tp("bench", source, "--json", "--kernel", "portable"), True)
        j = load_json(r.out)
        assert list(j) == ["cpu", "threads", "results"] and j["threads"] == 1
        assert {x["dtype"] for x in j["results"]} == {"BF16", "F32", "I64"}
        assert {x["codec"] for x in j["results"]} == {"auto", "lz4", "bg-lz4", "df11", "raw"}
        assert {x["dtype"] for x in j["results"] if x["codec"] == "df11"} == {"BF16"}
        assert {x["level"] for x in j["results"] if x["codec"] == "auto"} == set(LEVELS)
        for x in j["results"]:
            assert list(x) == ["input", "dtype", "codec", "level", "kernel", "raw_bytes", "stored_bytes", "compress_MBps",
                               "decompress_MBps", "memcpy_MBps"]
            assert x["kernel"] == "portable" and x["input"] == source
            assert x["raw_bytes"] > 0 and x["stored_bytes"] > 0
            assert x["compress_MBps"] > 0 and x["decompress_MBps"] > 0 and x["memcpy_MBps"] > 0
    r = ok(tp("bench", "model.safetensors", "--kernel", "portable", "-j2"), True)
    assert b"2 threads" in r.out and b"BF16" in r.out and b"MB/s" in r.out
    doctor = tp("doctor").out.decode()
    for kernel in ("avx2", "avx512bw", "avx512", "neon"):
        line = re.search(rf"^  {kernel} .*", doctor, re.M)
        if not line or "not available" in line.group():
            error(tp("bench", "--kernel", kernel), 4, kernel)
    error(tp("bench", "missing"), 3, "missing")


# --------------------------------------------------------------------------- progress, signals, system

def test_progress():
    path = model()
    assert b"MB/s" not in tp("decompress", container("x.safetensors"), "-fo", "y").err
    r = ok(tp("compress", "--progress", path))
    assert r.err.count(b"MB/s") >= 2 and b"\x1b" not in r.err, r
    assert ok(tp("compress", "-fq", "--progress", path), True).out == b""
    assert ok(tp("compress", "-f", "--progress", "--no-progress", path)).err.count(b"MB/s") == 1
    assert ok(tp("decompress", path + ".tpress", "-fo", "y", "--progress")).err.count(b"MB/s") >= 1
    assert ok(tp("verify", path + ".tpress", "--progress")).err.count(b"MB/s") >= 1

    def on_terminal(*args):
        master, slave = pty.openpty()
        process = subprocess.Popen([TP, *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=slave)
        os.close(slave)
        seen = b""
        while True:
            try:
                piece = os.read(master, 65536)
            except OSError:
                break
            if not piece:
                break
            seen += piece
        out = process.stdout.read()
        process.stdout.close()
        os.close(master)
        assert process.wait(timeout=TIMEOUT) == 0
        return out, seen
    write("big.bin", random.Random(1).randbytes(1 << 20) * 48)
    _, seen = on_terminal("compress", "-j1", "-f", "big.bin")
    assert b"\r" in seen and b"MB/s" in seen and b"%" in seen and b"\x1b" not in seen, seen
    # the bar is gone at the end: what stands in the last line is the summary
    assert b"->" in seen.split(b"\r")[-2 if seen.endswith(b"\r\n") else -1], seen[-300:]
    _, seen = on_terminal("compress", "-j1", "-f", "--no-progress", "big.bin")
    assert seen.count(b"\r") == 1 and seen.endswith(b"\r\n"), seen
    assert on_terminal("compress", "-qf", "big.bin")[1] == b""


@contextlib.contextmanager
def running(*args, **more):
    # SIGINT may be ignored where this script runs in the background.
    def defaults():
        for s in (signal.SIGINT, signal.SIGTERM):
            signal.signal(s, signal.SIG_DFL)
    more.setdefault("preexec_fn", defaults)
    process = subprocess.Popen([TP, *args], stderr=subprocess.PIPE, **more)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        for f in (process.stdin, process.stdout, process.stderr):
            if f:
                with contextlib.suppress(OSError):
                    f.close()


def test_signals_waiting():
    """Waiting for a pipe, in either direction."""
    model()
    container("c.safetensors")
    write("big.bin", random.Random(1).randbytes(1 << 20) * 4)
    ok(tp("compress", "-q", "big.bin", "-o", "big.tpress"))
    before = files()
    cases = [
        (["compress", "-", "-o", "out"], {"stdin": subprocess.PIPE}),
        (["compress", "-c", "-"], {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}),
        (["decompress", "-", "-o", "out"], {"stdin": subprocess.PIPE}),
        (["verify", "-"], {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}),
        (["inspect", "-"], {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}),
        (["extract", "-", "x", "-o", "out"], {"stdin": subprocess.PIPE}),
        (["compress", "-c", "big.bin"], {"stdout": subprocess.PIPE}),
        (["decompress", "-c", "big.tpress"], {"stdout": subprocess.PIPE}),
    ]
    for args, more in cases:
        for number in (signal.SIGINT, signal.SIGTERM):
            with running(*args, **more) as p:
                if p.stdin:
                    p.stdin.write(b"some")
                    p.stdin.flush()
                time.sleep(0.3)
                assert p.poll() is None, (args, p.stderr.read())
                p.send_signal(number)
                try:
                    code = p.wait(timeout=10)
                except subprocess.TimeoutExpired:
                    raise AssertionError((args, number, "goes on after the signal"))
                assert code == -number, (args, number, code, p.stderr.read())
            assert files() == before, (args, files())


def test_signals_working():
    write("big.bin", random.Random(1).randbytes(1 << 20) * 64)
    ok(tp("compress", "-q", "big.bin", "-o", "c.tpress"))
    before = files()
    hit = 0
    for args in (["compress", "-l", "max", "-j1", "big.bin", "-o", "out"], ["decompress", "-j1", "c.tpress", "-o", "out"],
                 ["verify", "-j1", "c.tpress"]):
        for number in (signal.SIGINT, signal.SIGTERM):
            for delay in (0.005, 0.02, 0.05):
                with running(*args, stdout=subprocess.DEVNULL) as p:
                    time.sleep(delay)
                    p.send_signal(number)
                    code = p.wait(timeout=30)
                    assert code in (0, -number), (args, code, p.stderr.read())
                if code != 0:
                    hit += 1
                    assert files() in (before, sorted(before + ["out"])), files()
                if "out" in files():  # then it is whole
                    if args[0] == "compress":
                        ok(tp("verify", "out", "--against", "big.bin"))
                    else:
                        assert read("out") == read("big.bin")
                    os.remove("out")
                assert files() == before
    if not hit:
        raise Skip("every run was faster than its signal")


def test_signal_ignored():
    """What was ignored at the start (nohup) stays ignored."""
    with running("compress", "-", "-o", "out", stdin=subprocess.PIPE,
                 preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)) as p:
        time.sleep(0.2)
        p.send_signal(signal.SIGINT)
        time.sleep(0.2)
        assert p.poll() is None
        p.stdin.write(b"text")
        p.stdin.close()
        assert p.wait(timeout=TIMEOUT) == 0
        p.stdin = None
    assert os.path.exists("out")


def test_kill():
    """After SIGKILL the final name does not exist."""
    write("big.bin", random.Random(1).randbytes(1 << 20) * 64)
    for delay in (0.01, 0.03, 0.1):
        with running("compress", "-l", "max", "-j1", "big.bin", "-o", "out") as p:
            time.sleep(delay)
            p.kill()
            p.wait()
        left = [f for f in files() if f != "big.bin"]
        if "out" in left:
            ok(tp("verify", "out", "--against", "big.bin"))
        assert all(f == "out" or f.startswith(".out.tpress-") for f in left) and len(left) <= 1, left
        for f in left:
            os.remove(f)


def closed_pipe():
    r, w = os.pipe()
    os.close(r)
    return os.fdopen(w, "wb")


def test_stdout_fails():
    path = container()
    commands = [["--help"], ["--version"], ["compress", "--help"], ["inspect", path], ["inspect", "--json", "model.safetensors"],
                ["verify", path], ["doctor"], ["compress", "-qc", "model.safetensors"], ["decompress", "-c", path],
                ["extract", path, "weight", "-c"], ["compress", "--dry-run", "model.safetensors"],
                ["decompress", "-c", "--file", "model.safetensors", path]]
    before = files()
    for args in commands:
        with open("/dev/full", "wb") as f:
            error(tp(*args, stdout=f), 3)
        with closed_pipe() as f:
            error(tp(*args, stdout=f), 3)
        error(tp(*args, preexec_fn=lambda: os.close(1)), 3)
    assert files() == before
    # a verb that has nothing to say to stdout does not care, and nothing lands in the wrong file
    r = ok(tp("compress", "model.safetensors", "-o", "out", preexec_fn=lambda: os.closerange(0, 2)))
    ok(tp("verify", "out", "--against", "model.safetensors"))
    done = subprocess.run([TP, "compress", "-f", "model.safetensors", "-o", "out"],
                          preexec_fn=lambda: os.closerange(0, 3), close_fds=False, timeout=TIMEOUT)
    assert done.returncode == 0
    ok(tp("verify", "out", "--against", "model.safetensors"))
    r = tp("compress", "-", "-o", "x", preexec_fn=lambda: os.close(0))
    error(r, 3)
    assert not os.path.exists("x")


def test_no_space():
    """A file size limit stands for a full disk."""
    model()
    write("big.bin", random.Random(1).randbytes(1 << 20))
    ok(tp("compress", "-q", "big.bin"))
    before = files()

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000))
    error(tp("compress", "big.bin", "-o", "out", preexec_fn=limit), 3, "out")
    error(tp("decompress", "big.bin.tpress", "-o", "out", preexec_fn=limit), 3, "out")
    error(tp("compress", "-", "-o", "out", stdin=read("big.bin"), preexec_fn=limit), 3)
    assert files() == before


def test_system_errors():
    path = container()
    error(tp("compress", "missing"), 3, "missing")
    error(tp("compress", "model.safetensors/"), 3)
    error(tp("compress", "model.safetensors", "-o", "no/such/folder"), 3, "no/such/folder")
    error(tp("decompress", path, "-o", "no/such/folder"), 3, "no/such/folder")
    error(tp("compress", "model.safetensors", "-o", "model.safetensors/x"), 3)
    os.symlink("loop", "loop")
    error(tp("compress", "loop"), 3, "loop")
    if os.geteuid() == 0:
        return  # permissions do not stop root
    os.mkdir("readonly")
    os.chmod("readonly", 0o555)
    error(tp("compress", "model.safetensors", "-o", "readonly/x"), 3, "readonly/x")
    os.chmod("model.safetensors", 0)
    error(tp("compress", "model.safetensors", "-o", "x"), 3, "model.safetensors")
    os.chmod("readonly", 0o755)


def test_mode_and_link_of_output():
    model()
    old = os.umask(0o027)
    try:
        ok(tp("compress", "-q", "model.safetensors"))
    finally:
        os.umask(old)
    assert os.stat("model.safetensors.tpress").st_mode & 0o777 == 0o640


def main():
    wanted = sys.argv[3:]
    tests = [(n[5:], f) for n, f in globals().items() if n.startswith("test_") and callable(f)]
    passed = failed = skipped = 0
    for name, function in tests:
        if wanted and not any(w in name for w in wanted):
            continue
        folder = tempfile.mkdtemp(prefix="tensorpress-cli-")
        os.chdir(folder)
        start = time.monotonic()
        try:
            function()
        except Skip as reason:
            skipped += 1
            print(f"skipped {name}: {reason}")
        except Exception as problem:
            failed += 1
            line = problem.__traceback__
            while line.tb_next:
                line = line.tb_next
            inner = problem.__traceback__.tb_next
            print(f"FAILED  {name}: line {inner.tb_lineno if inner else '?'} ({line.tb_lineno}): "
                  f"{type(problem).__name__}: {problem}")
        else:
            passed += 1
            print(f"passed  {name} ({time.monotonic() - start:.1f} s)")
        finally:
            os.chdir("/")
            shutil.rmtree(folder, ignore_errors=True)
        sys.stdout.flush()
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed or passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
