// The prompt formats of model families, as chat templates of our own in formats/. Each renders what the
// template published with the models renders (format_golden_test.cc). They are for models whose files bring
// no chat template.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace quire::runner {

// A file of formats/, without ".jinja".
struct FormatText {
  std::string_view file;
  std::string_view text;
};
std::span<const FormatText> AllFormatTexts();

// A format by name. Variants of a format share its file and differ in the variables that `settings` sets.
struct NamedFormat {
  std::string_view name;
  std::string_view file;
  std::string_view settings = {};  // Jinja
};

// By the names that Ollama's manifests have for them (RENDERER).
std::span<const NamedFormat> RendererFormats();
// The formats of families, for models whose manifests have no such name.
std::span<const NamedFormat> FamilyFormats();
// By the names of what reads the answers (PARSER): templates that show the markup of answers, which are not
// to be rendered. Empty for "passthrough": answers are text.
std::span<const NamedFormat> ParserFormats();

const NamedFormat* FindFormat(std::span<const NamedFormat> formats, std::string_view name);

// The chat template. REQUIRES: `format` is one of the above.
std::string TemplateOf(const NamedFormat& format);

}  // namespace quire::runner
