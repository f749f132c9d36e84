#!/usr/bin/env python3
"""Puts what test_faults.py found as a table into docs/reliability.md, between its two marks.

    render_table.py MATRIX.json RELIABILITY.md
"""
import json
import sys

BEGIN, END = "<!-- table: begin -->\n", "<!-- table: end -->\n"
COLUMNS = ["compress", "compress FOLDER", "decompress", "decompress FOLDER", "verify", "extract",
           "load", "convert", "inspect", "other verbs"]
SECTIONS = ["No fault", "A call fails", "No memory", "Signals", "Places", "Input changes meanwhile"]


def cell(outcomes):
    return ", ".join(sorted(outcomes)).replace("*", "\\*") if outcomes else ""


def merged(rows):
    """Rows of one call that came out alike become one: `pread` EIO, ENOMEM."""
    lines = {}
    for fault, cells, runs in rows:
        call, _, answer = fault.rpartition("` ") if fault.startswith("`") else (fault, "", "")
        answers, total = lines.get((call, *cells), ([], 0))
        lines[call, *cells] = ([*answers, answer], total + runs)
    for (call, *cells), (answers, runs) in lines.items():
        yield [call + ("` " + ", ".join(answers) if answers[0] else ""), *cells, str(runs)]


def table(matrix):
    lines = []
    for section in SECTIONS:
        rows = sorted((row["fault"], row["outcomes"]) for row in matrix["rows"] if row["section"] == section)
        columns = [column for column in COLUMNS if any(column in outcomes for _, outcomes in rows)]
        if not rows:
            continue
        lines += [f"### {section}", "", f"| fault | {' | '.join(columns)} | runs |",
                  "| --- |" + " --- |" * len(columns) + " ---: |"]
        for row in merged((fault, [cell(outcomes.get(column)) for column in columns],
                           sum(sum(o.values()) for o in outcomes.values())) for fault, outcomes in rows):
            lines.append(f"| {' | '.join(row)} |")
        lines.append("")
    kind = "every case" if matrix["full"] else "a part of the cases"
    lines.append(f"{matrix['runs']} runs ({kind}), {matrix['failed']} failed.")
    lines += [f"Not run: {name} ({why})." for name, why in matrix["not_run"].items()]
    return "\n".join(lines) + "\n"


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as f:
        matrix = json.load(f)
    with open(sys.argv[2], encoding="utf-8") as f:
        text = f.read()
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        sys.exit(f"{sys.argv[2]}: the marks around the table are missing")
    before, after = text[:text.index(BEGIN) + len(BEGIN)], text[text.index(END):]
    with open(sys.argv[2], "w", encoding="utf-8") as f:
        f.write(f"{before}\n{table(matrix)}\n{after}")


main()
