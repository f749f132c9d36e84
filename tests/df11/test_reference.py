"""The C codec against the second decoder (df11_reference.py), and the vectors both ways.

    test_reference.py DF11_TOOL VECTORS [COUNT [SEED]]
"""
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import df11_reference as reference  # noqa: E402

tool, vectors = sys.argv[1], pathlib.Path(sys.argv[2])
count, seed = (int(text) for text in (sys.argv[3:] + ["320", "1"][len(sys.argv) - 3 :]))


def run(*arguments, status=0):
    done = subprocess.run([tool, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != status:
        sys.exit(f"df11_tool {arguments}: status {done.returncode}, not {status}\n{done.stderr}")
    return done


def check(good, message):
    if not good:
        sys.exit(message)


def read_safetensors(path):
    data = path.read_bytes()
    (size,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    return {name: data[8 + size + entry["data_offsets"][0] : 8 + size + entry["data_offsets"][1]] for name, entry in header.items()}


def elements_of(tensors):
    data = b"".join(tensors)
    return list(struct.unpack(f"<{len(data) // 2}H", data))


def vector_units():
    """name, the original tensors in order, the arrays of the unit as the reference encoder made them."""
    patterns = json.loads((vectors / "config.json").read_text())["dfloat11_config"]["pattern_dict"]
    for path in sorted(vectors.glob("*.df11.safetensors")):
        made = read_safetensors(path)
        original = read_safetensors(path.with_name(path.name.replace(".df11.", ".orig.")))
        for prefix in sorted(name[: -len("luts")] for name in made if name.endswith(".luts")):
            module = prefix.rstrip(".")
            attributes = next(paths for pattern, paths in patterns.items() if __import__("re").fullmatch(pattern, module))
            names = [f"{module}.{path}.weight" for path in attributes] or [f"{module}.weight"]
            yield module, [original[name] for name in names], {name: made[prefix + name] for name in reference.Unit.NAMES}


with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    elements_file, units_file, decoded_file = folder / "elements", folder / "units", folder / "decoded"

    # The vectors: their elements to their arrays, and their arrays to their elements.
    all_vectors = list(vector_units())
    check(len(all_vectors) >= 2, "vectors are missing")
    reference.write_elements(elements_file, [tensors for _, tensors, _ in all_vectors])
    run("encode", elements_file, units_file)
    for (name, tensors, arrays), (status, departure, ours) in zip(all_vectors, reference.read_units(units_file), strict=True):
        check(status == 0 and departure == 0, f"vector {name}: not encoded as the reference does: {status}, {departure}")
        for array in reference.Unit.NAMES:
            check(ours[array] == arrays[array], f"vector {name}: {array} differs")
        unit = reference.Unit(*(arrays[array] for array in reference.Unit.NAMES))
        expected = elements_of(tensors)
        check(reference.decode(unit) == expected, f"vector {name}: the second decoder differs")
        check(reference.decode_by_windows(unit) == expected, f"vector {name}: the second decoder differs by windows")
    reference.write_units(units_file, [arrays for _, _, arrays in all_vectors])
    run("decode", units_file, decoded_file)
    check(list(reference.read_elements(decoded_file)) == [tensors for _, tensors, _ in all_vectors], "a vector decodes to something else")

    # Made-up units.
    run("generate", elements_file, seed, count)
    run("encode", elements_file, units_file)
    run("decode", units_file, decoded_file)
    check(elements_file.read_bytes() == decoded_file.read_bytes(), "decoding does not give back what was encoded")
    done = weights = 0
    for tensors, (status, _, arrays) in zip(reference.read_elements(elements_file), reference.read_units(units_file), strict=True):
        check(status == 0, f"unit {done}: status {status}")
        unit = reference.Unit(*(arrays[array] for array in reference.Unit.NAMES))
        expected = elements_of(tensors)
        check(reference.decode(unit) == expected, f"unit {done}: the second decoder differs")
        check(reference.decode_by_windows(unit) == expected, f"unit {done}: the second decoder differs by windows")
        ends = [sum(len(t) // 2 for t in tensors[: i + 1]) for i in range(len(tensors) - 1)]
        check(unit.splits == ends, f"unit {done}: split_positions differ")
        done += 1
        weights += len(expected)
    check(done == count, f"{done} of {count} units")

    # Damage ends the tool with an error, not with weights.
    damaged = [dict(arrays) for _, _, arrays in all_vectors]
    gaps = bytearray(damaged[-1]["gaps"])
    gaps[20] ^= 0x10
    damaged[-1]["gaps"] = bytes(gaps)
    reference.write_units(units_file, damaged)
    check("gaps" in run("decode", units_file, decoded_file, status=1).stderr, "a damaged gap is not reported")

print(f"{len(all_vectors)} vectors and {done} made-up units ({weights} weights) are the same both ways")
