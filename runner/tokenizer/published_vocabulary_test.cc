// Ids of published vocabularies, which are not ours to distribute: QUIRE_VOCABULARIES names a folder that
// tests/published/vocabularies.py wrote. Skipped without it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "runner/tokenizer/tokenizer.h"
#include "runner/weights/gguf.h"

namespace quire::runner::tokenizer {
namespace {

namespace fs = std::filesystem;

constexpr int kShown = 5;  // differences that are printed
constexpr std::string_view kEnding = ".ids.jsonl";

std::vector<std::string> NamesIn(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string file = entry.path().filename().string();
    if (file.ends_with(kEnding) && !file.ends_with(".gguf.ids.jsonl"))
      names.push_back(file.substr(0, file.size() - kEnding.size()));
  }
  std::ranges::sort(names);
  return names;
}

std::string Read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Differences of a tokenizer from what is recorded; the first few are printed.
int CountDifferences(const Tokenizer& tokenizer, const fs::path& recorded) {
  std::ifstream lines(recorded);
  int differences = 0, texts = 0;
  for (std::string line; std::getline(lines, line); ++texts) {
    const auto entry = nlohmann::json::parse(line);
    const auto text = entry["text"].get<std::string>();
    const auto ids = tokenizer.Encode(text, SpecialTokens::kParse);
    if (ids && *ids == entry["ids"].get<std::vector<TokenId>>()) continue;
    if (++differences <= kShown) {
      ADD_FAILURE() << nlohmann::json(text) << "\n  is " << nlohmann::json(*ids) << "\n  not "
                    << entry["ids"];
    }
  }
  EXPECT_GT(texts, 0) << recorded;
  return differences;
}

void ExpectTheSameOfGguf(const fs::path& folder, const std::string& name) {
  const std::string bytes = Read(folder / (name + ".gguf"));
  const auto contents = weights::ParseGguf(std::as_bytes(std::span(bytes.data(), bytes.size())), name);
  ASSERT_TRUE(contents) << contents.error().message;
  const auto gguf = Tokenizer::FromGguf(*contents->metadata);
  ASSERT_TRUE(gguf) << gguf.error().message;
  // SentencePiece and the library differ in texts with user-defined pieces, of which GGUF states more.
  const fs::path own = folder / (name + ".gguf.ids.jsonl");
  EXPECT_EQ(CountDifferences(**gguf, fs::exists(own) ? own : folder / (name + ".ids.jsonl")), 0) << "GGUF";
}

TEST(PublishedVocabulary, HasTheIdsOfItsLibrary) {
  if (std::getenv("QUIRE_VOCABULARIES") == nullptr) GTEST_SKIP() << "QUIRE_VOCABULARIES is not set";
  const fs::path folder = std::getenv("QUIRE_VOCABULARIES");
  for (const std::string& name : NamesIn(folder)) {
    SCOPED_TRACE(name);
    const auto loaded = Tokenizer::FromTokenizerJson(Read(folder / (name + ".tokenizer.json")), nullptr);
    EXPECT_TRUE(loaded) << loaded.error().message;
    EXPECT_EQ(loaded ? CountDifferences(**loaded, folder / (name + ".ids.jsonl")) : 0, 0) << "tokenizer.json";
    if (fs::exists(folder / (name + ".gguf"))) ExpectTheSameOfGguf(folder, name);
  }
}

}  // namespace
}  // namespace quire::runner::tokenizer
