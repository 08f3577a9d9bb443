#!/usr/bin/env python3
"""Plants words that are banned, or verbs with a second meaning, and expects check_words to name each of them."""
import pathlib
import subprocess
import tempfile
import unittest

import check_words


class CheckWords(unittest.TestCase):
    def hits(self, name, text):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            return check_words.check(pathlib.Path(folder))

    def expect(self, word, name, text):
        found = self.hits(name, text)
        self.assertEqual(1, len(found), (name, text, found))
        self.assertIn(f'"{word}"', found[0])

    def test_clean(self):
        self.assertEqual([], self.hits("cache/a.cc", "// Takes the captures.\nauto a = sequence.TakeCaptures();\nstep.Begin();\n"))
        self.assertEqual([], self.hits("docs/a.md", "Draft tokens are verified in one forward pass. The queue is full.\n"))

    def test_names_the_line(self):
        self.assertIn("api/a.cc:3:", self.hits("api/a.cc", "\n\nLeaveTheWorld();\n")[0])

    def test_identifiers(self):
        for word in ("RuleBook", "DepthControl", "HoldAnswer", "trial_time", "SeeOnlyMachine", "HeldBytes", "PanelProduct",
                     "NativeReply", "reader_full", "CallForm", "Attendance", "kMovedCodes"):
            self.expect(word, "runner/engine/a.h", f"int x;  // {word} is here\n")

    def test_british_spelling(self):
        for word in ("behaviour", "licence", "cancelled", "labelled", "grey", "normalised", "Serialisation"):
            self.expect(word, "docs/a.md", f"The {word} x.\n")
        for name in ("a.py", "systemd/a.service", "packaging/monitoring/a.yml", "tests/conformance/own/a.mjs", "CMakeLists.txt"):
            self.assertEqual(1, len(self.hits(name, "# neighbours\n")), name)

    def test_phrases(self):
        for word in ("so many", "under suspicion", "the same bits", "turned away", "whole numbers", "all the same",
                     "goes round in circles", "lets nothing through"):
            text = "It produces the same bits.\n" if word == "the same bits" else f"It {word}.\n"
            found = self.hits("README.md", text)
            self.assertEqual(1, len(found), (word, found))
            self.assertIn(word, found[0])

    def test_second_meaning_of_a_verb(self):
        for word in ("TakeLicense", "KeepRow", "HeldPages", "BeginChat", "NoteFailure"):
            self.assertIn(f'"{word}"', "\n".join(self.hits("cache/a.h", f"Page* {word}(int page);\n")))
        # Strings, comments and other languages may use the words.
        self.assertEqual([], self.hits("api/a.cc", 'Log("TakeLicense(x)");  // BeginChat() of others\n'))
        self.assertEqual([], self.hits("a.py", "TakeLicense()\n"))

    def test_form_of_comments(self):
        for name, line in (("a.cc", "// Of a request: its bytes."), ("a.h", "  // Of it."), ("a.py", "# Of a user: it."), ("docs/a.md", "## Of keys")):
            self.assertIn('begins with "Of"', "\n".join(self.hits(name, f"x\n{line}\n")), line)
        wide = "x" * 106
        for name, line in (("a.cc", f"// {wide}  "), ("a.h", f"int a;  // {wide}"), ("a.py", f"   # {wide}"), ("CMakeLists.txt", f"#   {wide} ")):
            found = self.hits(name, f"\n{line}\n")
            self.assertEqual(1, len(found), (line, found))
            self.assertIn("columns: at most 110", found[0])
        for name, line in (("a.cc", "// Often."), ("a.cc", "//" + "x" * 108), ("a.cc", f'Url("http://{wide}");'), ("a.cc", f"#include <{wide}>"),
                           ("a.md", wide * 2), ("a.cc", "int a;  // of one request")):
            self.assertEqual([], self.hits(name, f"{line}\n"), line)

    def test_commit_subjects(self):
        with tempfile.TemporaryDirectory() as folder:
            git = ["git", "-C", folder, "-c", "user.name=a", "-c", "user.email=a@b"]
            subprocess.run([*git, "init", "-q"], check=True)
            for subject in ("a: " + "x" * 69, "b: " + "x" * 70):
                subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", subject], check=True)
            found = check_words.check(pathlib.Path(folder))
            self.assertEqual(1, len(found), found)
            self.assertIn("73 characters: at most 72", found[0])

    def test_exempt_files(self):
        for name in ("LICENSE", "tests/data/README.md", "tests/conformance/suite/a.mjs", "packaging/models/quire-demo/config.json",
                     "docs/glossary.md"):
            self.assertEqual([], self.hits(name, "behaviour, so many\n"), name)

    def test_rules_are_well_formed(self):
        house = pathlib.Path(check_words.__file__).parent
        rules = check_words.read_rules(house / "banned_words.txt")
        self.assertGreater(len(rules), 50)
        for pattern, hint, _ in rules:
            self.assertTrue(hint, pattern.pattern)
            self.assertIsNone(pattern.search(""), pattern.pattern)
        for line in (house / "verbs.txt").read_text().splitlines():
            self.assertTrue(line.startswith("#") or line.count("\t") == 1, line)


if __name__ == "__main__":
    unittest.main()
