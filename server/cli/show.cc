#include "server/cli/show.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "api/base/utf8.h"
#include "server/cli/table.h"

namespace quire::cli {
namespace {

using Json = nlohmann::ordered_json;
using Rows = std::vector<std::vector<std::string>>;

constexpr size_t kLinesMax = 2;  // of a system text or license
constexpr size_t kTextMax = 100;

api::Result<Json> Parsed(std::string_view body) {
  Json json = Json::parse(body, nullptr, false);
  if (!json.is_object()) {
    return api::Fail(api::ErrorCode::kInternal, "the server returned an invalid model description");
  }
  return json;
}

std::string MemberText(const Json& object, const std::string& name) {
  const auto it = object.find(name);
  if (it == object.end() || it->is_null()) return "";
  return it->is_string() ? it->get<std::string>() : it->dump(-1, ' ', false, Json::error_handler_t::replace);
}

const Json& Member(const Json& object, std::string_view name) {
  static const Json kNone = Json::object();
  const auto it = object.find(name);
  return it != object.end() ? *it : kNone;
}

class Sections {
 public:
  void Add(std::string_view title, const Rows& rows) {
    if (rows.empty()) return;
    text_ += fmt::format("  {}\n", title);
    const std::string table = FormatTable(rows);
    for (size_t at = 0; at < table.size();) {
      const size_t end = table.find('\n', at);
      text_ += fmt::format("    {}\n", std::string_view(table).substr(at, end - at));
      at = end + 1;
    }
    text_ += '\n';
  }
  std::string Take() && { return std::move(text_); }

 private:
  std::string text_;
};

Rows ModelRows(const Json& shown) {
  const Json& info = Member(shown, "model_info");
  const Json& details = Member(shown, "details");
  const std::string architecture = MemberText(info, "general.architecture");
  Rows rows;
  const auto add = [&rows](const char* name, const std::string& value) {
    if (!value.empty()) rows.push_back({name, value});
  };
  add("architecture", architecture.empty() ? MemberText(details, "family") : architecture);
  add("parameters", MemberText(details, "parameter_size"));
  add("context length", MemberText(info, architecture + ".context_length"));
  add("default context", MemberText(shown, "context_length"));
  add("embedding length", MemberText(info, architecture + ".embedding_length"));
  add("quantization", MemberText(details, "quantization_level"));
  add("requires", MemberText(shown, "requires"));
  return rows;
}

// What the vision tower's own file says.
Rows ProjectorRows(const Json& shown) {
  const Json& info = Member(shown, "projector_info");
  Rows rows;
  for (const auto& [name, key] : {std::pair{"architecture", "general.architecture"},
                                  {"parameters", "general.parameter_count"},
                                  {"embedding length", "clip.vision.embedding_length"},
                                  {"dimensions", "clip.vision.projection_dim"}}) {
    if (std::string value = MemberText(info, key); !value.empty()) rows.push_back({name, std::move(value)});
  }
  return rows;
}

Rows ParameterRows(const std::string& lines) {
  Rows rows;
  for (size_t at = 0; at < lines.size();) {
    const size_t end = std::min(lines.find('\n', at), lines.size());
    const std::string line = lines.substr(at, end - at);
    const size_t gap = line.find(' ');
    const size_t value = gap == std::string::npos ? gap : line.find_first_not_of(' ', gap);
    if (value != std::string::npos) rows.push_back({line.substr(0, gap), line.substr(value)});
    at = end + 1;
  }
  return rows;
}

// The first lines that hold something, none longer than kTextMax bytes of whole characters.
Rows FirstLines(const std::string& text) {
  Rows rows;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    at = end + 1;
    const size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string::npos) continue;
    line = line.substr(begin, line.find_last_not_of(" \t\r") + 1 - begin);
    if (rows.size() == kLinesMax) {
      rows.push_back({"..."});
      break;
    }
    if (line.size() > kTextMax) {
      size_t cut = kTextMax;
      while (cut > 0 && api::IsContinuationByte(line[cut])) --cut;
      line = line.substr(0, cut) + "...";
    }
    rows.push_back({line});
  }
  return rows;
}

Rows MetadataRows(const Json& shown) {
  Rows rows;
  for (const auto& [key, value] : Member(shown, "model_info").items()) {
    std::string text = value.is_array() && !value.empty() ? fmt::format("[{} values]", value.size())
                                                          : MemberText(Member(shown, "model_info"), key);
    if (text.size() > kTextMax) text = text.substr(0, kTextMax) + "...";
    std::ranges::replace(text, '\n', ' ');
    rows.push_back({key, std::move(text)});
  }
  return rows;
}

Rows TensorRows(const Json& shown) {
  Rows rows;
  for (const Json& tensor : Member(shown, "tensors")) {
    if (tensor.is_object())
      rows.push_back({MemberText(tensor, "name"), MemberText(tensor, "type"), MemberText(tensor, "shape")});
  }
  return rows;
}

}  // namespace

api::Result<std::string> ShowText(std::string_view show_json, bool verbose) {
  const auto shown = Parsed(show_json);
  if (!shown) return std::unexpected(shown.error());
  Sections sections;
  sections.Add("Model", ModelRows(*shown));
  sections.Add("Projector", ProjectorRows(*shown));
  Rows capabilities;
  for (const Json& capability : Member(*shown, "capabilities")) {
    if (capability.is_string()) capabilities.push_back({capability.get<std::string>()});
  }
  sections.Add("Capabilities", capabilities);
  sections.Add("Parameters", ParameterRows(MemberText(*shown, "parameters")));
  Rows sampling;
  for (const auto& [name, entry] : Member(*shown, "sampling").items())
    sampling.push_back({name, MemberText(entry, "value"), MemberText(entry, "from")});
  sections.Add("Sampling", sampling);
  Rows repairs;
  for (const Json& repair : Member(*shown, "repairs")) {
    if (repair.is_string()) repairs.push_back({repair.get<std::string>()});
  }
  sections.Add("Read differently", repairs);
  if (verbose) {
    sections.Add("Metadata", MetadataRows(*shown));
    sections.Add("Tensors", TensorRows(*shown));
  }
  sections.Add("System", FirstLines(MemberText(*shown, "system")));
  sections.Add("License", FirstLines(MemberText(*shown, "license")));
  return std::move(sections).Take();
}

bool HasCapability(const Json& shown, std::string_view capability) {
  const Json& list = Member(shown, "capabilities");
  return std::ranges::any_of(list, [capability](const Json& one) { return one == capability; });
}

api::Result<std::string> ShowMember(std::string_view show_json, const std::string& member) {
  const auto shown = Parsed(show_json);
  if (!shown) return std::unexpected(shown.error());
  std::string text = MemberText(*shown, member);
  if (!text.ends_with('\n')) text += '\n';
  return text;
}

}  // namespace quire::cli
