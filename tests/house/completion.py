"""A shell's completion offers the verbs, options and values that the program has, and works in the shell itself.

    completion.py SHELL SCRIPT TENSORPRESS

The script is loaded by the shell and asked through the shell's own functions; then keys are typed at an interactive
shell, on a terminal. Exit status 77: there is no such shell here.
"""
import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time

import command

SHELL, SCRIPT, PROGRAM = sys.argv[1], os.path.abspath(sys.argv[2]), os.path.abspath(sys.argv[3])
FLAGS = {"bash": ["--norc", "--noprofile"], "zsh": ["-f"], "fish": ["--no-config"]}[SHELL]
# A dumb terminal: no colours, no questions to the terminal.
ENVIRONMENT = {"PATH": os.environ["PATH"], "TERM": "dumb", "LC_ALL": "C.UTF-8"}


def run(script, *arguments, folder=None):
    done = subprocess.run([SHELL, *FLAGS, "-c", script, SHELL, *arguments], capture_output=True, text=True,
                          cwd=folder, env=ENVIRONMENT | {"HOME": folder or "/"}, stdin=subprocess.DEVNULL)
    assert done.returncode == 0 and done.stderr == "", (script, arguments, done.returncode, done.stderr)
    return done.stdout.splitlines()


# ------------------------------------------------------------- what is offered after words, the last one unfinished

BASH = """. "$1" || exit; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _tensorpress
((${#COMPREPLY[@]} == 0)) || printf '%s\\n' "${COMPREPLY[@]}" """

# zsh's own _arguments needs a completion in progress: what it would be given is read instead.
ZSH_VERBS = """. $1; _arguments() { state=verb; return 1 }; _describe() { print -rl -- ${(P)4} }; _tensorpress"""
ZSH_OPTIONS = """. $1; _arguments() { print -rl -- "$@" }; _tensorpress_verb $2"""


def offered_by_zsh(*words):
    if len(words) == 2:
        return {line.split(":")[0] for line in run(ZSH_VERBS, SCRIPT)}
    found = {}
    for line in run(ZSH_OPTIONS, SCRIPT, words[1]):
        spec = re.match(r"(?:\([^)]*\))?(--?[\w-]+)([=+]?)\[[^]]*\](?::[^:]*:(?:\((.*)\))?.*)?$", line)
        if spec:
            found[spec[1]] = set(spec[3].split()) if spec[3] else set()
        else:
            assert re.match(r"-[sS]$|\d:", line), line
    return set(found) if words[-1] == "-" else found[words[-2]]


def offered(*words):
    if SHELL == "zsh":
        return offered_by_zsh(*words)
    if SHELL == "bash":
        return set(run(BASH, SCRIPT, *words))
    line = " ".join(words)
    return {line.split("\t")[0] for line in run(f"source $argv[2]; complete -C '{line}'", SCRIPT)}


def compare(what, found, wanted):
    assert found == wanted, f"{what}: missing {sorted(wanted - found)}, not of the program {sorted(found - wanted)}"


def test_offers(verbs):
    found = {word for word in offered("tensorpress", "") if not word.startswith("-")}
    compare("verbs", found, set(verbs))
    for verb, options in verbs.items():
        found = offered("tensorpress", verb, "-")
        if SHELL == "fish":  # long options come only after letters that do not end the search
            found |= offered("tensorpress", verb, "--")
        compare(verb, found, command.spellings(options))
        for option in options:
            for spelling in option.spellings if option.values else ():
                compare(f"{verb} {spelling}", offered("tensorpress", verb, spelling, ""), option.values)


# --------------------------------------------------------------------------------------------- keys at a terminal

SETUP = {
    "bash": "PS1='> '; bind 'set bell-style none'; . '{script}'",
    "zsh": "PS1='> '; fpath=('{folder}/functions' $fpath); autoload -U compinit; compinit -D -u",
    "fish": "function fish_prompt; echo '> '; end; source '{script}'",
}


class Terminal:
    def __init__(self, folder):
        self.seen = b""
        self.pid, self.file = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            path = f"{folder}:{ENVIRONMENT['PATH']}"
            os.execvpe(SHELL, [SHELL, *FLAGS, "-i"], ENVIRONMENT | {"PATH": path, "HOME": folder})

    def wait(self, pattern):
        end = time.monotonic() + 60
        while not re.search(pattern, self.seen):
            ready, _, _ = select.select([self.file], [], [], max(0, end - time.monotonic()))
            assert ready, f"the shell does not show {pattern}: {self.seen}"
            try:
                self.seen += os.read(self.file, 4096)
            except OSError:
                sys.exit(f"the shell has gone: {self.seen}")

    def close(self):
        os.close(self.file)
        os.waitpid(self.pid, 0)  # it may write a history into its home

    def type(self, keys):
        self.seen = b""
        os.write(self.file, keys.encode())


def test_terminal():
    """A program in tensorpress's place writes down what it is called with."""
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        (place / "functions").mkdir()
        shutil.copy(SCRIPT, place / "functions/_tensorpress")
        (place / "tensorpress").write_text("#!/bin/sh\nprintf '%s\\n' \"$@\" >called.tmp\nmv called.tmp called\n")
        (place / "tensorpress").chmod(0o755)
        (place / "a model.safetensors").touch()
        equals = "=" if SHELL == "zsh" else " "
        terminal = Terminal(folder)
        terminal.type(SETUP[SHELL].format(script=SCRIPT, folder=folder) + "; echo rea''dy\n")
        terminal.wait(rb"ready\r")
        for keys, words in (
            # A verb, an option (zsh puts a = behind it), its value, a file whose name must be quoted.
            ("tensorpress comp\t--lev\tfa\ta\\ mo\t\n", f"compress --level{equals}fast|a model.safetensors"),
            ("tensorpress compress --level=fa\t --dry\ta\\ mo\t\n",
             "compress --level=fast --dry-run|a model.safetensors"),
            ("tensorpress load --dev\tcu\ta\\ mo\t\n", f"load --device{equals}cuda|a model.safetensors"),
        ):
            terminal.type(keys)
            called = place / "called"
            end = time.monotonic() + 60
            while not called.exists():
                assert time.monotonic() < end, f"{keys!r} calls nothing: {terminal.seen}"
                ready, _, _ = select.select([terminal.file], [], [], 0.05)
                if ready:
                    terminal.seen += os.read(terminal.file, 4096)
            options, file = words.split("|")
            got = called.read_text().splitlines()
            assert got == [*options.split(), file], (keys, got)
            called.unlink()
        terminal.close()


if not shutil.which(SHELL):
    print(f"there is no {SHELL}")
    sys.exit(77)
test_offers(command.verbs_of(PROGRAM))
test_terminal()
