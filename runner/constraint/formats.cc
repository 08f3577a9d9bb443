#include "runner/constraint/formats.h"

#include <fmt/format.h>

#include <array>
#include <utility>

namespace quire::runner::constraint {
namespace {

std::string Date() {
  // Every fourth year of a century, but of those that end it only every fourth: the 29th of February.
  constexpr std::string_view kFourth = "(?:0[48]|[2468][048]|[13579][26])";
  constexpr std::string_view kYear = "(?:000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})";
  return fmt::format(
      "(?:{0}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
      "|02-(?:0[1-9]|1[0-9]|2[0-8]))|(?:[0-9]{{2}}{1}|{1}00)-02-29)",
      kYear, kFourth);
}

std::string Time() {
  return "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,6})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-"
         "9])";
}

std::string Hostname() {
  constexpr std::string_view kLabel = "[a-z0-9](?:[a-z0-9-]{0,20}[a-z0-9])?";
  return fmt::format("{0}(?:\\.{0}){{0,5}}", kLabel);
}

std::string DomainName() { return Hostname() + "\\.[a-z]{2,6}"; }

std::string Email() { return "[A-Za-z0-9_](?:[A-Za-z0-9_+-]{0,40}[A-Za-z0-9_])?@" + DomainName(); }

std::string Ipv4() {
  constexpr std::string_view kByte = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
  return fmt::format("{0}(?:\\.{0}){{3}}", kByte);
}

// Whole, or with the zeros at one end left out.
std::string Ipv6() {
  return "(?:[0-9a-f]{1,4}(?::[0-9a-f]{1,4}){7}|::(?:[0-9a-f]{1,4}(?::[0-9a-f]{1,4}){0,5})?"
         "|[0-9a-f]{1,4}(?::[0-9a-f]{1,4}){0,5}::)";
}

std::string Uri() {
  return "https?://" + Hostname() +
         "(?::[1-9][0-9]{1,3})?(?:/[A-Za-z0-9._~-]{0,80}){0,12}"
         "(?:\\?[A-Za-z0-9._~=&-]{0,120})?(?:#[A-Za-z0-9._~-]{0,40})?";
}

std::string Duration() {
  constexpr std::string_view kTime =
      "T(?:[0-9]{1,6}H(?:[0-9]{1,6}M(?:[0-9]{1,6}S)?)?|[0-9]{1,6}M(?:[0-9]{1,6}S)?|[0-9]{1,6}S)";
  constexpr std::string_view kDays =
      "(?:[0-9]{1,6}Y(?:[0-9]{1,6}M(?:[0-9]{1,6}D)?)?|[0-9]{1,6}M(?:[0-9]{1,6}D)?|[0-9]{1,6}D)";
  return fmt::format("P(?:{}(?:{})?|{}|[0-9]{{1,6}}W)", kDays, kTime, kTime);
}

}  // namespace

std::optional<std::string> PatternOfFormat(std::string_view format) {
  using Maker = std::string (*)();
  static constexpr auto kFormats = std::to_array<std::pair<std::string_view, Maker>>({
      {"date", Date},
      {"time", Time},
      {"date-time", [] { return Date() + "T" + Time(); }},
      {"duration", Duration},
      {"email", Email},
      {"idn-email", Email},
      {"hostname", DomainName},
      {"idn-hostname", DomainName},
      {"ipv4", Ipv4},
      {"ipv6", Ipv6},
      {"uri", Uri},
      {"uri-reference", Uri},
      {"iri", Uri},
      {"iri-reference", Uri},
      {"uuid",
       [] { return std::string("[0-9a-f]{8}-[0-9a-f]{4}-[1-8][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"); }},
      {"json-pointer", [] { return std::string("(?:/(?:[A-Za-z0-9_ .-]|~[01]){0,60}){0,12}"); }},
      {"byte", [] { return std::string("(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"); }},
  });
  for (const auto& [name, make] : kFormats) {
    if (name == format) return make();
  }
  return std::nullopt;
}

}  // namespace quire::runner::constraint
