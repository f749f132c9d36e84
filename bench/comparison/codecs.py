"""tensorpress and its peers, all behind one interface: compress and decompress a buffer in memory, in one thread.

A Codec is made for one Input. Only `compress` and `decompress` are timed; what a program needs beforehand (a fresh
copy, cleared memory) is done in `before_*`. Every buffer here is written before it is timed and used again in each
round.
"""
import ctypes

FRAME = 4 << 20
CLASSES = {"bytes": 0, "bf16": 1, "f16": 2, "f32": 3, "f64": 4, "e4m3": 5, "e5m2": 6}
ITEM = {"bf16": 2, "f16": 2, "f32": 4, "f64": 8, "e4m3": 1, "e5m2": 1}
LEVELS = {"fast": 0, "default": 1, "max": 2}
CHOICES = {"auto": 0, "bg-lz4": 3, "df11": 5}

libc = ctypes.CDLL(None)
libc.memcmp.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]


class Failure(Exception):
    """A program cannot do this; the words say why."""


class Memory:
    """A buffer with an address, aligned to pages, all of it written."""

    def __init__(self, size):
        self.size = size
        self._block = (ctypes.c_ubyte * (size + 4096))()
        self.address = -(-ctypes.addressof(self._block) // 4096) * 4096
        offset = self.address - ctypes.addressof(self._block)
        self.view = memoryview(self._block).cast("B")[offset:offset + size]
        self.clear()

    def clear(self):
        ctypes.memset(self.address, 1, self.size)

    def equals(self, other):
        return self.size == other.size and libc.memcmp(self.address, other.address, self.size) == 0


def address(buffer):
    import numpy
    return numpy.frombuffer(buffer, numpy.uint8).ctypes.data


def same_bytes(expected, parts):
    """Whether the buffers in `parts`, one after the other, are the Memory `expected`."""
    import numpy
    at = 0
    for part in parts:
        size = numpy.frombuffer(part, numpy.uint8).size
        if at + size > expected.size or libc.memcmp(expected.address + at, address(part), size):
            return False
        at += size
    return at == expected.size


class Codec:
    """`program` and `setting` name it in tables. raw: Memory; restored: Memory shared by all."""
    kernel = None
    internal = False  # not reachable through the public interface
    restored_here = True  # decompress fills `restored`

    def __init__(self, program, setting):
        self.program, self.setting = program, setting
        self.timed_size = None  # bytes that one timed compress works on, where that is not all

    def prepare(self, raw, restored, dtype):
        self.raw, self.restored, self.dtype = raw, restored, dtype

    def before_compress(self):
        pass

    def before_decompress(self):
        if self.restored_here:
            self.restored.clear()

    def shorten(self, share):
        """Compresses only this share in what follows, if that can be done."""

    def is_restored(self):
        return self.raw.equals(self.restored)


class Memcpy(Codec):
    def __init__(self):
        super().__init__("memcpy", "")

    def compress(self):
        ctypes.memmove(self.restored.address, self.raw.address, self.raw.size)

    decompress = compress

    def stored_bytes(self):
        return self.raw.size


# ---------------------------------------------------------------------------------------------- tensorpress

class Frames(ctypes.Structure):
    """limits_frames of bench/limits.c"""
    _fields_ = [("raw", ctypes.c_void_p), ("raw_size", ctypes.c_size_t), ("frames", ctypes.c_void_p),
                ("slot", ctypes.c_size_t), ("sizes", ctypes.POINTER(ctypes.c_size_t))]


class Library:
    def __init__(self, build):
        self.library = library = ctypes.CDLL(str(build / "libtensorpress.so"))
        self.limits = limits = ctypes.CDLL(str(build / "bench_limits.so"))
        size, pointer, frames = ctypes.c_size_t, ctypes.c_void_p, ctypes.POINTER(Frames)
        library.tp_encode_bound.restype, library.tp_encode_bound.argtypes = size, [size]
        library.tp_encode.argtypes = [pointer, ctypes.c_int, ctypes.c_int, ctypes.c_int, pointer, size, pointer, size,
                                      ctypes.POINTER(size)]
        library.tp_decode.argtypes = [pointer, pointer, size, pointer, size, ctypes.POINTER(size), pointer]
        library.tp_encoder_destroy.argtypes = library.tp_decoder_destroy.argtypes = [pointer]
        library.tp_encoder_destroy.restype = library.tp_decoder_destroy.restype = None
        for name in ("tp_kernel_active", "tp_version"):
            getattr(library, name).restype = ctypes.c_char_p
        library.tp_kernel_names.restype = ctypes.POINTER(ctypes.c_char_p)
        library.tp_kernel_available.restype = ctypes.c_bool
        library.tp_kernel_available.argtypes = library.tp_kernel_force.argtypes = [ctypes.c_char_p]
        limits.limits_open.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.POINTER(pointer)]
        limits.limits_close.argtypes, limits.limits_close.restype = [pointer], None
        limits.limits_decode.argtypes = [pointer, frames, ctypes.c_int, ctypes.c_int]
        limits.limits_encode.argtypes = [pointer, frames, ctypes.c_int, ctypes.c_int]
        limits.limits_hash_chunks.argtypes = [pointer, frames, size]
        limits.limits_hash_chunks.restype = ctypes.c_uint64
        limits.limits_hash_stored.argtypes, limits.limits_hash_stored.restype = [pointer, frames], ctypes.c_uint64
        limits.limits_touch.argtypes = [size]
        self.slot = library.tp_encode_bound(FRAME)
        self.version = library.tp_version().decode()
        self.best = library.tp_kernel_active().decode()

    def kernels(self):
        """Those of this CPU, the best first."""
        names, found = self.library.tp_kernel_names(), []
        while names[len(found)]:
            found.append(names[len(found)])
        return [name.decode() for name in reversed(found) if self.library.tp_kernel_available(name)]


class Tensorpress(Codec):
    """Frames of 4 MiB through tp_encode and tp_decode, as in a container, with every hash."""

    def __init__(self, library, level="default", codec="auto", kernel=None, as_class=None, program=None, setting=None):
        super().__init__(program or "tensorpress", setting or (level if codec == "auto" else codec))
        self.library, self.level, self.codec, self.as_class = library, level, codec, as_class
        self.kernel = kernel or library.best
        self.encoder, self.decoder = ctypes.c_void_p(), ctypes.c_void_p()

    def prepare(self, raw, restored, dtype):
        super().prepare(raw, restored, dtype)
        lib = self.library.library
        if lib.tp_kernel_force(self.kernel.encode()):
            raise Failure("this CPU lacks the kernel")
        made = lib.tp_encoder_create(ctypes.byref(self.encoder)) or lib.tp_decoder_create(ctypes.byref(self.decoder))
        lib.tp_kernel_force(None)
        if made:
            raise Failure("no memory")
        self.starts = range(0, raw.size, FRAME)
        self.timed = len(self.starts)
        self.stored = Memory(len(self.starts) * self.library.slot)
        self.sizes = (ctypes.c_size_t * len(self.starts))()
        self.cls = CLASSES[self.as_class or dtype]

    def compress(self):
        encode, slot, made = self.library.library.tp_encode, self.library.slot, ctypes.c_size_t()
        for i in range(self.timed):
            at = i * FRAME
            if encode(self.encoder, self.cls, LEVELS[self.level], CHOICES[self.codec], self.raw.address + at,
                      min(FRAME, self.raw.size - at), self.stored.address + i * slot, slot, ctypes.byref(made)):
                raise Failure("tp_encode reports an error")
            self.sizes[i] = made.value

    def decompress(self):
        decode, slot, made = self.library.library.tp_decode, self.library.slot, ctypes.c_size_t()
        for i, at in enumerate(self.starts):
            if decode(self.decoder, self.stored.address + i * slot, self.sizes[i], self.restored.address + at,
                      min(FRAME, self.raw.size - at), ctypes.byref(made), None):
                raise Failure("tp_decode reports an error")

    def shorten(self, share):
        self.timed = max(1, int(len(self.starts) * share))
        self.timed_size = min(self.raw.size, self.timed * FRAME)

    def stored_bytes(self):
        return sum(self.sizes)

    def frames(self, target=None):
        return Frames((target or self.raw).address, self.raw.size, self.stored.address, self.library.slot, self.sizes)

    def close(self):
        self.library.library.tp_encoder_destroy(self.encoder)
        self.library.library.tp_decoder_destroy(self.decoder)


class WithoutStoredHash(Tensorpress):
    """Decodes what the default level made without looking at the hash of the stored bytes, as somebody may who has
    just checked them (a loader reads, checks and decodes in separate steps). Compressing is not different."""
    internal = True

    def __init__(self, library, kernel=None):
        super().__init__(library, kernel=kernel, setting="default, stored hash not checked")
        self.opened = ctypes.c_void_p()

    def prepare(self, raw, restored, dtype):
        super().prepare(raw, restored, dtype)
        if self.library.limits.limits_open(self.kernel.encode(), 1, ctypes.byref(self.opened)):
            raise Failure("no memory")

    def decompress(self):
        if self.library.limits.limits_decode(self.opened, ctypes.byref(self.frames(self.restored)), 0, 1):
            raise Failure("decoding reports an error")

    def close(self):
        super().close()
        self.library.limits.limits_close(self.opened)


def tensorpress_codecs(library, source, quick):
    """What is measured of tensorpress on an Input."""
    codecs = [Tensorpress(library, level) for level in ("default", "fast")]
    if quick or (source.real and " in " not in source.name):
        codecs.append(Tensorpress(library, "max"))
    codecs.append(WithoutStoredHash(library))
    if source.dtype == "bf16":
        codecs += [Tensorpress(library, kernel=kernel) for kernel in library.kernels()[1:]]
        codecs.append(Tensorpress(library, codec="df11"))
    if ITEM[source.dtype] not in (1, 4):
        codecs.append(Tensorpress(library, codec="bg-lz4"))
    # xet groups bytes by fours whatever the dtype is.
    codecs.append(Tensorpress(library, codec="bg-lz4", as_class="f32", program="xet's scheme",
                              setting="bg4-lz4, by tensorpress"))
    return codecs


# ---------------------------------------------------------------------------------------------------- peers

class ZipNN(Codec):
    """The C core of ZipNN with the parameters of its Python class, which would copy the input once more. The core
    changes its input, so it gets a fresh copy each time."""
    restored_here = False
    # numBuf, bits_mode, bytes_mode, chunk
    MODES = {"bf16": (2, 1, 10, 256 << 10), "f16": (2, 0, 10, 256 << 10), "f32": (4, 1, 220, 256 << 10),
             "e4m3": (1, 1, 10, 128 << 10), "e5m2": (1, 1, 10, 128 << 10)}

    def __init__(self, version):
        super().__init__(f"ZipNN {version}", "")

    def prepare(self, raw, restored, dtype):
        super().prepare(raw, restored, dtype)
        if dtype not in self.MODES:
            raise Failure(f"does not take {dtype}")
        import zipnn_core
        self.core = zipnn_core
        self.image = None
        self.scratch = bytearray(raw.size)

    def before_compress(self):
        self.scratch[:] = self.raw.view
        self.image = None

    def compress(self):
        buffers, bits, order, chunk = self.MODES[self.dtype]
        self.image = self.core.zipnn_core(bytes(32), self.scratch, buffers, bits, order, 0, chunk, 0.95, 10, 1)

    def before_decompress(self):
        self.back = None

    def decompress(self):
        buffers, bits, order, chunk = self.MODES[self.dtype]
        self.back = self.core.combine_dtype(memoryview(self.image)[32:], buffers, bits, order, chunk, self.raw.size, 1)

    def is_restored(self):
        good = same_bytes(self.raw, [self.back])
        self.back = None
        return good

    def stored_bytes(self):
        return len(self.image)


class Lmz(Codec):
    """The chunk codec of lmz, with its CRC-32, on chunks of its default size, without its file handling."""
    CHUNK = 8 << 20

    def __init__(self, version):
        super().__init__(f"lmz {version}", "")

    def prepare(self, raw, restored, dtype):
        super().prepare(raw, restored, dtype)
        from lmz import codec, kernels, planner
        if not kernels.backend().startswith("native"):
            raise Failure(f"its native kernel does not build here ({kernels.backend()})")
        self.codec = codec
        self.kind = planner.KIND_BF16 if dtype == "bf16" else planner.KIND_BYTES
        self.chunks = []

    def before_compress(self):
        self.chunks = []

    def compress(self):
        for at in range(0, self.raw.size, self.CHUNK):
            piece = self.raw.view[at:at + self.CHUNK]
            self.chunks.append((at, len(piece), *self.codec.encode_chunk(piece, ITEM[self.dtype], kind=self.kind)))

    def before_decompress(self):
        super().before_decompress()
        self.payloads = [b"".join(parts) for _, _, parts, *_ in self.chunks]

    def decompress(self):
        for (at, size, _, number, flags, crc), payload in zip(self.chunks, self.payloads):
            out = self.restored.view[at:at + size]
            back = self.codec.decode_chunk(payload, number, ITEM[self.dtype], flags, size, crc, True, out=out)
            if address(back) != self.restored.address + at:  # not every method decodes into `out`
                out[:] = back

    def stored_bytes(self):
        return sum(sum(map(len, parts)) for _, _, parts, *_ in self.chunks)


class Simple(Codec):
    """A library with a function each way, that return new buffers."""
    restored_here = False

    def __init__(self, program, setting, functions):
        super().__init__(program, setting)
        self.functions = functions

    def prepare(self, raw, restored, dtype):
        super().prepare(raw, restored, dtype)
        self.encode, self.decode = self.functions(dtype, raw.size)
        self.image = self.back = None

    def before_compress(self):
        self.image = None

    def compress(self):
        self.image = self.encode(self.raw.view)

    def before_decompress(self):
        self.back = None

    def decompress(self):
        self.back = self.decode(self.image)

    def is_restored(self):
        good = same_bytes(self.raw, self.back if isinstance(self.back, list) else [self.back])
        self.back = None
        return good

    def stored_bytes(self):
        return sum(map(len, self.image)) if isinstance(self.image, list) else len(self.image)


def zstd_functions(level):
    def functions(dtype, size):
        import zstandard
        compressor, decompressor = zstandard.ZstdCompressor(level=level), zstandard.ZstdDecompressor()
        return compressor.compress, decompressor.decompress
    return functions


def lz4_functions(dtype, size):
    import lz4.block

    def compress(data):
        return lz4.block.compress(data, store_size=False)

    def decompress(image):
        return lz4.block.decompress(image, uncompressed_size=size)
    return compress, decompress


def blosc2_functions(codec, filter_name):
    def functions(dtype, size):
        import blosc2
        blosc2.set_nthreads(1)
        settings = {"codec": getattr(blosc2.Codec, codec), "clevel": 5, "typesize": ITEM[dtype], "nthreads": 1,
                    "filters": [getattr(blosc2.Filter, filter_name)], "filters_meta": [0]}

        def compress(data):
            return blosc2.compress2(data, **settings)

        def decompress(image):
            return blosc2.decompress2(image, nthreads=1)
        return compress, decompress
    return functions


def openzl_functions(graph):
    """graph(ext, compressor): the graph to start with. Pieces of 1 MiB: its PyTorch profile cuts so."""
    def functions(dtype, size):
        import numpy
        import openzl.ext as zl
        compressor = zl.Compressor()
        compressor.set_parameter(zl.CParam.FormatVersion, zl.MAX_FORMAT_VERSION)
        compressor.select_starting_graph(graph(zl, compressor, dtype))
        context, decoder = zl.CCtx(), zl.DCtx()
        context.ref_compressor(compressor)
        context.set_parameter(zl.CParam.StickyParameters, 1)

        def compress(data, _kept=compressor):  # the context refers to it
            array = numpy.frombuffer(data, numpy.uint8)
            return [context.compress([zl.Input(zl.Type.Serial, array[at:at + (1 << 20)])])
                    for at in range(0, size, 1 << 20)]

        def decompress(image):
            return [decoder.decompress(frame)[0].content.as_nparray() for frame in image]
        return compress, decompress
    return functions


def openzl_fields(zl, c, dtype):
    """Its PyTorch profile: exponents by Huffman codes, the rest stored. It takes f16 apart as bf16 too."""
    graphs, nodes = zl.graphs, zl.nodes
    if dtype in ("bf16", "f16"):
        return nodes.ConvertSerialToNumLE16()(c, nodes.BFloat16Deconstruct()(c, graphs.Store(), graphs.Huffman()))
    if dtype == "f32":
        return nodes.ConvertSerialToNumLE32()(c, nodes.Float32Deconstruct()(c, graphs.Store(), graphs.Huffman()))
    raise Failure(f"has no split for {dtype}")


def openzl_planes(zl, c, dtype):
    graphs, nodes = zl.graphs, zl.nodes
    if ITEM[dtype] == 1:
        return graphs.Entropy()(c)
    return nodes.ConvertSerialToStruct(struct_size_bytes=ITEM[dtype])(c, nodes.TransposeSplit()(c, graphs.Entropy()))


def peer_codecs(versions):
    """versions: package -> version, of those that are installed."""
    blosc2, openzl = f"Blosc2 {versions.get('blosc2')}", f"OpenZL {versions.get('openzl')}"
    zstd = f"zstd {versions.get('zstd library')}"
    return [
        ZipNN(versions.get("zipnn")),
        Lmz(versions.get("lmzip")),
        Simple(openzl, "exponents", openzl_functions(openzl_fields)),
        Simple(openzl, "byte planes", openzl_functions(openzl_planes)),
        Simple(blosc2, "zstd 5, shuffle", blosc2_functions("ZSTD", "SHUFFLE")),
        Simple(blosc2, "lz4 5, bitshuffle", blosc2_functions("LZ4", "BITSHUFFLE")),
        Simple(zstd, "-1", zstd_functions(1)),
        Simple(zstd, "-3", zstd_functions(3)),
        Simple(f"lz4 {versions.get('lz4 library')}", "", lz4_functions),
    ]
