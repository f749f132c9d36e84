"""Tensors given away by DLPack are what other libraries take: by numpy where it is there, else by their addresses.

usage: test_dlpack.py TENSORPRESS LIBRARY
"""
import ctypes
import gc
import json
import os
import struct
import subprocess
import sys
import tempfile

try:
    import numpy
except ImportError:
    numpy = None

PROGRAM = os.path.abspath(sys.argv[1])
LIBRARY = ctypes.CDLL(os.path.abspath(sys.argv[2]))
pointer = ctypes.c_void_p


class Tensor(ctypes.Structure):
    _fields_ = [("data", pointer), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class Managed(ctypes.Structure):
    pass


class Versioned(ctypes.Structure):
    pass


Managed._fields_ = [("tensor", Tensor), ("context", pointer),
                    ("deleter", ctypes.CFUNCTYPE(None, ctypes.POINTER(Managed)))]
Versioned._fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", pointer),
                      ("deleter", ctypes.CFUNCTYPE(None, ctypes.POINTER(Versioned))), ("flags", ctypes.c_uint64),
                      ("tensor", Tensor)]


def call(name, *arguments):
    error = ctypes.create_string_buffer(4096)
    status = getattr(LIBRARY, name)(*arguments, error)
    assert status == 0, (name, status, error.raw)


def load(path, names):
    """The tensors, loaded onto the cpu: pointers to both kinds of structure. Everything else is closed already."""
    reader, device, loader = pointer(), pointer(), pointer()
    call("tp_open", os.fsencode(path), ctypes.byref(reader))
    call("tp_device_open", b"cpu", ctypes.byref(device))
    call("tp_loader_create", device, None, ctypes.byref(loader))
    for name in names:
        call("tp_loader_add_named", loader, reader, name.encode(), None)
    call("tp_loader_run", loader)
    given = []
    for item in range(len(names)):
        plain, versioned = ctypes.POINTER(Managed)(), ctypes.POINTER(Versioned)()
        call("tp_loader_dlpack", loader, ctypes.c_size_t(item), ctypes.c_bool(False), ctypes.byref(plain))
        call("tp_loader_dlpack_versioned", loader, ctypes.c_size_t(item), ctypes.c_bool(False),
             ctypes.byref(versioned))
        given += [plain, versioned]
    LIBRARY.tp_loader_close(loader)
    LIBRARY.tp_device_close(device)
    LIBRARY.tp_close(reader)
    return given


class Exporter:
    """What from_dlpack wants of an object."""

    def __init__(self, managed):
        self.managed = managed

    def __dlpack__(self, **_):
        name = b"dltensor_versioned" if isinstance(self.managed.contents, Versioned) else b"dltensor"
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [pointer, ctypes.c_char_p, pointer]
        return new(self.managed, name, None)

    def __dlpack_device__(self):
        tensor = self.managed.contents.tensor
        return tensor.device_type, tensor.device_id


def checkpoint(path):
    """A safetensors file with dtypes that numpy has. Returns shapes and bytes."""
    dtypes = {"F64": "d", "F32": "f", "F16": "e", "I64": "q", "I32": "i", "I16": "h", "I8": "b", "U8": "B", "U16": "H",
              "U32": "I", "U64": "Q", "BOOL": "?"}
    header, data, made = {}, b"", {}
    for number, (dtype, code) in enumerate(dtypes.items()):
        shape = [3, number + 1, 5]
        values = [i % 2 if code == "?" else i % 100 for i in range(3 * 5 * (number + 1))]
        part = struct.pack("<%d%s" % (len(values), code), *values)
        data += bytes(-len(data) % 8)
        header[dtype.lower()] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(part)]}
        made[dtype.lower()] = (code, shape, values, part)
        data += part
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)
    return made


def check(managed, code, shape, values, part):
    tensor = managed.contents.tensor
    assert tensor.device_type == 1 and tensor.byte_offset == 0 and tensor.data % 256 == 0
    assert [tensor.shape[i] for i in range(tensor.ndim)] == shape
    assert [tensor.strides[i] for i in range(tensor.ndim)] == [shape[1] * shape[2], shape[2], 1]
    assert tensor.bits == 8 * struct.calcsize("<" + code) and tensor.lanes == 1
    assert ctypes.string_at(tensor.data, len(part)) == part
    if numpy is None:
        managed.contents.deleter(managed)
        return
    array = numpy.from_dlpack(Exporter(managed))
    assert array.dtype == numpy.dtype(code) and list(array.shape) == shape, (array.dtype, array.shape)
    assert array.ravel().tolist() == values
    del array # which calls the deleter
    gc.collect()


def main():
    with tempfile.TemporaryDirectory() as folder:
        plain, container = os.path.join(folder, "m.safetensors"), os.path.join(folder, "m.tpress")
        made = checkpoint(plain)
        subprocess.run([PROGRAM, "compress", "-q", plain, "-o", container], check=True)
        for path in (plain, container):
            given = load(path, list(made))
            for i, managed in enumerate(given):
                versioned = isinstance(managed.contents, Versioned)
                if versioned:
                    assert (managed.contents.major, managed.contents.minor, managed.contents.flags) == (1, 1, 0)
                check(managed, *list(made.values())[i // 2])
    print("%d tensors by %s" % (len(made), "numpy " + numpy.__version__ if numpy else "their addresses: no numpy here"))


main()
