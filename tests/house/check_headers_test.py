#!/usr/bin/env python3
"""Plants a header that leans on its includer and expects check_headers to name it, and nothing else."""
import json
import pathlib
import tempfile
import unittest

import check_headers


class CheckHeaders(unittest.TestCase):
    def test_names_the_header_that_does_not_compile_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            build = root / "build"
            for name, text in {"api/good.h": "#pragma once\n#include <string>\ninline std::string Good() { return {}; }\n",
                               "api/bad.h": "#pragma once\nstd::string Bad();\n",
                               "api/base/user.h": '#pragma once\n#include "api/good.h"\n',
                               "api/a.cc": '#include <string>\n#include "api/bad.h"\n'}.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            build.mkdir()
            unit = str(root / "api/a.cc")
            # A forced include would hide what is missing.
            command = f"c++ -I{root} -std=c++20 -Wall -Werror -O2 -include string -o a.o -c {unit}"
            (build / "compile_commands.json").write_text(
                json.dumps([{"directory": str(build), "file": unit, "command": command}]))
            failed = check_headers.check(root, build, sorted(root.glob("api/**/*.h")))
            self.assertEqual(["api/bad.h"], [str(name) for name, _ in failed])
            self.assertIn("error", failed[0][1])


if __name__ == "__main__":
    unittest.main()
