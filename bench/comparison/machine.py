"""The machine, whether others use it, and how to be disturbed least."""
import os
import platform
import re
import shutil
import subprocess
import time


def cpu_model():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        fields = dict(re.findall(r"^(model name|cpu family|model)\s*: (.*)$", file.read().split("\n\n")[0], re.M))
    name = fields.get("model name", platform.machine())
    if "cpu family" in fields:  # names given by hypervisors say little
        name += f" (family {fields['cpu family']}, model {fields['model']})"
    return name


def caches():
    found = []
    for index in range(8):
        base = f"/sys/devices/system/cpu/cpu0/cache/index{index}/"
        try:
            with open(base + "level", encoding="utf-8") as level, open(base + "size", encoding="utf-8") as size, \
                    open(base + "type", encoding="utf-8") as kind:
                if kind.read().strip() != "Instruction":
                    found.append(f"L{level.read().strip()} {size.read().strip()}")
        except OSError:
            break
    return ", ".join(found)


def compiler(build):
    """Of the library, as CMake noted it."""
    try:
        cache = (build / "CMakeCache.txt").read_text()
    except OSError:
        return "unknown"
    path = re.search(r"^CMAKE_C_COMPILER:\w+=(.*)$", cache, re.M)
    kind = re.search(r"^CMAKE_BUILD_TYPE:\w+=(.*)$", cache, re.M)
    try:
        line = subprocess.run([path.group(1), "--version"], capture_output=True, text=True, check=True).stdout
    except (AttributeError, OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{line.splitlines()[0]}, {kind.group(1) if kind else '?'}"


def describe(build):
    with open("/proc/meminfo", encoding="utf-8") as file:
        memory = int(file.readline().split()[1]) / 1e6
    try:
        system = platform.freedesktop_os_release()["PRETTY_NAME"]
    except (AttributeError, OSError):
        system = "unknown"
    return {"cpu": cpu_model(), "cores": os.cpu_count(), "caches": caches(), "memory_GB": round(memory),
            "system": system, "kernel": f"Linux {platform.release()}", "compiler": compiler(build),
            "python": platform.python_version()}


class Others:
    """CPU time that other processes (and the hypervisor) took since the start, in cores."""

    def __init__(self):
        self.begin, self.own, self.all = time.perf_counter(), self._own(), self._all()

    @staticmethod
    def _own():
        times = os.times()
        return times.user + times.system + times.children_user + times.children_system

    @staticmethod
    def _all():
        with open("/proc/stat", encoding="utf-8") as file:
            user, nice, system, _, _, irq, softirq, steal = map(int, file.readline().split()[1:9])
        return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")

    def cores(self):
        passed = time.perf_counter() - self.begin
        return max(0.0, round((self._all() - self.all - (self._own() - self.own)) / passed, 3))


def busy():
    """Why this machine should not be measured on now, or None."""
    load, others = os.getloadavg()[0], Others()
    time.sleep(2)
    cores = others.cores()
    if cores > 0.2:
        return f"other processes use {cores:.1f} cores (load average {load:.1f})"
    if load > 0.5 * (os.cpu_count() or 1):
        return f"the load average is {load:.1f}; it falls within a minute or two after work has ended"
    return None


def realtime():
    """The command that gives what follows precedence over everything else, or nothing."""
    command = ["chrt", "-f", "10"]
    if shutil.which("chrt") and subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0:
        return command
    return []
