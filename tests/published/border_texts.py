"""Random texts for tests of tokenizers: of any script (random_text), and around the borders of added tokens (border_text)."""
import unicodedata

RANGES = [(0x20, 0x7E), (0x20, 0x7E), (0x61, 0x7A), (0x30, 0x39), (0x41, 0x5A), (0xA0, 0x17F), (0x300, 0x36F), (0x370, 0x52F),
          (0x5D0, 0x6FF), (0x900, 0x97F), (0xE00, 0xE7F), (0x1100, 0x11FF), (0x2000, 0x206F), (0x2100, 0x21FF), (0x3000, 0x30FF),
          (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xFF00, 0xFFEF), (0x1F300, 0x1F64F), (0x10400, 0x1044F)]
WORDS = ["the", " the", "don't", " I'LL", "'s", "\n", "\n\n", "\r\n", "  ", "\t", " ", "1234567", "3.14", "...", "==", "/*", "http://a.b/c?d=e",
         "def f(x):\n    return x", "\u4f60\u597d", "\u00e9", "e\u0301", "\U0001f642", "_a", "C++", "\u00a0", "\u3000", "fooBarBAZ"]
MARK = "\u2581"  # SentencePiece's spelling of a space
SCRIPTS = ["\u4f60\u597d\u4e16\u754c", "\u65e5\u672c\u8a9e", "\u041f\u0440\u0438\u0432\u0435\u0442", "e\u0301x", "A\u030a", "\u00e9t\u00e9", "\U0001f642",
           "\U0001f469\u200d\U0001f4bb", "\u0e44\u0e17\u0e22", "\ufb01sh", "\uff21\uff22", "\u2460", "\u00a0", "\u3000", "\u2003"]
HTML = ["<br>", "</table>", "<table>", "<b>", "</b>", "<br/>", "<td>12</td>", "<div class=\"a\">", "&nbsp;"]


def random_text(draw):
    parts = []
    for _ in range(draw.randint(1, 12)):
        if draw.random() < 0.5:
            parts.append(draw.choice(WORDS))
        else:
            low, high = draw.choice(RANGES)
            parts.append("".join(chr(draw.randint(low, high)) for _ in range(draw.randint(1, 6))))
    # Unassigned characters change their properties from one version of Unicode to the next.
    return "".join(c for c in "".join(parts) if unicodedata.category(c) not in ("Cn", "Cs", "Co"))


def blank(draw):
    """White space: a run of one kind, or a mixture as between lines of code."""
    kind = draw.random()
    if kind < 0.5:
        return " " * draw.choice([1, 1, 2, 3, 4, draw.randint(1, 40)])
    if kind < 0.65:
        return "\n" * draw.choice([1, 2, draw.randint(1, 12)])
    if kind < 0.8:
        return "\t" * draw.choice([1, 2, draw.randint(1, 9)])
    return "".join(draw.choice([" ", "  ", "\n", "\t", "\r\n", "\n    ", "\n\t\t", " \n"]) for _ in range(draw.randint(2, 6)))


def code(draw):
    lines = []
    for _ in range(draw.randint(1, 4)):
        indent = draw.choice(["    ", "\t", "  "]) * draw.randint(0, 6)
        lines.append(indent + draw.choice(["if x == 10:", "return foo(bar)", "x += 1", "}", "// done", "def f(a, b):", ""]))
    return "\n".join(lines)


def added(draw, tokens):
    """An added token: whole, doubled, cut, inside a word, or beside white space."""
    token = draw.choice(tokens)
    kind = draw.random()
    if kind < 0.45:
        return token
    if kind < 0.55:
        return token * draw.randint(2, 3)
    if kind < 0.65:
        cut = draw.randint(0, len(token))
        return token[:cut] if draw.random() < 0.5 else token[cut:]
    if kind < 0.75:
        return draw.choice(["a", "word", "9", "_"]) + token + draw.choice(["b", "s", "0", "_"])
    if kind < 0.85:
        return token + draw.choice(tokens)
    return blank(draw) + token + blank(draw)


def border_text(draw, tokens):
    """A text of one to eight parts, of which many are, or nearly are, one of `tokens`."""
    parts = []
    for _ in range(draw.randint(1, 8)):
        kind = draw.random()
        if kind < 0.4:
            parts.append(added(draw, tokens))
        elif kind < 0.55:
            parts.append(blank(draw))
        elif kind < 0.6:
            parts.append(MARK * draw.choice([1, 2, 4, draw.randint(1, 20)]))
        elif kind < 0.65:
            parts.append(draw.choice(HTML))
        elif kind < 0.72:
            parts.append(draw.choice(SCRIPTS))
        elif kind < 0.78:
            parts.append(code(draw))
        else:
            parts.append(draw.choice(["the", "hello world", "return", "12", "2024", "foo bar", "x", "Hi", "don't", ".", ","]))
        if draw.random() < 0.4:
            parts.append(" ")
    return "".join(parts)


def border_texts(draw, tokens, count):
    """`count` different texts, up to a quarter of them tokens alone."""
    texts = dict.fromkeys(["", " ", "  ", *tokens][:count // 4])
    while len(texts) < count:
        texts[border_text(draw, tokens)] = None
    return list(texts)[:count]
