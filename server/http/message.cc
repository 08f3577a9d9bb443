#include "server/http/message.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "api/base/ascii.h"

namespace quire::server {
namespace {

constexpr std::pair<int, std::string_view> kReasons[] = {
    {100, "Continue"},
    {200, "OK"},
    {201, "Created"},
    {204, "No Content"},
    {307, "Temporary Redirect"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {408, "Request Timeout"},
    {413, "Content Too Large"},
    {417, "Expectation Failed"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {499, "Client Closed Request"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {503, "Service Unavailable"},
    {505, "HTTP Version Not Supported"},
};

std::string_view TrimBlanks(std::string_view text) {
  const size_t begin = std::min(text.find_first_not_of(" \t"), text.size());
  text.remove_prefix(begin);
  return text.substr(0, text.find_last_not_of(" \t") + 1);
}

// "q=0", "q=0.000"
bool IsRefusal(std::string_view parameter) {
  const std::string lower = api::AsciiLower(TrimBlanks(parameter));
  return lower.starts_with("q=0") && lower.find_first_not_of("0.", 2) == std::string::npos;
}

}  // namespace

bool HttpRequest::Accepts(std::string_view lower_name, std::string_view value) const {
  const std::string* field = Find(lower_name);
  if (field == nullptr) return false;
  std::string_view rest = *field;
  while (!rest.empty()) {
    const std::string_view element = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(element.size() + 1, rest.size()));
    const std::string_view name = element.substr(0, element.find(';'));
    if (api::AsciiLower(TrimBlanks(name)) != value) continue;
    for (std::string_view parameters = element.substr(name.size()); !parameters.empty();) {
      parameters.remove_prefix(1);
      const std::string_view parameter = parameters.substr(0, parameters.find(';'));
      if (IsRefusal(parameter)) return false;
      parameters.remove_prefix(parameter.size());
    }
    return true;
  }
  return false;
}

const std::string* HttpRequest::Find(std::string_view lower_name) const {
  const auto found = std::ranges::find(fields, lower_name, &HeaderField::name);
  return found == fields.end() ? nullptr : &found->value;
}

std::string_view ReasonPhrase(int status) {
  const auto* found = std::ranges::find(kReasons, status, &std::pair<int, std::string_view>::first);
  return found == std::end(kReasons) ? "Status" : found->second;
}

bool PercentDecode(std::string_view text, std::string& out) {
  out.clear();
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out.push_back(text[i]);
      continue;
    }
    if (text.size() - i < 3) return false;
    const int high = api::HexValue(text[i + 1]);
    const int low = api::HexValue(text[i + 2]);
    if (high < 0 || low < 0) return false;
    out.push_back(static_cast<char>(high * 16 + low));
    i += 2;
  }
  return true;
}

}  // namespace quire::server
