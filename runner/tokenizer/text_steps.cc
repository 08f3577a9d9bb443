#include "runner/tokenizer/text_steps.h"

#include <utf8proc.h>

#include <algorithm>

#include "api/base/utf8.h"

namespace quire::runner::tokenizer {
namespace {

std::string ReplaceAll(std::string_view text, std::string_view from, std::string_view to) {
  std::string result;
  result.reserve(text.size() + text.size() / 4);
  while (true) {
    const size_t at = text.find(from);
    result += text.substr(0, at);
    if (at == std::string_view::npos) return result;
    result += to;
    text.remove_prefix(at + from.size());
  }
}

// Unicode's property White_Space.
bool IsWhite(char32_t c) {
  if ((c >= 0x9 && c <= 0xD) || c == 0x85) return true;
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL ||
         category == UTF8PROC_CATEGORY_ZP;
}

class Applier {
 public:
  explicit Applier(Before before) : before_(before) {}

  std::string text;

  void operator()(const Prepend& step) {
    if (!text.empty() && before_ != Before::kSameStretch) text.insert(0, step.text);
  }
  void operator()(const Replace& step) { text = ReplaceAll(text, step.from, step.to); }
  void operator()(const MarkSpaces& step) {
    text = ReplaceAll(text, " ", kSpaceMark);
    const bool wanted = before_ != Before::kSameStretch &&
                        (step.prefix == MarkSpaces::Prefix::kAlways ||
                         (step.prefix == MarkSpaces::Prefix::kAtStartOfText && before_ == Before::kNothing));
    if (wanted && !text.empty() && !text.starts_with(kSpaceMark)) text.insert(0, kSpaceMark);
  }
  void operator()(const SquashSpaces&) {
    std::string squashed;
    squashed.reserve(text.size());
    for (const char c : text) {
      if (c != ' ' || (!squashed.empty() && squashed.back() != ' ')) squashed += c;
    }
    // Marks that the text itself holds count as spaces at its end, and only there.
    while (squashed.ends_with(' ') || squashed.ends_with(kSpaceMark)) {
      squashed.resize(squashed.size() - (squashed.back() == ' ' ? 1 : kSpaceMark.size()));
    }
    text = std::move(squashed);
  }
  void operator()(const OneSpace& step) {
    std::string squeezed;
    squeezed.reserve(text.size());
    for (size_t at = 0; at < text.size();) {
      const size_t end = std::min(text.find_first_not_of(' ', at), text.size());
      if (end - at > 1) {
        squeezed += step.to;
      } else {
        squeezed += text[at];
      }
      at = std::max(end, at + 1);
    }
    text = std::move(squeezed);
  }
  void operator()(const SpaceWords&) {
    std::string words;
    words.reserve(text.size());
    bool between = false;
    for (size_t at = 0; at < text.size();) {
      const api::CodePoint c = api::CodePointAt(text, at);
      if (!IsWhite(c.value)) {
        // The space becomes a mark, which a word that begins with one does not get.
        const bool marked = std::string_view(text).substr(at).starts_with(kSpaceMark);
        if (between && !words.empty() && !marked) words += ' ';
        words += std::string_view(text).substr(at, c.bytes);
      }
      between = IsWhite(c.value);
      at += c.bytes;
    }
    text = std::move(words);
  }
  void operator()(const Strip& step) {
    size_t begin = 0;
    size_t end = text.size();
    while (step.left && begin < end && IsWhite(api::CodePointAt(text, begin).value)) {
      begin += api::CodePointAt(text, begin).bytes;
    }
    while (step.right && end > begin && IsWhite(api::CodePointBefore(text, end).value)) {
      end -= api::CodePointBefore(text, end).bytes;
    }
    text = text.substr(begin, end - begin);
  }
  void operator()(NormalForm form) { text = Normalize(form, text); }
  void operator()(const BertText& step) { text = step.Apply(text); }
  void operator()(const std::shared_ptr<const CharacterMap>& map) { text = map->Apply(text); }

 private:
  const Before before_;
};

}  // namespace

std::string Apply(const std::vector<TextStep>& steps, std::string_view stretch, Before before) {
  Applier applier(before);
  applier.text = stretch;
  for (const TextStep& step : steps) std::visit(applier, step);
  return std::move(applier.text);
}

}  // namespace quire::runner::tokenizer
