#include "api/base/model_name.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "api/base/ascii.h"

namespace quire::api {
namespace {

constexpr size_t kHostLengthMax = 350;
constexpr size_t kPartLengthMax = 80;
constexpr std::string_view kLocalSuffix = ":local";

// `punctuation` may stand anywhere but at the start.
bool IsPart(std::string_view part, size_t length_max, std::string_view punctuation) {
  if (part.empty() || part.size() > length_max) return false;
  if (!IsAsciiAlnum(part.front()) && part.front() != '_') return false;
  return std::ranges::all_of(part, [punctuation](char c) {
    return IsAsciiAlnum(c) || c == '_' || punctuation.find(c) != std::string_view::npos;
  });
}

// Cuts `text` at its last `separator` and gives what stood behind it; nothing is cut when there is none.
std::string_view CutLast(std::string_view& text, char separator) {
  const size_t at = text.rfind(separator);
  if (at == std::string_view::npos) return std::exchange(text, std::string_view());
  const std::string_view tail = text.substr(at + 1);
  text = text.substr(0, at);
  return tail;
}

}  // namespace

std::string ModelName::Display() const {
  const ModelName defaults;
  if (!EqualIgnoringCase(host, defaults.host))
    return fmt::format("{}/{}/{}:{}", host, name_space, model, tag);
  if (!EqualIgnoringCase(name_space, defaults.name_space))
    return fmt::format("{}/{}:{}", name_space, model, tag);
  return fmt::format("{}:{}", model, tag);
}

bool ModelName::Matches(const ModelName& other) const {
  return EqualIgnoringCase(host, other.host) && EqualIgnoringCase(name_space, other.name_space) &&
         EqualIgnoringCase(model, other.model) && EqualIgnoringCase(tag, other.tag);
}

Result<ModelName> ParseModelName(std::string_view text) {
  if (text.empty()) return Fail(ErrorCode::kInvalidArgument, "model is required", "model");
  const auto invalid = Fail(ErrorCode::kInvalidArgument, "invalid model name", "model");
  if (text.size() > kLocalSuffix.size() &&
      EqualIgnoringCase(text.substr(text.size() - kLocalSuffix.size()), kLocalSuffix)) {
    text.remove_suffix(kLocalSuffix.size());
  }

  ModelName name;
  std::string_view rest = text;
  const size_t colon = text.rfind(':');
  const size_t slash = text.rfind('/');
  if (colon != std::string_view::npos && (slash == std::string_view::npos || colon > slash)) {
    name.tag = CutLast(rest, ':');
  }
  const bool qualified = rest.find('/') != std::string_view::npos;
  name.model = CutLast(rest, '/');
  if (qualified) {
    const bool hosted = rest.find('/') != std::string_view::npos;
    name.name_space = CutLast(rest, '/');
    if (hosted) name.host = rest;
  }
  if (!IsPart(name.host, kHostLengthMax, "-.:") || !IsPart(name.name_space, kPartLengthMax, "-") ||
      !IsPart(name.model, kPartLengthMax, "-.") || !IsPart(name.tag, kPartLengthMax, "-.")) {
    return invalid;
  }
  return name;
}

}  // namespace quire::api
