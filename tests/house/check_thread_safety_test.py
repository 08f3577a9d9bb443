#!/usr/bin/env python3
"""Plants uses of a guarded member without its mutex and expects clang++-16 to reject them, and nothing else."""
import json
import pathlib
import shutil
import tempfile
import unittest

import check_thread_safety

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMPILER = "clang++-16"
COUNTER = """#include <condition_variable>
#include "api/base/mutex.h"
namespace quire {{
class Counter {{
 public:
  int Get() {{ {body} }}
 private:
  int Locked() REQUIRES(mutex_) {{ return count_; }}
  api::Mutex mutex_;
  std::condition_variable changed_;
  int count_ GUARDED_BY(mutex_) = 0;
}};
int Use() {{ return Counter().Get(); }}
}}  // namespace quire
"""


@unittest.skipUnless(shutil.which(COMPILER), f"there is no {COMPILER}")
class CheckThreadSafety(unittest.TestCase):
    def violations(self, body):
        command = [COMPILER, "-std=c++2b", f"-I{ROOT}"]
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder, "counter.cc")
            source.write_text(COUNTER.format(body=body))
            return check_thread_safety.violation(command, [str(source)])

    def test_accepts_uses_under_the_mutex(self):
        for body in ("const api::MutexLock lock(mutex_); return count_;",
                     "const api::MutexLock lock(mutex_); return Locked();",
                     "api::UniqueLock lock(mutex_); changed_.wait(lock, [this]() REQUIRES(mutex_) { return count_ > 0; });"
                     " lock.unlock(); lock.lock(); return count_;"):
            self.assertEqual("", self.violations(body), body)

    def test_rejects_uses_without_the_mutex(self):
        for body in ("return count_;", "return Locked();",
                     "{ const api::MutexLock lock(mutex_); } return ++count_;",
                     "const std::lock_guard lock(mutex_); return count_;",
                     "api::UniqueLock lock(mutex_); lock.unlock(); return count_;",
                     "api::UniqueLock lock(mutex_); changed_.wait(lock, [this] { return count_ > 0; }); return 1;",
                     "const api::MutexLock lock(mutex_); const api::MutexLock again(mutex_); return 1;"):
            self.assertIn("[-Werror,-Wthread-safety-analysis]", self.violations(body), body)

    def test_reads_the_sources_that_reach_the_mutex(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder).resolve()
            build = root / "build"
            for name, text in {"api/base/mutex.h": "", "a.h": '#include "api/base/mutex.h"\n', "a.cc": '#include "a.h"\n',
                               "b.cc": "", "c.cc": '#include "api/base/mutex.h"\n',
                               "build/unity.cxx": f'#include "{root}/a.cc"\n#include "{root}/b.cc"\n'}.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            (build / "compile_commands.json").write_text(json.dumps(
                [{"file": file, "command": f"c++ -DX -O2 -o x.o -c {file}"}
                 for file in (f"{build}/unity.cxx", f"{root}/c.cc", f"{root}/b.cc")]))
            self.assertEqual([[f"{root}/a.cc"], [f"{root}/c.cc"]],
                             [sources for _, sources in check_thread_safety.batches(root, build)])


if __name__ == "__main__":
    unittest.main()
