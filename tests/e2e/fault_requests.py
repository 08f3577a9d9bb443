"""Requests that meet a failure in the daemon or a runner, and what their replies have to be (faults_test.py)."""
import http.client
import itertools
import json

from harness import MODEL, TIMEOUT_S

# What differs between two replies to the same request, or between a cold and a warm prefix cache.
CHANGING = {"created", "created_at", "expires_at", "id", "request_id", "response_id", "item_id", "completed_at", "size", "size_vram",
            "total_duration", "load_duration", "prompt_eval_duration", "eval_duration", "timings", "tokens_cached",
            "prompt_eval_cached_count", "usage", "top_p", "draft_count", "draft_accepted_count", "draft_accepted_by_position"}
NUMBERS = itertools.count()
MESSAGES = [{"role": "user", "content": "Hello!"}]
CHAT = {"model": MODEL, "stream": False, "options": {"temperature": 0, "num_predict": 8}, "messages": MESSAGES}
OPENAI = {"model": MODEL, "max_tokens": 8, "temperature": 0, "messages": MESSAGES}
SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 4}, "fine": {"type": "boolean"}},
          "required": ["name", "fine"]}
TOOLS = [{"type": "function", "function": {
    "name": "get_weather", "description": "Get the weather in a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]
WEATHER = [{"role": "user", "content": "What is the weather in Paris?"}]


def stable(value):
    if isinstance(value, dict):
        return {key: stable(member) for key, member in value.items() if key not in CHANGING}
    return [stable(member) for member in value] if isinstance(value, list) else value


def json_of(body):
    return stable(json.loads(body))


def names_of(body):
    """The models that are loaded. Where their store cannot be read, the list has what their runners know."""
    return [model["name"] for model in json.loads(body)["models"]]


def nothing_of(body):
    """Of a reply whose content is not looked at: numbers that change, or none."""
    return bool(body)


class Text:
    """The text of a stream; whether its end has come, and whether it is an error."""

    def __init__(self):
        self.text = ""
        self.ended = self.failed = False


def lines_of(body):
    stream = Text()
    for line in body.split(b"\n")[:-1]:
        event = json.loads(line)
        stream.failed |= "error" in event
        stream.ended |= event.get("done", False)
        stream.text += event.get("message", {}).get("content", "") + event.get("response", "")
    return stream


def events(body):
    """Of server-sent events; one that is cut short is none."""
    for event in body.decode(errors="ignore").split("\n\n")[:-1]:
        for line in event.split("\n"):
            if line.startswith("data: "):
                yield line[6:]


def openai_of(body):
    stream = Text()
    for data in events(body):
        if data == "[DONE]":
            stream.ended = True
            continue
        event = json.loads(data)
        stream.failed |= "error" in event
        for choice in event.get("choices", []):
            stream.text += choice["delta"].get("content") or ""
    return stream


def responses_of(body):
    stream = Text()
    for data in events(body):
        event = json.loads(data)
        stream.failed |= event["type"] in ("error", "response.failed")
        stream.ended |= event["type"] in ("response.completed", "response.incomplete")
        stream.text += event["delta"] if event["type"] == "response.output_text.delta" else ""
    return stream


class Request:
    """`read` gives what a whole reply says. With `stream` that is a Text, which may be cut short."""

    def __init__(self, name, path, body=None, method=None, read=json_of, headers=None, stream=False):
        self.name = name
        self.path = path
        self.body = body
        self.method = method or ("GET" if body is None else "POST")
        self.read = read
        self.headers = headers or {}
        self.stream = stream

    def with_key(self, secret, name):
        return Request(name, self.path, self.body, self.method, self.read, {"Authorization": f"Bearer {secret}"}, self.stream)

    def payload(self):
        """A greedy answer is the same with any top_p. With one of its own no request is one that has killed two runners, which is
        rejected."""
        if not isinstance(self.body, dict) or ("temperature" not in self.body and "options" not in self.body):
            return self.body if self.body is None or isinstance(self.body, bytes) else json.dumps(self.body).encode()
        own = {"top_p": 0.5 + next(NUMBERS) % 400_000 / 1e6}
        body = self.body | ({"options": self.body["options"] | own} if "options" in self.body else own)
        return json.dumps(body).encode()

    def send(self, port):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
        try:
            connection.request(self.method, self.path, self.payload(), self.headers)
            reply = connection.getresponse()
        except (http.client.HTTPException, ConnectionError) as error:
            connection.close()
            return Outcome(self, 0, repr(error).encode(), False)
        try:
            return Outcome(self, reply.status, reply.read(), True)
        except http.client.IncompleteRead as error:
            return Outcome(self, reply.status, error.partial, False)
        except ConnectionError:
            return Outcome(self, reply.status, b"", False)
        finally:
            connection.close()


class Outcome:
    """What came back: status 0 is a connection that ended without a reply; `whole`: all that was announced has come."""

    def __init__(self, request, status, body, whole):
        self.request = request
        self.status = status
        self.body = body
        self.whole = whole

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def text(self):
        return self.body.decode(errors="replace")

    def content(self):
        if self.status < 300:
            return self.request.read(self.body)
        return json_of(self.body) if self.body else None

    def error(self):
        """The message of a typed error, in the form of any dialect."""
        error = self.json["error"]
        message = error if isinstance(error, str) else error["message"]
        assert message, self.body
        return message

    def check(self, expected):
        """A name for what came back, which has to be as expected, or a typed error."""
        what = (self.request.name, self.status, self.body[-300:])
        assert self.status, f"ended without a reply: {what}"
        if self.status >= 400 and self.status != expected.status:
            assert self.whole and self.status in (500, 503), what
            assert "the model runner died" in self.error() or self.status == 503, what
            return self.status
        assert self.status == expected.status, what
        if not (self.request.stream and self.status == 200):
            assert self.whole, f"a part of a reply: {what}"
            assert self.content() == expected.content(), f"{what} instead of {expected.body[-300:]}"
            return self.status
        return self.check_stream(expected.content(), what)

    def check_stream(self, expected, what):
        stream = self.content()
        assert expected.text.startswith(stream.text), f"{what} instead of {expected.text}"
        if stream.failed:
            assert not stream.ended or self.request.read is openai_of, what  # OpenAI's [DONE] comes behind an error, too
            return "error event"
        if not self.whole:
            return "cut"
        assert stream.ended and stream.text == expected.text, f"ended in the middle: {what} instead of {expected.text}"
        return self.status


LISTS = [
    Request("version", "/api/version"),
    Request("ps", "/api/ps", read=names_of),
    Request("show", "/api/show", {"model": MODEL}),
    Request("metrics", "/metrics", read=nothing_of),
    Request("now", "/quire/now", read=nothing_of),
    Request("unknown path", "/unknown"),
    Request("no JSON", "/api/chat", b"{"),
]
TEXTS = [
    Request("tokenize", "/tokenize", {"model": MODEL, "content": "Hello!"}),
    Request("embed", "/api/embed", {"model": MODEL, "input": "Hello!", "keep_alive": "5m"}),  # known vectors do not count
]
ANSWERS = [
    Request("chat", "/api/chat", CHAT),
    Request("format", "/api/chat", CHAT | {"format": SCHEMA, "options": {"temperature": 0, "num_predict": 32}}),
    Request("tools", "/api/chat", CHAT | {"tools": TOOLS, "messages": WEATHER, "options": {"temperature": 0, "num_predict": 32}}),
    Request("openai tools", "/v1/chat/completions", OPENAI | {"max_tokens": 32, "messages": WEATHER, "tools": TOOLS,
                                                              "tool_choice": "required"}),
]
STREAMS = [
    Request("chat stream", "/api/chat", CHAT | {"stream": True}, read=lines_of, stream=True),
    Request("openai stream", "/v1/chat/completions", OPENAI | {"stream": True}, read=openai_of, stream=True),
    Request("responses stream", "/v1/responses", {"model": MODEL, "input": "Hello!", "max_output_tokens": 8, "temperature": 0,
                                                  "stream": True}, read=responses_of, stream=True),
]
