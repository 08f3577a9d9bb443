#!/usr/bin/env python3
"""arm64_peer.py FOLDER: instructions that llama.cpp's products execute on arm64, counted under qemu and not timed, beside those of
bench/arm64_loops.py.

FOLDER has llama.cpp's libraries for arm64, as node_modules/@node-llama-cpp/linux-arm64/bins/linux-arm64 has after
`npm install --force --ignore-scripts @node-llama-cpp/linux-arm64`. Each function is called with 512 and 768 inputs; the difference
is the cost of 256 inputs without prologue and epilogue. Printed per K block of 32 inputs, 8 outputs and one row: instructions,
those among them that multiply bytes and, by llvm-mca, cycles of that sequence on Neoverse cores. Vectors of SVE have 128 bits, as
on Neoverse N2 and V2.

Needs g++-12-aarch64-linux-gnu, qemu-user-static, llvm-19 and the libraries of packaging/arm64/sysroot.sh in build/arm64-sysroot.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

from arm64_loops import MODELS, cycles, functions, written

ROOT = pathlib.Path(__file__).resolve().parents[1]
SYSROOT = ROOT / "build/arm64-sysroot"
QEMU = ("qemu-aarch64-static", "-cpu", "max,pauth-impdef=on,sve-max-vq=1", "-L", SYSROOT)
PRODUCTS = re.compile(r"^([su]?(mmla|dot)|usmmla|usdot|sudot|smull2?|sadalp)$")
# What llama.cpp chooses for these processors: library, type, function, rows, outputs.
DOTPROD, I8MM = "libggml-cpu-armv8.2_1.so", "libggml-cpu-armv8.6_1.so"
CASES = [(library, kind, f"ggml_{what}_{kind}_{layout}_{rows_as}", rows, 8)
         for library, layouts in ((I8MM, {"q8_0": "4x8", "q4_0": "4x8", "q4_K": "8x8", "q6_K": "8x8"}),
                                  (DOTPROD, {"q8_0": "4x4", "q4_0": "4x4", "q4_K": "8x4", "q6_K": "8x4"}))
         for kind, layout in layouts.items()
         for rows_as in ("q8_K" if kind.endswith("K") else "q8_0",)
         for what, rows in (("gemm", 16), ("gemv", 1))]
INPUTS = 512, 768  # the second minus the first is counted


def trace(driver, folder, library, function, inputs, rows, outputs, span):
    """Addresses that are executed within `span`, relative to its begin."""
    command = [driver, folder / library, function, str(inputs), str(rows), str(outputs)]
    paths = ["-E", f"LD_LIBRARY_PATH={folder}"]
    address = int(subprocess.run([*QEMU, *paths, *command], check=True, capture_output=True, text=True).stdout, 16)
    with tempfile.NamedTemporaryFile(mode="r", prefix="quire-trace-") as log:
        subprocess.run([*QEMU, *paths, "-singlestep", "-d", "exec,nochain", "-dfilter", f"{address:#x}+{span:#x}", "-D", log.name,
                        *command], check=True, capture_output=True)
        executed = [int(found[1], 16) for found in re.finditer(r"^Trace \d+: \S+ \[\w+/(\w+)/", log.read(), re.M)]
    return [one - address for one in executed]


def runs(driver, folder, library, function, rows, outputs, code):
    """The instructions that are executed for INPUTS[0] and for INPUTS[1] inputs."""
    begin = code[0][0]
    texts = {address - begin: text for address, text in code}
    for inputs in INPUTS:
        yield [texts[one] for one in trace(driver, folder, library, function, inputs, rows, outputs, max(texts) + 4)]


def count_products(body):
    return sum(1 for text in body if PRODUCTS.match(text.split()[0]))


def difference(short, long):
    return None if short is None or long is None else long - short


def main():
    folder = pathlib.Path(sys.argv[1]).resolve()
    print("instructions type rows executed products", *(f"cycles-{model}" for model in MODELS))
    with tempfile.TemporaryDirectory(prefix="quire-peer-") as work:
        driver = pathlib.Path(work) / "peer"
        subprocess.run(["aarch64-linux-gnu-g++-12", "-std=c++20", "-O1", "-o", driver, ROOT / "bench/arm64_peer.cc", "-ldl"], check=True)
        for library, kind, function, rows, outputs in CASES:
            code = next((code for name, code in functions(folder / library) if name.split("(")[0] == function), None)
            if not code:
                print(library, function, "is not there")
                continue
            short, long = runs(driver, folder, library, function, rows, outputs, code)
            figures = [len(long) - len(short), count_products(long) - count_products(short)]
            figures += [difference(cycles(short, model, passes=5), cycles(long, model, passes=5)) for model in MODELS]
            per_block = (INPUTS[1] - INPUTS[0]) // 32 * (outputs // 8) * rows
            print("I8MM" if library == I8MM else "DotProd", kind, rows,
                  *(written(one and one / per_block, 1) for one in figures), flush=True)


if __name__ == "__main__":
    main()
