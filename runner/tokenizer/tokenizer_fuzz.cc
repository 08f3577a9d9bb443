// Input: a tokenizer.json, a zero byte, a text (without a zero byte: the input's end). Some of the text also
// goes through a fixed tokenizer, whose answer is known: its tokens spell the text, wherever it is cut into
// segments.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "api/base/utf8.h"
#include "runner/tokenizer/testing/fuzz_use.h"
#include "runner/tokenizer/testing/mini_tokenizer.h"
#include "runner/tokenizer/tokenizer.h"

namespace {

constexpr size_t kFixedBytes = 48;  // of text for the fixed tokenizer: most executions are for the JSON

using quire::runner::tokenizer::Require;
using quire::runner::tokenizer::Segment;
using quire::runner::tokenizer::TokenId;
using quire::runner::tokenizer::Tokenizer;

std::shared_ptr<const Tokenizer> FixedTokenizer() {
  auto document = quire::runner::tokenizer::MiniTokenizer(
      {{"a", "b"}, {"\u0120", "a"}, {"a", "a"}, {"aa", "aa"}, {"ab", "ab"}, {"\u00C3", "\u00A9"}});
  document["added_tokens"] = {quire::runner::tokenizer::Added(300, "<s>"),
                              quire::runner::tokenizer::Added(301, "<s><s>"),
                              quire::runner::tokenizer::Added(302, "\u00E9\u00E9", false)};
  return Tokenizer::FromTokenizerJson(document.dump(), nullptr).value();
}

void CheckFixed(std::string_view text) {
  static const std::shared_ptr<const Tokenizer> kTokenizer = FixedTokenizer();
  const size_t cut = text.empty() ? 0 : static_cast<uint8_t>(text[0]) % (text.size() + 1);
  const Segment segments[] = {{text.substr(0, cut), true}, {text.substr(cut), false}};
  const auto ids = kTokenizer->EncodeSegments(segments);
  Require(ids.has_value());
  std::string spelled;
  for (const TokenId id : *ids) spelled += kTokenizer->TokenBytes(id);
  const auto whole = kTokenizer->EncodeSegments(std::array{Segment{text, false}});
  Require(whole.has_value());
  std::string whole_spelled;
  for (const TokenId id : *whole) {
    Require(!kTokenizer->IsSpecial(id));
    whole_spelled += kTokenizer->TokenBytes(id);
  }
  Require(whole_spelled == quire::api::ReplaceInvalidUtf8(text));
  if (quire::api::IsValidUtf8(text)) Require(spelled == text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t zero = input.find('\0');
  const std::string_view text = input.substr(zero == std::string_view::npos ? size - size / 8 : zero + 1);
  const auto tokenizer = Tokenizer::FromTokenizerJson(input.substr(0, zero), nullptr);
  if (tokenizer) quire::runner::tokenizer::Use(*tokenizer, text);
  CheckFixed(text.substr(0, kFixedBytes));
  return 0;
}
