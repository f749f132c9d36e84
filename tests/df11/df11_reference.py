"""A second DFloat11 decoder, written from docs/dfloat11.md alone: one symbol at a time, as the document says.

Used as a module by the scripts beside it. Two ways of decoding, which must agree:
  decode             one code after the other, from the tables and the number of elements only
  decode_by_windows  every window of 64 bits by itself, from its gap and its block's position, as a GPU does
"""
import struct

POINTER = 240


class Damaged(Exception):
    pass


class Unit:
    NAMES = ("luts", "encoded_exponent", "sign_mantissa", "output_positions", "gaps", "split_positions")

    def __init__(self, luts, encoded_exponent, sign_mantissa, output_positions, gaps, split_positions):
        self.rows = [luts[at : at + 256] for at in range(0, len(luts), 256)]
        self.stream = encoded_exponent
        self.sign_mantissa = sign_mantissa
        self.positions = list(struct.unpack(f"<{len(output_positions) // 4}I", output_positions))
        self.gaps = gaps
        self.splits = list(struct.unpack(f"<{len(split_positions) // 8}q", split_positions))
        self.blocks = (len(self.stream) + 4095) // 4096
        if not 2 <= len(self.rows) <= 18 or len(luts) % 256:
            raise Damaged("luts")
        if len(gaps) != 320 * self.blocks:
            raise Damaged("gaps")
        if len(self.positions) == self.blocks:
            self.positions.append(len(sign_mantissa))
        if len(self.positions) != self.blocks + 1 or self.positions[-1] != len(sign_mantissa):
            raise Damaged("output_positions")

    def byte(self, index):
        return self.stream[index] if index < len(self.stream) else 0

    def bits(self, at, count):
        """count <= 8 bits from bit `at` of the stream, the first on top."""
        two = self.byte(at // 8) << 8 | self.byte(at // 8 + 1)
        return two >> (16 - at % 8 - count) & ((1 << count) - 1)

    def symbol(self, at):
        """The exponent whose code starts at bit `at`, and its length."""
        value = self.rows[0][self.bits(at, 8)]
        tables = 1
        while value >= POINTER:
            if tables == 4 or 256 - value > len(self.rows) - 2:
                raise Damaged("a pointer that leads nowhere")
            value = self.rows[256 - value][self.bits(at + 8 * tables, 8)]
            tables += 1
        length = self.rows[-1][value]
        if not 8 * (tables - 1) < length <= 8 * tables:
            raise Damaged("a length that does not fit its table")
        return value, length

    def gap(self, window):
        bit = 5 * window
        two = self.gaps[bit // 8] << 8
        if bit // 8 + 1 < len(self.gaps):
            two |= self.gaps[bit // 8 + 1]
        return two >> (11 - bit % 8) & 31

    def join(self, number, exponent):
        sm = self.sign_mantissa[number]
        return (sm & 0x80) << 8 | exponent << 7 | (sm & 0x7F)


def decode(unit):
    """All elements, as integers of 16 bits. The end must be in the last byte."""
    elements, at = [], 0
    for number in range(len(unit.sign_mantissa)):
        exponent, length = unit.symbol(at)
        elements.append(unit.join(number, exponent))
        at += length
    if (at + 7) // 8 != len(unit.stream):
        raise Damaged("the codes do not end with the stream")
    return elements


def decode_by_windows(unit):
    elements = [None] * len(unit.sign_mantissa)
    for block in range(unit.blocks):
        number, stop = unit.positions[block], unit.positions[block + 1]
        for window in range(512 * block, 512 * (block + 1)):
            at = 64 * window + unit.gap(window)
            while at < 64 * (window + 1) and number < stop:
                exponent, length = unit.symbol(at)
                elements[number] = unit.join(number, exponent)
                number += 1
                at += length
        if number != stop:
            raise Damaged(f"block {block} has other codes than its positions say")
    return elements


def read_elements(path):
    """Of df11_tool: for each unit the elements of its tensors, each a bytes object."""
    with open(path, "rb") as file:
        while head := file.read(8):
            (tensors,) = struct.unpack("<Q", head)
            numbers = struct.unpack(f"<{tensors}Q", file.read(8 * tensors))
            yield [file.read(2 * n) for n in numbers]


def write_elements(path, units):
    with open(path, "wb") as file:
        for tensors in units:
            file.write(struct.pack(f"<{1 + len(tensors)}Q", len(tensors), *(len(t) // 2 for t in tensors)))
            file.write(b"".join(tensors))


def read_units(path):
    """Of df11_tool: status, departure, arrays by name."""
    with open(path, "rb") as file:
        while head := file.read(64):
            status, departure, *sizes = struct.unpack("<8Q", head)
            yield status, departure, {name: file.read(size) for name, size in zip(Unit.NAMES, sizes)}


def write_units(path, units):
    with open(path, "wb") as file:
        for arrays in units:
            file.write(struct.pack("<8Q", 0, 0, *(len(arrays[name]) for name in Unit.NAMES)))
            file.write(b"".join(arrays[name] for name in Unit.NAMES))
