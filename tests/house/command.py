"""What the program says of its own verbs and options, for tests of the texts that repeat it."""
import re
import subprocess


class Option:
    def __init__(self, letter, name, value, text):
        self.letter, self.name, self.value, self.text = letter, name, value, text
        self.spellings = {f"--{name}"} | ({f"-{letter}"} if letter else set())
        # "cpu (default), cuda or opencl, with :N for another": what is a word by itself is a value.
        self.values = set()
        if value in ("LEVEL", "NAME", "FORMAT"):
            words = re.split(r",\s*|\s+or\s+", re.sub(r"\s*\([^)]*\)", "", text.split(";")[0].split(": ")[-1]))
            self.values = {word for word in words if re.fullmatch(r"[a-z][\w-]*", word)}


def help_of(program, *words):
    return subprocess.run([program, *words, "--help"], check=True, capture_output=True, text=True).stdout


def verbs_of(program):
    """Verb -> options."""
    text = help_of(program)
    verbs = {}
    for verb in re.findall(r"^  (\w+)  ", text[text.index("Verbs:"):text.index("Examples:")], flags=re.M):
        listed = re.findall(r"^  (?:-(\w),|   ) --([\w-]+)(?: (\S+))?\s+(.*)$", help_of(program, verb), flags=re.M)
        verbs[verb] = [Option(*option) for option in listed]
    # Were the help's form to change, nothing would be found, and nothing compared.
    assert len(verbs) >= 9 and all(len(options) >= 2 for options in verbs.values()), verbs
    by_name = {option.name: option for options in verbs.values() for option in options}
    assert by_name["level"].values == {"fast", "default", "max"}, by_name["level"].values
    assert {"cpu", "cuda", "opencl"} <= by_name["device"].values and not by_name["threads"].values
    return verbs


def spellings(options):
    return {spelling for option in options for spelling in option.spellings}
