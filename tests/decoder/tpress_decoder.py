#!/usr/bin/env python3
"""A second, independent decoder for tensorpress containers (.tpress).

It is written from docs/format.md alone, shares no code with the C library and uses nothing but the
Python standard library. Its purpose is to show that the document is complete and that the library
writes what the document says; speed is secondary. Section numbers in comments refer to docs/format.md.

    tpress_decoder.py CONTAINER            check every rule and every hash, list the files
    tpress_decoder.py CONTAINER -o OUT     the same, and restore the file (or folder) to OUT
    tpress_decoder.py --frames CORPUS      decode the (frame, raw) pairs of a corpus, print the coverage
    tpress_decoder.py --frames CORPUS --expect FILE
                                           the same, and fail if a line of FILE was not covered

CORPUS is a file, or a folder of such files: records of u32 frame size, u32 raw size (little-endian),
the frame's bytes, the raw bytes, until the end of the file. A coverage line has the fields

    codec class mode s<bits> c<elements> k<tables> plain|low_coded|joined top|low

for each part that was decoded, for example "split bf16 w32 s9 c1 k2 plain top". k is the number of tables
per stream: the frame's for modes w32 and pairs, 1 for the other modes of split frames (which have no use
for it), 0 for the other codecs. "top" is the part that a chunk's first descriptor stands for (a whole chunk
if nothing is split off, and each plane of planes), "low" a low byte plane of a low_coded chunk.
"""

import argparse
import hashlib
import os
import struct
import sys
from itertools import repeat
from operator import mul, or_

NOT_A_CONTAINER = "not a container"
DAMAGED = "damaged"
TRUNCATED = "truncated"
NEWER = "newer version"
UNSUPPORTED = "unsupported"


class FormatError(Exception):
    """The bytes break a rule of the format; status is one of the five constants above."""

    def __init__(self, status, message):
        super().__init__("%s: %s" % (status, message))
        self.status = status
        self.message = message


def need(condition, message, status=DAMAGED):
    if not condition:
        raise FormatError(status, message)


def align128(x):
    return (x + 127) & ~127


def ceil_div(a, b):
    return -(-a // b)


# ---------------------------------------------------------------------------------------------------
# XXH3, 64 and 128 bits, seed 0, default secret
# ---------------------------------------------------------------------------------------------------

M32 = (1 << 32) - 1
M64 = (1 << 64) - 1

P32_1, P32_2, P32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
P64_1, P64_2, P64_3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
P64_4, P64_5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
PMX1, PMX2 = 0x165667919E3779F9, 0x9FB21C651E98DF25

SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)

STRIPE = 64
STRIPES_PER_BLOCK = (192 - STRIPE) // 8
BLOCK = STRIPE * STRIPES_PER_BLOCK


def read32(data, at):
    return int.from_bytes(data[at : at + 4], "little")


def read64(data, at):
    return int.from_bytes(data[at : at + 8], "little")


def swap64(x):
    return int.from_bytes(x.to_bytes(8, "little"), "big")


def fold64(a, b):
    product = a * b
    return (product & M64) ^ (product >> 64)


def xxh64_avalanche(h):
    h ^= h >> 33
    h = h * P64_2 & M64
    h ^= h >> 29
    h = h * P64_3 & M64
    return h ^ h >> 32


def xxh3_avalanche(h):
    h ^= h >> 37
    h = h * PMX1 & M64
    return h ^ h >> 32


def mix16(data, at, key):
    return fold64(read64(data, at) ^ read64(SECRET, key), read64(data, at + 8) ^ read64(SECRET, key + 8))


def secret_int(offset, stripes):
    """The secret as the stripes of a block see it: stripe i is keyed from offset + 8 i on."""
    return int.from_bytes(
        b"".join(SECRET[offset + 8 * i : offset + 8 * i + STRIPE] for i in range(stripes)), "little"
    )


FULL_BLOCK_KEY = secret_int(0, STRIPES_PER_BLOCK)
SCRAMBLE_KEY = struct.unpack("<8Q", SECRET[128:192])


def accumulate(acc, chunk, key):
    """Adds whole stripes to the accumulators. Between two scrambles an accumulator is a plain sum, so
    that it can be built lane by lane instead of stripe by stripe."""
    words = len(chunk) // 8
    plain = struct.unpack("<%dQ" % words, chunk)
    keyed = (int.from_bytes(chunk, "little") ^ key).to_bytes(len(chunk), "little")
    halves = struct.unpack("<%dI" % (2 * words), keyed)
    for lane in range(8):
        products = sum(map(mul, halves[2 * lane :: 16], halves[2 * lane + 1 :: 16]))
        acc[lane] = (acc[lane] + products + sum(plain[lane ^ 1 :: 8])) & M64


def xxh3_long(data):
    n = len(data)
    acc = [P32_3, P64_1, P64_2, P64_3, P64_4, P32_2, P64_5, P32_1]
    blocks = (n - 1) // BLOCK
    for block in range(blocks):
        accumulate(acc, data[block * BLOCK : (block + 1) * BLOCK], FULL_BLOCK_KEY)
        for lane in range(8):
            a = acc[lane]
            acc[lane] = ((a ^ a >> 47) ^ SCRAMBLE_KEY[lane]) * P32_1 & M64
    stripes = (n - 1 - blocks * BLOCK) // STRIPE
    if stripes:
        start = blocks * BLOCK
        accumulate(acc, data[start : start + stripes * STRIPE], secret_int(0, stripes))
    accumulate(acc, data[n - STRIPE :], secret_int(192 - STRIPE - 7, 1))
    return acc


def merge(acc, key, start):
    result = start
    for i in range(4):
        result += fold64(
            acc[2 * i] ^ read64(SECRET, key + 16 * i), acc[2 * i + 1] ^ read64(SECRET, key + 16 * i + 8)
        )
    return xxh3_avalanche(result & M64)


def xxh3_64(data):
    n = len(data)
    if n > 240:
        return merge(xxh3_long(data), 11, n * P64_1 & M64)
    if n == 0:
        return xxh64_avalanche(read64(SECRET, 56) ^ read64(SECRET, 64))
    if n <= 3:
        combined = data[0] << 16 | data[n >> 1] << 24 | data[n - 1] | n << 8
        return xxh64_avalanche(combined ^ read32(SECRET, 0) ^ read32(SECRET, 4))
    if n <= 8:
        h = (read32(data, n - 4) | read32(data, 0) << 32) ^ read64(SECRET, 8) ^ read64(SECRET, 16)
        h ^= (h << 49 | h >> 15) & M64 ^ (h << 24 | h >> 40) & M64
        h = h * PMX2 & M64
        h ^= (h >> 35) + n
        h = h * PMX2 & M64
        return h ^ h >> 28
    if n <= 16:
        low = read64(data, 0) ^ read64(SECRET, 24) ^ read64(SECRET, 32)
        high = read64(data, n - 8) ^ read64(SECRET, 40) ^ read64(SECRET, 48)
        return xxh3_avalanche((n + swap64(low) + high + fold64(low, high)) & M64)
    acc = n * P64_1
    if n <= 128:
        for i in range((n - 1) // 32 + 1):
            acc += mix16(data, 16 * i, 32 * i) + mix16(data, n - 16 * (i + 1), 32 * i + 16)
        return xxh3_avalanche(acc & M64)
    for i in range(8):
        acc += mix16(data, 16 * i, 16 * i)
    acc = xxh3_avalanche(acc & M64)
    for i in range(8, n // 16):
        acc += mix16(data, 16 * i, 16 * (i - 8) + 3)
    acc += mix16(data, n - 16, 136 - 17)
    return xxh3_avalanche(acc & M64)


def xxh3_128_pair(data):
    """(low, high) half of XXH3-128."""
    n = len(data)
    if n > 240:
        acc = xxh3_long(data)
        return merge(acc, 11, n * P64_1 & M64), merge(acc, 192 - 64 - 11, ~(n * P64_2) & M64)
    if n == 0:
        return (
            xxh64_avalanche(read64(SECRET, 64) ^ read64(SECRET, 72)),
            xxh64_avalanche(read64(SECRET, 80) ^ read64(SECRET, 88)),
        )
    if n <= 3:
        low = data[0] << 16 | data[n >> 1] << 24 | data[n - 1] | n << 8
        swapped = int.from_bytes(low.to_bytes(4, "little"), "big")
        high = (swapped << 13 | swapped >> 19) & M32
        return (
            xxh64_avalanche(low ^ read32(SECRET, 0) ^ read32(SECRET, 4)),
            xxh64_avalanche(high ^ read32(SECRET, 8) ^ read32(SECRET, 12)),
        )
    if n <= 8:
        keyed = (read32(data, 0) | read32(data, n - 4) << 32) ^ read64(SECRET, 16) ^ read64(SECRET, 24)
        product = keyed * (P64_1 + (n << 2))
        low, high = product & M64, product >> 64 & M64
        high = high + (low << 1) & M64
        low ^= high >> 3
        low ^= low >> 35
        low = low * PMX2 & M64
        low ^= low >> 28
        return low, xxh3_avalanche(high)
    if n <= 16:
        first, last = read64(data, 0), read64(data, n - 8)
        product = (first ^ last ^ read64(SECRET, 32) ^ read64(SECRET, 40)) * P64_1
        low, high = product & M64, product >> 64
        low = low + ((n - 1) << 54) & M64
        last ^= read64(SECRET, 48) ^ read64(SECRET, 56)
        high = high + last + (last & M32) * (P32_2 - 1) & M64
        low ^= swap64(high)
        product = low * P64_2
        return xxh3_avalanche(product & M64), xxh3_avalanche((product >> 64) + high * P64_2 & M64)

    low, high = n * P64_1 & M64, 0

    def mix32(a, b, key):
        nonlocal low, high
        low = (low + mix16(data, a, key) & M64) ^ (read64(data, b) + read64(data, b + 8) & M64)
        high = (high + mix16(data, b, key + 16) & M64) ^ (read64(data, a) + read64(data, a + 8) & M64)

    if n <= 128:
        for i in reversed(range((n - 1) // 32 + 1)):
            mix32(16 * i, n - 16 * (i + 1), 32 * i)
    else:
        for i in range(4):
            mix32(32 * i, 32 * i + 16, 32 * i)
        low, high = xxh3_avalanche(low), xxh3_avalanche(high)
        for i in range(4, n // 32):
            mix32(32 * i, 32 * i + 16, 3 + 32 * (i - 4))
        mix32(n - 16, n - 32, 136 - 17 - 16)
    mixed = low * P64_1 + high * P64_4 + n * P64_2 & M64
    return xxh3_avalanche(low + high & M64), -xxh3_avalanche(mixed) & M64


def xxh3_128(data):
    """XXH3-128 as a container stores it: two u64, low half first."""
    return struct.pack("<2Q", *xxh3_128_pair(data))


# ---------------------------------------------------------------------------------------------------
# LZ4 block format
# ---------------------------------------------------------------------------------------------------


def lz4_block(src, raw_size):
    """Decodes one LZ4 block to exactly raw_size bytes. The end-of-block rules of the LZ4 block format
    are checked too: the last sequence is literals alone, the last 5 bytes are literals, and the last
    match starts at least 12 bytes before the end."""
    out = bytearray()
    at, end = 0, len(src)

    def length(value):
        nonlocal at
        if value == 15:
            while True:
                need(at < end, "lz4: the block ends inside a length")
                byte = src[at]
                at += 1
                value += byte
                need(value <= raw_size + 15, "lz4: a length beyond the block's raw size")
                if byte != 255:
                    break
        return value

    while True:
        need(at < end, "lz4: the block ends without its last literals")
        token = src[at]
        at += 1
        literals = length(token >> 4)
        need(literals <= end - at, "lz4: literals beyond the end of the block")
        need(literals <= raw_size - len(out), "lz4: more bytes than the raw size")
        out += src[at : at + literals]
        at += literals
        if at == end:
            break
        need(end - at >= 2, "lz4: the block ends inside an offset")
        offset = src[at] | src[at + 1] << 8
        at += 2
        need(0 < offset <= len(out), "lz4: a match offset outside the block")
        need(len(out) + 12 <= raw_size, "lz4: a match starts in the last 12 bytes")
        match = length(token & 15) + 4
        need(len(out) + match + 5 <= raw_size, "lz4: a match reaches into the last 5 bytes")
        start = len(out) - offset
        if match <= offset:
            out += out[start : start + match]
        else:
            pattern = bytes(out[start:])
            out += (pattern * (match // offset + 1))[:match]
    need(len(out) == raw_size, "lz4: fewer bytes than the raw size")
    return bytes(out)


# ---------------------------------------------------------------------------------------------------
# Frames (sections 5 to 7)
# ---------------------------------------------------------------------------------------------------

MAX_RAW = 4194304
PIECE = 262144

RAW, LZ4, SPLIT, PLANES, DF11 = 0, 1, 2, 3, 4
CODEC_NAMES = ("raw", "lz4", "split", "planes", "df11")

M_RAW, M_CONSTANT, M_W32, M_PAIRS, M_WIDE, M_LZ4, M_DF11 = range(7)
MODE_NAMES = ("raw", "constant", "w32", "pairs", "wide", "lz4", "df11")
RANS_MODES = (M_W32, M_PAIRS, M_WIDE)


class DtypeClass:
    def __init__(self, name, size, bits=0, symbol_bits=(), low=0, rotated=True):
        self.name = name  # as in section 6
        self.size = size  # bytes of an element, the group size of codec planes
        self.bits = bits  # T; 0 for classes that codec split does not take
        self.symbol_bits = symbol_bits  # the values of s
        self.low = low  # bytes below the top part
        self.rotated = rotated  # u is the top part rotated left by one bit


CLASSES = (
    DtypeClass("bytes", 0),
    DtypeClass("bf16", 2, 16, (9, 8, 10), 0),
    DtypeClass("f16", 2, 8, (7, 6), 1),
    DtypeClass("f32", 4, 16, (9, 8, 10), 2),
    DtypeClass("f64", 8, 16, (12, 11), 6),
    DtypeClass("e4m3", 1, 8, (6, 5), 0),
    DtypeClass("e5m2", 1, 8, (6, 5, 7), 0),
    DtypeClass("i8", 1, 8, (7, 6), 0, rotated=False),
    DtypeClass("i16", 2),
    DtypeClass("i32", 4),
    DtypeClass("i64", 8),
)
BF16, F32 = 1, 3


class Descriptor:
    """One descriptor, with what its place in the frame says about it."""

    __slots__ = ("offset", "nw", "nx", "n", "table", "mode", "hash", "part", "raw_bytes")


class Frame:
    """The parsed and structurally checked frame; decode() does the rest."""

    def __init__(self, data):
        need(len(data) >= 128, "frame: shorter than its header", TRUNCATED)
        self.data = data
        header = data[:128]
        need(header[0:4] == b"TPFR", "frame: wrong magic")
        (
            self.codec,
            self.dtype,
            self.s,
            self.c,
            self.flags,
            self.chunk_log2,
            self.symbol_tables,
            self.wide_tables,
            self.per_stream,
            self.method,
        ) = header[4:14]
        (self.raw_size, self.stored_size, self.descriptor_count, self.payload_size, directory_hash) = (
            struct.unpack_from("<4IQ", header, 16)
        )
        self.stored_hash = header[96:112]
        self.raw_hash = header[112:128]
        need(1 <= self.raw_size <= MAX_RAW, "frame: raw size out of range")
        need(
            self.stored_size % 128 == 0
            and self.stored_size >= 256
            and self.stored_size <= 128 + align128(self.raw_size),
            "frame: stored size out of range",
        )
        need(len(data) >= self.stored_size, "frame: shorter than its stored size", TRUNCATED)
        need(len(data) == self.stored_size, "frame: bytes beyond its stored size")
        need(xxh3_128(data[:96] + bytes(16) + data[112:]) == self.stored_hash, "frame: stored hash differs")

        need(self.codec < len(CODEC_NAMES), "frame: codec %d" % self.codec, UNSUPPORTED)
        need(self.dtype < len(CLASSES), "frame: dtype class %d" % self.dtype, UNSUPPORTED)
        self.cls = CLASSES[self.dtype]
        need(
            header[14:16] == bytes(2)
            and header[44:96] == bytes(52)
            and (self.codec == DF11 or header[40:44] == bytes(4)),
            "frame: a reserved field is not zero",
        )
        self.check_header()

        tables_at = 128
        wide_at = tables_at + 256 * self.c * self.symbol_tables
        descriptors_at = wide_at + 512 * self.wide_tables
        descriptors_end = descriptors_at + 32 * self.descriptor_count
        payload_at = align128(descriptors_end)
        need(
            align128(payload_at + self.payload_size) == self.stored_size,
            "frame: the stored size is not what its parts add up to",
        )
        need(not any(data[descriptors_end:payload_at]), "frame: padding before the payload is not zero")
        need(
            not any(data[payload_at + self.payload_size :]), "frame: padding after the payload is not zero"
        )
        need(xxh3_64(data[128:payload_at]) == directory_hash, "frame: directory hash differs")
        self.payload = data[payload_at : payload_at + self.payload_size]

        if self.codec == DF11:
            need(self.method == 6, "frame: method %d with codec df11" % self.method)
            self.code_bytes = read32(header, 40)
            self.parse_df11(data[tables_at:wide_at], data[descriptors_at:descriptors_end])
            return
        self.symbol_slots = [
            self.parse_symbol_table(data[at : at + 256 * self.c])
            for at in range(tables_at, wide_at, 256 * self.c or 1)
        ]
        self.wide_slots = [
            parse_wide_table(data[at : at + 512]) for at in range(wide_at, descriptors_at, 512)
        ]
        self.chunks = []
        if self.codec in (SPLIT, PLANES):
            self.parse_descriptors(data[descriptors_at:descriptors_end])
        need(
            self.method == self.expected_method(),
            "frame: method %d does not follow from its parts" % self.method,
        )

    # -- structure ----------------------------------------------------------------------------------

    def check_header(self):
        cls = self.cls
        need(self.flags & ~3 == 0, "frame: a reserved flag is set")
        self.low_coded = bool(self.flags & 1)
        self.joined = bool(self.flags & 2)
        need(
            self.symbol_tables <= (18 if self.codec == DF11 else 16) and self.wide_tables <= 16,
            "frame: too many tables",
        )
        if self.codec in (SPLIT, PLANES, DF11):
            need(10 <= self.chunk_log2 <= 17, "frame: chunk_log2 out of range")
        else:
            need(self.chunk_log2 == 0, "frame: chunk_log2 without chunks")
            need(self.wide_tables == 0, "frame: wide tables without descriptors")
            need(self.descriptor_count == 0, "frame: descriptors with codec %s" % CODEC_NAMES[self.codec])
        if self.codec == SPLIT:
            need(1 <= self.dtype <= 7, "frame: codec split with dtype class %s" % cls.name)
            need(self.raw_size % cls.size == 0, "frame: raw size is not whole elements")
            need(self.s in cls.symbol_bits, "frame: s = %d with dtype class %s" % (self.s, cls.name))
            need(self.c in (1, 2), "frame: c = %d" % self.c)
            need(
                self.c == 1 or (self.dtype in (BF16, F32) and self.s == 8),
                "frame: pairs with this class or s",
            )
            need(self.per_stream in (1, 2, 4), "frame: %d tables per stream" % self.per_stream)
            need(not self.joined, "frame: joined with codec split")
            need(not self.low_coded or cls.low > 0, "frame: low_coded in a class without low bytes")
            self.elements = self.raw_size // cls.size
        elif self.codec == DF11:
            need(self.dtype == BF16, "frame: codec df11 with dtype class %s" % cls.name)
            need(self.raw_size % 2 == 0, "frame: raw size is not whole elements")
            need(self.s == 0 and self.c == 1, "frame: s or c with codec df11")
            need(self.per_stream == 0 and self.wide_tables == 0, "frame: tables with codec df11")
            need(self.flags == 0, "frame: flags with codec df11")
            need(self.symbol_tables >= 2, "frame: fewer than two rows with codec df11")
        else:
            need(self.s == 0 and self.c == 0, "frame: s or c without codec split")
            need(
                self.per_stream == 0 and self.symbol_tables == 0, "frame: symbol tables without codec split"
            )
            need(not self.low_coded, "frame: low_coded without codec split")
            need(not self.joined or self.codec == PLANES, "frame: joined without codec planes")
        if self.codec == PLANES:
            need(self.dtype != 0, "frame: codec planes with dtype class bytes")
        if self.codec == RAW:
            need(self.payload_size == self.raw_size, "frame: raw payload of another size")
        if self.codec == LZ4:
            need(1 <= self.payload_size < self.raw_size, "frame: lz4 payload not smaller than the raw size")

    def parse_df11(self, rows, table):
        """Section 6, "Codec df11": everything but what the code stream itself says."""
        count, chunk = self.raw_size // 2, 1 << self.chunk_log2
        need(self.descriptor_count == ceil_div(count, chunk), "frame: wrong number of descriptors")
        self.df11_chunks = []
        for i in range(self.descriptor_count):
            record = table[32 * i : 32 * i + 32]
            n = min(chunk, count - i * chunk)
            need(
                record[:16] == bytes(16) and record[20:24] == bytes([0, M_DF11, 0, 0]),
                "descriptor: not one of codec df11",
            )
            need(read32(record, 16) == n, "descriptor: n is not the chunk's elements")
            self.df11_chunks.append((n, read64(record, 24)))

        need(self.code_bytes >= 1, "frame: no code stream")
        blocks = ceil_div(self.code_bytes, 4096)
        arrays, at = [], 0
        for size in (4 * (blocks + 1), 320 * blocks, self.code_bytes, count):
            end = align128(at + size)
            need(end <= self.payload_size, "frame: an array runs beyond the payload")
            arrays.append(self.payload[at : at + size])
            need(not any(self.payload[at + size : end]), "frame: padding of an array is not zero")
            at = end
        need(at == self.payload_size, "frame: the arrays do not add up to the payload size")
        self.positions = struct.unpack("<%dI" % (blocks + 1), arrays[0])
        self.gaps, self.code_stream, self.signs = arrays[1:]
        need(
            self.positions[0] == 0
            and self.positions[-1] == count
            and all(a <= b for a, b in zip(self.positions, self.positions[1:])),
            "positions: they do not go up from 0 to the number of elements",
        )
        self.df11_rows = [rows[at : at + 256] for at in range(0, len(rows), 256)]
        self.parse_df11_rows()

    def parse_df11_rows(self):
        """The rows as lists of what an entry means: an exponent, ("row", number), or None."""
        rows, lengths = self.df11_rows[:-1], self.df11_rows[-1]
        need(max(lengths) in range(1, 33), "rows: the lengths are not 1 to 32")
        need(not any(lengths[240:]), "rows: an exponent of 240 or more has a code")
        level = {0: 0}
        order = [0]
        self.df11_entries = {}
        coded = set()
        for r in order:
            meaning = self.df11_entries[r] = [None] * 256
            for v, entry in enumerate(rows[r]):
                if entry >= 240:
                    to = 256 - entry
                    need(to < len(rows), "rows: a pointer to a row that does not exist")
                    if to not in level and level[r] < 3:
                        level[to] = level[r] + 1
                        order.append(to)
                        meaning[v] = ("row", to)
                    continue
                length = lengths[entry]
                if 8 * level[r] < length <= 8 * level[r] + 8:
                    width = 1 << 8 * level[r] + 8 - length
                    start = v - v % width
                    if rows[r][start : start + width] == bytes([entry]) * width:
                        meaning[v] = entry
                        coded.add(entry)
        need(len(order) == len(rows), "rows: one is not reached")
        need(coded == {e for e in range(256) if lengths[e]}, "rows: no code leads to an exponent")

    def decode_df11(self):
        lengths = self.df11_rows[-1]
        stream = self.code_stream + bytes(8)
        total = 8 * len(self.code_stream)
        blocks = len(self.positions) - 1
        firsts = [0] * (512 * blocks + 1)
        seen = set()
        block_first = [None] * blocks
        out = bytearray()
        p = 0
        for i, byte in enumerate(self.signs):
            need(p < total, "code stream: it ends too early")
            window = p >> 6
            if window not in seen:
                seen.add(window)
                firsts[window] = p & 63
                if block_first[window >> 9] is None:
                    block_first[window >> 9] = i
            row, at = 0, p
            while True:
                two = stream[at >> 3] << 8 | stream[(at >> 3) + 1]
                entry = self.df11_entries[row][two >> 8 - (at & 7) & 255]
                need(entry is not None, "code stream: bits that are no code")
                at += 8
                if not isinstance(entry, tuple):
                    break
                row = entry[1]
            p += lengths[entry]
            element = (byte & 0x80) << 8 | entry << 7 | byte & 0x7F
            out += element.to_bytes(2, "little")
        need(total - 8 < p <= total, "code stream: the last code does not end in the last byte")
        starts = [len(self.signs) if first is None else first for first in block_first]
        need(starts == list(self.positions[:-1]), "positions: not those of the code stream")
        for window in range(512 * blocks):
            eight = int.from_bytes(self.gaps[window // 8 * 5 : window // 8 * 5 + 5], "big")
            gap = eight >> 35 - 5 * (window % 8) & 31
            allowed = {firsts[window]}
            if window == p >> 6 and window not in seen:
                allowed.add(p & 63)
            need(gap in allowed, "gaps: not those of the code stream")
        return bytes(out)

    def parse_symbol_table(self, record):
        """Three lists over the slots: F, slot - start, and the symbol placed into its unit."""
        count = 64 * self.c
        limit = 1 << (16 if self.c == 2 else self.s)
        fields = struct.unpack("<%dH" % (2 * count), record)
        place = self.placer()
        frequencies, biases, placed = [], [], []
        used, previous = 0, -1
        for f, symbol in zip(fields[0::2], fields[1::2]):
            if f == 0:
                break
            need(previous < symbol < limit, "symbol table: symbols not ascending, or too large")
            need(f <= 1023 and len(frequencies) + f <= 1024, "symbol table: frequencies do not sum to 1024")
            frequencies += [f] * f
            biases += range(f)
            placed += [place(symbol)] * f
            previous = symbol
            used += 1
        need(not any(fields[2 * used :]), "symbol table: an unused entry is not zero")
        need(used >= 2 and len(frequencies) == 1024, "symbol table: frequencies do not sum to 1024")
        return frequencies, biases, placed

    def placer(self):
        """How a symbol lies in a unit (the top parts of c adjacent elements, T bits each)."""
        if self.c == 2:
            # R = 8: u's high byte, rotated right by one, is bits 7..14 of the top part.
            return lambda symbol: (symbol & 255) << 7 | (symbol >> 8) << 23
        shift = self.cls.bits - self.s
        if self.cls.rotated:
            # Bit 0 of u is a raw bit (R >= 1), so that rotating the symbol right never wraps.
            shift -= 1
        return lambda symbol: symbol << shift

    def parse_descriptors(self, table):
        cls = self.cls
        chunk = 1 << self.chunk_log2
        if self.codec == SPLIT:
            # Every chunk as a list of (part, n, bytes it stands for, allowed modes).
            total = self.elements
            coded = M_PAIRS if self.c == 2 else M_W32

            def parts_of(n):
                if not self.low_coded:
                    modes = [M_RAW, M_CONSTANT, M_LZ4, coded]
                    if cls.bits == 8 and cls.low == 0:
                        modes.append(M_WIDE)
                    return [("top", n, n * cls.size, modes)]
                parts = [("top", n, n * cls.bits // 8, (M_RAW, M_CONSTANT, coded))]
                return parts + [("low", n, n, (M_RAW, M_CONSTANT, M_LZ4, M_WIDE))] * cls.low
        else:
            total = self.raw_size
            chunk *= cls.size

            def parts_of(m):
                if self.joined:
                    return [("top", m, m, (M_RAW, M_LZ4))]
                sizes = [ceil_div(m - k, cls.size) if m > k else 0 for k in range(cls.size)]
                return [("top", n, n, (M_RAW, M_CONSTANT, M_LZ4, M_WIDE) if n else (M_RAW,)) for n in sizes]

        count = 0
        self.chunks = []
        for start in range(0, total, chunk):
            length = min(chunk, total - start)
            parts = parts_of(length)
            need((count + len(parts)) * 32 <= len(table), "frame: too few descriptors")
            descriptors = []
            for part in parts:
                descriptors.append(
                    self.parse_descriptor(table[32 * count : 32 * count + 32], part, not descriptors)
                )
                count += 1
            self.chunks.append((length, descriptors))
        need(count == self.descriptor_count, "frame: too many descriptors")

        at = 0
        for _, descriptors in self.chunks:
            for d in descriptors:
                if d.mode == M_CONSTANT:
                    continue
                need(d.offset == at, "descriptor: offset is not where the part before it ended")
                size = self.part_size(d)
                end = align128(at + size)
                need(end <= self.payload_size, "descriptor: part beyond the payload")
                need(not any(self.payload[at + size : end]), "descriptor: padding after a part is not zero")
                at = end
        need(at == self.payload_size, "frame: the parts do not add up to the payload size")

    def parse_descriptor(self, record, part, first):
        d = Descriptor()
        (d.offset, d.nw, d.nx, d.n, d.table, d.mode, reserved, d.hash) = struct.unpack("<QIIIBBHQ", record)
        d.part, n, d.raw_bytes, modes = part
        need(reserved == 0, "descriptor: reserved field is not zero")
        need(first or d.hash == 0, "descriptor: a chunk hash outside the chunk's first descriptor")
        need(d.mode in modes, "descriptor: mode %d is not allowed here" % d.mode)
        need(d.n == n, "descriptor: n is %d, not %d" % (d.n, n))
        if d.mode in (M_W32, M_PAIRS):
            need(d.table + self.per_stream <= self.symbol_tables, "descriptor: no such symbol table")
            need(d.nx <= d.n, "descriptor: more exceptions than elements")
        elif d.mode == M_WIDE:
            need(d.table < self.wide_tables, "descriptor: no such wide table")
            need(d.nx == 0, "descriptor: exceptions in a wide stream")
        else:
            need(d.table == 0 and d.nx == 0, "descriptor: table or exceptions without a stream")
        if d.mode in RANS_MODES:
            symbols = ceil_div(d.n, 1024) * 1024 // (2 if d.mode == M_PAIRS else 1)
            need(d.nw <= symbols, "descriptor: more words than symbols")
        elif d.mode == M_LZ4:
            need(1 <= d.nw < d.raw_bytes, "descriptor: lz4 bytes not fewer than the bytes they stand for")
        else:
            need(d.nw == 0, "descriptor: nw without a stream")
        if d.mode == M_CONSTANT:
            need(d.offset >> 8 * (d.raw_bytes // d.n) == 0, "descriptor: constant wider than its element")
        return d

    def part_size(self, d):
        """Bytes of a part in the payload, without the padding to 128."""
        if d.mode == M_RAW:
            return d.raw_bytes
        if d.mode == M_LZ4:
            return d.nw
        _, raw_bits, low = self.stream_shape(d)
        groups = ceil_div(d.n, 1024)
        size = 128 + groups * raw_bits * 128 + groups * 1024 * low + 2 * d.nw
        return (size + 3 & ~3) + self.selector_bytes(d) + 4 * d.nx

    def selector_bits(self, d):
        """Bits of a group's selector: log2 k; streams of mode wide have none."""
        return 0 if d.mode == M_WIDE else self.per_stream.bit_length() - 1

    def selector_bytes(self, d):
        return ceil_div(ceil_div(d.n, 1024) * self.selector_bits(d), 32) * 4

    def stream_shape(self, d):
        """T, R and low of a stream (section 7)."""
        if d.mode == M_WIDE:
            return 8, 0, 0
        return self.cls.bits, self.cls.bits - self.s, 0 if self.low_coded else self.cls.low

    def expected_method(self):
        modes = {d.mode for _, descriptors in self.chunks for d in descriptors}
        if modes & set(RANS_MODES):
            return 5
        if self.codec == LZ4 or self.codec == SPLIT and M_LZ4 in modes:
            return 3
        if self.codec == PLANES and M_LZ4 in modes:
            return 4
        return 2 if M_CONSTANT in modes else 1

    # -- decoding -----------------------------------------------------------------------------------

    def decode(self, coverage=None):
        """The raw bytes, all hashes checked. coverage: a set that takes a line for every part."""
        if self.codec in (RAW, LZ4):
            raw = self.payload if self.codec == RAW else lz4_block(self.payload, self.raw_size)
            hashes = [xxh3_64(raw[at : at + PIECE]) for at in range(0, self.raw_size, PIECE)]
            self.cover(coverage, CODEC_NAMES[self.codec], "top")
        elif self.codec == DF11:
            raw, hashes, at = self.decode_df11(), [], 0
            for n, chunk_hash in self.df11_chunks:
                need(xxh3_64(raw[at : at + 2 * n]) == chunk_hash, "chunk at %d: hash differs" % at)
                hashes.append(chunk_hash)
                at += 2 * n
            self.cover(coverage, MODE_NAMES[M_DF11], "top")
        else:
            pieces, hashes = [], []
            for number, (length, descriptors) in enumerate(self.chunks):
                piece = (
                    self.decode_split(descriptors)
                    if self.codec == SPLIT
                    else self.decode_planes(length, descriptors)
                )
                need(xxh3_64(piece) == descriptors[0].hash, "chunk %d: hash differs" % number)
                pieces.append(piece)
                hashes.append(descriptors[0].hash)
                for d in descriptors:
                    self.cover(coverage, MODE_NAMES[d.mode], d.part)
            raw = b"".join(pieces)
        need(len(raw) == self.raw_size, "frame: raw size differs")
        digest = xxh3_128(struct.pack("<%dQ" % (1 + len(hashes)), self.raw_size, *hashes))
        need(digest == self.raw_hash, "frame: raw hash differs")
        return raw

    def cover(self, coverage, mode, part):
        if coverage is not None:
            flag = "low_coded" if self.low_coded else "joined" if self.joined else "plain"
            k = self.per_stream if mode in ("w32", "pairs") else min(self.per_stream, 1)
            coverage.add(
                "%s %s %s s%d c%d k%d %s %s"
                % (CODEC_NAMES[self.codec], self.cls.name, mode, self.s, self.c, k, flag, part)
            )

    def decode_split(self, descriptors):
        cls = self.cls
        if not self.low_coded:
            return self.decode_part(descriptors[0], cls.size)
        top_size = cls.bits // 8
        top = self.decode_part(descriptors[0], top_size)
        out = bytearray(descriptors[0].n * cls.size)
        for k in range(cls.low):
            out[k :: cls.size] = self.decode_part(descriptors[1 + k], 1)
        for k in range(top_size):
            out[cls.low + k :: cls.size] = top[k::top_size]
        return bytes(out)

    def decode_planes(self, length, descriptors):
        size = self.cls.size
        out = bytearray(length)
        joined = self.decode_part(descriptors[0], 1) if self.joined else b""
        at = 0
        for k in range(size):
            count = len(range(k, length, size))
            if self.joined:
                out[k::size] = joined[at : at + count]
                at += count
            elif count:
                out[k::size] = self.decode_part(descriptors[k], 1)
        return bytes(out)

    def decode_part(self, d, element_size):
        if d.mode == M_CONSTANT:
            return d.offset.to_bytes(8, "little")[:element_size] * d.n
        stored = self.payload[d.offset : d.offset + self.part_size(d)]
        if d.mode == M_RAW:
            return stored
        if d.mode == M_LZ4:
            return lz4_block(stored, d.raw_bytes)
        return self.decode_stream(d, stored)

    def decode_stream(self, d, stored):
        """One rANS stream (section 7): W32, pairs or wide."""
        bits, raw_bits, low = self.stream_shape(d)
        per_unit = self.c if d.mode == M_PAIRS else 1  # elements of a unit, one symbol each
        groups = ceil_div(d.n, 1024)
        states = struct.unpack_from("<32I", stored, 0)
        at = 128
        raw_rows = stored[at : at + groups * raw_bits * 128]
        at += len(raw_rows)
        low_planes = stored[at : at + groups * 1024 * low]
        at += len(low_planes)
        words = struct.unpack_from("<%dH" % d.nw, stored, at)
        at += 2 * d.nw
        need(not any(stored[at : at + 3 & ~3]), "stream: padding after the words is not zero")
        at = at + 3 & ~3
        selectors = int.from_bytes(stored[at : at + self.selector_bytes(d)], "little")
        at += self.selector_bytes(d)
        exceptions = struct.unpack_from("<%dI" % d.nx, stored, at)

        width = self.selector_bits(d)
        need(selectors >> groups * width == 0, "stream: unused bits of the selectors are not zero")
        tables, k = (self.wide_slots, 12) if d.mode == M_WIDE else (self.symbol_slots, 10)
        slots = [
            tables[d.table + (selectors >> group * width & (1 << width) - 1)] for group in range(groups)
        ]
        units = decode_symbols(states, words, slots, k, 1024 // per_unit, 32 // (bits * per_unit))
        self.apply_exceptions(units, exceptions, d)

        code = {8: "B", 16: "H", 32: "I"}[bits * per_unit]
        if raw_bits:
            raws = struct.unpack(
                "<%d%s" % (len(units), code),
                decode_raw_rows(raw_rows, groups, bits, raw_bits, self.cls.rotated),
            )
            units = list(map(or_, units, raws))
        # Whatever the padding elements decode to is cut off.
        top = struct.pack("<%d%s" % (len(units), code), *units)[: d.n * bits // 8]
        if not low:
            return top

        plane_width = 1 if low == 1 else 2
        plane_size = groups * 1024 * plane_width
        size = low + bits // 8
        out = bytearray(d.n * size)
        for plane in range(low // plane_width):
            array = low_planes[plane * plane_size : (plane + 1) * plane_size]
            for k in range(plane_width):
                out[plane * plane_width + k :: size] = array[k : d.n * plane_width : plane_width]
        for k in range(bits // 8):
            out[low + k :: size] = top[k :: bits // 8]
        return bytes(out)

    def apply_exceptions(self, units, exceptions, d):
        """Section 7.4; units hold placed symbols, the raw bits are not in yet."""
        position_bits = 16 if d.mode == M_PAIRS else 18
        limit = 1 << (16 if d.mode == M_PAIRS else self.s)
        count = ceil_div(d.n, 2) if d.mode == M_PAIRS else d.n
        place = self.placer()
        previous = -1
        for entry in exceptions:
            position, symbol = entry & (1 << position_bits) - 1, entry >> position_bits
            need(previous < position < count, "exception: positions not ascending, or beyond the part")
            need(symbol < limit, "exception: symbol too large")
            units[position] = place(symbol)
            previous = position


def parse_wide_table(record):
    fields = struct.unpack("<256H", record)
    need(max(fields) <= 4095 and sum(fields) == 4096, "wide table: frequencies do not sum to 4096")
    need(sum(f > 0 for f in fields) >= 2, "wide table: fewer than two symbols")
    frequencies, biases, placed = [], [], []
    for byte, f in enumerate(fields):
        frequencies += [f] * f
        biases += range(f)
        placed += [byte] * f
    return frequencies, biases, placed


def decode_symbols(states, words, slots, k, count, steps):
    """Sections 7.1 and 7.5: for every item of slots (the table of a group) count symbols, as placed units
    in element order; a row has steps steps."""
    low, mask = 1 << k, (1 << k) - 1
    need(all(low <= x < low << 16 for x in states), "stream: an initial state is out of range")
    units = [0] * (count * len(slots))
    w = 0
    row = 32 * steps
    try:
        for group, (frequencies, biases, placed) in enumerate(slots):
            for base in range(count * group, count * (group + 1), row):
                for step in range(steps):
                    after, symbols = [], []
                    for x in states:
                        slot = x & mask
                        symbols.append(placed[slot])
                        x = frequencies[slot] * (x >> k) + biases[slot]
                        if x < low:
                            x = x << 16 | words[w]
                            w += 1
                        after.append(x)
                    states = after
                    units[base + step : base + row : steps] = symbols
    except IndexError:
        raise FormatError(DAMAGED, "stream: not enough words") from None
    need(w == len(words), "stream: words are left over")
    need(all(x == low for x in states), "stream: a final state is not L")
    return units


def decode_raw_rows(data, groups, bits, raw_bits, rotated):
    """Section 7.2: the rows of top parts, with only the raw bits set, from the raw words. Word k of all
    lanes of all groups is one large integer here, so that an operation works on all lanes at once."""
    size = groups * 128

    def lanes(value32):
        return int.from_bytes(value32.to_bytes(4, "little") * (size // 4), "little")

    def rotr(value, by):
        by %= 32
        if by == 0:
            return value
        return value >> by & lanes((1 << 32 - by) - 1) | (value & lanes((1 << by) - 1)) << 32 - by

    def field(first, length):
        part = 0
        for bit in range(first, first + length):
            part |= 1 << ((bit - 1) % bits if rotated else bit)
        return lanes(sum(part << i for i in range(0, 32, bits)))

    words = [
        int.from_bytes(
            b"".join(data[128 * (g * raw_bits + k) : 128 * (g * raw_bits + k + 1)] for g in range(groups)),
            "little",
        )
        for k in range(raw_bits)
    ]
    whole = bits // raw_bits
    spare = bits - whole * raw_bits
    rows = []
    mask = field(0, raw_bits)
    for k in range(raw_bits):
        for j in range(whole):
            rows.append(rotr(words[k], raw_bits * j) & mask)
    for j in range(raw_bits * whole, bits):
        row = 0
        for a in range(raw_bits):
            p = (j - raw_bits * whole) * raw_bits + a
            row |= rotr(words[p // spare], whole * raw_bits + p % spare - a) & field(a, 1)
        rows.append(row)
    rows = [row.to_bytes(size, "little") for row in rows]
    return b"".join(row[128 * g : 128 * g + 128] for g in range(groups) for row in rows)


def decode_frame(data, coverage=None):
    """Decodes one whole frame; FormatError if it breaks any rule."""
    return Frame(bytes(data)).decode(coverage)


# ---------------------------------------------------------------------------------------------------
# Containers (sections 2 to 4)
# ---------------------------------------------------------------------------------------------------

MAGIC = b"\x89TPRS\r\n\x1a"
VERSION = (0, 1)

COLUMNS = (
    ("file_size", "Q", "F"),
    ("file_digest", "16s", "F"),
    ("file_sha256", "32s", "F"),
    ("tensor_offset", "Q", "N"),
    ("tensor_nbytes", "Q", "N"),
    ("tensor_dims", "Q", "D"),
    ("frame_offset", "Q", "M"),
    ("frame_stored_hash", "16s", "M"),
    ("frame_raw_hash", "16s", "M"),
    ("file_frames", "I", "F"),
    ("file_tensors", "I", "F"),
    ("file_path_len", "I", "F"),
    ("file_reason_len", "I", "F"),
    ("tensor_name_len", "I", "N"),
    ("tensor_ndim", "I", "N"),
    ("tensor_dtype", "I", "N"),
    ("dtype_len", "I", "Y"),
    ("frame_stored_size", "I", "M"),
    ("frame_raw_size", "I", "M"),
    ("file_mode", "H", "F"),
    ("file_kind", "B", "F"),
    ("file_format", "B", "F"),
    ("tensor_flags", "B", "N"),
    ("frame_codec", "B", "M"),
    ("frame_method", "B", "M"),
)


class File:
    __slots__ = (
        "path",
        "reason",
        "size",
        "digest",
        "sha256",
        "mode",
        "folder",
        "format",
        "frames",
        "tensors",
    )


class Tensor:
    __slots__ = ("name", "dtype", "dims", "offset", "nbytes", "flags")


class StoredFrame:
    __slots__ = ("offset", "stored_size", "raw_size", "stored_hash", "raw_hash", "codec", "method")

    def key(self):
        return tuple(getattr(self, name) for name in self.__slots__)


class Container:
    """An open container: header, footer and index are read and checked; read_file() checks the rest."""

    def __init__(self, stream):
        self.stream = stream
        self.file_size = stream.seek(0, os.SEEK_END)
        header = self.read(0, min(128, self.file_size))
        need(header[:8] == MAGIC, "the header's magic is missing", NOT_A_CONTAINER)
        need(self.file_size >= 128, "shorter than the header", TRUNCATED)
        need(xxh3_128(header[:112]) == header[112:], "header: hash differs")
        self.version = struct.unpack_from("<2H", header, 8)
        need(
            self.version[0] <= VERSION[0] and (VERSION[0] != 0 or self.version == VERSION),
            "version %d.%d" % self.version,
            NEWER,
        )
        need(not any(header[12:112]), "header: a reserved field is not zero")

        need(self.file_size >= 256, "shorter than header and footer", TRUNCATED)
        footer = self.read(self.file_size - 128, 128)
        need(footer[120:] == MAGIC, "no footer at the end", TRUNCATED)
        need(xxh3_128(footer[:104]) == footer[104:120], "footer: hash differs")
        offset, stored, raw, reserved = struct.unpack_from("<4Q", footer, 0)
        index_hash, digest = footer[32:48], footer[48:64]
        need(
            struct.unpack_from("<2H", footer, 64) == self.version,
            "footer: another version than the header's",
        )
        need(reserved == 0 and not any(footer[68:104]), "footer: a reserved field is not zero")
        need(offset % 128 == 0 and offset >= 128, "footer: index offset")
        need(offset + stored + 128 == self.file_size, "footer: the index does not end at the footer")
        need(64 <= raw <= min(255 * stored + 64, 1 << 30), "footer: raw size of the index")

        self.index_offset = offset
        packed = self.read(offset, stored)
        need(xxh3_128(packed) == index_hash, "index: hash differs")
        self.parse_index(lz4_block(packed, raw))
        hashes = b"".join(frame.stored_hash for frame in self.stored_frames)
        need(xxh3_128(header + hashes + index_hash) == digest, "container digest differs")

    def read(self, at, size):
        self.stream.seek(at)
        data = self.stream.read(size)
        need(len(data) == size, "the file ends early", TRUNCATED)
        return data

    # -- index --------------------------------------------------------------------------------------

    def parse_index(self, index):
        self.root, flags, F, N, M, D, Y, B, reserved = struct.unpack_from("<2I7Q", index, 0)
        need(self.root in (0, 1), "index: root")
        need(flags & ~1 == 0 and reserved == 0, "index: a reserved field is not zero")
        need(M < 1 << 32, "index: too many frames")
        self.has_sha256 = bool(flags & 1)
        counts = {"F": F, "N": N, "M": M, "D": D, "Y": Y}

        columns = [column for column in COLUMNS if column[0] != "file_sha256" or self.has_sha256]
        total = 64 + B + sum(struct.calcsize("<" + code) * counts[per] for _, code, per in columns)
        need(total == len(index), "index: the raw size is not the sum of its columns")
        at = 64
        col = {"file_sha256": [None] * F}
        for name, code, per in columns:
            width = struct.calcsize("<" + code)
            end = at + width * counts[per]
            if code.endswith("s"):
                col[name] = [index[i : i + width] for i in range(at, end, width)]
            else:
                col[name] = struct.unpack_from("<%d%s" % (counts[per], code), index, at)
            at = end

        lengths = [
            list(col[name]) for name in ("file_path_len", "file_reason_len", "tensor_name_len", "dtype_len")
        ]
        need(sum(map(sum, lengths)) == B, "index: string lengths do not add up")
        strings = []
        for group in lengths:
            strings.append([])
            for length in group:
                strings[-1].append(index[at : at + length])
                at += length
        paths, reasons, names, dtypes = strings

        need(sum(col["file_frames"]) == M, "index: file_frames do not add up")
        need(sum(col["file_tensors"]) == N, "index: file_tensors do not add up")
        need(sum(col["tensor_ndim"]) == D, "index: tensor_ndim do not add up")
        self.parse_frames(col, M)
        self.parse_files(col, F, paths, reasons)
        self.parse_tensors(col, N, names, dtypes)
        self.check_paths()

    def parse_frames(self, col, count):
        self.frames, self.stored_frames = [], []
        by_offset = {}
        following = 128
        for i in range(count):
            frame = StoredFrame()
            for name in StoredFrame.__slots__:
                setattr(frame, name, col["frame_" + name][i])
            need(1 <= frame.raw_size <= MAX_RAW, "index: frame %d: raw size" % i)
            need(
                frame.stored_size % 128 == 0 and 256 <= frame.stored_size <= 128 + align128(frame.raw_size),
                "index: frame %d: stored size" % i,
            )
            if frame.offset == following:
                by_offset[frame.offset] = frame
                self.stored_frames.append(frame)
                following += frame.stored_size
            else:
                earlier = by_offset.get(frame.offset)
                need(earlier is not None, "index: frame %d: offset" % i)
                need(earlier.key() == frame.key(), "index: frame %d: differs from the frame it repeats" % i)
            self.frames.append(frame)
        need(following == self.index_offset, "index: the frames do not end at the index")

    def parse_files(self, col, count, paths, reasons):
        self.files = []
        first = 0
        for i in range(count):
            f = File()
            f.path, f.reason = paths[i], reasons[i]
            f.size, f.digest, f.sha256 = col["file_size"][i], col["file_digest"][i], col["file_sha256"][i]
            f.mode, f.format = col["file_mode"][i], col["file_format"][i]
            f.frames = self.frames[first : first + col["file_frames"][i]]
            first += col["file_frames"][i]
            f.tensors = []
            need(col["file_kind"][i] in (0, 1), "index: file %d: kind" % i)
            f.folder = col["file_kind"][i] == 1
            need(f.mode & ~0o777 == 0 and (self.root == 1 or f.mode == 0), "index: file %d: mode" % i)
            if f.folder:
                need(
                    not f.frames and col["file_tensors"][i] == 0,
                    "index: file %d: a folder with contents" % i,
                )
                need(not f.sha256 or not any(f.sha256), "index: file %d: SHA-256 of a folder" % i)
                need(f.format == 0 and not f.reason, "index: file %d: format or reason of a folder" % i)
            need(sum(frame.raw_size for frame in f.frames) == f.size, "index: file %d: size" % i)
            digest = xxh3_128(
                b"".join(struct.pack("<Q", frame.raw_size) + frame.raw_hash for frame in f.frames)
            )
            need(digest == f.digest, "index: file %d: digest differs" % i)
            self.files.append(f)

    def parse_tensors(self, col, count, names, dtypes):
        owners = [f for f, n in zip(self.files, col["file_tensors"]) for _ in repeat(None, n)]
        dim = 0
        for i in range(count):
            t = Tensor()
            t.name, t.offset, t.nbytes, t.flags = (
                names[i],
                col["tensor_offset"][i],
                col["tensor_nbytes"][i],
                col["tensor_flags"][i],
            )
            need(col["tensor_dtype"][i] < len(dtypes), "index: tensor %d: dtype" % i)
            t.dtype = dtypes[col["tensor_dtype"][i]]
            t.dims = col["tensor_dims"][dim : dim + col["tensor_ndim"][i]]
            dim += col["tensor_ndim"][i]
            need(t.flags & ~3 == 0, "index: tensor %d: a reserved flag is set" % i)
            need(
                t.flags & 2 or t.offset + t.nbytes <= owners[i].size,
                "index: tensor %d: outside its file" % i,
            )
            owners[i].tensors.append(t)

    def check_paths(self):
        if self.root == 0:
            need(
                len(self.files) == 1 and not self.files[0].folder,
                "index: a single file has one entry, a file",
            )
            need(b"/" not in self.files[0].path, "index: the name of a single file holds a slash")
        seen = {}
        for i, f in enumerate(self.files):
            need(0 < len(f.path) <= 4095, "index: file %d: length of the path" % i)
            need(b"\0" not in f.path, "index: file %d: NUL in the path" % i)
            components = f.path.split(b"/")
            for component in components:
                need(
                    component not in (b"", b".", b"..") and len(component) <= 255,
                    "index: file %d: path" % i,
                )
            need(f.path not in seen, "index: file %d: the path occurs twice" % i)
            if len(components) > 1:
                need(
                    seen.get(f.path.rpartition(b"/")[0]) is True,
                    "index: file %d: no entry for its folder before" % i,
                )
            seen[f.path] = f.folder

    # -- content ------------------------------------------------------------------------------------

    def decode_stored(self, frame, coverage=None):
        data = self.read(frame.offset, frame.stored_size)
        # Before anything else: here a frame that claims more bytes is damaged, not truncated.
        need(
            read32(data, 20) == frame.stored_size,
            "frame at %d: stored size is not the index's" % frame.offset,
        )
        parsed = Frame(data)
        for name in ("raw_size", "stored_hash", "raw_hash", "codec", "method"):
            need(
                getattr(parsed, name) == getattr(frame, name),
                "frame at %d: %s is not the index's" % (frame.offset, name),
            )
        return parsed.decode(coverage)

    def read_file(self, f, write, coverage=None):
        """Decodes a file, piece by piece into write(); every hash is checked."""
        sha256 = hashlib.sha256()
        for frame in f.frames:
            try:
                raw = self.decode_stored(frame, coverage)
            except FormatError as error:
                raise FormatError(
                    error.status, "%s: frame at %d: %s" % (os.fsdecode(f.path), frame.offset, error.message)
                ) from None
            sha256.update(raw)
            write(raw)
        if self.has_sha256 and not f.folder:
            need(sha256.digest() == f.sha256, "%s: SHA-256 differs" % os.fsdecode(f.path))


def restore(container, out, coverage=None):
    """Writes the file or folder to out (bytes path)."""
    if container.root == 0:
        if os.path.isdir(out):
            out = os.path.join(out, container.files[0].path)
        with open(out, "wb") as target:
            container.read_file(container.files[0], target.write, coverage)
        return
    os.makedirs(out, exist_ok=True)
    for f in container.files:
        path = os.path.join(out, f.path)
        if f.folder:
            os.makedirs(path, exist_ok=True)
            continue
        with open(path, "wb") as target:
            container.read_file(f, target.write, coverage)
        os.chmod(path, f.mode)
    # Folders last and innermost first: their own mode may forbid to write into them.
    for f in reversed(container.files):
        if f.folder:
            os.chmod(os.path.join(out, f.path), f.mode)


# ---------------------------------------------------------------------------------------------------
# Command
# ---------------------------------------------------------------------------------------------------


def corpus_records(path):
    """(name, frame, raw) of every record in a corpus file or a folder of corpus files."""
    paths = [path]
    if os.path.isdir(path):
        paths = sorted(os.path.join(path, name) for name in os.listdir(path))
        paths = [name for name in paths if os.path.isfile(name)]
    for name in paths:
        with open(name, "rb") as stream:
            number = 0
            while True:
                sizes = stream.read(8)
                if not sizes:
                    break
                label = "%s: record %d" % (name, number)
                need(len(sizes) == 8, "%s: the corpus ends inside a record" % label, TRUNCATED)
                frame_size, raw_size = struct.unpack("<2I", sizes)
                frame, raw = stream.read(frame_size), stream.read(raw_size)
                need(
                    len(frame) == frame_size and len(raw) == raw_size,
                    "%s: the corpus ends inside a record" % label,
                    TRUNCATED,
                )
                yield label, frame, raw
                number += 1


def run_frames(path, expect):
    coverage = set()
    failures = records = 0
    for label, frame, raw in corpus_records(path):
        records += 1
        try:
            if decode_frame(frame, coverage) != raw:
                raise FormatError(DAMAGED, "decodes to other bytes")
        except FormatError as error:
            print("%s: %s" % (label, error), file=sys.stderr)
            failures += 1
    for line in sorted(coverage):
        print(line)
    missing = []
    if expect:
        with open(expect, encoding="utf-8") as stream:
            wanted = {
                " ".join(line.split()) for line in stream if line.strip() and not line.startswith("#")
            }
        missing = sorted(wanted - coverage)
        for line in missing:
            print("not covered: %s" % line, file=sys.stderr)
    print(
        "%d frames, %d failed, %d kinds covered, %d missing"
        % (records, failures, len(coverage), len(missing)),
        file=sys.stderr,
    )
    return 1 if failures or missing or not records else 0


def run_container(path, out):
    with open(path, "rb") as stream:
        container = Container(stream)
        if out is not None:
            restore(container, os.fsencode(out))
        else:
            for f in container.files:
                container.read_file(f, lambda raw: None)
        for f in container.files:
            print("%s %d %s" % ("folder" if f.folder else "file", f.size, os.fsdecode(f.path)))
    return 0


def main(arguments):
    parser = argparse.ArgumentParser(description="Second decoder for tensorpress containers.")
    parser.add_argument(
        "container", nargs="?", metavar="CONTAINER", help="a container to check or to restore"
    )
    parser.add_argument("-o", dest="out", metavar="OUT", help="restore to this file or folder")
    parser.add_argument("--frames", metavar="CORPUS", help="decode a corpus of frames instead")
    parser.add_argument("--expect", metavar="FILE", help="with --frames: lines that must be covered")
    options = parser.parse_args(arguments)
    if (options.container is None) == (options.frames is None):
        parser.error("give either CONTAINER or --frames CORPUS")
    if options.frames is None and options.expect or options.frames is not None and options.out:
        parser.error("-o goes with CONTAINER, --expect with --frames")
    try:
        if options.frames is not None:
            return run_frames(options.frames, options.expect)
        return run_container(options.container, options.out)
    except FormatError as error:
        print("tpress_decoder: %s" % error, file=sys.stderr)
        return 1
    except OSError as error:
        print("tpress_decoder: %s" % error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
