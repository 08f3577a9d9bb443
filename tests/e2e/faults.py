"""Makes allocations and file calls of the daemon and its runners fail on command (tests/faults)."""
import ctypes
import mmap
import os
import pathlib

from harness import BIN

LIBRARY = BIN.parent / "tests/libquire_faults.so"
FIELDS = ("allocation_countdown", "allocation_repeats", "allocations_failed", "file_countdown",
          "file_repeats", "file_calls_failed", "file_error", "file_delay_microseconds",
          "file_read_delay_microseconds")


class Faults:
    """Controls one program; its fields are those of tests/faults/fault_control.h."""

    def __init__(self, folder, program):
        path = pathlib.Path(folder) / program
        path.write_bytes(bytes(8 * len(FIELDS)))
        with open(path, "r+b") as file:
            self.page = mmap.mmap(file.fileno(), 0)
        self.values = (ctypes.c_int64 * len(FIELDS)).from_buffer(self.page)

    def __getitem__(self, field):
        return self.values[FIELDS.index(field)]

    def __setitem__(self, field, value):
        self.values[FIELDS.index(field)] = value


def environment(folder):
    """Of a daemon whose programs are controlled through this folder."""
    return {"LD_PRELOAD": str(LIBRARY), "QUIRE_FAULTS": os.fspath(folder)}


def usable():
    """Sanitizers have an allocator and file calls of their own."""
    program = (BIN / "quired").read_bytes()
    return b"__asan" not in program and b"__tsan" not in program
