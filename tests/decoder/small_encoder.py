"""A small encoder for the self-test of tpress_decoder.py: builds frames and containers from docs/format.md.

It makes every mode on demand, chosen by the caller, and works element by element where the decoder
works on whole arrays, so that the two agree only if both read the document the same way. Only the
hashes and the table of dtype classes are shared with the decoder.
"""

import heapq
import struct

from tpress_decoder import (
    BF16,
    CLASSES,
    DF11,
    M_CONSTANT,
    M_DF11,
    M_LZ4,
    M_RAW,
    M_WIDE,
    MAGIC,
    PIECE,
    RANS_MODES,
    SPLIT,
    LZ4,
    RAW,
    align128,
    xxh3_64,
    xxh3_128,
)


def pad(data, to=128):
    return data + bytes(-len(data) % to)


def lz4_compress(data):
    """A plain greedy LZ4 block encoder."""
    out = bytearray()
    n = len(data)
    seen = {}
    anchor = at = 0

    def extra(value):
        while value >= 255:
            out.append(255)
            value -= 255
        out.append(value)

    def sequence(literals, offset, match):
        token = min(len(literals), 15) << 4 | (min(match - 4, 15) if match else 0)
        out.append(token)
        if len(literals) >= 15:
            extra(len(literals) - 15)
        out.extend(literals)
        if match:
            out.extend(struct.pack("<H", offset))
            if match - 4 >= 15:
                extra(match - 4 - 15)

    while at <= n - 12:
        key = data[at : at + 4]
        found = seen.get(key)
        seen[key] = at
        if found is None or at - found > 65535:
            at += 1
            continue
        match = 4
        while at + match < n - 5 and data[found + match] == data[at + match]:
            match += 1
        if at + match > n - 5:
            break
        sequence(data[anchor:at], at - found, match)
        at += match
        anchor = at
    sequence(data[anchor:], 0, 0)
    return bytes(out)


# ---------------------------------------------------------------------------------------------------
# Streams
# ---------------------------------------------------------------------------------------------------


def normalize(counts, total, largest):
    """Frequencies (each 1..largest) that sum to total, for a dict symbol -> count with two or more."""
    whole = sum(counts.values())
    result = {s: max(1, c * total // whole) for s, c in counts.items()}
    while sum(result.values()) != total:
        step = 1 if sum(result.values()) < total else -1
        for s in sorted(result, key=lambda s: -counts[s]):
            if sum(result.values()) != total and 1 <= result[s] + step <= largest:
                result[s] += step
    return result


def rotate_in(part, bits, rotated):
    """u of a top part."""
    return (part << 1 | part >> bits - 1) & (1 << bits) - 1 if rotated else part


def rotl32(v, k):
    k %= 32
    return (v << k | v >> 32 - k) & 0xFFFFFFFF


def raw_words(lane_rows, bits, raw_bits, rotated):
    """The raw words of one lane of one group, from its rows (section 7.2, as written there)."""

    def field(a, length):
        mask = 0
        for bit in range(a, a + length):
            place = bit if not rotated else bits - 1 if bit == 0 else bit - 1
            for element in range(32 // bits):
                mask |= 1 << place + bits * element
        return mask

    J = bits // raw_bits
    S = bits - J * raw_bits
    words = []
    for k in range(raw_bits):
        word = 0
        for j in range(J):
            word |= rotl32(lane_rows[k * J + j] & field(0, raw_bits), raw_bits * j)
        words.append(word)
    for j in range(raw_bits * J, bits):
        for a in range(raw_bits):
            p = (j - raw_bits * J) * raw_bits + a
            words[p // S] |= rotl32(lane_rows[j] & field(a, 1), J * raw_bits + p % S - a)
    return words


def rans_encode(symbols, tables, k):
    """symbols in decoding order (32 lanes a step) and the table of each; the decoder's steps run
    backwards."""
    intervals = {}
    for table in tables:
        if id(table) not in intervals:
            start, of = 0, intervals.setdefault(id(table), {})
            for symbol in sorted(table):
                of[symbol] = (start, table[symbol])
                start += table[symbol]
    states = [1 << k] * 32
    words = []
    for i in range(len(symbols) - 1, -1, -1):
        begin, f = intervals[id(tables[i])][symbols[i]]
        x = states[i % 32]
        if x >= f << 16:
            words.append(x & 0xFFFF)
            x >>= 16
        states[i % 32] = (x // f << k) + begin + x % f
    words.reverse()
    return states, words


def encode_stream(parts, lows, bits, s, c, rotated, tables, selectors, wide):
    """One stream: parts are top parts (integers), lows the low bytes of every element or None; group g
    uses tables[selectors[g]]. Returns (payload, nw, nx)."""
    n = len(parts)
    raw_bits = bits - s
    groups = -(-n // 1024)
    us = [rotate_in(p, bits, rotated) for p in parts]
    symbols = [u >> raw_bits for u in us]
    in_group = 1024 // c  # symbols
    per_symbol = [tables[g] for g in selectors for _ in range(in_group)]
    if c == 2:
        symbols += [0] * (n % 2)
        symbols = [a | b << 8 for a, b in zip(symbols[0::2], symbols[1::2])]
        if n % 2 and symbols[-1] not in per_symbol[len(symbols) - 1]:
            # The second half is ignored: any table entry with this first half will do.
            same = [t for t in per_symbol[len(symbols) - 1] if t & 255 == symbols[-1] & 255]
            symbols[-1] = same[0] if same else symbols[-1]
    shift = 16 if c == 2 else 18
    exceptions = [i | v << shift for i, v in enumerate(symbols) if v not in per_symbol[i]]
    assert not (wide and exceptions)
    # An exception and the padding may be any symbol of the table, not always the most likely one.
    coded = [v if v in per_symbol[i] else max(per_symbol[i]) for i, v in enumerate(symbols)]
    coded += [max(table) for table in per_symbol[len(coded) :]]

    # Decoding order: row by row, sub-step by sub-step, lane by lane.
    per_lane = 32 // bits
    steps = per_lane // c
    order, tables_in_order = [], []
    for row in range(len(coded) // (32 * steps)):
        for b in range(steps):
            for lane in range(32):
                at = row * 32 * steps + lane * steps + b
                order.append(coded[at])
                tables_in_order.append(per_symbol[at])
    states, words = rans_encode(order, tables_in_order, 12 if wide else 10)

    payload = struct.pack("<32I", *states)
    padded = parts + [0] * (groups * 1024 - n)
    for g in range(groups):
        words_of = []
        for lane in range(32 if raw_bits else 0):
            rows = []
            for row in range(bits):
                v = 0
                for e in range(per_lane):
                    v |= padded[g * 1024 + row * 32 * per_lane + lane * per_lane + e] << bits * e
                rows.append(v)
            words_of.append(raw_words(rows, bits, raw_bits, rotated))
        for k in range(raw_bits):
            payload += struct.pack("<32I", *(w[k] for w in words_of))
    if lows is not None:
        lows = lows + [bytes(len(lows[0]))] * (groups * 1024 - n)
        width = 1 if len(lows[0]) == 1 else 2
        for at in range(0, len(lows[0]), width):
            payload += b"".join(low[at : at + width] for low in lows)
    payload += struct.pack("<%dH" % len(words), *words)
    payload = pad(payload, 4)
    if len(tables) > 1:
        # A u32 holds the selectors of 32 groups (k = 2) or 16 (k = 4), the first in its low bits.
        width = len(tables) // 2
        for at in range(0, groups, 32 // width):
            some = selectors[at : at + 32 // width]
            payload += struct.pack("<I", sum(v << i * width for i, v in enumerate(some)))
    payload += struct.pack("<%dI" % len(exceptions), *exceptions)
    return payload, len(words), len(exceptions)


# ---------------------------------------------------------------------------------------------------
# Frames
# ---------------------------------------------------------------------------------------------------


class Builder:
    def __init__(
        self,
        codec,
        dtype,
        raw,
        s=0,
        c=0,
        low_coded=False,
        joined=False,
        chunk_log2=10,
        modes=None,
        most_entries=None,
        k=1,
    ):
        """modes(chunk, part) chooses the mode of a descriptor; most_entries keeps the symbol table
        small, so that rare symbols become exceptions; k is the number of tables per stream."""
        self.codec, self.dtype, self.raw, self.s, self.c = codec, dtype, raw, s, c
        self.low_coded, self.joined, self.chunk_log2, self.modes = low_coded, joined, chunk_log2, modes
        self.cls = CLASSES[dtype]
        self.most_entries = most_entries or 64 * c
        self.k = k
        self.symbol_tables, self.wide_tables = [], []
        self.descriptors, self.payload, self.hashes, self.used = [], b"", [], set()

    def build(self):
        if self.codec in (RAW, LZ4):
            self.payload = self.raw if self.codec == RAW else lz4_compress(self.raw)
            self.hashes = [xxh3_64(self.raw[i : i + PIECE]) for i in range(0, len(self.raw), PIECE)]
            self.chunk_log2 = 0
        else:
            size = self.cls.size << self.chunk_log2
            for number, at in enumerate(range(0, len(self.raw), size)):
                self.chunk(number, self.raw[at : at + size])
        return self.assemble()

    def chunk(self, number, data):
        cls = self.cls
        first = len(self.descriptors)
        if self.codec == SPLIT:
            n = len(data) // cls.size
            elements = [data[i : i + cls.size] for i in range(0, len(data), cls.size)]
            if self.low_coded:
                self.part(number, 0, n, [e[cls.low :] for e in elements])
                for k in range(cls.low):
                    self.part(number, 1 + k, n, [e[k : k + 1] for e in elements])
            else:
                self.part(number, 0, n, elements)
        else:
            planes = [data[k :: cls.size] for k in range(cls.size)]
            if self.joined:
                planes = [b"".join(planes)]
            for k, plane in enumerate(planes):
                self.part(number, k, len(plane), [plane[i : i + 1] for i in range(len(plane))])
        self.hashes.append(xxh3_64(data))
        self.descriptors[first][-1] = self.hashes[-1]

    def part(self, chunk, index, n, elements):
        mode = self.modes(chunk, index) if n else M_RAW
        self.used.add(mode)
        joined = b"".join(elements)
        offset, nw, nx, table, stored = len(self.payload), 0, 0, 0, b""
        if mode == M_CONSTANT:
            assert len(set(elements)) == 1
            offset = int.from_bytes(elements[0], "little")
        elif mode == M_RAW:
            stored = joined
        elif mode == M_LZ4:
            stored = lz4_compress(joined)
            nw = len(stored)
            assert nw < len(joined)
        elif mode == M_WIDE:
            counts = {}
            for byte in joined:
                counts[byte] = counts.get(byte, 0) + 1
            if len(counts) == 1:
                counts[(joined[0] + 1) & 255] = 1
            frequencies = normalize(counts, 4096, 4095)
            record = struct.pack("<256H", *(frequencies.get(i, 0) for i in range(256)))
            table = self.table(self.wide_tables, [record])
            selectors = [0] * -(-n // 1024)
            stored, nw, nx = encode_stream(
                list(joined), None, 8, 8, 1, False, [frequencies], selectors, True
            )
        else:
            low = 0 if self.low_coded else self.cls.low
            parts = [int.from_bytes(e[low:], "little") for e in elements]
            lows = [e[:low] for e in elements] if low else None
            # Table t is made of the groups that use it, or of all if none does.
            selectors = [(3 * g + g // self.k + chunk) % self.k for g in range(-(-n // 1024))]
            tables, records = [], []
            for t in range(self.k):
                own = [parts[1024 * g : 1024 * g + 1024] for g, v in enumerate(selectors) if v == t]
                tables.append(self.symbol_frequencies(sum(own, []) or parts))
                record = b"".join(struct.pack("<2H", tables[t][v], v) for v in sorted(tables[t]))
                records.append(pad(record, 256 * self.c))
            table = self.table(self.symbol_tables, records)
            stored, nw, nx = encode_stream(
                parts, lows, self.cls.bits, self.s, self.c, self.cls.rotated, tables, selectors, False
            )
        self.payload += pad(stored)
        self.descriptors.append([offset, nw, nx, n, table, mode, 0, 0])

    def symbol_frequencies(self, parts):
        bits = self.cls.bits
        symbols = [rotate_in(p, bits, self.cls.rotated) >> bits - self.s for p in parts]
        if self.c == 2:
            symbols = [a | b << 8 for a, b in zip(symbols[0::2], symbols[1::2])] or [symbols[0]]
        counts = {}
        for symbol in symbols:
            counts[symbol] = counts.get(symbol, 0) + 1
        kept = sorted(counts, key=lambda s: (-counts[s], s))[: self.most_entries]
        counts = {s: counts[s] for s in kept}
        if len(counts) == 1:
            counts[kept[0] ^ 1] = 1
        return normalize(counts, 1024, 1023)

    def table(self, tables, records):
        """The index of the first of adjacent records, which may share tables with other streams."""
        for at in range(len(tables) + 1):
            common = tables[at : at + len(records)]
            if common == records[: len(common)]:
                tables += records[len(common) :]
                return at

    def assemble(self):
        split = self.codec == SPLIT
        if self.used & set(RANS_MODES):
            method = 5
        elif self.codec == LZ4 or split and M_LZ4 in self.used:
            method = 3
        elif M_LZ4 in self.used:
            method = 4
        else:
            method = 2 if M_CONSTANT in self.used else 1
        directory = b"".join(self.symbol_tables) + b"".join(self.wide_tables)
        directory = pad(directory + b"".join(struct.pack("<QIIIBBHQ", *d) for d in self.descriptors))
        stored = 128 + len(directory) + align128(len(self.payload))
        header = b"TPFR" + bytes(
            [
                self.codec,
                self.dtype,
                self.s,
                self.c,
                self.low_coded | self.joined << 1,
                self.chunk_log2,
                len(self.symbol_tables),
                len(self.wide_tables),
                self.k if split else 0,
                method,
            ]
        )
        header += struct.pack(
            "<H4IQ", 0, len(self.raw), stored, len(self.descriptors), len(self.payload), xxh3_64(directory)
        )
        header = pad(header, 96) + bytes(16)
        header += xxh3_128(struct.pack("<%dQ" % (1 + len(self.hashes)), len(self.raw), *self.hashes))
        return seal(header + directory + pad(self.payload))


def code_lengths(counts):
    """Huffman: the length of every symbol's code, at least 1."""
    heap = [(count, symbol, [symbol]) for symbol, count in counts.items()]
    lengths = dict.fromkeys(counts, 0 if len(counts) > 1 else 1)
    heapq.heapify(heap)
    while len(heap) > 1:
        a, b = heapq.heappop(heap), heapq.heappop(heap)
        for symbol in a[2] + b[2]:
            lengths[symbol] += 1
        heapq.heappush(heap, (a[0] + b[0], a[1], a[2] + b[2]))
    return lengths


def df11_frame(raw, chunk_log2=10, filler=0, end_gap=False):
    """A frame of codec df11, with canonical codes written as texts of 0 and 1; the bits behind the last
    code are filler, and end_gap sets the gap that may be set."""
    elements = struct.unpack("<%dH" % (len(raw) // 2), raw)
    exponents = [v >> 7 & 255 for v in elements]
    counts = {e: exponents.count(e) for e in set(exponents)}
    lengths = code_lengths(counts)
    codes, value, previous = {}, 0, 0
    for e in sorted(lengths, key=lambda e: (lengths[e], e)):
        value <<= lengths[e] - previous
        previous = lengths[e]
        codes[e] = format(value, "0%db" % previous)
        value += 1

    prefixes = sorted({c[: (len(c) - 1) // 8 * 8] for c in codes.values()} | {""}, key=lambda p: (len(p), p))
    rows = []
    for prefix in prefixes:
        row = bytearray([next(iter(codes))] * 256)
        for v in range(256):
            bits = prefix + format(v, "08b")
            for e, code in codes.items():
                if len(prefix) < len(code) <= len(bits) and bits.startswith(code):
                    row[v] = e
            if bits in prefixes:
                row[v] = 256 - prefixes.index(bits)
        rows.append(bytes(row))
    rows.append(bytes(lengths.get(e, 0) for e in range(256)))

    starts, at = [], 0
    for e in exponents:
        starts.append(at)
        at += lengths[e]
    stream = "".join(codes[e] for e in exponents)
    stream += format(filler, "08b")[: -len(stream) % 8]
    code_stream = int(stream, 2).to_bytes(len(stream) // 8, "big")
    blocks = -(-len(code_stream) // 4096)
    gaps = {}
    for start in reversed(starts):
        gaps[start // 64] = start % 64
    if end_gap:
        assert at // 64 not in gaps and at % 8
        gaps[at // 64] = at % 64
    gap_bits = "".join(format(gaps.get(window, 0), "05b") for window in range(512 * blocks))
    positions = [sum(start < 32768 * g for start in starts) for g in range(blocks)] + [len(elements)]
    payload = pad(struct.pack("<%dI" % (blocks + 1), *positions))
    payload += pad(int(gap_bits, 2).to_bytes(320 * blocks, "big"))
    payload += pad(code_stream)
    payload += pad(bytes(v >> 8 & 128 | v & 127 for v in elements))

    size = 2 << chunk_log2
    chunks = [raw[i : i + size] for i in range(0, len(raw), size)]
    hashes = [xxh3_64(chunk) for chunk in chunks]
    descriptors = b"".join(
        struct.pack("<QIIIBBHQ", 0, 0, 0, len(chunk) // 2, 0, M_DF11, 0, value)
        for chunk, value in zip(chunks, hashes)
    )
    directory = pad(b"".join(rows) + descriptors)
    header = b"TPFR" + bytes([DF11, BF16, 0, 1, 0, chunk_log2, len(rows), 0, 0, 6])
    header += struct.pack("<H", 0)
    header += struct.pack("<4I", len(raw), 128 + len(directory) + len(payload), len(chunks), len(payload))
    header += struct.pack("<QI", xxh3_64(directory), len(code_stream))
    header = pad(header, 96) + bytes(16)
    header += xxh3_128(struct.pack("<%dQ" % (1 + len(hashes)), len(raw), *hashes))
    return seal(header + directory + payload)


def seal(frame):
    """Sets the stored hash."""
    blank = frame[:96] + bytes(16) + frame[112:]
    return frame[:96] + xxh3_128(blank) + frame[112:]


def payload_start(frame):
    symbol_tables, wide_tables = frame[10], frame[11]
    descriptors = struct.unpack_from("<I", frame, 24)[0]
    return align128(128 + 256 * frame[7] * symbol_tables + 512 * wide_tables + 32 * descriptors)


def reseal(frame):
    """Sets the directory hash and the stored hash of a changed frame."""
    start = payload_start(frame)
    if start <= len(frame):
        frame = frame[:32] + struct.pack("<Q", xxh3_64(frame[128:start])) + frame[40:]
    return seal(frame)


# ---------------------------------------------------------------------------------------------------
# Containers
# ---------------------------------------------------------------------------------------------------


def build_container(
    root, files, sha256=None, change=None, change_index=None, change_header=None, change_footer=None
):
    """files: dicts with path, and optional frames (bytes each), mode, folder, reason, format and tensors
    (dicts name, dtype, dims, offset, nbytes, flags). sha256: digests of the files, for the column.
    change(columns) may damage the index columns, change_index its bytes, change_header and
    change_footer the two records before they are hashed."""
    offsets, body, stored = {}, b"", []
    columns = {
        name: []
        for name in (
            "file_size file_digest file_sha256 tensor_offset tensor_nbytes tensor_dims frame_offset "
            "frame_stored_hash frame_raw_hash file_frames file_tensors file_path_len file_reason_len "
            "tensor_name_len tensor_ndim tensor_dtype dtype_len frame_stored_size frame_raw_size "
            "file_mode file_kind file_format tensor_flags frame_codec frame_method"
        ).split()
    }
    paths, reasons, names, dtypes = [], [], [], []
    for f in files:
        frames = f.get("frames", ())
        digest = b""
        for frame in frames:
            if frame not in offsets:
                offsets[frame] = 128 + len(body)
                body += frame
                stored.append(frame[96:112])
            raw_size, stored_size = struct.unpack_from("<2I", frame, 16)
            for name, value in (
                ("offset", offsets[frame]),
                ("stored_hash", frame[96:112]),
                ("raw_hash", frame[112:128]),
                ("stored_size", stored_size),
                ("raw_size", raw_size),
                ("codec", frame[4]),
                ("method", frame[13]),
            ):
                columns["frame_" + name].append(value)
            digest += struct.pack("<Q", raw_size) + frame[112:128]
        tensors = f.get("tensors", ())
        for name, value in (
            ("size", sum(struct.unpack_from("<I", x, 16)[0] for x in frames)),
            ("digest", xxh3_128(digest)),
            ("frames", len(frames)),
            ("tensors", len(tensors)),
            ("path_len", len(f["path"])),
            ("reason_len", len(f.get("reason", b""))),
            ("mode", f.get("mode", 0)),
            ("kind", int(f.get("folder", False))),
            ("format", f.get("format", 0)),
        ):
            columns["file_" + name].append(value)
        paths.append(f["path"])
        reasons.append(f.get("reason", b""))
        for t in tensors:
            if t["dtype"] not in dtypes:
                dtypes.append(t["dtype"])
                columns["dtype_len"].append(len(t["dtype"]))
            columns["tensor_dims"] += t["dims"]
            names.append(t["name"])
            for name, value in (
                ("offset", t["offset"]),
                ("nbytes", t["nbytes"]),
                ("name_len", len(t["name"])),
                ("ndim", len(t["dims"])),
                ("dtype", dtypes.index(t["dtype"])),
                ("flags", t.get("flags", 0)),
            ):
                columns["tensor_" + name].append(value)
    columns["file_sha256"] = list(sha256 or ())
    head = {
        "root": root,
        "flags": int(sha256 is not None),
        "F": len(files),
        "N": len(names),
        "M": len(columns["frame_offset"]),
        "D": len(columns["tensor_dims"]),
        "Y": len(dtypes),
    }
    blob = b"".join(paths + reasons + names + dtypes)
    columns["blob"], columns["head"] = blob, head
    if change:
        change(columns)
    index = struct.pack(
        "<2I7Q",
        head["root"],
        head["flags"],
        head["F"],
        head["N"],
        head["M"],
        head["D"],
        head["Y"],
        len(columns["blob"]),
        0,
    )
    for name, values in columns.items():
        if name in ("blob", "head"):
            continue
        width = (
            "16s"
            if name.endswith(("digest", "_hash"))
            else "32s"
            if name == "file_sha256"
            else "Q"
            if name in ("file_size", "tensor_offset", "tensor_nbytes", "tensor_dims", "frame_offset")
            else "H"
            if name == "file_mode"
            else "B"
            if name in ("file_kind", "file_format", "tensor_flags", "frame_codec", "frame_method")
            else "I"
        )
        index += b"".join(struct.pack("<" + width, v) for v in values)
    index += columns["blob"]
    if change_index:
        index = change_index(index)

    header = pad(MAGIC + struct.pack("<2HI", 0, 1, 0), 112)
    if change_header:
        header = change_header(header)
    header += xxh3_128(header)
    packed = lz4_compress(index)
    index_hash = xxh3_128(packed)
    footer = struct.pack("<4Q", 128 + len(body), len(packed), len(index), 0) + index_hash
    footer += xxh3_128(header + b"".join(stored) + index_hash) + struct.pack("<2HI", 0, 1, 0)
    footer = pad(footer, 104)
    if change_footer:
        footer = change_footer(footer)
    footer += xxh3_128(footer) + MAGIC
    return header + body + packed + footer
