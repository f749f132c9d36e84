"""The verb load and doctor's list of devices, from outside."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

PROGRAM, SAMPLES = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2]).absolute()
KEYS = ["device", "backend", "tensors", "raw_bytes", "stored_bytes", "read_s", "decode_s", "total_s",
        "decoded_on_device_bytes", "decoded_on_host_bytes", "verified"]


def run(*arguments, status=0, stdin=None):
    done = subprocess.run([PROGRAM, *map(str, arguments)], input=stdin, capture_output=True)
    out, err = done.stdout.decode(), done.stderr.decode()
    assert done.returncode == status, (arguments, done.returncode, out, err)
    if status:
        assert out == "" and err.startswith("tensorpress: ") and err.count("\n") == 1, (arguments, out, err)
    return out, err


def devices():
    out, _ = run("doctor")
    listed = out[out.index("\ndevices:\n"):]
    assert "\n  cpu        " in listed
    for line in listed.splitlines()[2:]:
        assert "self-test passed" in line or " none: " in line, line
    return ["cpu"] + [kind for kind in ("cuda", "opencl") if f"\n  {kind}:0 " in listed]


def load(path, device, *options, stdin=None):
    out, err = run("load", path, "--device", device, "--json", *options, stdin=stdin)
    assert out.count("\n") == 1
    result = json.loads(out)
    assert list(result) == KEYS, result
    assert result["backend"] == device.split(":")[0] and result["device"].startswith(result["backend"])
    for key in KEYS[2:5] + KEYS[8:10]:
        assert isinstance(result[key], int) and result[key] >= 0, (key, result)
    assert 0 <= result["read_s"] <= result["total_s"] and 0 <= result["decode_s"] <= result["total_s"], result
    return result, err


def test_results(device):
    plain = SAMPLES / "safetensors" / "silero_vad_16k.safetensors"
    result, _ = load(plain, device, "--verify")
    assert result["verified"] is True and result["tensors"] == 15
    assert result["decoded_on_device_bytes"] == result["decoded_on_host_bytes"] == 0
    tensors, raw = result["tensors"], result["raw_bytes"]
    for options in (["-l", "fast"], [], ["-l", "max"], ["--codec", "lz4"], ["--codec", "rans"]):
        run("compress", "-qf", plain, "-o", "c.tpress", *options)
        result, _ = load("c.tpress", device, "--verify", "-j2")
        assert result["verified"] is True and (result["tensors"], result["raw_bytes"]) == (tensors, raw)
        assert result["decoded_on_device_bytes"] + result["decoded_on_host_bytes"] == raw
        assert 0 < result["stored_bytes"] <= os.path.getsize("c.tpress")
    assert result["decoded_on_host_bytes"] == 0 # rans
    assert load("c.tpress", device)[0]["verified"] is False
    out, _ = run("load", "c.tpress", "--device", device, "--verify")
    assert "15 tensors" in out and out.endswith(": bit-exact\n") and device in out, out
    assert run("load", "c.tpress", "--device", device, "-q") == ("", "")
    out, err = run("load", "c.tpress", "--device", device, "-v", "--no-progress", "-j1")
    assert f"{raw:,} bytes decoded there".replace(",", "") in err.replace(",", "") and out.count("\n") == 1, (out, err)
    _, err = run("load", "c.tpress", "--device", device, "--progress", "--verify")
    assert "load: 100 %" in err, err
    with open("c.tpress", "rb") as file:
        data = file.read()
    assert load("-", device, "--verify", stdin=data)[0]["raw_bytes"] == raw


def test_files(device):
    for path in sorted(SAMPLES.rglob("*.*")):
        if path.suffix in (".md", ".json"):
            continue
        run("compress", "-qf", path, "-o", "c.tpress")
        for name in (path, "c.tpress"):
            result, err = load(name, device, "--verify")
            assert result["verified"] and (err == "" or "left out" in err), err


def test_folder(device):
    os.makedirs("model/sub", exist_ok=True)
    for name in ("silero_vad_16k", "burn_mnist"):
        shutil.copy(SAMPLES / "safetensors" / f"{name}.safetensors", "model")
    shutil.copy(SAMPLES / "safetensors" / "burn_mnist.safetensors", "model/sub")
    run("compress", "-qf", "model")
    result, _ = load("model.tpress", device, "--verify")
    assert result["tensors"] == 15 + 20 + 20 and result["verified"]


def test_errors(device):
    run("compress", "-qf", SAMPLES / "safetensors" / "silero_vad_16k.safetensors", "-o", "c.tpress")
    with open("c.tpress", "r+b") as file:
        file.seek(300000)
        byte = file.read(1)
        file.seek(300000)
        file.write(bytes([byte[0] ^ 1]))
    _, err = run("load", "c.tpress", "--device", device, status=1)
    assert "c.tpress: frame " in err and "(tensor '" in err, err
    run("load", "missing.tpress", "--device", device, status=3)
    run("load", "c.tpress", "--device", device, "--file", "x", status=2)
    run("load", "--device", device, status=2)
    run("load", ".", "--device", device, status=4)


def test_names():
    plain = SAMPLES / "safetensors" / "burn_mnist.safetensors"
    assert json.loads(run("load", plain, "--json")[0])["device"] == "cpu"
    for name in ("", "gpu", "cpu:0", "cuda:", "cuda:x", "CUDA", "opencl:-1", "opencl:0x1", "cuda:99999999999"):
        run("load", plain, "--device", name, status=2)
        run("load", "missing", "--device", name, status=2) # the name is wrong whatever the file is
    for name in ("cuda:4711", "opencl:4711"):
        run("load", plain, "--device", name, status=4)


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        test_names()
        for device in devices():
            for test in (test_results, test_files, test_folder, test_errors):
                test(device)
                print(f"{device}: {test.__name__}: ok")


main()
