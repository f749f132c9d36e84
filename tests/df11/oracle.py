"""The codec against the official DFloat11 encoder (packages dfloat11 and dahuffman), byte for byte.

    oracle.py DF11_TOOL FOLDER [COUNT [SEED]]

Makes a virtual environment in FOLDER, once, and installs the two packages and numpy there. It fails, and does
not skip, where that cannot be done.

The official functions (dfloat11_utils.py: get_codec, get_32bit_codec, get_luts, encode_weights) are run as they
are. The package as a whole wants torch, cupy and a device; these functions want of torch only a view of an array
as integers, shifts, and counts of values. So they are loaded from their file, and a stand-in on numpy below takes
torch's place.
"""
import pathlib
import shutil
import subprocess
import sys

PACKAGES = ["dfloat11==0.5.0", "dahuffman==0.4.2"]
LIBRARIES = ["numpy"]

sys.dont_write_bytecode = True


def install(folder):
    """The environment's Python."""
    environment = folder / "oracle-environment"
    python, stamp = environment / "bin/python", environment / "complete"
    wanted = " ".join(PACKAGES + LIBRARIES)
    if not stamp.exists() or stamp.read_text() != wanted:
        shutil.rmtree(environment, ignore_errors=True)
        for command in (
            [sys.executable, "-m", "venv", environment],
            [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", *PACKAGES],
            [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *LIBRARIES],
        ):
            if subprocess.run([str(part) for part in command]).returncode:
                sys.exit(f"the official encoder cannot be installed: {' '.join(map(str, command))}")
        stamp.write_text(wanted)
    return python


if len(sys.argv) < 2 or sys.argv[1] != "--inside":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    python = install(pathlib.Path(sys.argv[2]))
    sys.exit(subprocess.run([str(python), __file__, "--inside", *sys.argv[1:]]).returncode)

# ------------------------------------------------------------------------------------ in the environment

import contextlib  # noqa: E402
import importlib.util  # noqa: E402
import os  # noqa: E402
import random  # noqa: E402
import struct  # noqa: E402
import tempfile  # noqa: E402
import types  # noqa: E402

import numpy  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import df11_reference as reference  # noqa: E402


class Tensor:
    """What the official functions use of a torch tensor."""

    def __init__(self, array):
        self.array = array

    def view(self, dtype):
        return Tensor(self.array.view(dtype))

    def to(self, dtype):
        return Tensor(self.array.astype(dtype))

    def __rshift__(self, count):
        return Tensor(self.array >> count)

    def __and__(self, mask):
        return Tensor(self.array & self.array.dtype.type(mask))

    def __or__(self, other):
        return Tensor(self.array | other.array)

    def __getitem__(self, index):
        return Tensor(self.array[index])

    def numel(self):
        return self.array.size

    def tolist(self):
        return self.array.tolist()


def load_official():
    torch = types.ModuleType("torch")
    torch.int16, torch.uint8 = numpy.int16, numpy.uint8
    torch.from_numpy = Tensor
    torch.cat = lambda tensors: Tensor(numpy.concatenate([t.array for t in tensors]))
    torch.cumsum = lambda tensor, dim: Tensor(numpy.cumsum(tensor.array, axis=dim))
    torch.LongTensor = lambda values: Tensor(numpy.array(values, dtype=numpy.int64))

    def unique(tensor, return_counts):
        assert return_counts
        return tuple(map(Tensor, numpy.unique(tensor.array, return_counts=True)))

    torch.unique = unique
    tqdm = types.ModuleType("tqdm")
    tqdm.tqdm = lambda iterable: iterable
    sys.modules["torch"], sys.modules["tqdm"] = torch, tqdm
    package = importlib.util.find_spec("dfloat11")  # found, not run
    if not package:
        sys.exit("the package dfloat11 is not there")
    path = pathlib.Path(package.submodule_search_locations[0]) / "dfloat11_utils.py"
    spec = importlib.util.spec_from_file_location("dfloat11_utils", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def as_bytes(tensor):
    array = tensor.array if isinstance(tensor, Tensor) else tensor
    return numpy.ascontiguousarray(array).tobytes()


# As in codec/df11.h.
AS_REFERENCE, UNFILLED, ENDLESS, TIE, TABLES = range(5)
NAMES = "as the reference", "unfilled", "endless", "tie", "tables"
FAILS = object()  # instead of luts: the official function ends with an exception


def official_luts(official, table):
    try:
        return as_bytes(official.get_luts(table))
    except UnboundLocalError:
        return FAILS


def official_tables(table):
    """How many further tables the code needs."""
    return len({bin(v)[2:].rjust(n, "0")[: (n - 1) // 8 * 8] for s, (n, v) in table.items() if isinstance(s, int)}) - 1


def luts_agree(departure, ours, official, table, counts):
    """Equal, or different in the way that the departure says and no other."""
    tables = official_tables(table)
    if departure == TABLES or tables > 16:
        return departure == TABLES and tables > 16
    if departure == UNFILLED or official is FAILS:
        return departure == UNFILLED and official is FAILS
    if departure == TIE:
        # Some count at the limit occurs twice: nothing follows. Equal counts above 1 there must be.
        values = [count for count in counts.values() if count > 1]
        return max(n for n, _ in table.values()) <= 32 and len(set(values)) < len(values)
    if departure == ENDLESS:
        places = [at for at in range(len(ours)) if ours[at] != official[at]] if len(ours) == len(official) else []
        return bool(places) and all(official[at] >= 240 > ours[at] for at in places) and places[-1] // 256 == places[0] // 256
    return ours == official


def random_counts(rng):
    kind = rng.randrange(5)
    if kind == 0:  # Fibonacci, from any start, some changed: codes of any length
        a, b, counts = rng.randrange(1, 5), rng.randrange(1, 5), []
        for _ in range(rng.randrange(2, 60)):
            counts.append(max(1, a + rng.randrange(-1, 2)))
            a, b = b, a + b
    elif kind == 1:  # many powers of two
        counts = [1 << rng.randrange(30) for _ in range(rng.randrange(1, 60))]
    elif kind == 2:  # as trained weights have them
        top = rng.randrange(3, 40)
        counts = [max(1, int(rng.uniform(0.4, 1.0) * 2.0 ** (top - i))) for i in range(top)]
    elif kind == 3:
        counts = [rng.randrange(1, 1000) for _ in range(rng.randrange(1, 241))]
    else:
        counts = [1 + int(rng.paretovariate(0.3)) % (1 << 40) for _ in range(rng.randrange(1, 100))]
    exponents = rng.sample(range(240), len(counts))
    return dict(sorted(zip(exponents, counts)))


def units_that_reach(official):
    """The last code starts in the first block and reaches 1 to 13 bits into the second, where none starts."""
    for reach in range(1, 14):
        exponents = [100 + i for i, count in enumerate([1 << i for i in range(13)]) for _ in range(count)][::-1]
        counts = {100 + i: 1 << i for i in range(13)} | {90: 20000}
        counts = dict(sorted(counts.items()))
        table = official.HuffmanCodec.from_frequencies(counts).get_code_table()
        common = 32768 + reach - sum(table[e][0] for e in exponents)
        exponents = [90] * common + exponents  # the rarest, of 14 bits, last
        yield [struct.pack(f"<{len(exponents)}H", *(e << 7 | i & 127 for i, e in enumerate(exponents)))]


def main():
    tool, folder = sys.argv[2], pathlib.Path(sys.argv[3])
    count = int(sys.argv[4]) if len(sys.argv) > 4 else 1600
    seed = int(sys.argv[5]) if len(sys.argv) > 5 else 1
    official = load_official()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="oracle-", dir=folder))
    elements_file, units_file = folder / "elements", folder / "units"

    def run(*arguments):
        if subprocess.run([tool, *map(str, arguments)]).returncode:
            sys.exit(f"df11_tool {arguments} failed")

    # Units, whole.
    run("generate", elements_file, seed, count)
    reaching = list(units_that_reach(official))
    reference.write_elements(folder / "more", reaching)
    elements_file.write_bytes(elements_file.read_bytes() + (folder / "more").read_bytes())
    run("encode", elements_file, units_file)
    seen, short_positions = [0] * 5, 0
    for number, (tensors, (status, departure, ours)) in enumerate(
        zip(reference.read_elements(elements_file), reference.read_units(units_file), strict=True)
    ):
        weights = [Tensor(numpy.frombuffer(t, dtype=numpy.uint16)) for t in tensors]
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            _, counts = official.get_codec(sys.modules["torch"].cat(weights))
            codec, _, table = official.get_32bit_codec(counts)
            luts = official_luts(official, table)
            encoded, other, positions, gaps, splits = official.encode_weights(weights, codec, 8, 512)
        theirs = {
            "encoded_exponent": as_bytes(encoded),
            "sign_mantissa": as_bytes(other),
            "output_positions": as_bytes(positions),
            "gaps": as_bytes(gaps),
            "split_positions": as_bytes(splits),
        }
        # Where no code starts in the last block, the official encoder leaves one position out.
        if len(theirs["output_positions"]) == 4 * (-(-len(theirs["encoded_exponent"]) // 4096)):
            theirs["output_positions"] += struct.pack("<I", sum(t.numel() for t in weights))
            short_positions += 1
        different = [] if luts_agree(departure, ours["luts"], luts, table, counts) else ["luts"]
        if departure != TABLES:  # then the code is another
            different += [name for name, data in theirs.items() if ours[name] != data]
        if status or different:
            sys.exit(f"unit {number} (seed {seed}; {NAMES[departure]}): status {status}, different: {', '.join(different)}; kept in {folder}")
        seen[departure] += 1
    report = ", ".join(f"{n} {name}" for n, name in zip(seen, NAMES) if n)
    print(f"{count + len(reaching)} units: {report}; {short_positions} with a position less in the official one")
    if not short_positions:
        sys.exit("no unit whose last code reaches into another block at the end of a byte")
    if seen[AS_REFERENCE] < min(1000, count // 2):
        sys.exit("too few units could be compared whole")

    # Codes alone, for counts that no small unit has.
    rng = random.Random(seed)
    all_counts = [random_counts(rng) for _ in range(count)]
    (folder / "counts").write_bytes(b"".join(struct.pack("<256Q", *(c.get(s, 0) for s in range(256))) for c in all_counts))
    run("codes", folder / "counts", folder / "codes")
    data, at, seen, long_codes = (folder / "codes").read_bytes(), 0, [0] * 5, 0
    for number, counts in enumerate(all_counts):
        status, departure, size = struct.unpack_from("<3Q", data, at)
        ours = data[at + 24 : at + 24 + size]
        at += 24 + size
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            plain = official.HuffmanCodec.from_frequencies(counts).get_code_table()
            _, _, table = official.get_32bit_codec(counts)
            luts = official_luts(official, table)
        long_codes += max(n for n, _ in plain.values()) > 32
        if status or not luts_agree(departure, ours, luts, table, counts):
            sys.exit(f"code {number} (seed {seed}; {NAMES[departure]}): status {status}, luts differ; kept in {folder}")
        seen[departure] += 1
    report = ", ".join(f"{n} {name}" for n, name in zip(seen, NAMES) if n)
    print(f"{count} codes, {long_codes} of them above 32 bits before the limit: {report}")
    shutil.rmtree(folder)


main()
