"""Runs a command and prints what it took: seconds, user and system seconds, peak bytes, and this process's own peak.

    python3 -I -S runner.py CORES COMMAND ARGUMENTS...

The command gets so many cores and no more: a program may have threads beside those that it was asked for.

The kernel counts a program's peak memory from the size of the process that started it. So that is this one, which
loads next to nothing.
"""
import os
import sys
import time


def main():
    cores, command = int(sys.argv[1]), sys.argv[2:]
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-cores:])
    nothing = [(os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
               (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)]
    begin = time.perf_counter()
    child = os.posix_spawn(command[0], command, os.environ, file_actions=nothing)
    _, status, usage = os.wait4(child, 0)
    seconds = time.perf_counter() - begin
    own = os.wait4(os.posix_spawn("/bin/true", ["true"], os.environ, file_actions=nothing), 0)[2].ru_maxrss
    print(seconds, usage.ru_utime, usage.ru_stime, usage.ru_maxrss * 1024, own * 1024)
    sys.exit(1 if status else 0)


main()
