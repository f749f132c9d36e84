"""From the JSON file of a run: tables, the chart, and their places in docs/benchmarks.md and README.md."""
import json
import sys

from . import chart

BEGIN, END = "<!-- bench/compare: begin -->\n", "<!-- bench/compare: end -->\n"
COPIES, JSON, SVG = ("docs/benchmarks.md", "README.md"), "docs/benchmarks.json", "docs/benchmarks.svg"


def table(columns, rows, left=1):
    """The first `left` columns are words."""
    return "\n".join(["| " + " | ".join(columns) + " |",
                      "|" + "|".join(" --- " if i < left else " ---: " for i in range(len(columns))) + "|",
                      *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


def percent(part, whole):
    return "none" if part is None else f"{100 * part / whole:.2f} %"


def times(value, base):
    return f"{value / base:.2f}" if base else ""


def speed(value):
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def find(rows, program, setting=None, kernel=None):
    """The first row that did its work."""
    for row in rows:
        if row["program"].startswith(program) and "failure" not in row and setting in (None, row["setting"]) \
                and kernel in (None, row["kernel"]):
            return row
    return None


def name(row, best):
    words = f"{row['program']} {row['setting']}".strip()
    return words + (f", {row['kernel']}" if row.get("kernel") not in (None, best) else "")


def without_version(row):
    words = row["program"].split()
    return " ".join(word for word in [*words, row["setting"]] if word and not word[0].isdigit())


def is_ours(row):
    return row["program"] == "tensorpress"


def best_kernel(result):
    return result["memory"]["kernels"][0]


# -------------------------------------------------------------------------------------------------- tables

def machine(result):
    m, memory = result["machine"], result["memory"]
    lines = [f"Machine: {m['cpu']}, {m['cores']} cores ({m['caches']}), {m['memory_GB']} GB; {m['system']}, "
             f"{m['kernel']}; built with {m['compiler']}; tensorpress {memory['version']}, "
             f"kernels {', '.join(memory['kernels'])}.",
             f"Median of {memory['rounds']} rounds"
             + (", with real-time priority" if result["realtime"] else "")
             + f"; meanwhile other processes used {memory['other_cores']:.2f} cores."]
    if result["busy"]:
        lines.append(f"**The machine was busy: {result['busy']}.**")
    if result["quick"]:
        lines.append("**A quick run: too little data for figures that mean something.**")
    if not result["peers"]:
        lines.append("**Without other programs: only tensorpress and memcpy were measured.**")
    return "\n".join(lines) + "\n"


def input_table(source, best):
    rows = source["rows"]
    copy, zipnn = find(rows, "memcpy"), find(rows, "ZipNN")
    columns = ["program", "size", "compress MB/s", "of memcpy", "× ZipNN", "decompress MB/s", "of memcpy", "× ZipNN"]
    if not zipnn:
        columns = [column for column in columns if "ZipNN" not in column]
    lines = []
    for row in rows:
        if "failure" in row:
            lines.append([name(row, best), row["failure"]] + [""] * (len(columns) - 2))
            continue
        line = [name(row, best), percent(row["stored_bytes"], source["raw_bytes"])]
        for key in ("compress_MBps", "decompress_MBps"):
            line += [speed(row[key]), times(row[key], copy[key])]
            line += [times(row[key], zipnn[key])] if zipnn else []
        lines.append(line)
    return table(columns, lines)


def in_memory(result):
    text = []
    for source in result["memory"]["inputs"]:
        of = result["model"] if source["real"] else "N(0, 0.02)"
        text.append(f"**{source['name']}**: {of}, {source['about']}; {source['raw_bytes'] / 1e6:.1f} MB\n")
        text.append(input_table(source, best_kernel(result)))
    return "\n".join(text)


def ahead(result):
    """Where another program does better than the default level; its own other levels are no other programs."""
    lines = []
    for source in result["memory"]["inputs"]:
        ours = find(source["rows"], "tensorpress", "default", best_kernel(result))
        others = [row for row in source["rows"] if "failure" not in row
                  and row["program"] not in ("memcpy", "tensorpress")]
        if not ours or not others:
            continue
        size = percent(ours["stored_bytes"], source["raw_bytes"])
        smaller = [f"{name(row, None)} ({percent(row['stored_bytes'], source['raw_bytes'])})" for row in others
                   if row["stored_bytes"] < ours["stored_bytes"]
                   and percent(row["stored_bytes"], source["raw_bytes"]) != size]
        # Speed counts only where something is saved.
        saving = [row for row in others if row["stored_bytes"] < 0.99 * source["raw_bytes"]]
        faster = [[f"{name(row, None)} ({speed(row[key])})" for row in saving if row[key] > ours[key]]
                  for key in ("compress_MBps", "decompress_MBps")]
        lines.append([source["name"], size]
                     + [", ".join(cell) or "none" for cell in (smaller, *faster)])
    if not lines:
        return "No other program was measured.\n"
    columns = ["weights", "default level", "smaller", "compresses faster (MB/s)", "decompresses faster (MB/s)"]
    return table(columns, lines, left=5)


def sizes(result):
    rows = result["sizes"]
    versions = rows[0]["versions"]
    columns = ["weights", "original MB", "tensorpress", f"ZipNN {versions['zipnn']}", f"lmz {versions['lmzip']}"]
    return table(columns,
                 [[row["name"], f"{row['raw_bytes'] / 1e6:.1f}"]
                  + [percent(row[key], row["raw_bytes"]) for key in ("tensorpress", "zipnn", "lmz")] for row in rows])


def peak(part):
    """Smaller values than that of the process that starts the program cannot be seen."""
    return f"{'< ' if part['peak_MB'] <= 1.05 * part['least_peak_MB'] else ''}{part['peak_MB']:.0f}"


def commands(result):
    p = result["processes"]
    place = "in a file system in memory" if result["large_file_in_memory"] else "on the disk of the build folder"
    lmz = {row["threads"]: row for row in p["rows"] if row["program"].startswith("lmz") and "failure" not in row}
    lines = []
    for row in p["rows"]:
        label = f"{row['program']} {row['setting']}".strip()
        if "failure" in row:
            lines.append([label, str(row["threads"]), row["failure"]] + [""] * 9)
            continue
        line = [label, str(row["threads"]), percent(row["stored_bytes"], p["raw_bytes"])]
        for verb in ("compress", "decompress"):
            part = row[verb]
            base = lmz.get(row["threads"])
            line += [f"{part['seconds']:.2f}", f"{part['user_s']:.2f} + {part['system_s']:.2f}",
                     times(base[verb]["seconds"], part["seconds"]) if base else "", peak(part)]
        lines.append(line)
    columns = ["program", "threads", "size"]
    for verb in ("compress", "decompress"):
        columns += [f"{verb} s", "user + system", "× lmz", "peak MB"]
    return (f"A file of {p['raw_bytes'] / 1e9:.2f} GB, {place}; median of {p['rounds']} rounds; meanwhile other "
            f"processes used {p['other_cores']:.2f} cores.\n\n" + table(columns, lines))


def verdict(bare, cached, traffic):
    """What the decoding itself, without hashes, waits for."""
    if traffic > 0.8 * bare:
        return "memory"
    return "instructions" if cached > 0.85 * bare else "instructions and memory"


def limits(result):
    """Microseconds per MB of weights: parts can be added up."""
    decoding, encoding, rates = [], [], []
    for row in result["memory"]["limits"]:
        cost = {key: 1e6 / value for key, value in row["MBps"].items()}
        # A copy reads and writes every byte once; a codec reads or writes fewer.
        traffic = cost["memcpy"] * (1 + row["stored_bytes"] / row["raw_bytes"]) / 2
        whole, bare, cached = (cost[key] for key in ("decompress", "decompress without hashes",
                                                     "decompress without hashes, in cache"))
        stored = cost["hash of the stored frames"]
        decoding.append([row["name"]] + [f"{value:.0f}" for value in (whole, bare, whole - bare, cached, traffic)]
                        + [verdict(bare, cached, traffic)])
        whole, bare = cost["compress"], cost["compress without hashes"]
        encoding.append([row["name"]] + [f"{value:.0f}" for value in (whole, bare, whole - bare, traffic)])
        rates.append([row["name"], f"{row['MBps']['memcpy'] / 1e3:.1f}",
                      f"{row['MBps']['hash of the decoded chunks'] / 1e3:.1f}",
                      f"{row['stored_bytes'] / row['raw_bytes'] / stored * 1e3:.1f}"])
    return "\n".join([
        f"Microseconds for a MB (10^6 bytes) of weights, default level, kernel {best_kernel(result)}.\n",
        table(["decompress", "all", "without hashes", "hashes", "without hashes, in cache", "memory traffic alone",
               "without hashes, it waits for"], decoding),
        table(["compress", "all", "without hashes", "hashes", "memory traffic alone"], encoding),
        "By themselves, GB/s of the bytes that they read:\n",
        table(["", "memcpy", "XXH3-64 of decoded chunks", "XXH3-128 of stored frames"], rates),
        f"Memory touched for the first time, page by page: {result['memory']['fresh_pages_MBps'] / 1e3:.2f} GB/s.\n"])


# ---------------------------------------------------------------------------------------------------- chart

def svg(result):
    source = next(s for s in result["memory"]["inputs"] if s["dtype"] == "bf16" and (s["real"] or result["quick"]))
    best = best_kernel(result)
    points, left_out = {"compress_MBps": [], "decompress_MBps": []}, []
    for row in source["rows"]:
        if "failure" in row or row["program"] == "memcpy" or row["internal"]:
            continue
        if row.get("kernel") not in (None, best) or row["setting"] in ("df11", "bg-lz4"):
            continue
        size = 100 * row["stored_bytes"] / source["raw_bytes"]
        words = without_version(row)
        if size > 99:
            left_out.append(words)
            continue
        for key, list_ in points.items():
            if (row["program"], row["setting"], key) != ("tensorpress", "max", "compress_MBps"):  # far too slow to show
                list_.append((words, row[key] / 1e3, size, is_ours(row)))
    of = result["model"] or "random numbers"
    note = f"not shown, saves nothing: {', '.join(left_out)}" if left_out else ""
    return chart.draw(f"Size (of the original) against speed: BF16 weights, {of}", note, points["compress_MBps"],
                      points["decompress_MBps"], find(source["rows"], "memcpy")["decompress_MBps"] / 1e3)


# ------------------------------------------------------------------------------------------------ documents

def benchmarks(result):
    parts = [machine(result), "![size against speed](benchmarks.svg)\n",
             "### In memory, one thread\n", in_memory(result), "### Where another program is ahead\n", ahead(result)]
    if "sizes" in result:
        parts += ["### Sizes of whole files\n", "Of the original's size.\n", sizes(result)]
    parts += ["### Whole commands\n", commands(result), "### What bounds the speed\n", limits(result)]
    return "\n".join(parts)


def readme(result):
    """A few figures."""
    best = best_kernel(result)
    wanted = {"f32": "F32, as published", "bf16": "rounded to BF16", "f16": "rounded to F16",
              "bf16 in f32": "BF16 values kept in F32", "f32 in f64": "F32 values kept in F64"}
    rows = {row["name"]: row for row in result["sizes"]}
    versions = result["sizes"][0]["versions"]
    columns = [f"weights ({result['model']}, whole file)", "size after, of the original",
               f"ZipNN {versions['zipnn']}", f"lmz {versions['lmzip']}"]
    text = [table(columns, [[words] + [percent(rows[key][column], rows[key]["raw_bytes"])
                                       for column in ("tensorpress", "zipnn", "lmz")]
                            for key, words in wanted.items() if key in rows])]
    source = next(s for s in result["memory"]["inputs"] if s["name"] == "bf16")
    ours, zipnn = find(source["rows"], "tensorpress", "default", best), find(source["rows"], "ZipNN")
    def gigabytes(row):
        return f"{row['compress_MBps'] / 1e3:.1f}", f"{row['decompress_MBps'] / 1e3:.1f}"

    sentence = ("In memory, on one core with {}, BF16 weights are compressed at {} GB/s and decompressed at {} GB/s, "
                "all checksums included").format(best, *gigabytes(ours))
    if zipnn:
        sentence += " ({}: {} and {}, without any)".format(zipnn["program"], *gigabytes(zipnn))
    text += [sentence + ".\n", "![size against speed](docs/benchmarks.svg)\n"]
    return "\n".join(text)


def everything(result):
    """For the terminal."""
    return benchmarks(result)


def with_region(text, path, content):
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise ValueError(f"{path}: the marks around the tables are missing")
    return text[:text.index(BEGIN) + len(BEGIN)] + "\n" + content + "\n" + text[text.index(END):]


def install(result, root, check):
    """Exit status. Everything is made before anything is written."""
    if result["quick"] or not result["peers"] or "sizes" not in result:
        sys.exit("bench/compare: a quick run is not for the documents")
    files = {root / JSON: json.dumps(result, indent=1) + "\n", root / SVG: svg(result)}
    for path, content in ((root / COPIES[0], benchmarks(result)), (root / COPIES[1], readme(result))):
        try:
            files[path] = with_region(path.read_text(encoding="utf-8"), path, content)
        except ValueError as error:
            sys.exit(f"bench/compare: {error}")
    stale = [path for path, content in files.items()
             if not path.exists() or path.read_text(encoding="utf-8") != content]
    if check:
        for path in stale:
            print(f"bench/compare: {path} is not what --render makes of this result", file=sys.stderr)
        return 1 if stale else 0
    for path in stale:
        path.write_text(files[path], encoding="utf-8")
    print("\n".join(f"written: {path}" for path in stale) or "nothing to do")
    return 0
