// libFuzzer: a tokenizer.model, then two bytes 0xFE and a text that it encodes.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>

#include "runner/tokenizer/testing/fuzz_use.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using quire::runner::tokenizer::Tokenizer;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t border = input.rfind("\xFE\xFE");
  const std::string_view text =
      border == std::string_view::npos ? std::string_view() : input.substr(border + 2);
  const std::string_view model = input.substr(0, border);
  const auto tokenizer =
      Tokenizer::FromSentencePiece(std::as_bytes(std::span(model.data(), model.size())), nullptr);
  if (tokenizer) quire::runner::tokenizer::Use(*tokenizer, text);
  return 0;
}
