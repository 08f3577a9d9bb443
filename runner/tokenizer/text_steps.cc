#include "runner/tokenizer/text_steps.h"

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

class Applier {
 public:
  explicit Applier(bool at_start_of_text) : at_start_of_text_(at_start_of_text) {}

  std::string text;

  void operator()(const Prepend& step) {
    if (!text.empty()) text.insert(0, step.text);
  }
  void operator()(const Replace& step) { text = ReplaceAll(text, step.from, step.to); }
  void operator()(const MarkSpaces& step) {
    text = ReplaceAll(text, " ", kSpaceMark);
    const bool wanted = step.prefix == MarkSpaces::Prefix::kAlways ||
                        (step.prefix == MarkSpaces::Prefix::kAtStartOfText && at_start_of_text_);
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
  void operator()(NormalForm form) { text = Normalize(form, text); }
  void operator()(const std::shared_ptr<const CharacterMap>& map) { text = map->Apply(text); }

 private:
  const bool at_start_of_text_;
};

}  // namespace

std::string Apply(const std::vector<TextStep>& steps, std::string_view stretch, bool at_start_of_text) {
  Applier applier(at_start_of_text);
  applier.text = stretch;
  for (const TextStep& step : steps) std::visit(applier, step);
  return std::move(applier.text);
}

}  // namespace quire::runner::tokenizer
