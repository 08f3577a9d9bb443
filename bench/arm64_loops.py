#!/usr/bin/env python3
"""arm64_loops.py OBJECT...: what the inner loops of the int8 products cost on arm64, counted and not timed.

Of each kernel in the objects (build/arm64/runner/kernels/CMakeFiles/quire_kernels.dir/int8_gemm_{neon,dotprod,i8mm}.cc.o) the
loops over K blocks: instructions of one pass, and those among them that multiply bytes. A pass is a K block of 32 elements
times 8 outputs times the tile's rows: of many rows, whose weights are unpacked before, of few, or the unpacking itself. Cycles are llvm-mca's, of its models of Neoverse cores. Needs aarch64-linux-gnu-objdump,
c++filt and llvm-mca-19.
"""
import re
import subprocess
import sys

MODELS = "neoverse-n1", "neoverse-n2", "neoverse-v1", "neoverse-v2"
PRODUCTS = re.compile(r"^(smmla|sdot|smull2?|sadalp)$")
FORMAT = re.compile(r"QuantFormat\{([^}]*)\}")
# Of runner/weights/data_types.h; the fields that are printed: bits, log2 of the zero point, group, min offset.
NAMES = {"8, 7": "Q8_0", "4, 3": "Q4_0", "4, -1, 0, true": "Q4_1", "5, 4": "Q5_0", "5, -1, 0, true": "Q5_1",
         "2, -1, 16, true": "Q2_K", "3, 2, 16": "Q3_K", "4, -1, 32, true": "Q4_K", "5, -1, 32, true": "Q5_K",
         "6, 5, 16": "Q6_K"}


def functions(path):
    """(name, [(address, text)]) of each function."""
    text = subprocess.run(["aarch64-linux-gnu-objdump", "-d", "--no-show-raw-insn", path], check=True,
                          capture_output=True, text=True).stdout
    text = subprocess.run(["c++filt"], input=text, check=True, capture_output=True, text=True).stdout
    name, code = None, []
    for line in text.splitlines():
        start = re.match(r"^[0-9a-f]+ <(.*)>:$", line)
        if start:
            if name:
                yield name, code
            name, code = start.group(1), []
        found = re.match(r"^\s+([0-9a-f]+):\s+(.*)$", line)
        if found:
            code.append((int(found.group(1), 16), found.group(2).split("//")[0].strip()))
    if name:
        yield name, code


def loops(code):
    """Innermost loops: the texts of their instructions."""
    spans = []
    for address, text in code:
        jump = re.match(r"^(?:b\.\w+|b|cbn?z|tbn?z)\s+(?:.*,\s*)?([0-9a-f]+) <", text)
        if jump and int(jump.group(1), 16) <= address:
            spans.append((int(jump.group(1), 16), address))
    for begin, end in spans:
        if any(b >= begin and e <= end and (b, e) != (begin, end) for b, e in spans):
            continue
        yield [text for address, text in code if begin <= address <= end]


def assembly(body):
    """The instructions as LLVM reads them: without addresses of branches, which it does not follow."""
    for text in body:
        operation, operands = (*text.split(None, 1), "")[:2]
        if operation in ("b", "bl", "blr", "br", "ret", "cbz", "cbnz", "tbz", "tbnz") or operation.startswith("b."):
            yield "nop"
        elif operation in ("adrp", "adr"):
            yield "mov " + operands.split(",")[0] + ", #1"
        else:
            yield re.sub(r"\s*<[^>]*>", "", text)


def cycles(body, processor, passes=20):
    """Cycles of one pass of `passes`, by llvm-mca's model of that processor; None where it lacks an instruction of them."""
    modeled = subprocess.run(["llvm-mca-19", "-march=aarch64", f"-mcpu={processor}", f"-iterations={passes}", "-mattr=+all"],
                             input="\n".join(assembly(body)) + "\n", capture_output=True, text=True, check=False)
    if "unsupported instruction" in modeled.stderr:
        return None
    if modeled.returncode != 0:
        raise RuntimeError(modeled.stderr)
    return int(re.search(r"^Total Cycles:\s+(\d+)", modeled.stdout, re.M)[1]) / passes


def written(number, digits):
    return "-" if number is None else f"{number:.{digits}f}"


def main():
    print("kernel type loop rows instructions products", *(f"cycles-{model}" for model in MODELS))
    for path in sys.argv[1:]:
        kernel = re.sub(r".*int8_gemm_|\.cc\.o", "", path)
        for name, code in functions(path):
            found = FORMAT.search(name)
            if not found or found.group(1) not in NAMES:
                continue
            loop = "many" if "MultiplyManyRows" in name or "RunChunk" in name else "few"
            for body in loops(code):
                operations = [text.split()[0] for text in body]
                products = [one for one in operations if PRODUCTS.match(one)]
                if not products and (loop != "many" or "prfm" not in operations or len(body) < 10):
                    continue
                per_row = {"smmla": 8, "sdot": 16, "sadalp": 16}
                rows = next((products.count(one) / per_row[one] for one in per_row if one in products), 0)
                print(kernel, NAMES[found.group(1)], loop if products else "unpack", f"{rows:g}", len(body), len(products),
                      *(written(cycles(body, model), 0) for model in MODELS))


if __name__ == "__main__":
    main()
