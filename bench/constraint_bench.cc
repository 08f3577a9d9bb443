// Times of structured output on one core: compiling a schema, and the mask of each token along random
// documents.
//
// usage: constraint_bench TOKENIZER.json|TOKENIZER.model SCHEMAS.json [VOCABULARY_SIZE]
// A vocabulary smaller than the size (default 128000) is filled up with pairs of its own tokens.

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <unordered_set>
#include <vector>

#include "runner/constraint/output_format.h"
#include "runner/tokenizer/tokenizer.h"

namespace {

using quire::api::TokenId;
namespace constraint = quire::runner::constraint;

// Time of this thread on a core, whatever else the machine does.
struct Clock {
  using duration = std::chrono::nanoseconds;
  static duration now() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
  }
};

double Micros(Clock::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

double At(std::vector<double>& values, double quantile) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return values[std::min(values.size() - 1,
                         static_cast<size_t>(quantile * static_cast<double>(values.size())))];
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<std::string> Vocabulary(const std::string& path, size_t size) {
  const std::string file = ReadFile(path);
  const auto tokenizer =
      path.ends_with(".model")
          ? quire::runner::tokenizer::Tokenizer::FromSentencePiece(std::as_bytes(std::span(file)), {})
          : quire::runner::tokenizer::Tokenizer::FromTokenizerJson(file, {});
  if (!tokenizer) {
    fmt::print(stderr, "{}\n", tokenizer.error().message);
    std::exit(1);
  }
  std::vector<std::string> texts = {"<end>"};
  std::set<std::string> known;
  for (TokenId id = 0; id < (*tokenizer)->vocab_size(); ++id) {
    const std::string text((*tokenizer)->IsSpecial(id) ? "" : (*tokenizer)->TokenBytes(id));
    if (!text.empty() && known.insert(text).second) texts.push_back(text);
  }
  std::mt19937 random(1);
  const size_t base = texts.size();
  while (texts.size() < size) {
    std::string pair = texts[1 + random() % (base - 1)] + texts[1 + random() % (base - 1)];
    if (pair.size() <= 12 && known.insert(pair).second) texts.push_back(std::move(pair));
  }
  return texts;
}

struct Times {
  std::vector<double> masks;  // microseconds
  std::vector<double> accepts;
};

// A random document; after `tokens` it takes what closes something.
void Walk(const std::shared_ptr<constraint::Constraint>& compiled, const std::vector<std::string>& texts,
          int tokens, std::mt19937& random, Times& times) {
  constraint::Matcher matcher(compiled);
  for (int step = 0; step < 3 * tokens; ++step) {
    const auto begin = Clock::now();
    const auto& mask = matcher.Mask();
    times.masks.push_back(Micros(Clock::now() - begin));
    std::vector<TokenId> ids = mask.Ids();
    if (ids.empty()) return;
    TokenId chosen = ids[random() % ids.size()];
    if (step > tokens || random() % 4 == 0) {
      for (const TokenId id : ids) {
        const std::string& text = texts[static_cast<size_t>(id)];
        if (text == "\"" || text == "}" || text == "]" || id == 0) chosen = id;
      }
    }
    const auto then = Clock::now();
    matcher.Accept(chosen);
    times.accepts.push_back(Micros(Clock::now() - then));
    if (chosen == 0) return;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    fmt::print(stderr, "usage: {} TOKENIZER.json|TOKENIZER.model SCHEMAS.json [VOCABULARY_SIZE]\n", argv[0]);
    return 2;
  }
  const auto texts = Vocabulary(argv[1], argc > 3 ? std::stoul(argv[3]) : 128'000);
  auto begin = Clock::now();
  auto index = std::make_shared<const constraint::VocabularyIndex>(
      static_cast<int32_t>(texts.size()),
      [&](TokenId id) { return std::string_view(texts[static_cast<size_t>(id)]); },
      [](TokenId id) { return id == 0; }, std::unordered_set<TokenId>{0});
  fmt::print("vocabulary of {} tokens, indexed in {:.0f} ms\n", texts.size(),
             Micros(Clock::now() - begin) / 1000);
  fmt::print("{:20} {:>10} {:>8} {:>8} {:>10} {:>10} {:>10} {:>10}\n", "schema", "compile ms", "states",
             "masks", "median us", "p99 us", "max us", "accept us");
  Times all;
  std::vector<double> compiles;
  const auto set = nlohmann::ordered_json::parse(ReadFile(argv[2]));
  for (const auto& entry : set["schemas"]) {
    constraint::ConstraintCache cache([&] { return index; }, size_t{1} << 30);
    begin = Clock::now();
    const auto compiled =
        cache.Get({quire::api::OutputFormat::Kind::kSchema, entry["schema"].dump(), "format"});
    const double compile = Micros(Clock::now() - begin) / 1000;
    const std::string name = entry["name"];
    if (!compiled) {
      fmt::print("{:20} {}\n", name, compiled.error().message);
      continue;
    }
    compiles.push_back(compile);
    std::mt19937 random(3);
    Times times;
    for (int i = 0; i < 20; ++i) Walk(*compiled, texts, 40, random, times);
    all.masks.insert(all.masks.end(), times.masks.begin(), times.masks.end());
    all.accepts.insert(all.accepts.end(), times.accepts.begin(), times.accepts.end());
    fmt::print("{:20} {:10.2f} {:8} {:8} {:10.1f} {:10.1f} {:10.1f} {:10.2f}\n", name, compile,
               (*compiled)->grammar().states(), times.masks.size(), At(times.masks, 0.5),
               At(times.masks, 0.99), At(times.masks, 1), At(times.accepts, 0.5));
  }
  fmt::print("{:20} {:10.2f} {:8} {:8} {:10.1f} {:10.1f} {:10.1f} {:10.2f}\n", "all", At(compiles, 1), "",
             all.masks.size(), At(all.masks, 0.5), At(all.masks, 0.99), At(all.masks, 1),
             At(all.accepts, 0.5));
  return 0;
}
