"""The manual page and docs/cli.md name the verbs, options and values that the program has, and no others.

    manual.py options PAGE DOCS/CLI.MD TENSORPRESS
    manual.py format PAGE       groff has no warnings; exit status 77: there is no groff here
"""
import pathlib
import re
import shutil
import subprocess
import sys

import command

OPTION = r"(?<![\w-])(--[a-z][\w-]*|-[a-zA-Z](?![\w-]))"


def check_format(page):
    if not shutil.which("groff"):
        print("there is no groff")
        return 77
    done = subprocess.run(["groff", "-man", "-ww", "-Tutf8", "-rLL=80n", page], capture_output=True, text=True)
    if done.returncode or done.stderr:
        sys.exit(f"groff: status {done.returncode}\n{done.stderr}")
    text = re.sub(r".\x08|\x1b\[[\d;]*m", "", done.stdout)
    for heading in ("NAME", "SYNOPSIS", "OPTIONS", "VERBS", "EXIT STATUS", "ENVIRONMENT", "FILES", "EXAMPLES"):
        if not re.search(f"^{heading}$", text, flags=re.M):
            sys.exit(f"no section {heading}")
    return 0


def plain(roff):
    """The words of some roff: macros at the start of a line, fonts, spaces and quotes taken away."""
    text = re.sub(r"^\.[A-Z]{1,2}\b", "", roff, flags=re.M)
    text = re.sub(r"\\f[A-Z]", "", text).replace("\\-", "-").replace("\\(aq", "'").replace('"', "")
    return re.sub(r"[ \n]+", " ", text)


def entries(section):
    """(tag, text) of each .TP."""
    for entry in re.split(r"^\.TP\n", section, flags=re.M)[1:]:
        tag, text = entry.split("\n", 1)
        yield plain(tag), plain(re.split(r"^\.(?:SS|SH)", text, flags=re.M)[0])


def check_page(text, verbs):
    common = text[text.index(".SS \"Common options\""):text.index(".SH VERBS")]
    sections = re.split(r"^\.SS (\w+)\n", text[text.index(".SH VERBS"):text.index('.SH "EXIT STATUS"')], flags=re.M)
    found = {verb: set() for verb in sections[1::2]}
    texts = {verb: {} for verb in found}
    if list(found) != list(dict.fromkeys(found)) or set(found) != set(verbs):
        yield f"the page has the verbs {sorted(found)}"
        return
    for tag, about in entries(common):
        spelled = set(re.findall(OPTION, tag))
        listed = re.search(r"\(([a-z, ]+)\)\s*$", about)
        if listed:
            of = re.findall(r"\w+", listed[1])
        elif "Every verb has it." in about:
            of = list(verbs)
        else:
            yield f"{tag}: does not say which verbs have it"
            continue
        for verb in of:
            found[verb] |= spelled
    for verb, section in zip(sections[1::2], sections[2::2]):
        for tag, about in entries(section):
            for spelled in re.findall(OPTION, tag):
                found[verb].add(spelled)
                texts[verb][spelled] = about
    for verb, options in verbs.items():
        yield from differences(f"{verb}, the page", found[verb], command.spellings(options))
        for option in options:
            about = texts[verb].get(f"--{option.name}", "")
            for value in option.values - set(re.findall(r"[a-z][\w-]*", about)):
                yield f"{verb} --{option.name}, the page: {value} is missing"


def differences(where, found, wanted):
    for option in sorted(wanted - found):
        yield f"{where}: {option} is missing"
    for option in sorted(found - wanted):
        yield f"{where}: {option} is not an option of the program"


def check_document(text, verbs):
    sections = dict(zip(*[iter(re.split(r"^## (.*)\n", text, flags=re.M)[1:])] * 2))
    common = set(re.findall(OPTION, sections["Options of the verbs that write"]))
    for verb, options in verbs.items():
        # What its synopsis and its text in `...` name is there; what is there is named here or above.
        section = sections[verb]
        synopsis = re.search(rf"^    tensorpress {verb}.*", section, flags=re.M)
        spans = re.findall(r"`(-[^`]*)`", section)
        named = set(re.findall(OPTION, " ".join(spans) + (synopsis[0] if synopsis else "")))
        wanted = command.spellings(options)
        known = named | common | {"-h", "--help", "--version"}
        if not synopsis and len(wanted) > 3:
            yield f"{verb}, the document: no synopsis"
        yield from differences(f"{verb}, the document", wanted & known | named, wanted)
        for option in options:
            for value in option.values - set(re.findall(r"[a-z][\w-]*", section)):
                yield f"{verb} --{option.name}, the document: {value} is missing"


if sys.argv[1] == "format":
    sys.exit(check_format(sys.argv[2]))
page, document, program = sys.argv[2:]
verbs = command.verbs_of(program)
faults = [*check_page(pathlib.Path(page).read_text(), verbs),
          *check_document(pathlib.Path(document).read_text(), verbs)]
for fault in faults:
    print(fault)
sys.exit(1 if faults else 0)
