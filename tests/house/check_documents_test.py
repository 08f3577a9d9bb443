#!/usr/bin/env python3
"""Plants documents that are too long, and links that lead nowhere, and expects check_documents to name each of them."""
import pathlib
import tempfile
import unittest

import check_documents


class CheckDocuments(unittest.TestCase):
    def breaches(self, files):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                path = pathlib.Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return check_documents.check(pathlib.Path(folder))

    def test_clean(self):
        self.assertEqual([], self.breaches({"README.md": "# A `b`, c\n[a](docs/a.md#two-words) [b](#a-b-c) [c](https://x.y/z)\n",
                                            "docs/a.md": "# Two words\n```\n[x](none.md)\n```\n`[x](none.md)`\n"}))

    def test_too_many_words(self):
        self.assertIn("26101 words", self.breaches({"docs/a.md": "word " * 21_101, "cache/README.md": "word " * 5_000})[0])
        self.assertIn("docs/operations.md: 2501", self.breaches({"docs/operations.md": "word " * 2_501})[0])
        for name in ("tests/data/README.md", "bench/results/a.md", "packaging/models/MODEL_CARD.md"):
            self.assertEqual([], self.breaches({name: "word " * 25_001}), name)

    def test_too_many_lines(self):
        self.assertEqual([], self.breaches({"README.md": "a\n" * 120}))
        self.assertIn("121 lines", self.breaches({"README.md": "a\n" * 121})[0])

    def test_links_that_lead_nowhere(self):
        self.assertIn("none.md leads nowhere", self.breaches({"docs/a.md": "[a](none.md)\n"})[0])
        self.assertIn("#two: there is no such heading", self.breaches({"docs/a.md": "# One\n[a](#two)\n"})[0])
        self.assertIn("b.md#two", self.breaches({"docs/a.md": "[a](b.md#two)\n", "docs/b.md": "# One\n```\n# two\n```\n"})[0])


if __name__ == "__main__":
    unittest.main()
