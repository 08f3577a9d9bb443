"""A charsmap as SentencePiece precompiles it: a small part of NFKC, and white space that becomes a space. "\\r\\n" is in it since the
library `tokenizers` loses what follows an entry in one grapheme.
"""
import struct

MAPPED = {"\ufb01": "fi", "\uff21": "A", "\uff22": "B", "\u2460": "1", "\u2122": "TM", "\u00a0": " ", "\u3000": " ", "\u2003": " ", "\t": " ",
          "\n": " ", "\r": " ", "\r\n": " ", "e\u0301": "\u00e9", "o\u0323": "\u1ecd"}
LEAF = 1 << 31
HAS_LEAF = 1 << 8


class Trie:
    """A double array as darts-clone writes it: a unit is label | has_leaf << 8 | offset << 10, or LEAF | value."""

    def __init__(self, keys):
        self.units, self.used, self.bases = {0: 0}, {0}, set()
        self.place(0, keys)

    def place(self, at, keys):
        """The children of the node at `at`. keys: [(bytes that are left, value)]."""
        branches = {}
        for key, value in keys:
            branches.setdefault(key[0] if key else 0, []).append((key[1:], value))
        # Nodes of one base would share their children.
        base = next(base for base in range(1, 1 << 21)
                    if base not in self.bases and not any((base ^ label) in self.used for label in branches))
        self.bases.add(base)
        self.used |= {base ^ label for label in branches}
        self.units[at] |= (at ^ base) << 10
        for label, rest in branches.items():
            if label == 0:
                self.units[at] |= HAS_LEAF
                self.units[base] = LEAF | rest[0][1]
            else:
                self.units[base ^ label] = label
                self.place(base ^ label, rest)

    def packed(self):
        size = -(-(max(self.units) + 1) // 256) * 256
        return struct.pack(f"<{size}I", *(self.units.get(i, 0) for i in range(size)))


def charsmap():
    texts, keys = b"", []
    for old, new in MAPPED.items():
        keys.append((old.encode(), len(texts)))
        texts += new.encode() + b"\0"
    trie = Trie(keys).packed()
    return struct.pack("<I", len(trie)) + trie + texts
