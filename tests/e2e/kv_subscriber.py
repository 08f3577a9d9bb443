"""A subscriber of KV events. It speaks to libzmq by ctypes and reads MessagePack itself, so that any Python runs it."""
import ctypes
import re
import struct
import time

SUB, SUBSCRIBE, RCVMORE, LINGER, RCVTIMEO = 2, 6, 13, 17, 27
WAIT_S = 120
FRAME_BYTES_MAX = 1 << 22

try:
    ZMQ = ctypes.CDLL("libzmq.so.5")
    ZMQ.zmq_ctx_new.restype = ZMQ.zmq_socket.restype = ctypes.c_void_p
    ZMQ.zmq_socket.argtypes = [ctypes.c_void_p, ctypes.c_int]
    ZMQ.zmq_connect.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    ZMQ.zmq_setsockopt.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t]
    ZMQ.zmq_getsockopt.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
    ZMQ.zmq_recv.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    ZMQ.zmq_close.argtypes = ZMQ.zmq_ctx_term.argtypes = [ctypes.c_void_p]
except OSError:
    ZMQ = None

NUMBERS = {0xca: ">f", 0xcb: ">d", 0xcc: ">B", 0xcd: ">H", 0xce: ">I", 0xcf: ">Q", 0xd0: ">b", 0xd1: ">h", 0xd2: ">i", 0xd3: ">q"}
LENGTHS = {0xd9: ">B", 0xda: ">H", 0xdb: ">I", 0xdc: ">H", 0xdd: ">I"}


def unpack(data, at=0):
    """A value of MessagePack without maps and bytes, and where it ends."""
    kind = data[at]
    at += 1
    if kind < 0x80 or kind >= 0xe0:
        return kind if kind < 0x80 else kind - 256, at
    if kind == 0xc0:
        return None, at
    if form := NUMBERS.get(kind):
        return struct.unpack_from(form, data, at)[0], at + struct.calcsize(form)
    if form := LENGTHS.get(kind):
        size = struct.unpack_from(form, data, at)[0]
        at += struct.calcsize(form)
    else:
        assert 0x90 <= kind < 0xc0, hex(kind)
        size = kind & (0x0f if kind < 0xa0 else 0x1f)
    if kind in (0xd9, 0xda, 0xdb) or 0xa0 <= kind < 0xc0:
        return data[at:at + size].decode(), at + size
    values = []
    for _ in range(size):
        value, at = unpack(data, at)
        values.append(value)
    return values, at


class KvSubscriber:
    """Has the blocks that a daemon publishes: by hash, the hash of the block before and the tokens."""

    def __init__(self, daemon):
        deadline = time.monotonic() + WAIT_S
        while not (found := re.findall(r"KV events: published address=(\S+)", daemon.log())):
            assert time.monotonic() < deadline, daemon.log()
            time.sleep(0.05)
        self.context = ZMQ.zmq_ctx_new()
        self.socket = ZMQ.zmq_socket(self.context, SUB)
        for option, value in ((SUBSCRIBE, b"kv@"), (LINGER, struct.pack("=i", 0)), (RCVTIMEO, struct.pack("=i", 100))):
            assert ZMQ.zmq_setsockopt(self.socket, option, value, len(value)) == 0
        assert ZMQ.zmq_connect(self.socket, found[-1].encode()) == 0
        self.buffer = ctypes.create_string_buffer(FRAME_BYTES_MAX)
        self.blocks, self.topics, self.numbers, self.block_size = {}, set(), [], 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        ZMQ.zmq_close(self.socket)
        ZMQ.zmq_ctx_term(self.context)

    def message(self):
        """The frames of the next one; none: there was none for 100 ms."""
        frames, more = [], ctypes.c_int(1)
        while more.value:
            size = ZMQ.zmq_recv(self.socket, self.buffer, FRAME_BYTES_MAX, 0)
            if size < 0:
                return []
            frames.append(ctypes.string_at(self.buffer, size))
            bytes_of_more = ctypes.c_size_t(ctypes.sizeof(more))
            ZMQ.zmq_getsockopt(self.socket, RCVMORE, ctypes.byref(more), ctypes.byref(bytes_of_more))
        return frames

    def read(self):
        frames = self.message()
        if not frames:
            return
        topic, number, payload = frames
        self.topics.add(topic.decode())
        self.numbers.append(int.from_bytes(number, "big"))
        (_, events, rank), end = unpack(payload)
        assert rank == 0 and end == len(payload)
        for kind, *fields in events:
            if kind == "AllBlocksCleared":
                self.blocks.clear()
            elif kind == "BlockRemoved":
                for key in fields[0]:
                    self.blocks.pop(key, None)
            else:
                (key,), parent, tokens, self.block_size, _, medium, _ = fields
                assert kind == "BlockStored" and medium == "DISK" and len(tokens) == self.block_size
                self.blocks[key] = parent, tokens

    def read_until(self, holds):
        deadline = time.monotonic() + WAIT_S
        while not holds():
            assert time.monotonic() < deadline, (len(self.blocks), self.topics)
            self.read()

    def longest_chain(self):
        """The tokens of consecutive blocks from the beginning of a prompt."""
        best = []
        for key in self.blocks:
            tokens = []
            while key is not None and key in self.blocks:
                key, block = self.blocks[key]
                tokens = block + tokens
            if key is None:
                best = max(best, tokens, key=len)
        return best
