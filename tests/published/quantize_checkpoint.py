"""Quantizes the projections of a Hugging Face checkpoint in BF16 as other tools publish it.

usage: quantize_checkpoint.py METHOD MODEL QUANTIZED PLAIN

METHOD: fp8 (blocks of 32 x 32, scales that are powers of two), gptq, gptq_order (desc_act), awq, w8a8 or w4a16
(compressed-tensors). QUANTIZED is the directory that such a tool writes, PLAIN the same numbers as floats: BF16 for fp8,
which holds them exactly, else F32.
"""
import array
import bisect
import json
import math
import pathlib
import shutil
import struct
import sys

GROUP, BLOCK = 32, 32


def read(directory):
    """{name: (dtype, shape, bytes)}"""
    tensors = {}
    for path in sorted(directory.glob("*.safetensors")):
        if "golden" in path.name:
            continue
        raw = path.read_bytes()
        size = struct.unpack("<Q", raw[:8])[0]
        for name, entry in json.loads(raw[8:8 + size]).items():
            if name != "__metadata__":
                begin, end = entry["data_offsets"]
                tensors[name] = (entry["dtype"], entry["shape"], raw[8 + size + begin:8 + size + end])
    return tensors


def write(directory, model, tensors, config):
    directory.mkdir(parents=True)
    for path in model.iterdir():
        if path.is_file() and "golden" not in path.name and "safetensors" not in path.name:
            shutil.copy(path, directory)
    (directory / "config.json").write_text(json.dumps(config))
    header, data = {}, b""
    for name, (dtype, shape, raw) in sorted(tensors.items()):
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (directory / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


def from_bf16(raw):
    return array.array("f", array.array("I", (x << 16 for x in array.array("H", raw))).tobytes())


def to_bf16(values):  # that it holds exactly
    return array.array("H", (x >> 16 for x in array.array("I", array.array("f", values).tobytes()))).tobytes()


def half(value):
    return struct.unpack("<e", struct.pack("<e", value))[0]


def halves(values):
    return struct.pack(f"<{len(values)}e", *values)


def words(codes, bits):
    """Codes from the low bits on, in numbers of 32 bits."""
    per = 32 // bits
    return array.array("I", (sum(code << (bits * i) for i, code in enumerate(codes[at:at + per]))
                             for at in range(0, len(codes), per)))


class Groups:
    """Codes, scales and zero points of a matrix [rows, columns], a group of inputs after the other."""

    def __init__(self, values, rows, columns, symmetric, order=None):
        self.rows, self.columns = rows, columns
        self.group_of = order or [i // GROUP for i in range(columns)]
        self.count = max(self.group_of) + 1
        members = [[i for i in range(columns) if self.group_of[i] == g] for g in range(self.count)]
        self.codes, self.scales, self.zeros, self.plain = [], [], [], [0.0] * (rows * columns)
        for row in range(rows):
            codes = [0] * columns
            for of_group in members:
                part = [values[row * columns + i] for i in of_group]
                if symmetric:
                    scale, zero = half(max(max(map(abs, part)) / 7.5, 1e-4)), 8
                else:
                    low, high = min(*part, 0), max(*part, 0)
                    scale = half(max((high - low) / 15, 1e-4))
                    zero = min(max(round(-low / scale), 1), 15)
                for i, value in zip(of_group, part):
                    codes[i] = min(max(round(value / scale) + zero, 0), 15)
                    self.plain[row * columns + i] = (codes[i] - zero) * scale
                self.scales.append(scale)
                self.zeros.append(zero)
            self.codes.append(codes)

    def by_group(self, values):
        """[groups, rows]"""
        return [values[row * self.count + g] for g in range(self.count) for row in range(self.rows)]


def gptq(values, rows, columns, order=None):
    groups = Groups(values, rows, columns, symmetric=True, order=order)
    columns_first = [words([groups.codes[row][i] for i in range(columns)], 4) for row in range(rows)]
    packed = array.array("I", (columns_first[row][i] for i in range(columns // 8) for row in range(rows)))
    return {
        "qweight": ("I32", [columns // 8, rows], packed.tobytes()),
        "qzeros": ("I32", [groups.count, rows // 8], words([7] * (groups.count * rows), 4).tobytes()),
        "scales": ("F16", [groups.count, rows], halves(groups.by_group(groups.scales))),
        "g_idx": ("I32", [columns], array.array("i", groups.group_of).tobytes()),
    }, groups.plain


def gptq_order(values, rows, columns):
    count = -(-columns // GROUP)
    return gptq(values, rows, columns, [i % count for i in range(columns)])


def awq(values, rows, columns):
    groups = Groups(values, rows, columns, symmetric=False)

    def packed(of_rows):  # [.., rows] of which eight share a number, in AWQ's order
        return words([of_rows[at + i] for at in range(0, len(of_rows), 8) for i in (0, 2, 4, 6, 1, 3, 5, 7)], 4)
    codes = packed([groups.codes[row][i] for i in range(columns) for row in range(rows)])
    return {
        "qweight": ("I32", [columns, rows // 8], codes.tobytes()),
        "qzeros": ("I32", [groups.count, rows // 8], packed(groups.by_group(groups.zeros)).tobytes()),
        "scales": ("F16", [groups.count, rows], halves(groups.by_group(groups.scales))),
    }, groups.plain


def w4a16(values, rows, columns):
    groups = Groups(values, rows, columns, symmetric=True)
    codes = array.array("I", (word for row in groups.codes for word in words(row, 4)))
    return {
        "weight_packed": ("I32", [rows, columns // 8], codes.tobytes()),
        "weight_scale": ("F16", [rows, groups.count], halves(groups.scales)),
        "weight_shape": ("I64", [2], struct.pack("<2q", rows, columns)),
    }, groups.plain


def w8a8(values, rows, columns):
    codes, scales, plain = array.array("b"), [], []
    for row in range(rows):
        part = values[row * columns:(row + 1) * columns]
        scale = half(max(max(map(abs, part)) / 127, 1e-4))
        scales.append(scale)
        codes.extend(min(max(round(value / scale), -128), 127) for value in part)
        plain += [code * scale for code in codes[row * columns:]]
    return {"weight": ("I8", [rows, columns], codes.tobytes()),
            "weight_scale": ("F32", [rows, 1], array.array("f", scales).tobytes())}, plain


FLOAT8 = [(m / 8 * 2.0 ** -6 if e == 0 else (1 + m / 8) * 2.0 ** (e - 7)) for e in range(16) for m in range(8)][:127]


def fp8(values, rows, columns):
    down, across = -(-rows // BLOCK), -(-columns // BLOCK)
    largest = [1e-6] * (down * across)
    places = [(row // BLOCK) * across + column // BLOCK for row in range(rows) for column in range(columns)]
    for place, value in zip(places, values):
        largest[place] = max(largest[place], abs(value))
    scales = [2.0 ** math.ceil(math.log2(value / 448)) for value in largest]
    codes, plain = bytearray(), []
    for place, value in zip(places, values):
        size = abs(value) / scales[place]
        code = min(bisect.bisect_left(FLOAT8, size), 126)
        if code > 0 and size - FLOAT8[code - 1] < FLOAT8[code] - size:
            code -= 1
        codes.append(code | (128 if value < 0 else 0))
        plain.append(math.copysign(FLOAT8[code] * scales[place], value))
    return {"weight": ("F8_E4M3", [rows, columns], bytes(codes)),
            "weight_scale_inv": ("F32", [down, across], array.array("f", scales).tobytes())}, plain


def compressed(form, weights):
    return {"quant_method": "compressed-tensors", "format": form, "ignore": ["lm_head"], "quantization_status": "compressed",
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": None}}}


METHODS = {
    "fp8": (fp8, {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [BLOCK, BLOCK]}),
    "gptq": (gptq, {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "sym": True, "desc_act": False}),
    "gptq_order": (gptq_order, {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "sym": True, "desc_act": True}),
    "awq": (awq, {"quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True, "version": "gemm"}),
    "w4a16": (w4a16, compressed("pack-quantized", {"num_bits": 4, "type": "int", "strategy": "group", "group_size": GROUP,
                                                   "symmetric": True})),
    "w8a8": (w8a8, compressed("int-quantized", {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True})),
}


def main():
    method, (model, quantized, plain) = sys.argv[1], map(pathlib.Path, sys.argv[2:])
    quantize, settings = METHODS[method]
    config = json.loads((model / "config.json").read_text())
    published, floats = {}, {}
    for name, (dtype, shape, raw) in read(model).items():
        layer = name.removesuffix(".weight")
        if dtype != "BF16" or len(shape) != 2 or not layer.endswith("_proj") and ".kv_a_proj" not in layer:
            published[name] = floats[name] = (dtype, shape, raw)
            continue
        parts, values = quantize(from_bf16(raw), *shape)
        published.update({f"{layer}.{part}": tensor for part, tensor in parts.items()})
        if method == "fp8":
            floats[name] = ("BF16", shape, to_bf16(values))
        else:
            floats[name] = ("F32", shape, array.array("f", values).tobytes())
    write(quantized, model, published, {**config, "quantization_config": settings})
    write(plain, model, floats, config)


if __name__ == "__main__":
    main()
