#!/usr/bin/env python3
"""tensorpress convert, to DFloat11 and back, and --codec df11.

    test_convert.py TENSORPRESS VECTORS

VECTORS holds units that the reference encoder made, with the weights they were made of. What comes back is
compared byte for byte; what convert writes is read here with nothing but the standard library.
"""

import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
TENSORPRESS = VECTORS = None
ARRAYS = ("luts", "encoded_exponent", "sign_mantissa", "output_positions", "gaps", "split_positions")


def save(path, tensors, metadata=None, pad=True):
    """tensors: (name, dtype, shape, bytes) in the order of the file."""
    header, at = {}, 0
    if metadata is not None:
        header["__metadata__"] = metadata
    for name, dtype, shape, data in tensors:
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    if pad:
        text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(t[3] for t in tensors))


def load(path):
    """name: (dtype, shape, bytes), and the metadata."""
    with open(path, "rb") as f:
        data = f.read()
    size = struct.unpack_from("<Q", data)[0]
    header = json.loads(data[8 : 8 + size])
    metadata = header.pop("__metadata__", None)
    return {
        name: (t["dtype"], t["shape"], data[8 + size + t["data_offsets"][0] : 8 + size + t["data_offsets"][1]])
        for name, t in header.items()
    }, metadata


def load_all(folder):
    tensors = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(".safetensors"):
            tensors.update(load(os.path.join(folder, name))[0])
    return tensors


def read(path):
    with open(path, "rb") as f:
        return f.read()


def bf16(rng, rows, columns, scale=0.02):
    values = (rng.gauss(0, scale) for _ in range(rows * columns))
    return b"".join(struct.pack("<f", v)[2:] for v in values)


def matrix(rng, name, rows, columns):
    return name, "BF16", (rows, columns), bf16(rng, rows, columns)


def norm(rng, name, n):
    return name, "BF16", (n,), bf16(rng, 1, n)


PROJECTIONS = (
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.o_proj",
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
)


def llama(rng, layers=2, head=True):
    """Tensors of a small model, in no good order."""
    tensors = [matrix(rng, "model.embed_tokens.weight", 50, 32), norm(rng, "model.norm.weight", 32)]
    for i in range(layers):
        for k, p in enumerate(PROJECTIONS):
            tensors.append(matrix(rng, "model.layers.%d.%s.weight" % (i, p), 32 + 8 * k, 32))
        tensors.append(norm(rng, "model.layers.%d.input_layernorm.weight" % i, 32))
        tensors.append(("model.layers.%d.count" % i, "I64", (), struct.pack("<q", i)))
    if head:
        tensors.append(matrix(rng, "lm_head.weight", 50, 32))
    return tensors


CONFIG = '{\n  "model_type": "llama",\n  "rope_theta": 1e4,  "tie_word_embeddings": %s\n}\n'


class Case(unittest.TestCase):
    def setUp(self):
        self.rng = random.Random(self.id())
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def write(self, name, data):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "wb") as f:
            f.write(data if isinstance(data, bytes) else data.encode())

    def run_command(self, *arguments, status=0):
        done = subprocess.run(
            [TENSORPRESS, *arguments], cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self.assertEqual(done.returncode, status, done.stderr.decode(errors="replace"))
        if status:
            self.assertRegex(done.stderr, rb"\Atensorpress: [^\n]+\n\Z")
        self.assertEqual([n for n in os.listdir(self.folder) if ".tpress-" in n], [])
        return done.stderr.decode()

    def convert(self, source, target, to, *more, status=0):
        return self.run_command("convert", source, "-o", target, "--to", to, *more, status=status)

    def same_tree(self, a, b):
        for one, other in ((a, b), (b, a)):
            for base, folders, files in os.walk(self.path(one)):
                inside = os.path.relpath(base, self.path(one))
                for name in files + folders:
                    self.assertTrue(os.path.exists(self.path(other, inside, name)), name)
                for name in files:
                    self.assertEqual(read(os.path.join(base, name)), read(self.path(other, inside, name)), name)


class Vectors(Case):
    def test_both_ways(self):
        with open(os.path.join(VECTORS, "config.json"), encoding="utf-8") as f:
            patterns = json.load(f)["dfloat11_config"]["pattern_dict"]
        self.write("patterns.json", json.dumps(patterns))
        names = sorted(n[: -len(".df11.safetensors")] for n in os.listdir(VECTORS) if n.endswith(".df11.safetensors"))
        self.assertGreaterEqual(len(names), 2)
        for name in names:
            official, _ = load(os.path.join(VECTORS, name + ".df11.safetensors"))
            original = os.path.join(VECTORS, name + ".orig.safetensors")
            self.convert(original, name + "-df11", "df11", "--pattern-dict", "patterns.json")
            self.assertEqual(load_all(self.path(name + "-df11")), official)
            self.convert(name + "-df11", name + "-back", "safetensors")
            self.assertEqual(read(self.path(name + "-back", "model.safetensors")), read(original))
            # The official checkpoint knows no shapes.
            os.mkdir(self.path(name))
            shutil.copy(os.path.join(VECTORS, name + ".df11.safetensors"), self.path(name))
            shutil.copy(os.path.join(VECTORS, "config.json"), self.path(name))
            self.convert(name, name + "-with", "safetensors", "--reference", original)
            self.assertEqual(read(self.path(name + "-with", "model.safetensors")), read(original))
            said = self.convert(name, name + "-flat", "safetensors")
            self.assertIn("one-dimensional", said)
            flat, original_tensors = load_all(self.path(name + "-flat")), load(original)[0]
            self.assertEqual(
                {n: (t[0], t[2]) for n, t in flat.items()}, {n: (t[0], t[2]) for n, t in original_tensors.items()}
            )
            self.assertTrue(all(len(t[1]) == 1 for t in flat.values()))


class Models(Case):
    def model(self, tensors, tied="false", shards=1):
        self.write("model/config.json", CONFIG % tied)
        self.write("model/tokenizer.json", "{}")
        self.write("model/more/readme.md", "text")
        self.write("model/more/empty", "")
        weight_map = {}
        for i in range(shards):
            name = "model.safetensors" if shards == 1 else "model-%05d-of-%05d.safetensors" % (i + 1, shards)
            part = tensors[i::shards]
            save(self.path("model", name), part, {"format": "pt", "a": 'quoted " and \\ \u00e9'})
            weight_map.update((t[0], name) for t in part)
        if shards > 1:
            index = {"metadata": {"total_size": sum(len(t[3]) for t in tensors)}, "weight_map": weight_map}
            self.write("model/model.safetensors.index.json", json.dumps(index, indent=2) + "\n")

    def test_llama(self):
        for shards in (1, 3):
            self.model(llama(self.rng), shards=shards)
            self.convert("model", "df11", "df11", "--verify")
            files = set(os.listdir(self.path("df11")))
            self.assertEqual(
                files,
                {
                    "config.json",
                    "lm_head.safetensors",
                    "model_embed_tokens.safetensors",
                    "model_layers_0.safetensors",
                    "model_layers_1.safetensors",
                    "model.safetensors",
                    "tokenizer.json",
                    "more",
                },
            )
            layer, metadata = load(self.path("df11", "model_layers_1.safetensors"))
            self.assertEqual(
                set(layer),
                {"model.layers.1." + a for a in ARRAYS}
                | {"model.layers.1.input_layernorm.weight", "model.layers.1.count"},
            )
            self.assertEqual(len(json.loads(metadata["tensorpress.shapes"])), 7)
            splits = struct.unpack("<6q", layer["model.layers.1.split_positions"][2])
            self.assertEqual(splits, tuple(32 * sum(32 + 8 * j for j in range(k + 1)) for k in range(6)))
            self.assertEqual(set(load(self.path("df11", "model.safetensors"))[0]), {"model.norm.weight"})
            config = read(self.path("df11", "config.json")).decode()
            self.assertTrue(config.startswith((CONFIG % "false").rstrip("\n}")))
            df11 = json.loads(config)["dfloat11_config"]
            self.assertEqual(set(df11), {"version", "threads_per_block", "bytes_per_thread", "pattern_dict"})
            self.assertEqual(df11["threads_per_block"], [512])
            self.assertEqual(df11["bytes_per_thread"], 8)
            self.assertEqual(
                list(df11["pattern_dict"].items()),
                [
                    ("lm_head", []),
                    ("model\\.embed_tokens", []),
                    ("model\\.layers\\.\\d+", list(PROJECTIONS)),
                ],
            )
            self.convert("df11", "back", "safetensors")
            self.same_tree("model", "back")
            # Grouping of tensors into files, and our metadata, carry no meaning.
            os.mkdir(self.path("one"))
            tensors = [(n, *t) for n, t in load_all(self.path("df11")).items()]
            save(self.path("one", "any.safetensors"), tensors)
            shutil.copy(self.path("df11", "config.json"), self.path("one"))
            self.convert("one", "from-one", "safetensors", "--reference", "model")
            self.assertEqual(load_all(self.path("from-one")), load_all(self.path("model")))
            for name in ("model", "df11", "back", "one", "from-one"):
                shutil.rmtree(self.path(name))

    def test_threads(self):
        tensors = [matrix(self.rng, "model.layers.0.%s.weight" % p, 300, 700) for p in PROJECTIONS[:2]]
        self.model(tensors)
        self.convert("model", "one", "df11", "-j1")
        self.convert("model", "five", "df11", "-j5")
        self.same_tree("one", "five")
        self.convert("five", "back", "safetensors", "-j3")
        self.same_tree("model", "back")

    def test_tied(self):
        tensors = llama(self.rng, head=False)
        tensors.append(("lm_head.weight", "BF16", (50, 32), tensors[0][3]))
        self.model(tensors, tied="true")
        self.convert("model", "df11", "df11")
        stored = load_all(self.path("df11"))
        self.assertNotIn("lm_head.weight", stored)
        self.assertIn("model.embed_tokens.weight", stored)
        self.convert("df11", "back", "safetensors")
        self.same_tree("model", "back")
        self.convert("df11", "again", "safetensors", "--reference", "model")
        self.assertEqual(load_all(self.path("again")), load_all(self.path("model")))
        # Not really tied: nothing may be lost.
        tensors[-1] = matrix(self.rng, "lm_head.weight", 50, 32)
        self.model(tensors, tied="true")
        self.assertIn("tie_word_embeddings", self.convert("model", "df11-b", "df11"))
        self.convert("df11-b", "back-b", "safetensors")
        self.same_tree("model", "back-b")

    def test_large_exponents(self):
        tensors = llama(self.rng)
        at = [t[0] for t in tensors].index("model.layers.1.mlp.up_proj.weight")
        for bits in (0x7800, 0x7F80, 0xFFC1):
            name, dtype, shape, data = tensors[at]
            tensors[at] = (name, dtype, shape, data[:40] + struct.pack("<H", bits) + data[42:])
            self.model(tensors)
            said = self.convert("model", "df11", "df11")
            self.assertIn("unit 'model.layers.1' is left as it is", said)
            stored = load_all(self.path("df11"))
            self.assertEqual(stored[name][2], tensors[at][3])
            self.assertNotIn("model.layers.1.luts", stored)
            self.assertIn("model.layers.0.luts", stored)
            self.convert("df11", "back", "safetensors")
            self.same_tree("model", "back")
            shutil.rmtree(self.path("df11"))
            shutil.rmtree(self.path("back"))

    def test_unknown_family(self):
        """A unit for every matrix; what is none stays."""
        tensors = [
            matrix(self.rng, "encoder.layer.%d.dense.weight" % i, 40, 30) for i in (0, 1, 10)
        ] + [
            norm(self.rng, "encoder.layer.0.dense.bias", 40),
            matrix(self.rng, "pos_embed", 9, 9),
            ("half.weight", "F16", (4, 4), bytes(range(32))),
            ("conv.weight", "BF16", (2, 2, 2), bytes(16)),
            ("empty.weight", "BF16", (0, 8), b""),
            matrix(self.rng, "odd name/x+y.weight", 20, 20),
        ]
        save(self.path("w.safetensors"), tensors)
        self.convert("w.safetensors", "df11", "df11")
        patterns = json.loads(read(self.path("df11", "config.json")))["dfloat11_config"]["pattern_dict"]
        self.assertEqual(patterns, {"encoder\\.layer\\.\\d+\\.dense": [], "odd name/x\\+y": []})
        stored = load_all(self.path("df11"))
        self.assertEqual(sum(n.endswith(".luts") for n in stored), 4)
        dense, _ = load(self.path("df11", "encoder_layer_0_dense.safetensors"))
        self.assertIn("encoder.layer.0.dense.bias", dense)
        self.convert("df11", "back", "safetensors")
        self.assertEqual(read(self.path("back", "model.safetensors")), read(self.path("w.safetensors")))
        self.assertEqual(os.listdir(self.path("back")), ["model.safetensors"])

    def test_families(self):
        flux = {
            "transformer_blocks": "norm1.linear norm1_context.linear attn.to_q attn.to_k attn.to_v attn.add_k_proj "
            "attn.add_v_proj attn.add_q_proj attn.to_out.0 attn.to_add_out ff.net.0.proj ff.net.2 "
            "ff_context.net.0.proj ff_context.net.2",
            "single_transformer_blocks": "norm.linear proj_mlp proj_out attn.to_q attn.to_k attn.to_v",
        }
        wan = {"blocks": "attn1.to_q attn1.to_k attn1.to_v attn1.to_out.0 attn2.to_q attn2.to_k attn2.to_v "
               "attn2.to_out.0 ffn.net.0.proj ffn.net.2"}
        phi4 = {"model.layers": "self_attn.o_proj self_attn.qkv_proj mlp.gate_up_proj mlp.down_proj"}
        comfy = {
            "double_blocks": "img_mod.lin img_attn.qkv img_attn.proj img_mlp.0 img_mlp.2 txt_mod.lin txt_attn.qkv "
            "txt_attn.proj txt_mlp.0 txt_mlp.2",
            "single_blocks": "linear1 linear2 modulation.lin",
        }
        for config, family in (
            ('{"_class_name": "FluxTransformer2DModel"}', flux),
            ('{"_class_name": "WanTransformer3DModel"}', wan),
            ('{"model_type": "phi3"}', phi4),
            (None, comfy),
        ):
            tensors = [
                matrix(self.rng, "%s.%d.%s.weight" % (blocks, i, attr), 12, 16)
                for blocks, attrs in family.items()
                for i in (0, 1)
                for attr in reversed(attrs.split())
            ]
            os.mkdir(self.path("model"))
            save(self.path("model", "w.safetensors"), tensors)
            if config:
                self.write("model/config.json", config)
            self.convert("model", "df11", "df11")
            patterns = json.loads(read(self.path("df11", "config.json")))["dfloat11_config"]["pattern_dict"]
            self.assertEqual(
                patterns,
                {
                    blocks.replace(".", "\\.") + "\\.\\d+": attrs.split()
                    for blocks, attrs in family.items()
                },
            )
            remainder = "diffusion_pytorch_model" if config and "_class" in config else "model"
            self.assertTrue(os.path.exists(self.path("df11", remainder + ".safetensors")))
            # As ComfyUI has it: one file, no config, no metadata.
            if not config:
                tensors = [(n, *t) for n, t in load_all(self.path("df11")).items()]
                save(self.path("one.safetensors"), tensors)
                self.convert("one.safetensors", "back", "safetensors", "--reference", "model")
            else:
                self.convert("df11", "back", "safetensors")
            self.assertEqual(load_all(self.path("back")), load_all(self.path("model")))
            for name in ("model", "df11", "back"):
                shutil.rmtree(self.path(name))

    def test_blocks_that_differ(self):
        """SD3: the last block has no context of its own."""
        names = ["transformer_blocks.%d.%s.weight" % (i, a) for i in (0, 1, 2) for a in ("attn.to_q", "ff.net.2")]
        names += ["transformer_blocks.%d.attn.to_add_out.weight" % i for i in (0, 1)]
        save(self.path("w.safetensors"), [matrix(self.rng, n, 20, 16) for n in names])
        self.write("config.json", '{"_class_name": "SD3Transformer2DModel"}')
        self.convert("w.safetensors", "df11", "df11")
        patterns = json.loads(read(self.path("df11", "config.json")))["dfloat11_config"]["pattern_dict"]
        self.assertEqual(
            patterns,
            {
                "transformer_blocks\\.0|transformer_blocks\\.1": ["attn.to_q", "attn.to_add_out", "ff.net.2"],
                "transformer_blocks\\.2": ["attn.to_q", "ff.net.2"],
            },
        )
        self.convert("df11", "back", "safetensors")
        self.assertEqual(load_all(self.path("back")), load(self.path("w.safetensors"))[0])

    def test_pattern_dict(self):
        self.model(llama(self.rng))
        given = {"model\\.layers\\.[01]": ["mlp.down_proj", "self_attn.q_proj"], "model.embed_(?:tokens)++": [], "x": ["y"]}
        self.write("p.json", json.dumps(given))
        self.convert("model", "df11", "df11", "--pattern-dict", "p.json")
        patterns = json.loads(read(self.path("df11", "config.json")))["dfloat11_config"]["pattern_dict"]
        self.assertEqual(list(patterns.items()), list(given.items()))
        stored = load_all(self.path("df11"))
        self.assertEqual(struct.unpack("<q", stored["model.layers.0.split_positions"][2]), (80 * 32,))
        self.assertIn("model.layers.0.mlp.up_proj.weight", stored)
        self.convert("df11", "back", "safetensors")
        self.same_tree("model", "back")
        for wrong in ('{"a(": []}', '{"a": 1}', '{"a": [1]}', "[]", "{", '{"(?=a)": []}', '{"a": ["b", "b"]}', ""):
            self.write("q.json", wrong)
            self.convert("model", "bad", "df11", "--pattern-dict", "q.json", status=2)
        # What would take a regular expression's engine for ever, or all memory.
        for costly in ("(x+?+)+?+", "(" * 300 + "x" + ")+" * 300, "(((x{1,99}){1,99}){1,99}){1,99}", "(?:(*ACCEPT))", "x{,9}{"):
            self.write("q.json", json.dumps({costly: []}))
            self.convert("model", "bad", "df11", "--pattern-dict", "q.json", status=2)
        self.write("q.json", json.dumps({"(([a-z_.0-9]+)+)+[!?]": []}))
        error = self.convert("model", "bad", "df11", "--pattern-dict", "q.json", status=3)
        self.assertIn("takes too many steps to match", error)
        self.convert("model", "bad", "df11", "--pattern-dict", "no such file", status=3)
        self.write("q.json", '{"model\\\\.layers\\\\.\\\\d+": ["mlp.up_proj", "mlp.up_proj"]}')
        self.convert("model", "bad", "df11", "--pattern-dict", "q.json", status=2)


class Inspect(Case):
    def test_units(self):
        save(self.path("w.safetensors"), llama(self.rng))
        self.write("config.json", CONFIG % "false")
        self.convert("w.safetensors", "df11", "df11")

        def inspect(*arguments):
            done = subprocess.run([TENSORPRESS, "inspect", *arguments], cwd=self.folder, stdout=subprocess.PIPE)
            self.assertEqual(done.returncode, 0)
            return done.stdout.decode()

        text = inspect("df11/model_layers_0.safetensors", "--tensors")
        weights = 32 * sum(32 + 8 * k for k in range(7))
        self.assertIn("DFloat11: 1 unit, %d weights" % weights, text)
        self.assertIn("unit model.layers.0: %d weights in 7 tensors" % weights, text)
        self.assertEqual(inspect("df11").count("DFloat11: 1 unit"), 4)
        self.assertNotIn("DFloat11", inspect("w.safetensors"))
        keys = {"name", "dtype", "shape", "offset", "nbytes"}
        for t in json.loads(inspect("df11/model_layers_0.safetensors", "--json"))["tensors"]:
            self.assertEqual(set(t), keys)


class Refusals(Case):
    def test_usage(self):
        save(self.path("w.safetensors"), [matrix(self.rng, "a.weight", 20, 20)])
        save(self.path("f32.safetensors"), [("a.weight", "F32", (2, 2), bytes(16))])
        self.run_command("convert", "w.safetensors", status=2)
        self.run_command("convert", "w.safetensors", "--to", "df11", status=2)
        self.run_command("convert", "w.safetensors", "-o", "x", status=2)
        self.convert("w.safetensors", "x", "gguf", status=2)
        self.convert("w.safetensors", "x", "df11", "--reference", "w.safetensors", status=2)
        self.convert("f32.safetensors", "x", "df11", status=2)
        self.convert("w.safetensors", "x", "safetensors", status=2)
        self.convert("nothing", "x", "df11", status=3)
        self.write("text.safetensors", "not at all")
        self.convert("text.safetensors", "x", "df11", status=1)
        self.assertFalse(os.path.exists(self.path("x")))
        self.convert("w.safetensors", "x", "df11")
        self.convert("w.safetensors", "x", "df11", status=2)
        self.convert("w.safetensors", "x", "df11", "-f", status=2)
        self.convert("x", "y", "df11", status=2)
        os.mkdir(self.path("m"))
        shutil.copy(self.path("w.safetensors"), self.path("m"))
        self.convert("m", "m/inside", "df11", status=2)
        self.assertEqual(os.listdir(self.path("m")), ["w.safetensors"])
        os.mkdir(self.path("empty"))
        self.convert("empty", "z", "df11", status=2)
        self.convert("w.safetensors", "empty", "df11", status=2)
        self.convert("w.safetensors", "empty", "df11", "-f")
        self.write("m/config.json", '{"dfloat11_config": {"version": "0.1.0"}}')
        self.convert("m", "z", "safetensors", status=4)
        self.convert("m", "z", "df11", status=2)
        self.write("m/config.json", '{"dfloat11_config": {"version": "0.5.0", "threads_per_block": [256]}}')
        self.convert("m", "z", "safetensors", status=4)
        self.write("m/config.json", "[1]")
        self.convert("m", "z", "df11", status=2)
        cut = read(self.path("w.safetensors"))[:-1]
        self.write("cut.safetensors", cut)
        self.convert("cut.safetensors", "z", "df11", status=1)
        save(self.path("m", "v.safetensors"), [matrix(self.rng, "a.weight", 2, 2)])
        os.remove(self.path("m", "config.json"))
        self.assertIn("twice", self.convert("m", "z", "df11", status=1))

    def test_other_reference(self):
        save(self.path("w.safetensors"), [matrix(self.rng, "a.weight", 20, 20), norm(self.rng, "b.weight", 5)])
        self.convert("w.safetensors", "x", "df11")
        for tensors in (
            [("a.weight", "BF16", (20, 20), bytes(800))],
            [("a.weight", "BF16", (20, 21), bytes(840)), ("b.weight", "BF16", (5,), bytes(10))],
            [("a.weight", "F16", (20, 20), bytes(800)), ("b.weight", "BF16", (5,), bytes(10))],
            [("a.weight", "BF16", (20, 20), bytes(800)), ("b.weight", "BF16", (5,), bytes(10)), ("c", "U8", (1,), b"1")],
        ):
            save(self.path("other.safetensors"), tensors)
            self.convert("x", "y", "safetensors", "--reference", "other.safetensors", status=1)
            self.assertFalse(os.path.exists(self.path("y")))
        save(
            self.path("other.safetensors"),
            [("b.weight", "BF16", (5, 1), bytes(10)), ("a.weight", "BF16", (10, 40), bytes(800))],
        )
        self.convert("x", "y", "safetensors", "--reference", "other.safetensors")
        back, original = load_all(self.path("y")), load(self.path("w.safetensors"))[0]
        self.assertEqual(back["a.weight"], ("BF16", [10, 40], original["a.weight"][2]))

    def test_damage(self):
        """Whatever is changed in a checkpoint: an error, or tensors of the right sizes."""
        save(self.path("w.safetensors"), [matrix(self.rng, "a.weight", 90, 100), matrix(self.rng, "b.c.weight", 30, 30)])
        self.convert("w.safetensors", "x", "df11")
        good = read(self.path("x", "a.safetensors"))
        unit = load(self.path("x", "a.safetensors"))[0]
        header = 8 + struct.unpack_from("<Q", good)[0]
        start = {}
        for name, info in json.loads(good[8:header]).items():
            if name != "__metadata__":
                start[name] = header + info["data_offsets"][0]
        seen = 0
        for _ in range(150):
            array = self.rng.choice(ARRAYS)
            size = len(unit["a." + array][2])
            if not size:
                continue
            at = start["a." + array] + self.rng.randrange(size)
            changed = bytearray(good)
            changed[at] ^= 1 << self.rng.randrange(8)
            self.write("x/a.safetensors", bytes(changed))
            done = subprocess.run(
                [TENSORPRESS, "convert", "x", "-o", "y", "--to", "safetensors", "-q"],
                cwd=self.folder,
                stderr=subprocess.PIPE,
            )
            self.assertIn(done.returncode, (0, 1), done.stderr)
            if array in ("gaps", "output_positions"):
                self.assertEqual(done.returncode, 1)
            seen += done.returncode
            if done.returncode == 0:
                back = load_all(self.path("y"))
                self.assertEqual(len(back["a.weight"][2]), 2 * 9000)
                shutil.rmtree(self.path("y"))
        self.assertGreater(seen, 40)
        for _ in range(100):
            changed = bytearray(good)
            for _ in range(3):
                changed[self.rng.randrange(header)] = self.rng.randrange(256)
            self.write("x/a.safetensors", bytes(changed))
            done = subprocess.run(
                [TENSORPRESS, "convert", "x", "-o", "y", "--to", "safetensors", "-q"],
                cwd=self.folder,
                stderr=subprocess.PIPE,
            )
            self.assertIn(done.returncode, (0, 1, 2, 4), done.stderr)
            shutil.rmtree(self.path("y"), ignore_errors=True)
        for array in ARRAYS:
            tensors = [(n, *t) for n, t in unit.items() if n != "a." + array]
            save(self.path("x", "a.safetensors"), tensors)
            self.convert("x", "y", "safetensors", status=1 if array != "luts" else 0)
            shutil.rmtree(self.path("y"), ignore_errors=True)


class Codec(Case):
    def test_container(self):
        tensors = [matrix(self.rng, "a.weight", 300, 400), ("f.weight", "F32", (50, 50), bytes(bf16(self.rng, 50, 100)))]
        tensors.append(("nan.weight", "BF16", (100, 100), bf16(self.rng, 100, 99) + b"\xc0\x7f" * 100))
        save(self.path("w.safetensors"), tensors)
        self.run_command("compress", "--codec", "df11", "--verify", "w.safetensors")
        self.run_command("verify", "w.safetensors.tpress", "--against", "w.safetensors")
        self.run_command("decompress", "w.safetensors.tpress", "-o", "back")
        self.assertEqual(read(self.path("back")), read(self.path("w.safetensors")))
        done = subprocess.run(
            [TENSORPRESS, "inspect", "--json", "w.safetensors.tpress"], cwd=self.folder, stdout=subprocess.PIPE
        )
        methods = {t["name"]: t["method"] for t in json.loads(done.stdout)["files"][0]["tensors"]}
        self.assertEqual(methods["a.weight"], "df11")
        self.assertNotIn("df11", (methods["f.weight"], methods["nan.weight"]))
        self.run_command("extract", "w.safetensors.tpress", "a.weight", "--slice", "100:103", "-o", "rows")
        self.assertEqual(read(self.path("rows")), tensors[0][3][100 * 800 : 103 * 800])


if __name__ == "__main__":
    TENSORPRESS, VECTORS = (os.path.abspath(a) for a in sys.argv[1:3])
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
