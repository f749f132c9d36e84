#!/usr/bin/env python3
"""The container printed in docs/format.md is the one that tensorpress makes, and both decoders restore it.

usage: format_example.py FORMAT.md TENSORPRESS DECODER.py
"""
import os
import re
import subprocess
import sys
import tempfile


def dumped(path):
    """The bytes of the hexdump in the document."""
    data = bytearray()
    for line in open(path, encoding="utf-8"):
        match = re.fullmatch(r"    ([0-9a-f]{8})((?:  ?[0-9a-f]{2})*)", line.rstrip("\n"))
        if not match:
            continue
        at, row = int(match.group(1), 16), bytes.fromhex(match.group(2))
        data += bytes(at - len(data))  # lines of zeros were left out
        data += row
    return bytes(data)


def main():
    document, tensorpress, decoder = sys.argv[1:]
    expected = dumped(document)
    assert expected, "no hexdump in the document"
    with tempfile.TemporaryDirectory() as folder:
        container = os.path.join(folder, "hello.tpress")
        with open(container, "wb") as f:
            f.write(expected)
        for name, command in (
            ("tensorpress", [tensorpress, "decompress", "-q", container, "-o"]),
            ("second decoder", [sys.executable, "-B", decoder, container, "-o"]),
        ):
            restored = os.path.join(folder, name)
            subprocess.run(command + [restored], check=True)
            if os.path.isdir(restored):
                restored = os.path.join(restored, "hello")
            assert open(restored, "rb").read() == b"hello", name
        source, made = os.path.join(folder, "hello"), os.path.join(folder, "made")
        with open(source, "wb") as f:
            f.write(b"hello")
        subprocess.run([tensorpress, "compress", "-q", source, "-o", made], check=True)
        # The index is an LZ4 block, which another build of LZ4 may make differently.
        assert open(made, "rb").read()[:384] == expected[:384], "tensorpress makes other bytes than the document shows"
    print("the example of docs/format.md holds")


main()
