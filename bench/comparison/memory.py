"""Measuring in memory: programs taking turns on the same buffer, and parts of tensorpress's work by themselves."""
import ctypes
import resource
import statistics
import sys
import time

from .codecs import CLASSES, ITEM, LEVELS, Failure, Memcpy, Memory, Tensorpress, peer_codecs, tensorpress_codecs

EVICT = Memory(64 << 20)  # larger than the caches; written before each measurement
LONGEST = 0.7  # seconds that one timed compression should take: longer ones are timed on a part of the frames
CHUNK_ELEMENTS = 1 << 17
AGAIN = 3  # decodings of a frame that lies in the cache


class Clock:
    """Times calls and counts the page faults in them; a call with many of them paid for fresh memory."""

    def __init__(self):
        self.seconds, self.faults = {}, {}

    def __call__(self, key, function, *arguments):
        EVICT.clear()
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
        begin = time.perf_counter()
        result = function(*arguments)
        self.seconds.setdefault(key, []).append(time.perf_counter() - begin)
        self.faults.setdefault(key, []).append(resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before)
        return result

    def forget(self):
        self.seconds.clear()
        self.faults.clear()

    def median(self, key):
        return statistics.median(self.seconds[key])


def failing(codec, error):
    words = " ".join(str(error).split()) or type(error).__name__
    codec.failure = words[:160]
    print(f"    {codec.program} {codec.setting}: {codec.failure}", file=sys.stderr)


def turn(codec, clock, first):
    codec.before_compress()
    began = time.perf_counter()
    clock((codec, "compress"), codec.compress)
    if first and time.perf_counter() - began > LONGEST:
        codec.shorten(LONGEST / (time.perf_counter() - began))
    codec.before_decompress()
    clock((codec, "decompress"), codec.decompress)
    if not codec.is_restored():
        raise Failure("does not restore its input")


def measure_input(source, codecs, rounds):
    data = source.make()
    raw, restored = Memory(len(data)), Memory(len(data))
    raw.view[:] = data
    del data
    memcpy, clock = Memcpy(), Clock()
    codecs = [memcpy, *codecs]
    for codec in codecs:
        codec.failure = None
        try:
            codec.prepare(raw, restored, source.dtype)
        except (Failure, ImportError) as error:
            failing(codec, error)
    # Two rounds before the clock counts: they warm the code up and let malloc find its size.
    for number in range(-2, rounds):
        if number == 0:
            clock.forget()
        for codec in codecs if number % 2 == 0 else reversed(codecs):
            if codec.failure:
                continue
            try:
                turn(codec, clock, number == -2)
            except Exception as error:  # whatever a peer raises is its result
                failing(codec, error)
    rows = []
    for codec in codecs:
        row = {"program": codec.program, "setting": codec.setting, "kernel": codec.kernel, "internal": codec.internal}
        if codec.failure:
            row["failure"] = codec.failure
        else:
            compressed = codec.timed_size or raw.size
            keys = ((codec, "compress"), (codec, "decompress"))
            row |= {"stored_bytes": codec.stored_bytes(),
                    "compress_timed_bytes": compressed,
                    "compress_MBps": round(compressed / clock.median(keys[0]) / 1e6, 1),
                    "decompress_MBps": round(raw.size / clock.median(keys[1]) / 1e6, 1),
                    "page_faults": [statistics.median(clock.faults[key]) for key in keys]}
        rows.append(row)
        if hasattr(codec, "close"):
            codec.close()
    return {"name": source.name, "dtype": source.dtype, "about": source.about, "real": source.real,
            "raw_bytes": raw.size, "rows": rows}


# ----------------------------------------------------------------------------------------------- its limits

def measure_limits(source, library, rounds):
    """Where the time of the default level goes, with the best kernel: GB/s of raw bytes for each part alone."""
    data = source.make()
    raw, restored = Memory(len(data)), Memory(len(data))
    raw.view[:] = data
    del data
    whole = Tensorpress(library)
    whole.prepare(raw, restored, source.dtype)
    whole.compress()
    stored = whole.stored_bytes()
    scratch = Tensorpress(library)  # frames that may be spoilt
    scratch.prepare(raw, restored, source.dtype)
    limits, opened = library.limits, []
    for hashes in (1, 0):
        handle = ctypes.c_void_p()
        if limits.limits_open(library.best.encode(), hashes, ctypes.byref(handle)):
            raise Failure("no memory")
        opened.append(handle)
    hashing, bare = opened
    frames, spoilt = whole.frames(restored), scratch.frames()
    cls, level = CLASSES[source.dtype], LEVELS["default"]
    parts = {
        "memcpy": lambda: ctypes.memmove(restored.address, raw.address, raw.size),
        "decompress": whole.decompress,
        "decompress without hashes": lambda: limits.limits_decode(bare, ctypes.byref(frames), 0, 1),
        "each frame again and again": lambda: limits.limits_decode(bare, ctypes.byref(frames), 0, 1 + AGAIN),
        "hash of the decoded chunks": lambda: limits.limits_hash_chunks(hashing, ctypes.byref(frames),
                                                                        CHUNK_ELEMENTS * ITEM[source.dtype]),
        "hash of the stored frames": lambda: limits.limits_hash_stored(hashing, ctypes.byref(frames)),
        "compress": whole.compress,
        "compress without hashes": lambda: limits.limits_encode(bare, ctypes.byref(spoilt), cls, level),
    }
    clock = Clock()
    for number in range(-1, rounds):
        if number == 0:
            clock.forget()
        for name in parts if number % 2 == 0 else reversed(parts):
            clock(name, parts[name])
    for handle in opened:
        limits.limits_close(handle)
    whole.close()
    scratch.close()
    seconds = {name: clock.median(name) for name in parts}
    again = seconds.pop("each frame again and again") - seconds["decompress without hashes"]
    seconds["decompress without hashes, in cache"] = again / AGAIN
    return {"name": source.name, "dtype": source.dtype, "kernel": library.best, "raw_bytes": raw.size,
            "stored_bytes": stored,
            "MBps": {name: round(raw.size / taken / 1e6, 1) for name, taken in seconds.items()}}


def measure_fresh_pages(library, rounds, size=256 << 20):
    """MB/s at which memory can be touched for the first time, page by page."""
    clock = Clock()
    for _ in range(rounds):
        if clock("touch", library.limits.limits_touch, size):
            raise Failure("no memory")
    return round(size / clock.median("touch") / 1e6, 1)


def measure_memory(sources, library, versions, rounds, quick):
    results = []
    for source in sources:
        print(f"  {source.name}", file=sys.stderr)
        codecs = tensorpress_codecs(library, source, quick) + (peer_codecs(versions) if versions else [])
        results.append(measure_input(source, codecs, rounds))
    return results
