#!/usr/bin/env python3
"""Self-test of tpress_decoder.py: hash vectors, round trips of every kind of part that docs/format.md
allows, and broken frames and containers that must be refused. Needs nothing but Python."""

import contextlib
import hashlib
import io
import os
import random
import struct
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import tpress_decoder as td
from small_encoder import (
    Builder,
    build_container,
    df11_frame,
    encode_stream,
    lz4_compress,
    normalize,
    payload_start,
    reseal,
    seal,
)
from tpress_decoder import (
    CLASSES,
    DAMAGED,
    LZ4,
    M_CONSTANT,
    M_LZ4,
    M_PAIRS,
    M_RAW,
    M_W32,
    M_WIDE,
    NEWER,
    NOT_A_CONTAINER,
    PLANES,
    RAW,
    SPLIT,
    TRUNCATED,
    UNSUPPORTED,
    Container,
    FormatError,
    decode_frame,
)

# Input byte i of a vector is (31 i*i + 7 i + 13 (i >> 8)) mod 256; (length, XXH3-64, XXH3-128).
VECTORS = (
    (0, 0x2D06800538D394C2, 0x99AA06D3014798D86001C324468D497F),
    (1, 0xC44BDFF4074EECDB, 0xA6CD5E9392000F6AC44BDFF4074EECDB),
    (2, 0x9AAF71D6A8C4DA34, 0x01719C582F2665609AAF71D6A8C4DA34),
    (3, 0x1729C78F56EC7369, 0x2012ADB9C9D860B71729C78F56EC7369),
    (4, 0xE5097D6D2A406DDE, 0x845026B94ECB793B2494FFBFB3959765),
    (8, 0x89B9B1111ECD5976, 0x4132FB07C0432330CE0FF5563C3393FC),
    (9, 0x442F901347EAC6D7, 0x6CC3A7D0F308D91272CA3CBCD7EF6247),
    (16, 0x3E094AB84274D7E2, 0xE973C9785DEBE255C5DB1599402C959C),
    (17, 0xF023CE206C53CB88, 0x8219C336C5BABC21E9C20CD7156AAC1E),
    (32, 0x4E0F827A00305880, 0xD4EFEC9AE31B15D4D640CDCDEE5478D7),
    (33, 0xCE95CB88847D6102, 0x4547521A276F1E692F8628AC91BAF3C4),
    (64, 0x5926C2C628B8BD40, 0x6148F6CDEFE06A7DEF25431289170DF7),
    (65, 0x0BC4C752A7C50505, 0x3A07E8B1F9A071D936473657F62B2645),
    (96, 0xBEF5DF716E3026DE, 0x4631995C136F344872E1D148DF591910),
    (97, 0xC04301A5FBA9D36A, 0x6930037316AF1DD15EE1098837ABB049),
    (128, 0x74CC793E51CBBF70, 0xB7DC1A8E2A298C315FF0625C7E1E9D5F),
    (129, 0x896BC9B5EE9A02DE, 0xB72D53D90720128DE7C6328994FDD22C),
    (160, 0xEB4D404DD889DC60, 0x1A2E5A988DC563D31E58B2B3083DE1AE),
    (200, 0xE57FA327D3119E3A, 0x633C5DDA3F1C1CF4391F70A9DFAEBFBD),
    (240, 0x168AC2EEA3381B59, 0xD379160924F79EFE66CBBC5363497AA6),
    (241, 0x5F15F12E172B51FA, 0x037FC7F5EB0E62DF5F15F12E172B51FA),
    (512, 0xFC8B6FF14622C39F, 0x5F1EF23EE38221FFFC8B6FF14622C39F),
    (1024, 0xDCEAED343CD1F797, 0xCE1B832A783D00C3DCEAED343CD1F797),
    (1025, 0xF37E09DAC8A20F64, 0x2DFA87306E78B16DF37E09DAC8A20F64),
    (2048, 0xDCEFB5BCBB88D2D4, 0xAC3754530E942F13DCEFB5BCBB88D2D4),
    (2049, 0x538173E5CF965355, 0xE52ABDCC138EF3A5538173E5CF965355),
    (5000, 0x195D462D3B40F8FE, 0x19D42047C55F2897195D462D3B40F8FE),
)


# ---------------------------------------------------------------------------------------------------
# Test data: chunks that suit a mode
# ---------------------------------------------------------------------------------------------------


def random_bytes(rng, n):
    return bytes(rng.getrandbits(8) for _ in range(n))


def skewed(rng, choices, n, rare):
    """n values, most of them from choices with falling probability, a few from rare()."""
    weights = [2.0**-i + 0.01 for i in range(len(choices))]
    values = rng.choices(choices, weights, k=n)
    for _ in range(n // 100):
        values[rng.randrange(n)] = rare()
    return values


def part_elements(rng, mode, n, cls, s, size, low):
    """n elements of size bytes, of them low below the top part, fit for the mode."""
    if mode == M_CONSTANT:
        return [random_bytes(rng, size)] * n
    if mode == M_RAW:
        return [random_bytes(rng, size) for _ in range(n)]
    if mode == M_LZ4:
        pattern = [random_bytes(rng, size) for _ in range(7)]
        return [pattern[i % 7] for i in range(n)]
    if mode == M_WIDE:
        values = skewed(rng, rng.sample(range(256), 9), n, lambda: rng.randrange(256))
        return [bytes([v]) for v in values]
    bits = cls.bits
    symbols = skewed(rng, rng.sample(range(1 << s), 6), n, lambda: rng.randrange(1 << s))
    out = []
    for symbol in symbols:
        u = symbol << bits - s | rng.getrandbits(bits - s)
        top = (u >> 1 | (u & 1) << bits - 1) if cls.rotated else u
        out.append(random_bytes(rng, low) + top.to_bytes(bits // 8, "little"))
    return out


def df11_elements(rng, n, exponents=tuple(range(110, 121))):
    """n bf16 elements whose exponents are ever rarer."""
    values = skewed(rng, exponents, n, lambda: exponents[-1])
    return struct.pack("<%dH" % n, *(rng.getrandbits(1) << 15 | e << 7 | rng.getrandbits(7) for e in values))


def split_frame(rng, dtype, s, c, low_coded, chunks, modes, most_entries=24, chunk_log2=10, k=1):
    """A split frame of len(chunks) chunks, with chunks the number of elements in each and
    modes(chunk, part); returns (frame, raw)."""
    cls = CLASSES[dtype]
    raw = b""
    for number, n in enumerate(chunks):
        if low_coded:
            parts = [part_elements(rng, modes(number, 0), n, cls, s, cls.bits // 8, 0)]
            parts += [part_elements(rng, modes(number, 1 + k), n, cls, s, 1, 0) for k in range(cls.low)]
            raw += b"".join(b"".join(p[i] for p in parts[1:]) + parts[0][i] for i in range(n))
        else:
            raw += b"".join(part_elements(rng, modes(number, 0), n, cls, s, cls.size, cls.low))
    builder = Builder(SPLIT, dtype, raw, s, c, low_coded, False, chunk_log2, modes, most_entries, k)
    return builder.build(), raw


def planes_frame(rng, dtype, joined, chunks, modes):
    """A planes frame; chunks: the bytes in each chunk."""
    size = CLASSES[dtype].size
    raw = b""
    for number, m in enumerate(chunks):
        out = bytearray(m)
        for k in range(size):
            count = len(range(k, m, size))
            mode = modes(number, 0 if joined else k)
            out[k::size] = b"".join(part_elements(rng, mode, count, CLASSES[dtype], 0, 1, 0))
        raw += bytes(out)
    return Builder(PLANES, dtype, raw, joined=joined, modes=modes).build(), raw


def split_shapes():
    """(dtype, s, c, low_coded, modes of the top part, modes of low parts) of every kind of split frame."""
    for dtype in range(1, 8):
        cls = CLASSES[dtype]
        for s in cls.symbol_bits:
            for c in (1, 2):
                if c == 2 and not (s == 8 and dtype in (td.BF16, td.F32)):
                    continue
                coded = M_PAIRS if c == 2 else M_W32
                top = [coded, M_RAW, M_CONSTANT, M_LZ4] + (
                    [M_WIDE] if cls.bits == 8 and not cls.low else []
                )
                yield dtype, s, c, False, top, ()
                if cls.low:
                    yield dtype, s, c, True, [coded, M_CONSTANT, M_RAW], [M_WIDE, M_RAW, M_CONSTANT, M_LZ4]


def all_kinds():
    """Every coverage line that the document allows."""
    lines = set()
    for dtype, cls in enumerate(CLASSES):
        for codec in ("raw", "lz4"):
            lines.add("%s %s %s s0 c0 k0 plain top" % (codec, cls.name, codec))
        if dtype:
            for mode in (M_RAW, M_CONSTANT, M_LZ4, M_WIDE):
                lines.add("planes %s %s s0 c0 k0 plain top" % (cls.name, td.MODE_NAMES[mode]))
            for mode in (M_RAW, M_LZ4):
                lines.add("planes %s %s s0 c0 k0 joined top" % (cls.name, td.MODE_NAMES[mode]))
    lines.add("df11 bf16 df11 s0 c1 k0 plain top")
    for dtype, s, c, low_coded, top, low in split_shapes():
        for part, modes in (("top", top), ("low", low)):
            for mode in modes:
                for k in (1, 2, 4) if mode in (M_W32, M_PAIRS) else (1,):
                    flag = "low_coded" if low_coded else "plain"
                    name = td.MODE_NAMES[mode]
                    lines.add(
                        "split %s %s s%d c%d k%d %s %s" % (CLASSES[dtype].name, name, s, c, k, flag, part)
                    )
    return lines


def good_frames(rng):
    """(frame, raw) pairs that cover all_kinds()."""
    for dtype in range(len(CLASSES)):
        raw = random_bytes(rng, 300 + dtype)
        yield Builder(RAW, dtype, raw).build(), raw
        raw = bytes(i // 9 & 255 for i in range(2000 + dtype))
        yield Builder(LZ4, dtype, raw).build(), raw
        if dtype:
            size = CLASSES[dtype].size
            order = [M_WIDE, M_LZ4, M_CONSTANT, M_RAW]
            modes = lambda chunk, part: order[(chunk + part) % 4]
            yield planes_frame(rng, dtype, False, [1024 * size] * 4 + [1023 * size - size // 2], modes)
            modes = lambda chunk, part: [M_LZ4, M_RAW][chunk % 2]
            yield planes_frame(rng, dtype, True, [1024 * size] * 2 + [1023 * size - size // 2], modes)
    for n in (2000, 5000):
        raw = df11_elements(rng, n)
        yield df11_frame(raw), raw
    for dtype, s, c, low_coded, top, low in split_shapes():
        # The last chunk is short and odd, and coded as the first ones are.
        counts = [1024] * 6 + [1001]
        modes = lambda chunk, part: (
            top[chunk % len(top) if chunk < 6 else 0] if part == 0 else low[(chunk + part) % len(low)]
        )
        yield split_frame(rng, dtype, s, c, low_coded, counts, modes)
        for k in (2, 4):
            # The constant chunk makes room for k tables in a frame that must not grow.
            counts = [16384, 5 * 1024 + 17]
            modes = lambda chunk, part: (
                M_CONSTANT if chunk == 0 else top[0] if part == 0 else low[(k // 2 + part) % len(low)]
            )
            yield split_frame(rng, dtype, s, c, low_coded, counts, modes, chunk_log2=14, k=k)


class Hashes(unittest.TestCase):
    def test_vectors(self):
        data = bytes((31 * i * i + 7 * i + 13 * (i >> 8)) & 255 for i in range(5000))
        for n, hash64, hash128 in VECTORS:
            self.assertEqual(td.xxh3_64(data[:n]), hash64, n)
            low, high = td.xxh3_128_pair(data[:n])
            self.assertEqual(high << 64 | low, hash128, n)
            self.assertEqual(td.xxh3_128(data[:n]), hash128.to_bytes(16, "little"))


class Lz4(unittest.TestCase):
    def test_known_blocks(self):
        self.assertEqual(td.lz4_block(b"\x00", 0), b"")
        self.assertEqual(td.lz4_block(b"\x50hello", 5), b"hello")
        # One literal, a match of 4 + 15 + 3 at offset 1, five last literals.
        self.assertEqual(td.lz4_block(b"\x1fa\x01\x00\x03\x50bcdef", 28), b"a" * 23 + b"bcdef")

    def test_round_trip(self):
        rng = random.Random(1)
        for n in list(range(1, 40)) + [300, 5000]:
            for alphabet in (1, 2, 5, 256):
                data = bytes(rng.randrange(alphabet) for _ in range(n))
                self.assertEqual(td.lz4_block(lz4_compress(data), n), data)

    def test_broken(self):
        good = b"\x1fa\x01\x00\x03\x50bcdef"
        for bad, size in (
            (b"", 0),
            (good[:-1], 28),
            (good[:-6], 28),
            (good, 27),
            (good, 29),
            (good[:4], 28),
            (b"\x1fa\x00\x00\x03\x50bcdef", 28),
            (b"\x1fa\x02\x00\x03\x50bcdef", 28),
            (b"\x1fa\x01\x00\x03\x40bcde", 27),
            (b"\x10a\x01\x00\x50bcdef", 10),
            (b"\xf0" + b"\xff" * 50, 28),
        ):
            with self.assertRaises(FormatError):
                td.lz4_block(bad, size)


class GoodFrames(unittest.TestCase):
    def test_every_kind(self):
        rng = random.Random(2)
        coverage = set()
        for frame, raw in good_frames(rng):
            self.assertEqual(decode_frame(frame, coverage), raw)
        self.assertEqual(coverage, all_kinds())

    def test_expectation_file(self):
        with open(os.path.join(HERE, "all_kinds.txt"), encoding="utf-8") as stream:
            self.assertEqual(stream.read(), "".join(line + "\n" for line in sorted(all_kinds())))

    def test_sizes(self):
        """Group and chunk edges, one element, several groups a chunk."""
        rng = random.Random(3)
        for dtype, s, c, low_coded in (
            (1, 9, 1, False),
            (1, 8, 2, False),
            (2, 7, 1, True),
            (4, 11, 1, False),
        ):
            k = {1: c, 2: 4, 4: 1}[dtype]
            coded = M_PAIRS if c == 2 else M_W32
            modes = lambda chunk, part: M_CONSTANT if chunk == 0 else coded if part == 0 else M_RAW
            for counts in (
                [4096, 1],
                [4096, 2],
                [4096, 1023],
                [4096, 1024],
                [4096, 1025],
                [4096, 3001],
                [4096, 4096, 4096, 17],
            ):
                frame, raw = split_frame(rng, dtype, s, c, low_coded, counts, modes, chunk_log2=12, k=k)
                self.assertEqual(decode_frame(frame), raw)

    def test_selectors(self):
        """More groups than a u32 has selectors, and tables that two streams share in part."""
        rng = random.Random(11)
        for k in (2, 4):
            modes = lambda chunk, part: M_W32 if chunk == 0 else M_CONSTANT
            frame, raw = split_frame(rng, 5, 6, 1, False, [35000, 1], modes, chunk_log2=16, k=k)
            self.assertEqual(frame[12], k)
            self.assertEqual(decode_frame(frame), raw)
        # Four constant chunks, then two of two groups each: tables A and B, tables B and C.
        modes = lambda chunk, part: M_CONSTANT if chunk < 4 else M_W32
        raw = bytes(8192) + b"".join(bytes([v, v + 4, v + 9, v]) * 256 for v in (10, 80, 200, 80))
        builder = Builder(SPLIT, 7, raw, 6, 1, False, False, 11, modes, k=2)
        frame = builder.build()
        self.assertEqual([d[4] for d in builder.descriptors[4:]], [0, 1])
        self.assertEqual(len(builder.symbol_tables), 3)
        self.assertEqual(decode_frame(frame), raw)
        # Class i8, R = 2: group g holds two symbols that only table g mod 4 has.
        tables = [{2 * i: 500, 2 * i + 1: 524} for i in range(4)]
        parts = [2 * (i // 1024 % 4) + rng.randrange(2) << 2 for i in range(18 * 1024)]
        selectors = [g % 4 for g in range(18)]
        stream, nw, nx = encode_stream(parts, None, 8, 6, 1, False, tables, selectors, False)
        self.assertEqual(nx, 0)
        at = (128 + 18 * 2 * 128 + 2 * nw + 3) & ~3
        self.assertEqual(stream[at:].hex(), "e4e4e4e4" + "04000000")

    def test_padding_is_ignored(self):
        """Raw and low bits of the padding elements may hold anything."""
        rng = random.Random(8)
        modes = lambda k, _: M_CONSTANT if k == 0 else M_W32
        for dtype, s in ((1, 9), (3, 9)):
            frame, raw = split_frame(rng, dtype, s, 1, False, [4096, 1000], modes, chunk_log2=12)
            start = payload_start(frame)
            # The last element of the group: row 15, lane 31, upper half, in the spare bits of word 6.
            at = start + 128 + 6 * 128 + 124
            word = struct.unpack_from("<I", frame, at)[0]
            self.assertEqual(word >> 29 & 3, 0)
            self.assertEqual(decode_frame(seal(put(frame, at, "I", word | 1 << 29))), raw)
            if dtype == 3:
                self.assertEqual(decode_frame(seal(put(frame, start + 8 * 128 + 2047, "B", 1))), raw)

    def test_exceptions(self):
        """Tables of two entries, so that most elements are exceptions."""
        rng = random.Random(4)
        for dtype, s, c in ((1, 9, 1), (3, 8, 2), (7, 6, 1)):
            modes = lambda chunk, part: (M_PAIRS if c == 2 else M_W32) if chunk % 3 == 0 else M_CONSTANT
            frame, raw = split_frame(rng, dtype, s, c, False, [1024] * 11 + [777], modes, most_entries=2)
            self.assertEqual(decode_frame(frame), raw)

    def test_df11(self):
        """Codes of all lengths, constant exponents, several blocks, ends of every kind, unused bits."""
        rng = random.Random(12)
        for exponents, n in (((1,), 2000), ((0, 239), 2500), (tuple(range(60, 72)), 9001)):
            raw = df11_elements(rng, n, exponents)
            self.assertEqual(decode_frame(df11_frame(raw, chunk_log2=12)), raw)
        # Counts 1, 1, 2, 4, 8 and so on: codes of 1 to 15 bits.
        values = [200] + [100 + i for i in range(15) for _ in range(1 << i)]
        rng.shuffle(values)
        raw = struct.pack("<%dH" % len(values), *(e << 7 | rng.getrandbits(7) for e in values))
        self.assertEqual(decode_frame(df11_frame(raw, chunk_log2=14)), raw)
        for n in range(2000, 2008):
            raw = df11_elements(rng, n, (5, 6, 7))
            self.assertEqual(decode_frame(df11_frame(raw, filler=0xFF)), raw)
        # The last code reaches into a window where none starts: its gap may tell where it ends.
        common = [7] * 2100
        for e in range(8, 14):
            common += [e] * (1 << e - 8)
        common.sort(key=lambda e: e == 8)
        for n in range(len(common)):
            raw = struct.pack("<%dH" % (len(common) - n), *(e << 7 for e in common[n:]))
            try:
                frame = df11_frame(raw, end_gap=True)
            except AssertionError:
                continue
            self.assertEqual(decode_frame(frame), raw)
            break
        else:
            self.fail("no such end")

    def test_chunk_hashes_of_raw_frames(self):
        raw = bytes(range(256)) * 2100
        self.assertGreater(len(raw), 2 * td.PIECE)
        self.assertEqual(decode_frame(Builder(RAW, 0, raw).build()), raw)

    def test_worked_example(self):
        """Raw rows of s = 9 by hand: T = 16, R = 7, J = 2, S = 2 (section 7.2)."""
        table = normalize({0: 1, 1: 1}, 1024, 1023)
        # Element 0 (row 0, lane 0, low half): u = 1, that is the sign alone.
        stream, nw, nx = encode_stream([0x8000] + [0] * 1023, None, 16, 9, 1, True, [table], [0], False)
        self.assertEqual(nx, 0)
        self.assertEqual(struct.unpack_from("<I", stream, 128)[0], 0x8000)
        # Element 64 (row 1): rotated left by 7 across the lane, bit 15 goes to bit 22.
        stream, _, _ = encode_stream(
            [0] * 64 + [0x8000] + [0] * 959, None, 16, 9, 1, True, [table], [0], False
        )
        self.assertEqual(struct.unpack_from("<I", stream, 128)[0], 1 << 22)
        # Element 14 * 64 (row 14, the first spare row): its u bit 0 has p = 0, word 0, rotated by 14.
        stream, _, _ = encode_stream(
            [0] * 896 + [0x8000] + [0] * 127, None, 16, 9, 1, True, [table], [0], False
        )
        self.assertEqual(struct.unpack_from("<I", stream, 128)[0], 1 << 29)


# ---------------------------------------------------------------------------------------------------
# Broken frames
# ---------------------------------------------------------------------------------------------------


def put(data, at, code, value):
    packed = struct.pack("<" + code, value)
    return data[:at] + packed + data[at + len(packed) :]


def put_bytes(data, at, value):
    return data[:at] + value + data[at + len(value) :]


class BadFrames(unittest.TestCase):
    def refuse(self, frame, status=DAMAGED):
        with self.assertRaises(FormatError) as caught:
            decode_frame(frame)
        self.assertEqual(caught.exception.status, status, caught.exception)
        return caught.exception.message

    def setUp(self):
        rng = random.Random(5)
        order = [M_W32, M_CONSTANT, M_RAW, M_LZ4]
        self.bf16, _ = split_frame(
            rng, 1, 9, 1, False, [1024] * 4 + [1001], lambda k, _: order[k % 4], most_entries=4
        )
        self.pairs, _ = split_frame(
            rng, 1, 8, 2, False, [1024] * 4 + [1001], lambda k, _: [M_PAIRS, M_CONSTANT][k % 2]
        )
        self.low, _ = split_frame(
            rng,
            2,
            7,
            1,
            True,
            [1024] * 4,
            lambda k, p: [M_W32, M_CONSTANT][k % 2] if p == 0 else [M_WIDE, M_LZ4][k % 2],
        )
        self.planes, _ = planes_frame(
            rng, 9, False, [4096, 4096, 4091], lambda k, p: [M_WIDE, M_LZ4, M_CONSTANT, M_RAW][(k + p) % 4]
        )
        self.joined, _ = planes_frame(rng, 9, True, [4096, 4096, 4091], lambda k, p: [M_LZ4, M_RAW][k % 2])
        self.raw = Builder(RAW, 0, bytes(range(200))).build()
        self.lz4 = Builder(LZ4, 0, bytes(300)).build()
        for frame in (self.bf16, self.pairs, self.low, self.planes, self.joined, self.raw, self.lz4):
            decode_frame(frame)

    def descriptor(self, frame, i):
        return 128 + 256 * frame[7] * frame[10] + 512 * frame[11] + 32 * i

    def test_any_bit(self):
        rng = random.Random(6)
        for frame in (self.bf16, self.planes, self.raw):
            for at in list(range(128)) + [rng.randrange(len(frame)) for _ in range(60)]:
                changed = put(frame, at, "B", frame[at] ^ 1 << rng.randrange(8))
                with self.assertRaises(FormatError):
                    decode_frame(changed)

    def test_truncated(self):
        for size in (0, 1, 127, 128, len(self.bf16) - 1):
            self.refuse(self.bf16[:size], TRUNCATED)
        self.refuse(self.bf16 + b"\0")
        self.refuse(self.bf16 + bytes(128))

    def test_unsupported(self):
        for codec in (5, 6, 7, 255):
            self.refuse(reseal(put(self.bf16, 4, "B", codec)), UNSUPPORTED)
        self.refuse(reseal(put(self.raw, 5, "B", 11)), UNSUPPORTED)

    def test_header_fields(self):
        cases = [
            (self.bf16, 0, "B", 0),
            (self.bf16, 5, "B", 0),
            (self.bf16, 5, "B", 8),
            (self.bf16, 5, "B", 2),
            (self.bf16, 6, "B", 7),
            (self.bf16, 6, "B", 11),
            (self.bf16, 6, "B", 0),
            (self.bf16, 7, "B", 0),
            (self.bf16, 7, "B", 2),
            (self.pairs, 7, "B", 1),
            (self.bf16, 7, "B", 3),
            (self.pairs, 6, "B", 9),
            (self.bf16, 8, "B", 1),
            (self.bf16, 8, "B", 2),
            (self.bf16, 8, "B", 4),
            (self.low, 8, "B", 0),
            (self.planes, 8, "B", 1),
            (self.planes, 8, "B", 2),
            (self.joined, 8, "B", 0),
            (self.raw, 8, "B", 2),
            (self.bf16, 9, "B", 9),
            (self.bf16, 9, "B", 18),
            (self.bf16, 9, "B", 11),
            (self.raw, 9, "B", 10),
            (self.bf16, 10, "B", 17),
            (self.bf16, 10, "B", self.bf16[10] + 1),
            (self.raw, 10, "B", 1),
            (self.planes, 10, "B", 1),
            (self.bf16, 11, "B", 1),
            (self.raw, 11, "B", 1),
            (self.bf16, 12, "B", 0),
            (self.bf16, 12, "B", 2),
            (self.bf16, 12, "B", 3),
            (self.bf16, 12, "B", 4),
            (self.bf16, 12, "B", 5),
            (self.raw, 12, "B", 1),
            (self.planes, 12, "B", 1),
            (self.bf16, 13, "B", 1),
            (self.raw, 13, "B", 2),
            (self.bf16, 14, "B", 1),
            (self.bf16, 15, "B", 1),
            (self.bf16, 16, "I", 0),
            (self.bf16, 16, "I", td.MAX_RAW + 1),
            (self.bf16, 16, "I", 4096 * 2 + 2000),
            (self.raw, 16, "I", 199),
            (self.raw, 16, "I", 201),
            (self.bf16, 20, "I", len(self.bf16) - 128),
            (self.bf16, 24, "I", 4),
            (self.bf16, 24, "I", 6),
            (self.raw, 24, "I", 1),
            (self.raw, 28, "I", 199),
            (self.lz4, 28, "I", 0),
            (self.bf16, 28, "I", 0),
            (self.bf16, 40, "B", 1),
            (self.bf16, 95, "B", 1),
            (self.bf16, 112, "B", 77),
            (self.planes, 5, "B", 0),
            (self.planes, 6, "B", 8),
            (self.planes, 7, "B", 1),
            (self.lz4, 4, "B", 0),
        ]
        for frame, at, code, value in cases:
            changed = put(frame, at, code, value)
            self.assertNotEqual(changed, frame, (at, value))
            with self.subTest(at=at, value=value):
                self.refuse(reseal(changed))

    def test_hashes(self):
        self.assertIn("stored hash", self.refuse(put(self.raw, 128, "B", 99)))
        self.assertIn("directory hash", self.refuse(seal(put(self.bf16, 32, "B", self.bf16[32] ^ 1))))
        self.assertIn("raw hash", self.refuse(reseal(put(self.raw, 128, "B", 99))))
        at = self.descriptor(self.bf16, 0) + 24
        self.assertIn("chunk 0: hash", self.refuse(reseal(put(self.bf16, at, "B", self.bf16[at] ^ 1))))

    def test_padding(self):
        self.assertIn("padding", self.refuse(seal(put(self.raw, len(self.raw) - 1, "B", 1))))
        start = payload_start(self.bf16)
        end = self.descriptor(self.bf16, 5)
        self.assertLess(end, start)
        self.assertIn("padding", self.refuse(reseal(put(self.bf16, start - 1, "B", 1))))
        # Between parts: the lz4 part of the fourth chunk ends before a multiple of 128.
        offset, nw = struct.unpack_from("<QI", self.bf16, self.descriptor(self.bf16, 3))
        self.assertTrue(nw % 128)
        self.assertIn("padding", self.refuse(reseal(put(self.bf16, start + offset + nw, "B", 1))))

    def test_descriptors(self):
        kinds = {0: "w32", 1: "constant", 2: "raw", 3: "lz4"}
        for i in kinds:
            at = self.descriptor(self.bf16, i)
            offset, nw, nx, n, table, mode = struct.unpack_from("<QIIIBB", self.bf16, at)
            cases = [
                (16, "I", n - 1),
                (16, "I", n + 1),
                (21, "B", 6),
                (21, "B", M_PAIRS),
                (21, "B", M_WIDE),
                (22, "B", 1),
                (23, "B", 1),
            ]
            if i == 0:
                cases += [
                    (0, "Q", 128),
                    (8, "I", nw + 1),
                    (8, "I", 1025),
                    (8, "I", 0xFFFFFFFF),
                    (12, "I", nx + 1),
                    (12, "I", 1025),
                    (12, "I", nx - 1),
                    (20, "B", self.bf16[10]),
                ]
            elif i == 1:
                cases += [
                    (0, "Q", offset | 1 << 16),
                    (0, "Q", offset | 1 << 63),
                    (8, "I", 1),
                    (12, "I", 1),
                    (20, "B", 1),
                ]
            elif i == 2:
                cases += [
                    (0, "Q", offset + 128),
                    (0, "Q", offset - 128),
                    (8, "I", 1),
                    (12, "I", 1),
                    (20, "B", 1),
                ]
            else:
                cases += [
                    (0, "Q", 0),
                    (8, "I", 0),
                    (8, "I", nw - 1),
                    (8, "I", nw + 128),
                    (8, "I", 2048),
                    (12, "I", 1),
                    (20, "B", 1),
                ]
            for where, code, value in cases:
                with self.subTest(mode=kinds[i], where=where, value=value):
                    self.refuse(reseal(put(self.bf16, at + where, code, value)))
        at = self.descriptor(self.low, 1)
        self.assertIn("chunk hash", self.refuse(reseal(put(self.low, at + 24, "B", 1))))
        self.assertIn("exceptions", self.refuse(reseal(put(self.low, at + 12, "I", 1))))
        self.assertIn("no such wide", self.refuse(reseal(put(self.low, at + 20, "B", self.low[11]))))

    def test_symbol_tables(self):
        at = 128
        entries = list(struct.unpack_from("<128H", self.bf16, at))
        used = sum(f > 0 for f in entries[0::2])
        self.assertEqual(used, 4)

        def table(*pairs):
            flat = [v for pair in pairs for v in pair]
            return struct.pack("<128H", *flat, *[0] * (128 - len(flat)))

        for record in (
            table(),
            table((1024, 5)),
            table((1023, 5)),
            table((512, 5), (511, 6)),
            table((512, 6), (512, 5)),
            table((512, 5), (512, 5)),
            table((512, 5), (512, 512)),
            table((512, 5), (0, 0), (512, 6)),
            table((512, 5), (512, 6), (0, 7)),
            table((512, 5), (513, 6)),
            table((0xFFFF, 5), (1025, 6)),
        ):
            self.assertIn("symbol table", self.refuse(reseal(put_bytes(self.bf16, at, record))))

    def test_wide_tables(self):
        at = 128 + 256 * self.low[10]
        for counts in (
            {},
            {0: 4096},
            {0: 4095},
            {0: 2048, 1: 2047},
            {0: 2048, 1: 2049},
            {0: 0xFFFF, 1: 4097},
        ):
            record = struct.pack("<256H", *(counts.get(i, 0) for i in range(256)))
            self.assertIn("wide table", self.refuse(reseal(put_bytes(self.low, at, record))))

    def test_df11(self):
        rng = random.Random(13)
        raw = df11_elements(rng, 3000)
        frame = df11_frame(raw)
        start, rows = payload_start(frame), frame[10]
        lengths = 128 + 256 * (rows - 1)
        descriptor = lengths + 256
        for at, code, value in (
            (5, "B", 2),  # class
            (6, "B", 8),
            (7, "B", 2),
            (8, "B", 1),
            (9, "B", 9),
            (10, "B", rows - 1),
            (10, "B", 19),
            (11, "B", 1),
            (12, "B", 1),
            (13, "B", 5),
            (16, "I", 2 * 3000 - 1),
            (24, "I", 2),
            (28, "I", len(frame) - start - 128),
            (40, "I", 0),
            (40, "I", td.read32(frame, 40) - 1),
            (40, "I", td.read32(frame, 40) + 1),
            (40, "I", 1 << 31),
            (44, "B", 1),
            (descriptor, "B", 1),
            (descriptor + 8, "B", 1),
            (descriptor + 12, "B", 1),
            (descriptor + 16, "I", 1023),
            (descriptor + 20, "B", 1),
            (descriptor + 21, "B", M_W32),
            (descriptor + 22, "B", 1),
            (descriptor + 24, "B", frame[descriptor + 24] ^ 1),
            (lengths + 110, "B", 33),
            (lengths + 110, "B", 0),
            (lengths + 110, "B", 2),
            (lengths + 240, "B", 1),
            (lengths + 90, "B", 3),
            (128, "B", 255 if rows < 3 else 200),
            (128, "B", 256 - (rows - 1)),  # the row of lengths
            (start, "I", 1),
            (start + 4, "I", 2999),
            (start + 8, "B", 1),
            (start + 128 + 1, "B", frame[start + 129] ^ 8),
            (start + 128 + 319, "B", 1),
            (start + 128 + 320, "B", 1),
        ):
            self.refuse(reseal(put(frame, at, code, value)))

    def test_streams(self):
        start = payload_start(self.bf16)
        _, nw, nx, n = struct.unpack_from("<QIII", self.bf16, self.descriptor(self.bf16, 0))
        words = start + 128 + 7 * 128
        exceptions = words + 2 * nw + 3 & ~3
        self.assertGreater(nx, 2)
        for state in (0, 1023, 1024 << 16, 0xFFFFFFFF):
            self.assertIn("initial state", self.refuse(seal(put(self.bf16, start, "I", state))))
        for at, value in ((words, 1), (words + 2 * (nw - 1), 1), (start + 4, 1024)):
            self.refuse(seal(put(self.bf16, at, "H", self.bf16[at] ^ value)))
        first, second = struct.unpack_from("<2I", self.bf16, exceptions)
        for value in (second, second | 1, 1024, 0x3FFFF, first & 0x3FFFF | 512 << 18):
            if value & 0x3FFFF >= second & 0x3FFFF or value >> 18 >= 512:
                self.assertIn("exception", self.refuse(seal(put(self.bf16, exceptions, "I", value))))
        last = exceptions + 4 * (nx - 1)
        self.assertIn("exception", self.refuse(seal(put(self.bf16, last, "I", n))))

    def test_stream_word_count(self):
        """One word more (moved into the padding) and one less."""
        rng = random.Random(7)
        frame, _ = split_frame(
            rng, 1, 9, 1, False, [1024] * 3, lambda k, _: [M_W32, M_CONSTANT][k % 2], most_entries=64
        )
        at = self.descriptor(frame, 0)
        _, nw, nx = struct.unpack_from("<QII", frame, at)
        self.assertEqual(nx, 0)
        self.assertTrue(2 * nw % 128)
        self.assertIn("left over", self.refuse(reseal(put(frame, at + 8, "I", nw + 1))))
        words = payload_start(frame) + 8 * 128
        shorter = put(frame, words + 2 * (nw - 1), "H", 0)
        self.refuse(reseal(put(shorter, at + 8, "I", nw - 1)))

    def test_selectors(self):
        rng = random.Random(12)
        modes = lambda chunk, _: M_CONSTANT if chunk == 0 else M_W32
        frame, raw = split_frame(rng, 1, 9, 1, False, [8192, 5000], modes, 4, chunk_log2=13, k=4)
        self.assertEqual(decode_frame(frame), raw)
        at = self.descriptor(frame, 1)
        offset, nw, nx, n, table = struct.unpack_from("<QIIIB", frame, at)
        self.assertEqual((frame[10], table), (4, 0))
        self.assertIn("no such symbol table", self.refuse(reseal(put(frame, at + 20, "B", 1))))
        selectors = payload_start(frame) + 128 + 5 * 7 * 128 + (2 * nw + 3 & ~3)
        value = struct.unpack_from("<I", frame, selectors)[0]
        self.assertEqual(value >> 10, 0)
        for bit in (10, 15, 31):
            changed = put(frame, selectors, "I", value | 1 << bit)
            self.assertIn("selectors", self.refuse(seal(changed)))
        for bit in range(10):
            self.refuse(seal(put(frame, selectors, "I", value ^ 1 << bit)))
        for k in (0, 1, 2, 3, 8, 255):
            self.refuse(reseal(put(frame, 12, "B", k)))
        self.assertGreater(nx, 0)
        self.assertIn("exception", self.refuse(seal(put(frame, selectors + 4 * nx, "I", n))))

    def test_planes(self):
        for i in range(12):
            at = self.descriptor(self.planes, i)
            mode = self.planes[at + 21]
            for wrong in (M_W32, M_PAIRS, 6):
                self.refuse(reseal(put(self.planes, at + 21, "B", wrong)))
            if mode == M_CONSTANT:
                self.refuse(reseal(put(self.planes, at, "Q", 256)))
        at = self.descriptor(self.joined, 1)
        for wrong in (M_CONSTANT, M_WIDE):
            self.refuse(reseal(put(self.joined, at + 21, "B", wrong)))

    def test_empty_planes(self):
        """A last chunk shorter than a group: planes without bytes are raw."""
        rng = random.Random(9)
        frame, raw = planes_frame(rng, 10, False, [8192, 3], lambda k, p: M_CONSTANT if k == 0 else M_RAW)
        self.assertEqual(decode_frame(frame), raw)
        at = self.descriptor(frame, 8 + 3)
        self.refuse(reseal(put(put(frame, at + 21, "B", M_CONSTANT), at, "Q", 0)))
        self.refuse(reseal(put(frame, at, "Q", 0)))


# ---------------------------------------------------------------------------------------------------
# Containers
# ---------------------------------------------------------------------------------------------------


class Containers(unittest.TestCase):
    def setUp(self):
        rng = random.Random(10)
        order = [M_W32, M_CONSTANT, M_RAW]
        self.frame, self.frame_raw = split_frame(
            rng, 1, 9, 1, False, [1024] * 3 + [1001], lambda k, _: order[k % 3]
        )
        self.head_raw = b"a header of some kind " * 20
        self.head = Builder(LZ4, 0, self.head_raw).build()
        self.tail = Builder(RAW, 0, b"tail").build()
        self.tensors = [
            {"name": b"w", "dtype": b"BF16", "dims": [4073], "offset": 440, "nbytes": 8146},
            {"name": b"", "dtype": b"F32", "dims": [], "offset": 8586, "nbytes": 4},
            {
                "name": b"\xff\xfe",
                "dtype": b"BF16",
                "dims": [2, 3],
                "offset": 8588,
                "nbytes": 12,
                "flags": 2,
            },
        ]
        self.single = [
            {
                "path": b"model.safetensors",
                "frames": [self.head, self.frame, self.tail],
                "format": 1,
                "tensors": self.tensors,
            }
        ]
        self.folder = [
            {"path": b"a", "folder": True, "mode": 0o755},
            {"path": b"a/empty", "mode": 0o600},
            {"path": b"a/sub", "folder": True, "mode": 0o500},
            {
                "path": b"a/sub/x",
                "frames": [self.frame, self.tail, self.frame],
                "mode": 0o640,
                "reason": b"cut short",
                "format": 7,
            },
            {"path": b"a.b", "frames": [self.tail], "mode": 0o444},
        ]

    def read_all(self, data):
        container = Container(io.BytesIO(data))
        contents = []
        for f in container.files:
            out = io.BytesIO()
            container.read_file(f, out.write)
            contents.append(out.getvalue())
        return container, contents

    def refuse(self, data, status=DAMAGED):
        with self.assertRaises(FormatError) as caught:
            self.read_all(data)
        self.assertEqual(caught.exception.status, status, caught.exception)

    def test_single(self):
        container, contents = self.read_all(build_container(0, self.single))
        self.assertEqual(contents, [self.head_raw + self.frame_raw + b"tail"])
        tensors = container.files[0].tensors
        self.assertEqual(
            [(t.name, t.dtype, t.dims) for t in tensors],
            [(b"w", b"BF16", (4073,)), (b"", b"F32", ()), (b"\xff\xfe", b"BF16", (2, 3))],
        )

    def test_folder(self):
        _, contents = self.read_all(build_container(1, self.folder))
        self.assertEqual(contents, [b"", b"", b"", self.frame_raw + b"tail" + self.frame_raw, b"tail"])
        self.assertEqual(self.read_all(build_container(1, []))[1], [])

    def test_sha256(self):
        digests = [
            bytes(32),
            hashlib.sha256(b"").digest(),
            bytes(32),
            hashlib.sha256(self.frame_raw + b"tail" + self.frame_raw).digest(),
            hashlib.sha256(b"tail").digest(),
        ]
        self.read_all(build_container(1, self.folder, digests))
        for i in range(5):
            wrong = list(digests)
            wrong[i] = b"\1" * 32
            self.refuse(build_container(1, self.folder, wrong))

    def test_restore(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "c.tpress")
            out = os.path.join(folder, "out")
            with open(path, "wb") as stream:
                stream.write(build_container(1, self.folder))
            with contextlib.redirect_stdout(io.StringIO()):
                self.assertEqual(td.main([path, "-o", out]), 0)
                self.assertEqual(td.main([path]), 0)
            with open(os.path.join(out, "a", "sub", "x"), "rb") as stream:
                self.assertEqual(stream.read(), self.frame_raw + b"tail" + self.frame_raw)
            self.assertEqual(os.stat(os.path.join(out, "a", "sub", "x")).st_mode & 0o777, 0o640)
            self.assertEqual(os.stat(os.path.join(out, "a", "sub")).st_mode & 0o777, 0o500)
            os.chmod(os.path.join(out, "a", "sub"), 0o700)
            with open(path, "wb") as stream:
                stream.write(build_container(0, self.single)[:-1])
            with contextlib.redirect_stderr(io.StringIO()) as errors:
                self.assertEqual(td.main([path, "-o", os.path.join(folder, "single")]), 1)
            self.assertIn(TRUNCATED, errors.getvalue())

    def test_corpus(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "corpus")
            expect = os.path.join(folder, "expect")
            records = [
                struct.pack("<2I", len(f), len(r)) + f + r
                for f, r in ((self.frame, self.frame_raw), (self.tail, b"tail"))
            ]
            kinds = (
                "raw bytes raw s0 c0 k0 plain top",
                "split bf16 constant s9 c1 k1 plain top",
                "split bf16 raw s9 c1 k1 plain top",
                "split bf16 w32 s9 c1 k1 plain top",
            )

            def run(data, lines):
                with open(path, "wb") as stream:
                    stream.write(data)
                with open(expect, "w", encoding="utf-8") as stream:
                    stream.write("".join(line + "\n" for line in lines))
                with (
                    contextlib.redirect_stdout(io.StringIO()) as out,
                    contextlib.redirect_stderr(io.StringIO()),
                ):
                    return td.main(["--frames", path, "--expect", expect]), out.getvalue().splitlines()

            self.assertEqual(run(b"".join(records), kinds), (0, list(kinds)))
            self.assertEqual(run(b"".join(records), kinds + ("raw bf16 raw s0 c0 k0 plain top",))[0], 1)
            self.assertEqual(run(b"".join(records)[:-1], kinds)[0], 1)
            self.assertEqual(run(b"".join(records)[:-1] + b"x", kinds)[0], 1)
            self.assertEqual(run(b"", ())[0], 1)

    def test_header_and_footer(self):
        good = build_container(0, self.single)
        self.refuse(b"", NOT_A_CONTAINER)
        self.refuse(good[:7], NOT_A_CONTAINER)
        self.refuse(good[:8], TRUNCATED)
        self.refuse(good[:255], TRUNCATED)
        self.refuse(b"\x89PNG" + good[4:], NOT_A_CONTAINER)
        self.refuse(good[:100], TRUNCATED)
        self.refuse(good[:200], TRUNCATED)
        self.refuse(good[:-1], TRUNCATED)
        self.refuse(good[:-128], TRUNCATED)
        self.refuse(good + b"\0", TRUNCATED)
        self.refuse(good[:128] + bytes(128) + good[128:])
        for at in (8, 10, 12, 50, 111, 112, 127):
            self.refuse(put(good, at, "B", good[at] ^ 1))
        for at in list(range(len(good) - 128, len(good) - 8)):
            self.refuse(put(good, at, "B", good[at] ^ 16))
        for change, status in (
            (lambda h: put(h, 8, "H", 1), NEWER),
            (lambda h: put(h, 10, "H", 2), NEWER),
            (lambda h: put(h, 10, "H", 0), NEWER),
            (lambda h: put(h, 12, "I", 1), DAMAGED),
            (lambda h: put(h, 111, "B", 1), DAMAGED),
        ):
            self.refuse(build_container(0, self.single, change_header=change), status)
        for at, code, delta in (
            (0, "Q", 128),
            (8, "Q", 1),
            (16, "Q", 1),
            (16, "Q", 1 << 30),
            (24, "Q", 1),
            (32, "B", 1),
            (48, "B", 1),
            (64, "H", 1),
            (66, "H", 1),
            (68, "I", 1),
            (72, "B", 1),
            (103, "B", 1),
        ):

            def change(footer):
                old = struct.unpack_from("<" + code, footer, at)[0]
                return put(footer, at, code, old ^ delta if code == "B" else old + delta)

            self.refuse(build_container(0, self.single, change_footer=change))

    def test_damaged_frame(self):
        good = build_container(1, self.folder)
        self.refuse(put(good, 128 + 300, "B", good[428] ^ 1))
        # A frame that claims more bytes than the index says is damaged, not truncated.
        self.refuse(put(good, 128 + 20, "I", 1 << 20))

    def test_index(self):
        def setter(name, i, value):
            def change(columns):
                columns[name][i] = value(columns[name][i]) if callable(value) else value

            return change

        flip = lambda b: bytes([b[0] ^ 1]) + b[1:]
        add = lambda k: lambda v: v + k
        for name, i, value in (
            ("file_size", 3, add(1)),
            ("file_size", 0, 1),
            ("file_digest", 3, flip),
            ("file_digest", 0, flip),
            ("frame_offset", 0, 256),
            ("frame_offset", 1, 128),
            ("frame_offset", 2, 1 << 40),
            ("frame_stored_hash", 0, flip),
            ("frame_stored_hash", 2, flip),
            ("frame_raw_hash", 0, flip),
            ("frame_stored_size", 0, add(128)),
            ("frame_stored_size", 0, add(1)),
            ("frame_stored_size", 1, 128),
            ("frame_raw_size", 0, 0),
            ("frame_raw_size", 0, td.MAX_RAW + 1),
            ("frame_raw_size", 1, 5),
            ("frame_codec", 0, 0),
            ("frame_codec", 2, 0),
            ("frame_method", 1, 2),
            ("file_frames", 3, 2),
            ("file_frames", 0, 1),
            ("file_tensors", 3, 1),
            ("file_path_len", 0, 2),
            ("file_reason_len", 0, 1),
            ("file_mode", 1, 0o1600),
            ("file_format", 0, 1),
            ("file_kind", 1, 2),
            ("file_kind", 3, 1),
            ("file_kind", 2, 0),
        ):
            with self.subTest(name=name, i=i):
                self.refuse(build_container(1, self.folder, change=setter(name, i, value)))
        for name, i, value in (
            ("tensor_offset", 0, 447),
            ("tensor_offset", 0, (1 << 64) - 1),
            ("tensor_nbytes", 0, (1 << 64) - 440),
            ("tensor_ndim", 0, 2),
            ("tensor_dtype", 0, 2),
            ("tensor_flags", 0, 4),
            ("tensor_flags", 2, 0),
            ("tensor_name_len", 0, 2),
            ("dtype_len", 0, 3),
            ("file_mode", 0, 0o644),
        ):
            with self.subTest(name=name, i=i):
                self.refuse(build_container(0, self.single, change=setter(name, i, value)))
        for field, value in (
            ("root", 2),
            ("flags", 2),
            ("flags", 1),
            ("F", 6),
            ("F", 1 << 60),
            ("N", 1),
            ("M", 5),
            ("M", 1 << 32),
            ("D", 1),
            ("Y", 1),
        ):

            def change(columns):
                columns["head"][field] = value

            self.refuse(build_container(1, self.folder, change=change))
        self.refuse(build_container(1, self.folder, change_index=lambda index: index + b"\0"))
        self.refuse(build_container(1, self.folder, change_index=lambda index: index[:-1]))
        self.refuse(build_container(1, self.folder, change_index=lambda index: put(index, 56, "Q", 1)))

    def test_paths(self):
        def files(*paths):
            return [
                {"path": p.rstrip(b"/") if p != b"/" else p, "folder": p.endswith(b"/") and p != b"/"}
                for p in paths
            ]

        self.read_all(build_container(1, files(b"d/", b"d/e/", b"d/e/f", b"g")))
        for bad in (
            (b"",),
            (b"/",),
            (b"/a",),
            (b"a//b",),
            (b"..",),
            (b".",),
            (b"d/", b"d/.."),
            (b"d/", b"d/."),
            (b"a\0b",),
            (b"x" * 256,),
            (b"a", b"a"),
            (b"a/", b"a"),
            (b"a", b"a/b"),
            (b"a/b",),
            (b"a/b", b"a/"),
            (b"d/", b"d/e/f"),
        ):
            with self.subTest(paths=bad):
                self.refuse(build_container(1, files(*bad)))
        deep = []
        for k in range(1, 18):
            deep.append(b"/".join([b"y" * 255] * k) + b"/")
        self.refuse(build_container(1, files(*deep)))
        self.read_all(build_container(1, files(*deep[:15])))
        for bad in ((b"a/b",), (b"..",), (b"",), (b"a", b"b"), (b"a/",), ()):
            with self.subTest(single=bad):
                self.refuse(build_container(0, files(*bad)))

    def test_index_limits(self):
        """An index that claims a larger raw size than LZ4 could hold."""
        self.refuse(build_container(0, self.single, change_footer=lambda f: put(f, 16, "Q", 63)))
        self.refuse(build_container(0, self.single, change_footer=lambda f: put(f, 16, "Q", (1 << 30) + 1)))
        self.refuse(build_container(0, self.single, change_footer=lambda f: put(f, 0, "Q", 0)))

    def test_repeated_frame_must_be_equal(self):
        data = build_container(1, self.folder)
        self.assertEqual(len(Container(io.BytesIO(data)).stored_frames), 2)


if __name__ == "__main__":
    if sys.argv[1:] == ["--list-kinds"]:
        print("\n".join(sorted(all_kinds())))
    else:
        unittest.main()
