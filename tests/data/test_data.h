// Finds the checkpoints and recorded results that tests read: in tests/data, else in a larger set of fixtures that is
// not part of the repository. QUIRE_FIXTURES names that set; its default is ../shared/fixtures.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

namespace quire::test_data {

// The root of the fixtures outside the repository, whether it exists or not.
inline std::filesystem::path FixturesPath() {
  const char* set = std::getenv("QUIRE_FIXTURES");
  return set != nullptr ? set : "../shared/fixtures";
}

// Where `name`, such as "models/llama", is: in tests/data, else in the fixtures, or in further sets of them that lie
// beside with "-2" and "-3" behind the name. Empty if nowhere.
inline std::filesystem::path Find(const std::filesystem::path& name) {
  const std::string fixtures = FixturesPath().string();
  for (const std::string& root : {std::string("tests/data"), fixtures, fixtures + "-2", fixtures + "-3"}) {
    const std::filesystem::path path = root / name;
    if (std::filesystem::exists(path)) return path;
  }
  return {};
}

// As Find(). Of "models/NAME", where it is nowhere, the family's smallest checkpoint: it has a golden and no tokenizer.
inline std::filesystem::path FindOrTiny(const std::filesystem::path& name) {
  const std::filesystem::path found = Find(name);
  return found.empty() && name.parent_path() == "models" ? Find("tiny" / name.filename()) : found;
}

// Every entry of `folder`, such as "models", of tests/data and of the fixtures, sorted by file name. An entry of the
// fixtures that tests/data has too is left out.
inline std::vector<std::filesystem::path> List(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> found;
  for (const auto& root : {std::filesystem::path("tests/data"), FixturesPath()}) {
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(root / folder, ignored)) {
      const auto name = entry.path().filename();
      if (Find(folder / name) == entry.path()) found.push_back(entry.path());
    }
  }
  std::ranges::sort(found, {}, [](const auto& path) { return path.filename().string(); });
  return found;
}

}  // namespace quire::test_data

// Declares `variable`, the path of `name`, or skips the test where neither tests/data nor the fixtures have it.
#define QUIRE_FIND_OR_SKIP(variable, name)                                                          \
  const std::filesystem::path variable = quire::test_data::Find(name);                              \
  if (variable.empty())                                                                             \
  GTEST_SKIP() << "neither tests/data nor " << quire::test_data::FixturesPath().string() << " has " \
               << std::filesystem::path(name).string() << "; see QUIRE_FIXTURES"
