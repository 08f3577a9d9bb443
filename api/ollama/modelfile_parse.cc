#include "api/ollama/modelfile_parse.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "api/base/ascii.h"
#include "api/base/utf8.h"

namespace quire::api::modelfile {
namespace {

constexpr auto kNames =
    std::to_array<std::string_view>({"from", "license", "template", "system", "adapter", "renderer", "parser",
                                     "parameter", "message", "draft", "requires", "prefix"});
constexpr auto kRoles = std::to_array<std::string_view>({"system", "user", "assistant"});
constexpr std::string_view kBlanks = " \t\r\f\v";
constexpr std::string_view kThreeQuotes = "\"\"\"";
constexpr size_t kFileBytesMax = size_t{16} << 20;

// An unpaired surrogate becomes U+FFFD.
std::string FromUtf16(std::string_view bytes, bool big_endian) {
  const auto unit = [&](size_t i) {
    const auto first = static_cast<unsigned char>(bytes[i]),
               second = static_cast<unsigned char>(bytes[i + 1]);
    return static_cast<uint32_t>(big_endian ? first << 8 | second : second << 8 | first);
  };
  std::string text;
  for (size_t i = 0; i + 1 < bytes.size(); i += 2) {
    uint32_t c = unit(i);
    const bool leads = c >= 0xD800 && c < 0xDC00;
    const uint32_t next = leads && i + 3 < bytes.size() ? unit(i + 2) : 0;
    if (next >= 0xDC00 && next < 0xE000) {
      c = 0x10000 + ((c - 0xD800) << 10) + (next - 0xDC00);
      i += 2;
    }
    if (!AppendUtf8(text, c)) text += kReplacementCharacter;
  }
  return text;
}

std::string Decoded(std::string_view text) {
  if (text.starts_with("\xFF\xFE")) return FromUtf16(text.substr(2), false);
  if (text.starts_with("\xFE\xFF")) return FromUtf16(text.substr(2), true);
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  return std::string(text);
}

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  Result<std::vector<Command>> Read() {
    std::vector<Command> commands;
    while (SkipToCommand()) {
      auto command = ReadCommand();
      if (!command) return std::unexpected(std::move(command.error()));
      commands.push_back(*std::move(command));
    }
    if (std::ranges::find(commands, "from", &Command::name) == commands.end()) {
      return Fail(ErrorCode::kInvalidArgument, "no FROM line");
    }
    return commands;
  }

 private:
  std::unexpected<Error> Refuse(std::string_view what) const {
    return Fail(ErrorCode::kInvalidArgument, fmt::format("(line {}): {}", line_, what));
  }

  bool AtEnd() const { return at_ >= text_.size(); }
  void Advance(size_t to) {
    line_ += static_cast<int>(std::ranges::count(text_.substr(at_, to - at_), '\n'));
    at_ = to;
  }
  size_t EndOfLine(size_t from) const { return std::min(text_.find('\n', from), text_.size()); }
  void SkipBlanks() { at_ = std::min(text_.find_first_not_of(kBlanks, at_), text_.size()); }

  // Over empty lines and comments; false at the end.
  bool SkipToCommand() {
    while (!AtEnd()) {
      SkipBlanks();
      if (AtEnd()) break;
      if (text_[at_] != '#' && text_[at_] != '\n') return true;
      Advance(std::min(EndOfLine(at_) + 1, text_.size()));
    }
    return false;
  }

  // The next word of the line, lower case.
  std::string Word() {
    SkipBlanks();
    const size_t end = std::min(text_.find_first_of(" \t\r\f\v\n", at_), text_.size());
    std::string word = AsciiLower(text_.substr(at_, end - at_));
    at_ = end;
    SkipBlanks();
    return word;
  }

  Result<Command> ReadCommand() {
    Command command;
    command.line = line_;
    command.name = Word();
    if (std::ranges::find(kNames, command.name) == kNames.end()) {
      return Refuse(fmt::format("command must be one of \"{}\"", fmt::join(kNames, "\", \"")));
    }
    if (command.name == "parameter" || command.name == "message") {
      command.key = Word();
      if (command.key.empty()) return Refuse(fmt::format("{} requires a name and a value", command.name));
    }
    if (command.name == "message" && std::ranges::find(kRoles, command.key) == kRoles.end()) {
      return Refuse(fmt::format("message role must be one of \"{}\"", fmt::join(kRoles, "\", \"")));
    }
    auto value = Value();
    if (!value) return std::unexpected(std::move(value.error()));
    if (value->empty()) return Refuse(fmt::format("{} has no value", command.name));
    command.value = *std::move(value);
    return command;
  }

  Result<std::string> Value() {
    const std::string_view rest = text_.substr(at_);
    if (rest.starts_with(kThreeQuotes)) return QuotedValue(kThreeQuotes);
    if (rest.starts_with('"')) return QuotedValue(kThreeQuotes.substr(0, 1));
    const size_t end = EndOfLine(at_);
    std::string value(Trimmed(text_.substr(at_, end - at_)));
    Advance(end);
    return value;
  }

  // Whether a command, a comment or the end of the file follows, so that a value may end before.
  bool MayEndBefore(size_t at) const {
    at = std::min(text_.find_first_not_of(" \t\r\f\v\n", at), text_.size());
    if (at == text_.size() || text_[at] == '#') return true;
    const size_t end = std::min(text_.find_first_of(" \t\r\f\v\n", at), text_.size());
    return std::ranges::find(kNames, AsciiLower(text_.substr(at, end - at))) != kNames.end();
  }

  // From here to quotes with nothing behind them on their line: the first such with a command behind it, as a
  // text may have quotes at the end of a line, or the first.
  Result<std::string> QuotedValue(std::string_view quotes) {
    const size_t begin = at_ + quotes.size();
    std::optional<size_t> closing;
    for (size_t close = text_.find(quotes, begin); close != std::string_view::npos;
         close = text_.find(quotes, close + 1)) {
      const size_t behind = close + quotes.size();
      const size_t end = EndOfLine(behind);
      if (!Trimmed(text_.substr(behind, end - behind)).empty()) continue;
      if (!closing) closing = close;
      if (!MayEndBefore(end)) continue;
      closing = close;
      break;
    }
    if (!closing) return Refuse(fmt::format("missing closing {}", quotes));
    std::string value(text_.substr(begin, *closing - begin));
    Advance(EndOfLine(*closing + quotes.size()));
    return value;
  }

  std::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
};

bool SurvivesBare(std::string_view value) {
  return !value.empty() && Trimmed(value) == value && !value.starts_with('"') &&
         value.find('\n') == std::string_view::npos;
}

}  // namespace

Result<std::vector<Command>> Parse(std::string_view text) {
  if (text.size() > kFileBytesMax) {
    return Fail(ErrorCode::kTooLarge, fmt::format("the Modelfile is larger than {} bytes", kFileBytesMax));
  }
  const std::string decoded = Decoded(text);
  return Reader(decoded).Read();
}

std::string Quoted(std::string_view value) {
  if (SurvivesBare(value)) return std::string(value);
  const bool one_line = value.find('\n') == std::string_view::npos;
  if (one_line && !value.starts_with("\"\"") && value != "\"" && !value.empty())
    return fmt::format("\"{}\"", value);
  return fmt::format("{0}{1}{0}", kThreeQuotes, value);
}

std::string Write(std::span<const Command> commands) {
  const auto reads_back = [](std::string_view quoted, std::string_view value) {
    const auto read = Reader(fmt::format("FROM x\nSYSTEM {}\n", quoted)).Read();
    return read && read->size() == 2 && read->at(1).value == value;
  };
  std::string text;
  for (const Command& command : commands) {
    const std::string quoted = Quoted(command.value);
    if (!reads_back(quoted, command.value)) {
      text += fmt::format("# {} in the next value end it too early: a comment or a command follows them\n",
                          kThreeQuotes);
    }
    std::string name = command.name;
    std::ranges::transform(name, name.begin(), [](char c) {
      return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    });
    text += fmt::format("{} {}{}{}\n", name, command.key, command.key.empty() ? "" : " ", quoted);
  }
  return text;
}

}  // namespace quire::api::modelfile
