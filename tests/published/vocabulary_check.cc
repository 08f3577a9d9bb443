// Compares tokenizers with recorded ids and texts.
//
// usage: quire_vocabulary_check FOLDER [--show N] [NAME...]
//
// FOLDER has, as vocabularies.py writes them, for each NAME: NAME.tokenizer.json (and
// NAME.tokenizer_config.json, if any), NAME.*.gguf and NAME.ids.jsonl, which has a line for each text:
// {"text", "ids", "decoded", "skipped"}; absent, "decoded" is the text; null: not compared. "skipped" is the
// text without special tokens, absent: "decoded". NAME.*.gguf.ids.jsonl holds for that GGUF file if it
// exists. Without a NAME: all of them. Prints a row for each file and up to N (default: 3) differences of
// each kind. Exit status: 1 where anything differs, 2 where a file cannot be read.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runner/tokenizer/detokenizer.h"
#include "runner/tokenizer/tokenizer.h"
#include "runner/weights/gguf.h"

namespace quire::runner::tokenizer {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using TokenizerPtr = std::shared_ptr<const Tokenizer>;

constexpr std::string_view kTokenizerJson = ".tokenizer.json";

std::string ReadText(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct Options {
  fs::path folder;
  int shown_max = 3;
  std::vector<std::string> names;
};

// A row of the table.
struct Tally {
  int texts = 0;
  int ids_equal = 0;
  int text_equal = 0;     // decoded, special tokens written
  int skipped_equal = 0;  // decoded, special tokens left out
  bool AllEqual() const {
    return texts > 0 && ids_equal == texts && text_equal == texts && skipped_equal == texts;
  }
};

std::string DecodeAll(const TokenizerPtr& tokenizer, const std::vector<TokenId>& ids,
                      Detokenizer::Special special) {
  Detokenizer detokenizer(tokenizer, special);
  std::string text;
  for (const TokenId id : ids) text += detokenizer.Append(id);
  return text + detokenizer.Flush();
}

// Compares one tokenizer with one file of references.
class Comparison {
 public:
  Comparison(TokenizerPtr tokenizer, int shown_max)
      : tokenizer_(std::move(tokenizer)), shown_max_(shown_max) {}

  Tally Run(const fs::path& references) {
    std::ifstream lines(references);
    for (std::string line; std::getline(lines, line);) Compare(json::parse(line));
    return tally_;
  }

 private:
  void Compare(const json& reference) {
    const auto text = reference.at("text").get<std::string>();
    const auto ids = reference.at("ids").get<std::vector<TokenId>>();
    ++tally_.texts;
    const auto encoded = tokenizer_->Encode(text, SpecialTokens::kParse);
    const json got = encoded ? json(*encoded) : json(encoded.error().message);
    Count("ids", text, reference.at("ids"), got, tally_.ids_equal);
    const json decoded = reference.value("decoded", json(text));
    if (decoded.is_null()) {
      ++tally_.text_equal;
      ++tally_.skipped_equal;
      return;
    }
    Count("text", reference.at("ids"), decoded, DecodeAll(tokenizer_, ids, Detokenizer::Special::kWrite),
          tally_.text_equal);
    Count("skipped", reference.at("ids"), reference.value("skipped", decoded),
          DecodeAll(tokenizer_, ids, Detokenizer::Special::kSkip), tally_.skipped_equal);
  }

  void Count(std::string_view kind, const json& input, const json& expected, const json& got, int& equal) {
    if (expected == got) {
      ++equal;
      return;
    }
    const int before = tally_.texts - 1 - equal;
    if (before >= shown_max_) return;
    fmt::print("  {}: {}\n    expected {}\n    got      {}\n", kind, Spelled(input), Spelled(expected),
               Spelled(got));
  }

  // Ids with the text of each token, as Quire has it.
  std::string Spelled(const json& value) const {
    if (!value.is_array()) return value.dump(-1, ' ', true);
    std::string spelled;
    for (const json& id : value) {
      const json bytes = std::string(tokenizer_->TokenBytes(id.get<TokenId>()));
      spelled += fmt::format("{}{}:{}", spelled.empty() ? "" : " ", id.get<TokenId>(),
                             bytes.dump(-1, ' ', true, json::error_handler_t::replace));
    }
    return spelled.empty() ? "no ids" : spelled;
  }

  const TokenizerPtr tokenizer_;
  const int shown_max_;
  Tally tally_;
};

api::Result<TokenizerPtr> LoadForm(const fs::path& path) {
  const std::string bytes = ReadText(path);
  if (path.extension() == ".gguf") {
    const auto contents =
        weights::ParseGguf(std::as_bytes(std::span(bytes.data(), bytes.size())), path.string());
    if (!contents) return std::unexpected(contents.error());
    return Tokenizer::FromGguf(*contents->metadata);
  }
  std::string config = path.string();
  config.replace(config.size() - std::string_view(".json").size(), std::string::npos, "_config.json");
  return Tokenizer::FromTokenizerJson(
      bytes, fs::exists(config) ? nlohmann::ordered_json::parse(ReadText(config)) : nlohmann::ordered_json());
}

// Whether the file is right; prints its row.
bool CheckForm(const Options& options, const std::string& name, const std::string& form) {
  const auto tokenizer = LoadForm(options.folder / (name + form));
  if (!tokenizer) {
    fmt::print("{:<28} {:<16} not loaded: {}\n", name, form, tokenizer.error().message);
    return false;
  }
  const fs::path own = options.folder / (name + form + ".ids.jsonl");
  const fs::path references = fs::exists(own) ? own : options.folder / (name + ".ids.jsonl");
  const Tally tally = Comparison(*tokenizer, options.shown_max).Run(references);
  fmt::print("{:<28} {:<16} {:>7} {:>10} {:>10} {:>10}{}\n", name, form, tally.texts, tally.ids_equal,
             tally.text_equal, tally.skipped_equal, tally.AllEqual() ? "" : "  differs");
  return tally.AllEqual();
}

std::vector<std::string> FormsOf(const fs::path& folder, const std::string& name) {
  std::vector<std::string> forms;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string file = entry.path().filename().string();
    if (!file.starts_with(name + ".")) continue;
    const std::string form = file.substr(name.size());
    if (form == kTokenizerJson || form.ends_with(".gguf")) forms.push_back(form);
  }
  std::ranges::sort(forms, std::greater<>());
  return forms;
}

int Run(const Options& options) {
  std::vector<std::string> names = options.names;
  for (const auto& entry : fs::directory_iterator(options.folder)) {
    const std::string file = entry.path().filename().string();
    if (options.names.empty() && file.ends_with(kTokenizerJson)) {
      names.push_back(file.substr(0, file.size() - kTokenizerJson.size()));
    }
  }
  std::ranges::sort(names);
  fmt::print("{:<28} {:<16} {:>7} {:>10} {:>10} {:>10}\n", "vocabulary", "form", "texts", "ids equal",
             "text equal", "skipped");
  int right = 0;
  int forms = 0;
  for (const std::string& name : names) {
    for (const std::string& form : FormsOf(options.folder, name)) {
      ++forms;
      right += CheckForm(options, name, form) ? 1 : 0;
    }
  }
  fmt::print("{} of {} equal\n", right, forms);
  return forms > 0 && right == forms ? 0 : 1;
}

}  // namespace
}  // namespace quire::runner::tokenizer

int main(int argc, char** argv) {
  quire::runner::tokenizer::Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--show" && i + 1 < argc) {
      options.shown_max = std::atoi(argv[++i]);
    } else if (options.folder.empty()) {
      options.folder = argument;
    } else {
      options.names.emplace_back(argument);
    }
  }
  if (options.folder.empty()) {
    fmt::print(stderr, "usage: quire_vocabulary_check FOLDER [--show N] [NAME...]\n");
    return 2;
  }
  try {
    return quire::runner::tokenizer::Run(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "quire_vocabulary_check: {}\n", error.what());
    return 2;
  }
}
