"""GGUF files, read whole, edited and written again (publish.py)."""
import pathlib
import struct

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
I8, U32, I32, F32, BOOL, TEXT, ARRAY = 1, 4, 5, 6, 7, 8, 9
TYPE_F32 = 0
BLOCKS = {0: (1, 4), 1: (1, 2), 30: (1, 2), 39: (32, 17)}  # elements and bytes of a block: F32, F16, BF16, MXFP4
ALIGNMENT = 32


class Gguf:
    """keys: {name: (type, value)}, of an array ((ARRAY, element type), values); tensors: {name: (dims, type, bytes)}.
    Without a path: an empty file."""

    def __init__(self, path=None):
        self.keys, self.tensors = {}, {}
        if path is None:
            return
        self.data, self.at = pathlib.Path(path).read_bytes(), 8
        tensors, pairs = self.number("Q"), self.number("Q")
        for _ in range(pairs):
            name = self.text()
            self.keys[name] = self.value(self.number("I"))
        infos = []
        for _ in range(tensors):
            name, count = self.text(), self.number("I")
            dims = [self.number("Q") for _ in range(count)]
            infos.append((name, dims, self.number("I"), self.number("Q")))
        start = -(-self.at // ALIGNMENT) * ALIGNMENT
        for name, dims, kind, offset in infos:
            elements, size = BLOCKS[kind]
            for dim in dims:
                size *= dim
            size //= elements
            self.tensors[name] = (dims, kind, self.data[start + offset:start + offset + size])

    def number(self, form):
        value = struct.unpack_from("<" + form, self.data, self.at)[0]
        self.at += struct.calcsize("<" + form)
        return value

    def text(self):
        size = self.number("Q")
        self.at += size
        return self.data[self.at - size:self.at].decode()

    def value(self, kind):
        if kind == TEXT:
            return kind, self.text()
        if kind == ARRAY:
            inner, count = self.number("I"), self.number("Q")
            return (ARRAY, inner), [self.value(inner)[1] for _ in range(count)]
        return kind, self.number(SCALARS[kind])

    def write(self, path):
        out = bytearray(b"GGUF" + struct.pack("<IQQ", 3, len(self.tensors), len(self.keys)))
        for name, (kind, value) in self.keys.items():
            out += packed_text(name)
            if isinstance(kind, tuple):
                out += struct.pack("<IIQ", ARRAY, kind[1], len(value)) + b"".join(packed(kind[1], v) for v in value)
            else:
                out += struct.pack("<I", kind) + packed(kind, value)
        data = b""
        for name, (dims, kind, raw) in self.tensors.items():
            data += b"\0" * (-len(data) % ALIGNMENT)
            out += packed_text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, len(data))
            data += raw
        pathlib.Path(path).write_bytes(out + b"\0" * (-len(out) % ALIGNMENT) + data)

    # ---- edits ----

    @property
    def architecture(self):
        return self.keys["general.architecture"][1]

    def key(self, suffix):
        return f"{self.architecture}.{suffix}"

    def get(self, suffix):
        return self.keys[self.key(suffix)][1]

    def drop(self, *names):
        for name in names:
            self.keys.pop(name, None)

    def call(self, architecture):
        """Another architecture's name, for its keys too."""
        old = self.architecture + "."
        self.keys = {(f"{architecture}.{name.removeprefix(old)}" if name.startswith(old) else name): value
                     for name, value in self.keys.items()}
        self.keys["general.architecture"] = (TEXT, architecture)

    def set(self, kind, **values):
        """Keys of the architecture; "__" for "."."""
        for name, value in values.items():
            self.keys[self.key(name.replace("__", "."))] = (kind, value)

    def add_vision(self):
        self.set(U32, vision__block_count=1, image_token_index=10)
        self.add("v.blk.0.attn_q.weight", [8, 8])
        self.add("mm.linear_1.weight", [64, 8])

    def rename(self, old, new):
        """Tensors whose name ends in `old`."""
        self.tensors = {(name[:-len(old)] + new if name.endswith(old) else name): tensor
                        for name, tensor in self.tensors.items()}

    def add(self, name, dims, value=0.5):
        count = 1
        for dim in dims:
            count *= dim
        self.tensors[name] = (dims, TYPE_F32, struct.pack(f"<{count}f", *[value] * count))


def packed_text(text):
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def packed(kind, value):
    return packed_text(value) if kind == TEXT else struct.pack("<" + SCALARS[kind], value)


def floats(tensor):
    return struct.unpack(f"<{len(tensor[2]) // 4}f", tensor[2])
