"""Requests of loadgen.py: synthetic texts, HTTP connections that stay open, and what came back when.

`A` has the arguments of loadgen.py, which fills it before anything here is called.
"""
import argparse, asyncio, json, socket, time

A = argparse.Namespace()
SYL = [c + v for c in "bdfghjklmnprstvzcqxw" for v in "aeiou"]
now = time.perf_counter


def words(rng, n):
    n = max(1, int(n * A.wpt))
    return "".join(" " + SYL[rng.randrange(100)] + SYL[rng.randrange(100)] for _ in range(n))


def pct(v, p):
    if not v:
        return None
    v = sorted(v)
    k = (len(v) - 1) * p / 100.0
    i = int(k)
    j = min(i + 1, len(v) - 1)
    return v[i] + (v[j] - v[i]) * (k - i)


class Res:
    __slots__ = ("tag", "t0", "first", "end", "times", "prompt", "cached", "gen", "text", "err", "status", "msgs")

    def __init__(self, tag):
        self.tag = tag
        self.t0 = self.first = self.end = 0.0
        self.times = []
        self.prompt = self.cached = self.gen = None
        self.text = ""
        self.err = None
        self.status = 0
        self.msgs = None

    @property
    def ttft(self):
        return self.first - self.t0 if self.first else None

    def gaps(self):
        t = self.times
        return [t[i] - t[i - 1] for i in range(1, len(t))]


class Conn:
    """One HTTP/1.1 keep-alive connection; request() yields body lines."""

    def __init__(self):
        self.r = self.w = None

    async def open(self):
        self.r, self.w = await asyncio.open_connection(A.host, A.port, limit=1 << 22)
        s = self.w.get_extra_info("socket")
        if s.family != socket.AF_UNIX:
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self):
        if self.w:
            self.w.close()
        self.r = self.w = None

    async def request(self, path, body, method="POST"):
        """Returns (status, async line iterator)."""
        fresh = self.w is None
        if fresh:
            await self.open()
        head = (f"{method} {path} HTTP/1.1\r\nHost: {A.host}:{A.port}\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n").encode()
        try:
            self.w.write(head + body)
            await self.w.drain()
            st = await self.r.readline()
            if not st:
                raise ConnectionResetError("closed")
        except (ConnectionError, BrokenPipeError):
            self.close()
            if fresh:
                raise
            return await self.request(path, body, method)
        status = int(st.split()[1])
        clen, chunked, close = None, False, False
        while True:
            h = await self.r.readline()
            if h in (b"\r\n", b"\n", b""):
                break
            k, _, v = h.partition(b":")
            k = k.strip().lower()
            v = v.strip().lower()
            if k == b"content-length":
                clen = int(v)
            elif k == b"transfer-encoding" and b"chunked" in v:
                chunked = True
            elif k == b"connection" and b"close" in v:
                close = True
        return status, self._lines(clen, chunked, close)

    async def _lines(self, clen, chunked, close):
        buf = b""
        if chunked:
            while True:
                n = int((await self.r.readline()).split(b";")[0] or b"0", 16)
                if n:
                    data = await self.r.readexactly(n)
                    await self.r.readexactly(2)
                else:
                    while (await self.r.readline()) not in (b"\r\n", b"\n", b""):
                        pass
                    break
                buf = buf + data if buf else data
                while True:
                    i = buf.find(b"\n")
                    if i < 0:
                        break
                    yield buf[:i]
                    buf = buf[i + 1:]
        else:
            data = await (self.r.readexactly(clen) if clen is not None else self.r.read(-1))
            close = close or clen is None
            for ln in data.split(b"\n"):
                yield ln
            buf = b""
        if buf:
            yield buf
        if close:
            self.close()


def body_for(msgs, n, stream=True):
    """msgs: list of (role, text) for chat APIs; a str for completion APIs."""
    if A.api == "openai-chat":
        d = {"model": A.model, "messages": [{"role": r, "content": c} for r, c in msgs], "max_tokens": n,
             "temperature": A.temp, "seed": A.seed, "stream": stream}
    elif A.api == "openai-comp":
        d = {"model": A.model, "prompt": flat(msgs), "max_tokens": n, "temperature": A.temp, "seed": A.seed,
             "stream": stream}
    else:
        d = {"model": A.model, "stream": stream,
             "options": {"num_predict": n, "temperature": A.temp, "seed": A.seed, **A.options}}
        if A.num_ctx:
            d["options"]["num_ctx"] = A.num_ctx
        if A.api == "ollama-chat":
            d["messages"] = [{"role": r, "content": c} for r, c in msgs]
        else:
            d["prompt"] = flat(msgs)
            d["raw"] = True
    if A.api.startswith("openai"):
        if stream:
            d["stream_options"] = {"include_usage": True}
        if A.ignore_eos:
            d["ignore_eos"] = True
    d.update(A.extra)
    return json.dumps(d).encode()


def flat(msgs):
    if isinstance(msgs, str):
        return msgs
    return "".join(f"<|im_start|>{r}\n{c}<|im_end|>\n" for r, c in msgs) + "<|im_start|>assistant\n"


PATH = {"openai-chat": "/v1/chat/completions", "openai-comp": "/v1/completions",
        "ollama-chat": "/api/chat", "ollama-gen": "/api/generate"}
ALL = []


async def ask(msgs, n, tag, conn=None, body=None, keep=True):
    r = Res(tag)
    r.msgs = None if isinstance(msgs, str) else list(msgs)
    own = conn is None
    conn = conn or Conn()
    body = body or body_for(msgs, n)
    parts = []
    openai = A.api.startswith("openai")
    r.t0 = now()
    try:
        r.status, lines = await asyncio.wait_for(conn.request(PATH[A.api], body), A.timeout)
        async for ln in lines:
            if openai:
                if not ln.startswith(b"data:"):
                    if r.status != 200 and ln.strip():
                        r.err = ln[:200].decode("utf-8", "replace")
                    continue
                ln = ln[5:].strip()
                if ln == b"[DONE]":
                    continue
            elif not ln.strip():
                continue
            t = now()
            d = json.loads(ln)
            if "error" in d:
                r.err = str(d["error"])[:200]
                continue
            piece = None
            if openai:
                ch = d.get("choices")
                if ch:
                    c = ch[0]
                    de = c.get("delta")
                    piece = (de.get("content") or de.get("reasoning_content")) if de is not None else c.get("text")
                u = d.get("usage")
                if u:
                    r.prompt = u.get("prompt_tokens", r.prompt)
                    r.gen = u.get("completion_tokens", r.gen)
                    pd = u.get("prompt_tokens_details") or {}
                    if pd.get("cached_tokens") is not None:
                        r.cached = pd["cached_tokens"]
                tm = d.get("timings")
                if tm:
                    if tm.get("cache_n") is not None:
                        r.cached = tm["cache_n"]
                        r.prompt = tm["cache_n"] + tm.get("prompt_n", 0)
                    r.gen = tm.get("predicted_n", r.gen)
            else:
                piece = d["message"].get("content") or d["message"].get("thinking") if "message" in d else d.get("response")
                if d.get("done"):
                    r.prompt = d.get("prompt_eval_count")
                    r.gen = d.get("eval_count")
                    for k in ("prompt_cached_count", "prompt_eval_cached", "cached_tokens", "prompt_cache_count"):
                        if k in d:
                            r.cached = d[k]
            if piece:
                if not r.first:
                    r.first = t
                r.times.append(t)
                parts.append(piece)
        if r.status != 200 and not r.err:
            r.err = f"status {r.status}"
    except Exception as e:
        r.err = f"{type(e).__name__}: {e}"
        conn.close()
    r.end = now()
    if own:
        conn.close()
    r.text = "".join(parts)
    if r.gen is None:
        r.gen = len(r.times)
    if not r.first:
        r.first = r.end
    if keep:
        ALL.append(r)
    return r
