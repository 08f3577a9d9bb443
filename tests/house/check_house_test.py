#!/usr/bin/env python3
"""Plants each kind of breach in an empty tree and expects check_house to name it, and nothing in a clean one."""
import pathlib
import tempfile
import unittest

import check_batches
import check_house


class CheckHouse(unittest.TestCase):
    def breaches(self, files):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            names = " ".join(name.split("/")[-1] for name in files if name.endswith(".cc"))
            for name, text in ({"CMakeLists.txt": f"add_library(all {names})"} | files).items():
                path = root / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return check_house.check(root)

    def test_clean_tree(self):
        self.assertEqual([], self.breaches({
            "server/a.cc": '#include "server/a.h"\n#include "scheduler/b.h"\n#include <nlohmann/json.hpp>\n',
            "server/a.h": '#pragma once\n#include "api/c.h"\n#include <nlohmann/json_fwd.hpp>\n',
            "runner/engine/e.cc": '#include "runner/models/m.h"\n#include "cache/p.h"\n'}))

    def test_include_against_the_arrows(self):
        for name, include in [("api/a.cc", "server/x.h"), ("cache/a.cc", "api/json/read.h"), ("scheduler/a.cc", "server/x.h"),
                              ("runner/a.cc", "scheduler/x.h"), ("server/a.cc", "runner/x.h"),
                              ("runner/kernels/a.cc", "runner/models/model.h"), ("server/a.cc", "cache/x.h"),
                              ("api/base/a.cc", "api/json/read.h"), ("api/openai/a.cc", "api/ollama/chat.h"),
                              ("server/http/a.cc", "server/routes/relay.h"), ("server/store/a.cc", "server/http/tls.h"),
                              ("server/routes/a.cc", "server/console/now.h"), ("server/routes/a.cc", "server/options.h"), ("cache/a.cc", "cache/testing/x.h"),
                              ("server/http/a.cc", "server/testing/x.h"), ("runner/engine/a.cc", "tests/data/x.h")]:
            found = self.breaches({name: f'#include "{include}"\n'})
            self.assertEqual(1, len(found), (name, include, found))
            self.assertIn(include, found[0])

    def test_test_support(self):
        self.assertEqual([], self.breaches({
            "cache/a_test.cc": '#include "cache/testing/x.h"\n', "server/http/a_test.cc": '#include "server/testing/x.h"\n',
            "runner/jinja/a_test.cc": '#include "tests/data/x.h"\n',
            "cache/testing/x.h": '#pragma once\n#include "cache/p.h"\n'}))

    def test_relative_include(self):
        self.assertIn("include from the root", self.breaches({"api/a.cc": '#include "../x.h"\n'})[0])

    def test_long_file(self):
        self.assertIn("501 lines", self.breaches({"api/a.cc": "\n" * 501})[0])
        self.assertEqual([], self.breaches({"api/a.cc": "\n" * 500}))

    def test_large_test_data(self):
        self.assertIn("tests: 20000001 bytes", self.breaches({"tests/data/x": "x" * 20_000_001})[0])
        self.assertEqual([], self.breaches({"tests/data/x": "x" * 20_000_000}))

    def test_json_or_beast_in_a_header(self):
        for include in ("nlohmann/json.hpp", "boost/beast.hpp", "boost/beast/http/message.hpp"):
            found = self.breaches({"server/a.h": f"#pragma once\n#include <{include}>\n"})
            self.assertIn("JSON or Beast in a header", found[0])

    def test_header_guard(self):
        self.assertIn("pragma once", self.breaches({"api/a.h": "int x;\n"})[0])

    def test_unbuilt_source(self):
        self.assertIn("no CMake target", self.breaches({"CMakeLists.txt": "add_library(all)", "api/a.cc": ""})[0])

    def test_top_level(self):
        self.assertIn("not one of", self.breaches({"utils/a.md": ""})[0])

    def test_await_in_a_condition(self):
        self.assertIn("co_await in a condition", self.breaches({"api/a.cc": "if (!co_await Read()) return;\n"})[0])
        self.assertEqual([], self.breaches({
            "api/a.cc": "if (auto read = co_await Read(); !read) return;\nwhile (Busy()) co_await Done();\n"}))

    def test_await_of_braces(self):
        self.assertIn("braced list", self.breaches({"api/a.cc": "co_await Send(exchange, {200, text});\n"})[0])
        self.assertEqual([], self.breaches({"api/a.cc": "const Reply reply{200, text};\nco_await Send(exchange, {});\n"}))

    def test_local_names_of_a_batch(self):
        source = "namespace quire {{\nnamespace {{\n\nint Size({}) {{ return 1; }}\n\n}}  // namespace\n}}\n"
        batched = "quire_library(a SOURCES x.cc y.cc LIBS z)"
        alone = "\nset_source_files_properties(y.cc\n  PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)"
        for target, found in [(batched, 1), (batched + alone, 0), ("quire_library(a NO_UNITY SOURCES x.cc y.cc)", 0),
                              ("quire_test(a SOURCES x.cc ${CMAKE_SOURCE_DIR}/y.cc LIBS z)", 1)]:
            with tempfile.TemporaryDirectory() as folder:
                root = pathlib.Path(folder)
                (root / "CMakeLists.txt").write_text(target)
                (root / "x.cc").write_text(source.format("int"))
                (root / "y.cc").write_text(source.format("char"))
                self.assertEqual(found, len(check_batches.check(root)))

    def test_constants_types_and_aliases_of_a_batch(self):
        source = "namespace quire {{\nnamespace {{\n\n{}\n\n}}  // namespace\n}}\n"
        for one, other, found in [("constexpr int kMax = 1;", "constexpr size_t kMax = size_t{2};", 1),
                                  ("constexpr int kMax = 1;", "constexpr int kLeast = 1;", 0),
                                  ("struct Entry {\n};", "class Entry {\n};", 1),
                                  ("using Json = a::b;", "using Json = a::b;", 0),
                                  ("using Json = a::b;", "using Json = a::c;", 1)]:
            with tempfile.TemporaryDirectory() as folder:
                root = pathlib.Path(folder)
                (root / "CMakeLists.txt").write_text("quire_library(a SOURCES x.cc y.cc LIBS z)")
                (root / "x.cc").write_text(source.format(one))
                (root / "y.cc").write_text(source.format(other))
                self.assertEqual(found, len(check_batches.check(root)), (one, other))

    def test_mutexes_without_annotations(self):
        for text in ("std::mutex mutex_;\n", "std::shared_mutex mutex_;\n", "const std::lock_guard lock(mutex_);\n",
                     "std::unique_lock lock(mutex_);\n"):
            self.assertIn("a mutex that is not of", self.breaches({"server/a.cc": text})[0])
            self.assertEqual([], self.breaches({"server/a_test.cc": text, "server/b.cc": "const api::MutexLock lock(mutex_);\n",
                                                "server/c.cc": "class Sink : public spdlog::sinks::base_sink<std::mutex> {};\n"}))

    def test_unfinished(self):
        self.assertIn("unfinished", self.breaches({"api/a.cc": "// TO" + "DO later\n"})[0])


if __name__ == "__main__":
    unittest.main()
