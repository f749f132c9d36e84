#!/usr/bin/env python3
"""Tests bench/compare without network: a quick run, its JSON and tables, what it does with programs that fail, the
chart, and that the documents are what it makes of the result that lies beside them.

    test_compare.py --compare FILE --build DIR --source DIR
"""
import argparse
import copy
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree
from unittest import mock

SVG_NAME = "{http://www.w3.org/2000/svg}"


def compare(*arguments):
    return subprocess.run([sys.executable, str(OPTIONS.compare), *map(str, arguments)], capture_output=True, text=True,
                          check=False)


class QuickRun(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        path = pathlib.Path(cls.folder.name) / "result.json"
        cls.done = compare("--quick", "--build", OPTIONS.build, "--output", path)
        if cls.done.returncode:
            raise AssertionError(cls.done.stderr)
        cls.result = json.loads(path.read_text())

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def rows(self, name):
        return next(source for source in self.result["memory"]["inputs"] if source["name"] == name)["rows"]

    def test_says_what_it_is(self):
        self.assertTrue(self.result["quick"])
        self.assertFalse(self.result["peers"])
        self.assertIn("only tensorpress and memcpy were measured", self.done.stdout)
        self.assertIn("quick run", self.done.stdout)

    def test_every_row_did_its_work(self):
        for source in self.result["memory"]["inputs"]:
            self.assertEqual(source["rows"][0]["program"], "memcpy")
            for row in source["rows"]:
                self.assertNotIn("failure", row)
                self.assertGreater(row["compress_MBps"], 0)
                self.assertGreater(row["decompress_MBps"], 0)
                self.assertLessEqual(row["stored_bytes"], source["raw_bytes"] + 128)

    def test_sizes(self):
        # The entropy of these numbers is 65.4 % (bf16), 84.1 % (f16), 82.8 % (f32).
        for name, low, high in (("random bf16", 65.4, 66.5), ("random f16", 84.0, 85), ("random f32", 82.6, 83.5),
                                ("random f64", 86.3, 87)):
            row = next(row for row in self.rows(name) if row["setting"] == "default")
            self.assertTrue(low < 100 * row["stored_bytes"] / (1 << 20) < high, (name, row))

    def test_kernels(self):
        rows = [row for row in self.rows("random bf16")
                if (row["program"], row["setting"]) == ("tensorpress", "default")]
        self.assertEqual([row["kernel"] for row in rows], self.result["memory"]["kernels"])
        self.assertIn("portable", self.result["memory"]["kernels"])
        self.assertEqual(len({row["stored_bytes"] for row in rows}), 1)

    def test_limits_and_commands(self):
        for row in self.result["memory"]["limits"]:
            self.assertGreater(row["MBps"]["decompress without hashes"], 0)
        programs = {row["program"]: row for row in self.result["processes"]["rows"]}
        self.assertEqual(set(programs), {"tensorpress", "cp"})
        self.assertGreater(programs["tensorpress"]["decompress"]["user_s"], -1)
        self.assertLess(programs["tensorpress"]["stored_bytes"], 0.67 * self.result["processes"]["raw_bytes"])

    def test_is_not_for_the_documents(self):
        path = pathlib.Path(self.folder.name) / "result.json"
        done = compare("--render", path, "--root", self.folder.name)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("not for the documents", done.stderr)

    def full(self):
        """As a run with other programs would be."""
        result = copy.deepcopy(self.result)
        result.update(quick=False, peers=True, model="a model")
        for source in result["memory"]["inputs"]:
            source["name"], source["real"] = source["name"].removeprefix("random "), True
            source["rows"].append({"program": "ZipNN 9", "setting": "", "kernel": None, "internal": False,
                                   "stored_bytes": 10, "compress_timed_bytes": 1, "compress_MBps": 2e6,
                                   "decompress_MBps": 3.5, "page_faults": [0, 0]})
            source["rows"].append({"program": "lmz 9", "setting": "", "kernel": None, "internal": False,
                                   "failure": "does not take this"})
        result["sizes"] = [{"name": name, "raw_bytes": 1000, "tensorpress": 500, "zipnn": None, "lmz": 600,
                            "versions": {"zipnn": "9", "lmzip": "9"}}
                           for name in ("bf16", "f16", "f32", "bf16 in f32", "f32 in f64")]
        return result

    def test_render(self):
        with tempfile.TemporaryDirectory() as name:
            root = pathlib.Path(name)
            (root / "docs").mkdir()
            path = root / "full.json"
            path.write_text(json.dumps(self.full()))
            document, readme = root / "docs" / "benchmarks.md", root / "README.md"
            document.write_text(f"before\n{render.BEGIN}old\n{render.END}after\n")
            readme.write_text("no marks")
            done = compare("--render", path, "--root", root)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("README.md: the marks", done.stderr)
            self.assertIn("old", document.read_text())  # nothing was written
            readme.write_text(f"top\n{render.BEGIN}{render.END}bottom\n")
            self.assertEqual(compare("--render", path, "--root", root, "--check").returncode, 1)
            self.assertEqual(compare("--render", path, "--root", root).returncode, 0)
            self.assertEqual(compare("--render", path, "--root", root, "--check").returncode, 0)
            stored = root / "docs" / "benchmarks.json"
            self.assertEqual(compare("--render", stored, "--root", root, "--check").returncode, 0)
            text = document.read_text()
            self.assertTrue(text.startswith("before\n") and text.endswith("after\n"))
            self.assertNotIn("old", text)
            self.assertIn("| lmz 9 | does not take this |", text)
            self.assertIn("ZipNN 9 (0.00 %)", text)  # smaller than tensorpress: said so
            self.assertIn("50.00 %", readme.read_text())
            self.chart((root / "docs" / "benchmarks.svg").read_text())
            document.write_text(text.replace("does not take this", "takes this"))
            self.assertEqual(compare("--render", path, "--root", root, "--check").returncode, 1)

    def chart(self, text):
        self.assertIn("prefers-color-scheme: dark", text)
        root = xml.etree.ElementTree.fromstring(text)
        width, height = map(float, root.get("viewBox").split()[2:])
        labels = [element.text for element in root.iter(f"{SVG_NAME}text")]
        self.assertEqual(labels.count("tensorpress default"), 2)
        self.assertIn("ZipNN", labels)
        self.assertNotIn("lmz", labels)  # it failed
        for element in root.iter(f"{SVG_NAME}circle"):
            self.assertTrue(0 < float(element.get("cx")) < width and 0 < float(element.get("cy")) < height)


class Codecs(unittest.TestCase):
    def test_failures_are_shown_in_words(self):
        class Wrong(codecs.Memcpy):
            def decompress(self):
                super().decompress()
                self.restored.view[self.raw.size - 1] ^= 1

        class Raising(codecs.Memcpy):
            def compress(self):
                raise ValueError("cannot\ndo this")

        class Missing(codecs.Memcpy):
            def prepare(self, *arguments):
                raise codecs.Failure("does not take it")

        with mock.patch.object(sys, "stderr"):
            result = memory.measure_input(data.quick_inputs(1 << 16)[0], [Wrong(), Raising(), Missing()], 7)
        self.assertEqual([row.get("failure") for row in result["rows"]],
                         [None, "does not restore its input", "cannot do this", "does not take it"])

    def test_labels_do_not_overlap(self):
        points = [(100 + 3 * i, 100 + i, f"label {i}") for i in range(8)]
        areas = [(x, y, x + chart.label_width(text)) for (x, y, _), (*_, text)
                 in zip(chart.place_labels(points, (0, 0, 400, 300)), points)]
        for i, (left, y, right) in enumerate(areas):
            for other_left, other_y, other_right in areas[:i]:
                self.assertTrue(right <= other_left or other_right <= left or abs(y - other_y) >= chart.FONT)

    def test_busy_machine(self):
        with mock.patch.object(os, "getloadavg", return_value=(99.0, 0, 0)), \
                mock.patch.object(machine.Others, "cores", return_value=0.0), mock.patch.object(machine.time, "sleep"):
            self.assertIn("load average is 99.0", machine.busy())
        with mock.patch.object(machine.Others, "cores", return_value=1.5), mock.patch.object(machine.time, "sleep"):
            self.assertIn("use 1.5 cores", machine.busy())

    def test_documents_are_of_their_result(self):
        done = compare("--render", OPTIONS.source / "docs" / "benchmarks.json", "--root", OPTIONS.source, "--check")
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for option in ("--compare", "--build", "--source"):
        parser.add_argument(option, type=pathlib.Path, required=True)
    OPTIONS, rest = parser.parse_known_args()
    sys.path.insert(0, str(OPTIONS.compare.parent))
    sys.dont_write_bytecode = True
    from comparison import chart, codecs, data, machine, memory, render
    unittest.main(argv=[sys.argv[0], *rest])
