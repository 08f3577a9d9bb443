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
  return "(?:[01][0-9]|2[0-3]):[0-5][0-9]:(?:[0-5][0-9]|60)(?:\\.[0-9]+)?(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-"
         "5][0-9])";
}

// Labels of at most 63 characters.
std::string Hostname(std::string_view letters) {
  const std::string label = fmt::format("[{0}](?:[{0}-]{{0,61}}[{0}])?", letters);
  return fmt::format("{0}(?:\\.{0})*", label);
}
constexpr std::string_view kLetters = "A-Za-z0-9";
constexpr std::string_view kAnyLetters = "A-Za-z0-9\\u0080-\\u{10FFFF}";

// What is before the @ has no two dots in a row, and none at its ends.
std::string Email(std::string_view letters) {
  const std::string atom = fmt::format("[{}!#$%&'*+/=?^_`{{|}}~-]+", letters);
  return fmt::format("{0}(?:\\.{0})*@{1}", atom, Hostname(letters));
}

std::string Ipv4() {
  constexpr std::string_view kByte = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
  return fmt::format("{0}(?:\\.{0}){{3}}", kByte);
}

// Eight groups, of which the last two may be an address of version 4; or fewer, with :: for the others.
std::string Ipv6() {
  const std::string group = "[0-9A-Fa-f]{1,4}";
  const std::string last = fmt::format("(?:{0}:{0}|{1})", group, Ipv4());
  std::string all = fmt::format("(?:{0}:){{6}}{1}", group, last);
  for (int before = 0; before <= 7; ++before) {
    const std::string begin = before == 0 ? "::" : fmt::format("{0}(?::{0}){{{1}}}::", group, before - 1);
    const int behind = 7 - before;
    std::string end = behind == 0 ? "" : fmt::format("(?:{0}(?::{0}){{0,{1}}})?", group, behind - 1);
    if (behind >= 2) end = fmt::format("(?:{}|(?:{}:){{0,{}}}{})", end, group, behind - 2, Ipv4());
    all += "|" + begin + end;
  }
  return "(?:" + all + ")";
}

std::string Uri(bool international) {
  const std::string_view more = international ? "\\u00A0-\\u{10FFFF}" : "";
  const std::string character =
      fmt::format("(?:[A-Za-z0-9._~:/?@!$&'()*+,;=\\[\\]-{}]|%[0-9A-Fa-f]{{2}})", more);
  return fmt::format("{0}*(?:#{0}*)?", character);
}
std::string AbsoluteUri(bool international) { return "[A-Za-z][A-Za-z0-9+.-]*:" + Uri(international); }

std::string Duration() {
  constexpr std::string_view kTime =
      "T(?:[0-9]+H(?:[0-9]+M)?(?:[0-9]+(?:\\.[0-9]+)?S)?|[0-9]+M(?:[0-9]+(?:\\.[0-9]+)?S)?|[0-9]+(?:\\.[0-9]+"
      ")?S)";
  constexpr std::string_view kDays = "(?:[0-9]+Y(?:[0-9]+M)?(?:[0-9]+D)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)";
  return fmt::format("P(?:{0}(?:{1})?|{1}|[0-9]+W)", kDays, kTime);
}

}  // namespace

std::optional<std::string> PatternOfFormat(std::string_view format) {
  using Maker = std::string (*)();
  static constexpr auto kFormats = std::to_array<std::pair<std::string_view, Maker>>({
      {"date", Date},
      {"time", Time},
      {"date-time", [] { return Date() + "[Tt]" + Time(); }},
      {"duration", Duration},
      {"email", [] { return Email(kLetters); }},
      {"idn-email", [] { return Email(kAnyLetters); }},
      {"hostname", [] { return Hostname(kLetters); }},
      {"idn-hostname", [] { return Hostname(kAnyLetters); }},
      {"ipv4", Ipv4},
      {"ipv6", Ipv6},
      {"uri", [] { return AbsoluteUri(false); }},
      {"uri-reference", [] { return Uri(false); }},
      {"iri", [] { return AbsoluteUri(true); }},
      {"iri-reference", [] { return Uri(true); }},
      {"uuid", [] { return std::string("[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"); }},
      {"json-pointer", [] { return std::string("(?:/(?:[^/~]|~[01])*)*"); }},
      {"byte", [] { return std::string("(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"); }},
  });
  for (const auto& [name, make] : kFormats) {
    if (name == format) return make();
  }
  return std::nullopt;
}

}  // namespace quire::runner::constraint
