"""Makes allocations and file calls of the daemon and its runners fail on command (tests/faults)."""
import ctypes
import mmap
import os
import pathlib
import re
import subprocess

from harness import BIN

LIBRARY = BIN.parent / "tests/libquire_faults.so"
FIELDS = ("allocation_countdown", "allocation_repeats", "allocations_failed", "spared_begin", "spared_end",
          "file_countdown", "file_repeats", "file_calls_failed", "file_error", "file_delay_microseconds")


class Faults:
    """Controls one program; its fields are those of tests/faults/fault_control.h."""

    def __init__(self, folder, program):
        path = pathlib.Path(folder) / program
        path.write_bytes(bytes(8 * len(FIELDS)))
        with open(path, "r+b") as file:
            self.page = mmap.mmap(file.fileno(), 0)
        self.values = (ctypes.c_int64 * len(FIELDS)).from_buffer(self.page)
        self.spare(BIN / program)

    def spare(self, binary):
        """The JSON library's destructor: see the header."""
        symbols = subprocess.run(["nm", "-C", "-S", binary], capture_output=True, text=True).stdout
        if found := re.search(r"^([0-9a-f]+) ([0-9a-f]+) . nlohmann::.*json_value::destroy\(", symbols, re.MULTILINE):
            self["spared_begin"] = int(found[1], 16)
            self["spared_end"] = int(found[1], 16) + int(found[2], 16)

    def __getitem__(self, field):
        return self.values[FIELDS.index(field)]

    def __setitem__(self, field, value):
        self.values[FIELDS.index(field)] = value


def environment(folder):
    """Of a daemon whose programs are controlled through this folder."""
    return {"LD_PRELOAD": str(LIBRARY), "QUIRE_FAULTS": os.fspath(folder)}
