#!/usr/bin/env python3
"""Plants what each measure counts and expects check_economy to count it, and to reject numbers that rose or fell."""
import contextlib
import io
import pathlib
import tempfile
import unittest

import check_economy

FUNCTION = "int Run(int a) {{\n{}  return a;\n}}\n"


class CheckEconomy(unittest.TestCase):
    def tree(self, folder, files):
        root = pathlib.Path(folder)
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        return root

    def measure(self, files):
        with tempfile.TemporaryDirectory() as folder:
            return check_economy.measure(self.tree(folder, files))

    def shape(self, body):
        classes, _ = check_economy.shapes(f"namespace quire {{\n{body}\n}}  // namespace quire\n")
        return [(one.name, one.methods, one.members) for one in classes]

    def test_counts_lines_words_options_and_constants(self):
        numbers, _, _ = self.measure({
            "api/a.cc": "// constexpr int kNone = 1;\nconstexpr int kMax = 1;\nint b = 2;\nconst size_t kList[] = {1, 2};\n",
            "api/a_test.cc": "constexpr int kTest = 1;\n", "server/console/web/a.mjs": "const kJs = 1;\n",
            "server/console/web/vendor/b.mjs": "1\n" * 99, "docs/a.md": "Three words here.\n",
            "server/options.cc": 'OptionSpec{"--a", ""},\nOptionSpec{\n  "--b", ""},\n',
            "api/base/options.h": 'visit(Row{"num_ctx"});\n'})
        self.assertEqual({"product lines": 9, "document words": 3, "options": 3, "constants": 2, "long functions": 0}, numbers)

    def test_counts_methods_and_members(self):
        self.assertEqual([("A", 6, 4)], self.shape("""class [[nodiscard]] CAPABILITY("mutex") A final : public B<int> {
 public:
  explicit A(int x) : b_{x}, c_(x) { Run(); }  // a brace }
  A(const A&) = delete;
  int b() const { return b_; }
  std::vector<int> List(std::function<void(int)> visit = [](int) {}) const REQUIRES(mutex_);
  bool operator<(const A& other) const;
  template <class T>
  void Add(T value);
  static int Of(int value) { return value; }
  static constexpr int kMax = 3;
  using Map = std::map<int, int>;
  friend class C;
  class Inner;

 private:
  std::function<void(int)> b_ = [](int x) { Use(x); };
  std::map<int, int> c_ GUARDED_BY(mutex_) = {{1, 2}, {3, 4}};
  uint64_t d_ = 0, e_ = 1;
};"""))

    def test_counts_nested_classes_apart(self):
        self.assertEqual([("A", 1, 1), ("B", 0, 2)], self.shape(
            "struct A {\n  struct B {\n    int a;\n    char c = '{';\n  };\n  enum class E { kOne, kTwo };\n  void Run();\n  B b;\n};"))

    def test_counts_lines_of_functions(self):
        for lines, long in ((67, 0), (68, 1)):
            text = FUNCTION.format("  a += 1;\n" * lines)
            for source in (text, f"namespace {{\n{text}}}\n", f"class A {{\n  int b = 1;\n public:\n  {text}}};\n",
                           "constexpr auto kList = std::to_array<int>({\n" + "1,\n" * 99 + "});\n" + text):
                numbers, names, _ = self.measure({"cache/a.cc": source})
                self.assertEqual(long, numbers["long functions"], source)
            self.assertEqual(["cache/a.cc: Run has 71 lines"][:long], names["long functions"])

    def test_names_large_classes(self):
        for body, large in (("  void F();\n" * 25 + "  int a;\n" * 15, 0), ("  void F();\n" * 26, 1), ("  int a;\n" * 16, 1)):
            _, _, classes = self.measure({"cache/a.h": f"class Big {{\n{body}}};\n"})
            self.assertEqual(["cache/a.h: Big"][:large], list(classes))

    def test_large_classes_have_a_reason(self):
        classes = {"a.h: Big": "26 methods and 0 data members"}
        self.assertEqual([], check_economy.compare_classes(classes, "# All.\n\nIt is one.\n  a.h: Big\n"))
        self.assertIn("a.h: Big has 26 methods", check_economy.compare_classes(classes, "# All.\n")[0])
        for text in ("# All.\n  a.h: Big\n", "It is one.\n\n  a.h: Big\n"):
            self.assertIn("no reason", check_economy.compare_classes(classes, text)[0])
        self.assertIn("a.h: Gone is no large class", check_economy.compare_classes({}, "It was one.\n  a.h: Gone\n")[0])

    def test_numbers_rise_only_in_the_file(self):
        self.assertEqual([], check_economy.compare({"a": 100}, {"a": 100}, {}))
        self.assertIn("a: 101, 1 more", check_economy.compare({"a": 101}, {"a": 100}, {"a": ["x.h: X"]})[0])
        self.assertIn("x.h: X", check_economy.compare({"a": 101}, {"a": 100}, {"a": ["x.h: X"]})[0])
        self.assertEqual([], check_economy.compare({"a": 99}, {"a": 100}, {}))
        self.assertIn("2 fewer", check_economy.compare({"a": 98}, {"a": 100}, {})[0])
        self.assertEqual(2, len(check_economy.compare({"a": 1}, {"b": 1}, {})))

    def test_writes_the_file_that_it_accepts(self):
        with tempfile.TemporaryDirectory() as folder:
            root = self.tree(folder, {"api/a.cc": "int a;\n", check_economy.NUMBERS: "", check_economy.LARGE: ""})
            with contextlib.redirect_stdout(io.StringIO()):
                self.assertEqual(1, check_economy.main([folder]))
                self.assertEqual(0, check_economy.main([folder, "--write"]))
                self.assertEqual(0, check_economy.main([folder]))
                (root / "api/a.cc").write_text("int a;\nint b;\n")
                self.assertEqual(1, check_economy.main([folder]))


if __name__ == "__main__":
    unittest.main()
