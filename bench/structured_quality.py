#!/usr/bin/env python3
"""Whether constrained output harms the answers of real models: 200 small extraction tasks with known answers, in 10 shapes.

  bench/structured_quality.py http://127.0.0.1:11434 MODEL [MODEL ...] [--tasks 20] [--dialects chat,ollama,messages,responses]

Each task is asked greedily in four dialects: `free` (no constraint, the first JSON object of the answer counts, also a fenced
one), `object` (json_object), `schema`, and as a call of a tool that is `forced` or left to the model (`auto`). An answer is
right if the members that were asked for have the known values. Prints, per model and dialect, the right answers of each
shape; then what the masks took: per token the natural logarithm of the model's own likeliest token minus that of the token
that it had to write (without the mask), summed per answer, and the places where most of it was lost.

The exit status is 1 if in a shape `object` or `schema` are right in more than two tasks less than `free`, or `forced` in more
than two less than `auto`. A model without tools has "-" there.
"""
import argparse
import collections
import concurrent.futures
import json
import random
import re
import sys
import urllib.error
import urllib.request

ALLOWED_LOSS = 2  # tasks of a shape
PARALLEL = 8
MAX_TOKENS = 160
MODES = ("free", "object", "schema", "auto", "forced")

FIRST = "Anna Boris Clara David Elena Felix Greta Hugo Irene Jonas Karin Lukas Maria Nikolai Olga Peter Rosa Simon Tina Viktor".split()
LAST = "Adler Brandt Castillo Dietrich Evans Fischer Garcia Hoffman Ito Jansen Keller Lopez Meyer Novak Olsen Petrov Quinn Rossi Silva Turner".split()
CITIES = "Berlin Paris Madrid Rome Vienna Oslo Lisbon Prague Dublin Athens Warsaw Helsinki Zurich Geneva Milan Porto".split()
GOODS = "lamp chair mug table clock pencil kettle blanket bottle mirror basket candle vase shelf bowl towel".split()
STREETS = "Oak Street,Mill Lane,High Street,Station Road,Park Avenue,Church Street,Lake Drive,River Road".split(",")
COLORS = "red green blue yellow black white".split()
MONTHS = "January February March April May June July August September October November December".split()


def price(pick):
    """Prices end in 0 as often as not."""
    return pick.randrange(100, 9990, 10) / 100 if pick.random() < 0.6 else pick.randrange(101, 9990) / 100


def of(**properties):
    return {"type": "object", "properties": properties, "required": list(properties)}


STRING, INTEGER, NUMBER, BOOLEAN = ({"type": t} for t in ("string", "integer", "number", "boolean"))


def person(pick):
    name, age = f"{pick.choice(FIRST)} {pick.choice(LAST)}", pick.randint(18, 90)
    return f"{name} is {age} years old and lives in {pick.choice(CITIES)}.", {"name": name, "age": age}


def product(pick):
    name, cost = pick.choice(GOODS), price(pick)
    return f"The {name} costs ${cost:.2f} and ships in {pick.randint(2, 9)} days.", {"product": name, "price": cost}


def cart(pick):
    items = [{"name": n, "price": price(pick)} for n in pick.sample(GOODS, 2)]
    text = " and ".join(f"{i['name']} ${i['price']:.2f}" for i in items)
    return f"Receipt: {text}.", {"items": items}


def event(pick):
    day, month, year = pick.randint(1, 28), pick.randint(1, 12), pick.randint(2001, 2030)
    city = pick.choice(CITIES)
    return (f"The meeting takes place on {day} {MONTHS[month - 1]} {year} in {city}.",
            {"date": f"{year}-{month:02}-{day:02}", "city": city})


def color(pick):
    name, shade = pick.choice(GOODS), pick.choice(COLORS)
    return f"She bought a {shade} {name} yesterday.", {"color": shade, "item": name}


def stock(pick):
    name, there = pick.choice(GOODS), pick.random() < 0.5
    return f"The {name} is {'in stock' if there else 'sold out'}.", {"product": name, "in_stock": there}


def journey(pick):
    cities = pick.sample(CITIES, 3)
    return f"We went from {cities[0]} to {cities[1]} and then to {cities[2]}.", {"cities": cities}


def order(pick):
    name, number = f"{pick.choice(FIRST)} {pick.choice(LAST)}", pick.randint(1000, 9999)
    return (f"Order {number} of {name}: total {(total := price(pick)):.2f} dollars.",
            {"customer": {"name": name}, "order": {"number": number, "total": total}})


def contact(pick):
    name = f"{pick.choice(FIRST)} {pick.choice(LAST)}"
    phone = f"555-{pick.randint(1000, 9999)}" if pick.random() < 0.7 else None
    text = f"{name}, phone {phone}." if phone else f"{name} has no phone."
    return text, {"name": name, "phone": phone}


def address(pick):
    street, number, code = pick.choice(STREETS), pick.randint(1, 199), f"{pick.randint(10000, 99999)}"
    city = pick.choice(CITIES)
    return f"Send it to {number} {street}, {code} {city}.", {"house_number": number, "street": street, "postal_code": code, "city": city}


SHAPES = {  # shape -> the maker of texts and answers, the schema
    person: of(name=STRING, age=INTEGER),
    product: of(product=STRING, price=NUMBER),
    cart: of(items={"type": "array", "items": of(name=STRING, price=NUMBER), "maxItems": 5}),
    event: of(date={"type": "string", "format": "date"}, city=STRING),
    color: of(color={"type": "string", "enum": COLORS}, item=STRING),
    stock: of(product=STRING, in_stock=BOOLEAN),
    journey: of(cities={"type": "array", "items": STRING, "minItems": 1}),
    order: of(customer=of(name=STRING), order=of(number={"type": "integer", "minimum": 1}, total={"type": "number", "minimum": 0})),
    contact: of(name=STRING, phone={"type": ["string", "null"], "maxLength": 20}),
    address: of(house_number=INTEGER, street=STRING, postal_code={"type": "string", "pattern": "^[0-9]{5}$"}, city=STRING),
}


def described(schema):
    """The members as words of a prompt: {"a": string, "b": [{"c": number}]}."""
    if schema["type"] == "object":
        return "{" + ", ".join(f'"{k}": {described(v)}' for k, v in schema["properties"].items()) + "}"
    if schema["type"] == "array":
        return f"[{described(schema['items'])}, ...]"
    kind = schema["type"] if isinstance(schema["type"], str) else " or ".join(schema["type"])
    if "enum" in schema:
        return "one of " + ", ".join(schema["enum"])
    return "date as YYYY-MM-DD" if schema.get("format") == "date" else kind


def first_object(text):
    """The first JSON object in a free answer, or None."""
    decoder = json.JSONDecoder()
    for at in re.finditer(r"\{", text):
        try:
            return decoder.raw_decode(text, at.start())[0]
        except ValueError:
            continue
    return None


def matches(found, expected):
    if isinstance(expected, dict):
        return isinstance(found, dict) and all(k in found and matches(found[k], v) for k, v in expected.items())
    if isinstance(expected, list):
        return isinstance(found, list) and len(found) == len(expected) and all(map(matches, found, expected))
    if isinstance(expected, str):
        return isinstance(found, str) and found.strip().lower() == expected.lower()
    if isinstance(expected, (int, float)) and not isinstance(expected, bool):
        return isinstance(found, (int, float)) and not isinstance(found, bool) and found == expected
    return found is expected


# One function a dialect: (path, body) of a request, and (text, arguments of calls, log-probabilities) of its
# answer.
def chat(model, prompt, schema, mode):
    body = {"messages": [{"role": "user", "content": prompt}], "temperature": 0, "max_tokens": MAX_TOKENS, "logprobs": True,
            "top_logprobs": 1}
    if mode == "object":
        body["response_format"] = {"type": "json_object"}
    elif mode == "schema":
        body["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    elif mode != "free":
        body |= {"tools": [{"type": "function", "function": {"name": "record", "description": "Records the data of the text.",
                                                             "parameters": schema}}],
                 "tool_choice": "required" if mode == "forced" else "auto"}
    return "/v1/chat/completions", body | {"model": model}


def chat_answer(reply):
    message = reply["choices"][0]["message"]
    calls = [json.loads(c["function"]["arguments"]) for c in message.get("tool_calls") or []]
    return message.get("content") or "", calls, (reply["choices"][0].get("logprobs") or {}).get("content") or []


def ollama(model, prompt, schema, mode):
    body = {"messages": [{"role": "user", "content": prompt}], "options": {"temperature": 0, "num_predict": MAX_TOKENS},
            "stream": False, "logprobs": True, "top_logprobs": 1}
    if mode == "forced":
        return None  # this API has no such field
    if mode in ("object", "schema"):
        body["format"] = "json" if mode == "object" else schema
    elif mode == "auto":
        body["tools"] = chat(model, prompt, schema, mode)[1]["tools"]
    return "/api/chat", body | {"model": model}


def ollama_answer(reply):
    message = reply["message"]
    return message.get("content") or "", [c["function"]["arguments"] for c in message.get("tool_calls") or []], reply.get("logprobs") or []


def messages(model, prompt, schema, mode):
    body = {"messages": [{"role": "user", "content": prompt}], "temperature": 0, "max_tokens": MAX_TOKENS}
    if mode == "object":
        return None
    if mode == "schema":
        body["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
    elif mode != "free":
        body |= {"tools": [{"name": "record", "description": "Records the data of the text.", "input_schema": schema}],
                 "tool_choice": {"type": "any" if mode == "forced" else "auto"}}
    return "/v1/messages", body | {"model": model}


def messages_answer(reply):
    blocks = reply["content"]
    return ("".join(b["text"] for b in blocks if b["type"] == "text"), [b["input"] for b in blocks if b["type"] == "tool_use"], [])


def responses(model, prompt, schema, mode):
    body = {"input": prompt, "temperature": 0, "max_output_tokens": MAX_TOKENS, "store": False}
    if mode == "object":
        body["text"] = {"format": {"type": "json_object"}}
    elif mode == "schema":
        body["text"] = {"format": {"type": "json_schema", "name": "answer", "schema": schema}}
    elif mode != "free":
        body |= {"tools": [{"type": "function", "name": "record", "description": "Records the data of the text.",
                            "parameters": schema, "strict": False}],
                 "tool_choice": "required" if mode == "forced" else "auto"}
    return "/v1/responses", body | {"model": model}


def responses_answer(reply):
    text = "".join(part["text"] for item in reply["output"] if item["type"] == "message" for part in item["content"])
    return text, [json.loads(item["arguments"]) for item in reply["output"] if item["type"] == "function_call"], []


DIALECTS = {"chat": (chat, chat_answer), "ollama": (ollama, ollama_answer), "messages": (messages, messages_answer),
            "responses": (responses, responses_answer)}


def post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=600) as reply:
            return json.loads(reply.read())
    except urllib.error.HTTPError as error:
        return {"refused": f"HTTP {error.code}: {error.read(300).decode(errors='replace')}"}


def tasks_of(count):
    for make, schema in SHAPES.items():
        pick = random.Random(make.__name__)
        for _ in range(count):
            text, answer = make(pick)
            yield make.__name__, schema, text, answer


def prompt_of(text, schema, mode):
    if mode in ("auto", "forced"):
        return f"Text: {text}\nRecord the data of this text with the tool."
    return f"Text: {text}\nExtract the data as JSON: {described(schema)}. Answer with the JSON object only."


class Asked:
    """One question in one mode: whether it was right, what the masks took and where."""

    def __init__(self, url, model, dialect, task, mode):
        self.shape, schema, text, expected = task
        self.mode, self.right, self.refused, self.removed, self.places = mode, False, "", None, []
        make, read = DIALECTS[dialect]
        request = make(model, prompt_of(text, schema, mode), schema, mode)
        if request is None:
            self.refused = "no such field"
            return
        reply = post(url + request[0], request[1])
        if "refused" in reply:
            self.refused = reply["refused"]
            return
        content, calls, tokens = read(reply)
        found = calls[0] if mode in ("auto", "forced") and calls else first_object(content) if mode in ("free", "auto") else whole(content)
        self.right = matches(found, expected)
        self.answer = (content, calls)
        if tokens:
            lost = [(t["top_logprobs"][0]["logprob"] - t["logprob"], t["top_logprobs"][0]["token"], t["token"]) for t in tokens]
            self.removed = sum(l for l, _, _ in lost)
            self.places = [p for p in lost if p[0] > 0.5]


def whole(text):
    """A constrained answer is one document."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def table(model, dialect, asked):
    """Prints the table of a model in a dialect; returns the shapes that lose too much."""
    right = collections.defaultdict(collections.Counter)
    served = {a.mode for a in asked if not a.refused}
    for a in asked:
        right[a.shape][a.mode] += a.right
    print(f"\n### {model}, {dialect}\n\n| shape | " + " | ".join(MODES) + " |\n| --- |" + " ---: |" * len(MODES))
    for shape, counts in right.items():
        print(f"| {shape} | " + " | ".join(str(counts[m]) if m in served else "-" for m in MODES) + " |")
    print("| all | " + " | ".join(str(sum(c[m] for c in right.values())) if m in served else "-" for m in MODES) + " |")
    for mode in MODES:
        removed = sorted(a.removed for a in asked if a.mode == mode and a.removed is not None)
        if removed:
            print(f"\nRemoved from `{mode}` per answer: mean {sum(removed) / len(removed):.2f}, "
                  f"p90 {removed[len(removed) * 9 // 10]:.2f}, maximum {removed[-1]:.2f}")
            places = collections.defaultdict(list)
            for a in asked:
                if a.mode == mode:
                    for lost, wanted, got in a.places:
                        places[(wanted, got)].append(lost)
            for (wanted, got), losses in sorted(places.items(), key=lambda p: -sum(p[1]))[:6]:
                print(f"- {wanted!r} became {got!r}: {len(losses)} times, {sum(losses):.1f}")
    for reason in sorted({f"{a.mode}: {a.refused}" for a in asked if a.refused}):
        print(f"\nNot served: {reason}")
    pairs = [("free", "object"), ("free", "schema"), ("auto", "forced")]
    return [f"{model}, {dialect}, {shape}: {mode} {counts[mode]}, {base} {counts[base]}"
            for shape, counts in right.items() for base, mode in pairs
            if mode in served and base in served and counts[mode] < counts[base] - ALLOWED_LOSS]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("model", nargs="+")
    parser.add_argument("--tasks", type=int, default=20, help="of each shape")
    parser.add_argument("--dialects", default=",".join(DIALECTS))
    parser.add_argument("--wrong", action="store_true", help="print the answers that a constraint made wrong")
    options = parser.parse_args()
    harmed = []
    for model in options.model:
        for dialect in options.dialects.split(","):
            work = [(task, mode) for task in tasks_of(options.tasks) for mode in MODES]
            with concurrent.futures.ThreadPoolExecutor(PARALLEL) as pool:
                asked = list(pool.map(lambda w: Asked(options.url, model, dialect, *w), work))
            harmed += table(model, dialect, asked)
            sys.stdout.flush()
            if options.wrong:
                by_task = [asked[i:i + len(MODES)] for i in range(0, len(asked), len(MODES))]
                for group, (task, _) in zip(by_task, work[::len(MODES)]):
                    for base, mode in ((0, 1), (0, 2), (3, 4)):
                        if group[base].right and not group[mode].right and not group[mode].refused:
                            print(task[0], task[2], MODES[base], group[base].answer, MODES[mode], group[mode].answer)
    for line in harmed:
        print("\nHARMED", line)
    return 1 if harmed else 0


if __name__ == "__main__":
    sys.exit(main())
