#include "runner/weights/vocabulary_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "api/base/utf8.h"
#include "runner/weights/json_text.h"

namespace quire::runner::weights {
namespace {

using nlohmann::ordered_json;

constexpr size_t kTokenBytesMax = 512;         // longer ones would take long to split
constexpr int64_t kVocabularyMax = 4'000'000;  // tokens

std::unexpected<api::Error> RefuseFile(const std::string& file, std::string_view reason) {
  return api::Fail(api::ErrorCode::kBadModel, fmt::format("{}: {}", file, reason));
}

// The file's text, or nothing when there is no such file.
api::Result<std::optional<std::string>> ReadIfAny(const ModelSource& source, std::string_view name) {
  auto text = ReadText(source, name, kTokenizerBytesMax);
  if (text) return std::move(*text);
  if (text.error().code == api::ErrorCode::kNotFound) return std::nullopt;
  return std::unexpected(text.error());
}

std::string QuotedJson(std::string_view text) { return ordered_json(text).dump(); }

// Bytes that print stand for themselves, the others for U+0100 and up, as byte-level vocabularies are
// written.
std::string ByteLevelText(std::string_view bytes) {
  static const std::array<char32_t, 256> kCharacters = [] {
    std::array<char32_t, 256> characters{};
    char32_t next = 0x100;
    for (char32_t byte = 0; byte < 256; ++byte) {
      const bool prints = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      characters[byte] = prints ? byte : next++;
    }
    return characters;
  }();
  std::string text;
  for (const char byte : bytes) api::AppendUtf8(text, kCharacters[static_cast<uint8_t>(byte)]);
  return text;
}

std::optional<std::string> FromBase64(std::string_view text) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  while (text.ends_with('=')) text.remove_suffix(1);
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (const char digit : text) {
    const size_t value = kDigits.find(digit);
    if (value == std::string_view::npos) return std::nullopt;
    bits = (bits << 6 | static_cast<uint32_t>(value)) & 0xFFFFFFU;
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes.push_back(static_cast<char>(bits >> count & 0xFFU));
  }
  return bytes;
}

constexpr std::string_view kByteLevel =
    R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false})";

std::string SplitBy(std::string_view pattern) {
  return fmt::format(
      R"({{"type":"Sequence","pretokenizers":[{{"type":"Split","pattern":{{"Regex":{}}},"behavior":"Isolated",)"
      R"("invert":false}},{}]}})",
      QuotedJson(pattern), kByteLevel);
}

std::string AddedToken(int64_t id, std::string_view content, bool special) {
  return fmt::format(
      R"({{"id":{},"content":{},"single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":{}}})",
      id, QuotedJson(content), special);
}

void SetRole(ordered_json& tokenizer_config, const char* role, std::string_view token) {
  if (!tokenizer_config.is_object()) tokenizer_config = ordered_json::object();
  const auto found = tokenizer_config.find(role);
  if (found == tokenizer_config.end() || found->is_null()) tokenizer_config[role] = token;
}

// ---- tekken.json ----

// Special tokens have the ids before those of the vocabulary, whose tokens have their rank: of two neighbors
// in a text those are merged first whose concatenation has the lowest.
class TekkenReader {
 public:
  TekkenReader(const ordered_json& document, std::string file)
      : document_(document), file_(std::move(file)) {}

  api::Result<std::string> Run() {
    if (auto read = ReadConfig(); !read) return std::unexpected(read.error());
    if (auto read = ReadSpecials(); !read) return std::unexpected(read.error());
    if (auto read = ReadTokens(); !read) return std::unexpected(read.error());
    return Text();
  }

 private:
  std::unexpected<api::Error> Refuse(std::string_view reason) const { return RefuseFile(file_, reason); }

  static const ordered_json* Find(const ordered_json& object, const char* name) {
    if (!object.is_object()) return nullptr;
    const auto found = object.find(name);
    return found == object.end() ? nullptr : &*found;
  }

  static std::optional<int64_t> Count(const ordered_json* value) {
    if (value == nullptr || !value->is_number_unsigned()) return std::nullopt;
    const auto number = value->get<uint64_t>();
    return number > uint64_t{kVocabularyMax} ? std::nullopt : std::optional(static_cast<int64_t>(number));
  }

  api::Result<void> ReadConfig() {
    const ordered_json* config = Find(document_, "config");
    if (config == nullptr) return Refuse("\"config\" is missing");
    const ordered_json* pattern = Find(*config, "pattern");
    if (pattern == nullptr || !pattern->is_string()) return Refuse("\"config.pattern\" is not a string");
    pattern_ = pattern->get<std::string>();
    const auto size = Count(Find(*config, "default_vocab_size"));
    const auto special = Count(Find(*config, "default_num_special_tokens"));
    if (!size || !special || *special > *size)
      return Refuse("\"default_vocab_size\" and \"default_num_special_tokens\" are no sizes of a vocabulary");
    specials_.resize(static_cast<size_t>(*special));
    tokens_max_ = static_cast<size_t>(*size - *special);
    return {};
  }

  api::Result<void> ReadSpecials() {
    // Files of the first versions do not list them.
    constexpr auto kFirst = std::to_array<std::string_view>({"<unk>",
                                                             "<s>",
                                                             "</s>",
                                                             "[INST]",
                                                             "[/INST]",
                                                             "[AVAILABLE_TOOLS]",
                                                             "[/AVAILABLE_TOOLS]",
                                                             "[TOOL_RESULTS]",
                                                             "[/TOOL_RESULTS]",
                                                             "[TOOL_CALLS]",
                                                             "[IMG]",
                                                             "<pad>",
                                                             "[IMG_BREAK]",
                                                             "[IMG_END]",
                                                             "[PREFIX]",
                                                             "[MIDDLE]",
                                                             "[SUFFIX]",
                                                             "[SYSTEM_PROMPT]",
                                                             "[/SYSTEM_PROMPT]",
                                                             "[TOOL_CONTENT]"});
    for (size_t i = 0; i < specials_.size(); ++i) specials_[i] = fmt::format("<SPECIAL_{}>", i);
    const ordered_json* list = Find(document_, "special_tokens");
    if (list == nullptr || list->is_null()) {
      constexpr size_t kUpToVersion3 = 17;  // those of system texts came later
      const ordered_json* version = Find(*Find(document_, "config"), "version");
      const bool old = version != nullptr && (*version == "v1" || *version == "v2" || *version == "v3");
      const size_t count = std::min(old ? kUpToVersion3 : kFirst.size(), specials_.size());
      std::copy_n(kFirst.begin(), count, specials_.begin());
      return {};
    }
    if (!list->is_array()) return Refuse("\"special_tokens\" is not an array");
    for (const ordered_json& token : *list) {
      const auto rank = Count(Find(token, "rank"));
      const ordered_json* text = Find(token, "token_str");
      if (!rank || static_cast<size_t>(*rank) >= specials_.size() || text == nullptr || !text->is_string())
        return Refuse("\"special_tokens\" has an entry that is no special token");
      specials_[static_cast<size_t>(*rank)] = text->get<std::string>();
    }
    return {};
  }

  api::Result<void> ReadTokens() {
    const ordered_json* list = Find(document_, "vocab");
    if (list == nullptr || !list->is_array()) return Refuse("\"vocab\" is not an array");
    const size_t count = std::min(list->size(), tokens_max_);
    tokens_.reserve(count);
    for (size_t i = 0; i < count; ++i) {
      const ordered_json& token = (*list)[i];
      const ordered_json* bytes = Find(token, "token_bytes");
      if (Count(Find(token, "rank")) != static_cast<int64_t>(i) || bytes == nullptr || !bytes->is_string())
        return Refuse(fmt::format("\"vocab[{}]\" is not the token of rank {}", i, i));
      auto decoded = FromBase64(bytes->get_ref<const std::string&>());
      if (!decoded || decoded->empty() || decoded->size() > kTokenBytesMax)
        return Refuse(
            fmt::format("\"vocab[{}].token_bytes\" is not base64 of 1 to {} bytes", i, kTokenBytesMax));
      tokens_.push_back(*std::move(decoded));
    }
    for (size_t i = 0; i < tokens_.size(); ++i) {
      if (!ranks_.emplace(tokens_[i], i).second)
        return Refuse(fmt::format("\"vocab[{}]\" is there twice", i));
    }
    return {};
  }

  // The pairs that the token is made of, those of the lowest ranks first.
  void AppendMerges(std::string_view token, std::string& out) const {
    std::vector<std::pair<size_t, size_t>> pairs;
    for (size_t at = 1; at < token.size(); ++at) {
      const auto left = ranks_.find(token.substr(0, at));
      if (left == ranks_.end()) continue;
      const auto right = ranks_.find(token.substr(at));
      if (right != ranks_.end()) pairs.emplace_back(left->second, right->second);
    }
    std::ranges::sort(pairs);
    for (const auto& [left, right] : pairs) {
      if (!out.ends_with('[')) out += ',';
      out += QuotedJson(ByteLevelText(tokens_[left]) + ' ' + ByteLevelText(tokens_[right]));
    }
  }

  std::string Text() const {
    std::string out = R"({"version":"1.0","added_tokens":[)";
    for (size_t i = 0; i < specials_.size(); ++i)
      out += (i > 0 ? "," : "") + AddedToken(static_cast<int64_t>(i), specials_[i], true);
    out += R"(],"normalizer":null,"pre_tokenizer":)" + SplitBy(pattern_);
    out += R"(,"decoder":)" + std::string(kByteLevel);
    if (specials_.size() > 1) {
      const std::string begin = QuotedJson(specials_[1]);
      out += fmt::format(
          R"(,"post_processor":{{"type":"TemplateProcessing","single":[{{"SpecialToken":{{"id":{0},"type_id":0}}}},)"
          R"({{"Sequence":{{"id":"A","type_id":0}}}}],"pair":[],"special_tokens":{{{0}:{{"id":{0},"ids":[1],)"
          R"("tokens":[{0}]}}}}}})",
          begin);
    }
    out += R"(,"model":{"type":"BPE","ignore_merges":true,"vocab":{)";
    for (size_t i = 0; i < specials_.size(); ++i)
      out += fmt::format("{}{}:{}", i > 0 ? "," : "", QuotedJson(specials_[i]), i);
    for (size_t i = 0; i < tokens_.size(); ++i) {
      const size_t id = specials_.size() + i;
      out += fmt::format("{}{}:{}", id > 0 ? "," : "", QuotedJson(ByteLevelText(tokens_[i])), id);
    }
    out += R"(},"merges":[)";
    for (const std::string& token : tokens_) AppendMerges(token, out);
    return out + "]}}";
  }

  const ordered_json& document_;
  const std::string file_;
  std::string pattern_;
  std::vector<std::string> specials_;  // by id
  size_t tokens_max_ = 0;
  std::vector<std::string> tokens_;  // by rank, as bytes
  std::unordered_map<std::string_view, size_t> ranks_;
};

// ---- vocab.json and merges.txt ----

// How a tokenizer splits a text and what it puts around it.
struct Splits {
  std::string pre_tokenizer;
  std::string normalizer = "null";
  std::string post_processor = "null";
};

std::string WordClassOf(std::string_view model_type, const ordered_json& tokenizer_config) {
  const auto named =
      tokenizer_config.is_object() ? tokenizer_config.find("tokenizer_class") : tokenizer_config.end();
  if (tokenizer_config.is_object() && named != tokenizer_config.end() && named->is_string()) {
    std::string name = named->get<std::string>();
    if (name.ends_with("Fast")) name.resize(name.size() - 4);
    return name;
  }
  if (model_type.starts_with("qwen2") || model_type.starts_with("qwen3")) return "Qwen2Tokenizer";
  if (model_type == "roberta") return "RobertaTokenizer";
  return model_type == "gpt2" || model_type == "codegen" || model_type == "gpt_bigcode" ? "GPT2Tokenizer"
                                                                                        : "";
}

// Nothing: only a tokenizer.json says how.
std::optional<Splits> SplitsOf(const std::string& name, bool add_prefix_space) {
  constexpr std::string_view kQwen =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|)"
      R"(\s+(?!\S)|\s+)";
  if (name == "Qwen2Tokenizer") return Splits{SplitBy(kQwen), R"({"type":"NFC"})"};
  Splits splits{
      fmt::format(R"({{"type":"ByteLevel","add_prefix_space":{},"trim_offsets":true,"use_regex":true}})",
                  add_prefix_space)};
  if (name == "GPT2Tokenizer" || name == "CodeGenTokenizer") return splits;
  if (name != "RobertaTokenizer") return std::nullopt;
  splits.post_processor =
      R"({"type":"RobertaProcessing","sep":["</s>",2],"cls":["<s>",0],"trim_offsets":true,"add_prefix_space":)" +
      std::string(add_prefix_space ? "true}" : "false}");
  return splits;
}

std::string MergesOf(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line.starts_with("#version")) continue;
    out += (out.empty() ? "" : ",") + QuotedJson(line);
  }
  return out;
}

// Tokens of added_tokens.json that tokenizer_config.json does not list.
api::Result<std::string> MoreTokens(const ModelSource& source, const ordered_json& tokenizer_config) {
  constexpr std::string_view kName = "added_tokens.json";
  const auto text = ReadIfAny(source, kName);
  if (!text) return std::unexpected(text.error());
  if (!*text || (tokenizer_config.is_object() && tokenizer_config.contains("added_tokens_decoder")))
    return "";
  const std::string file = source.PathOf(kName).string();
  const auto tokens = ParseJson(**text, file);
  if (!tokens) return std::unexpected(tokens.error());
  if (!tokens->is_object()) return RefuseFile(file, "not a JSON object");
  std::string out;
  for (const auto& [content, id] : tokens->items()) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > uint64_t{std::numeric_limits<int32_t>::max()})
      return RefuseFile(file, "an entry is no token id");
    // Which of them are special is not said here: none is typed by people.
    out += (out.empty() ? "" : ",") + AddedToken(id.get<int64_t>(), content, true);
  }
  return out;
}

api::Result<std::optional<std::string>> ReadWordPairs(const ModelSource& source, std::string_view model_type,
                                                      ordered_json& tokenizer_config) {
  const auto vocabulary = ReadIfAny(source, "vocab.json");
  if (!vocabulary) return std::unexpected(vocabulary.error());
  const auto merges = ReadIfAny(source, "merges.txt");
  if (!merges) return std::unexpected(merges.error());
  if (!*vocabulary || !*merges) return std::nullopt;
  const std::string name = WordClassOf(model_type, tokenizer_config);
  bool prefix = false;
  if (tokenizer_config.is_object()) {
    const auto said = tokenizer_config.find("add_prefix_space");
    if (said != tokenizer_config.end() && said->is_boolean()) prefix = said->get<bool>();
  }
  const auto splits = SplitsOf(name, prefix);
  if (!splits) {
    return api::Fail(api::ErrorCode::kUnsupported,
                     fmt::format("vocab.json and merges.txt of {} need a tokenizer.json beside them",
                                 name.empty() ? "this model" : name));
  }
  const std::string file = source.PathOf("vocab.json").string();
  const auto entries = ParseJson(**vocabulary, file);
  if (!entries) return std::unexpected(entries.error());
  if (!entries->is_object()) return RefuseFile(file, "not a JSON object");
  const auto more = MoreTokens(source, tokenizer_config);
  if (!more) return std::unexpected(more.error());
  if (name == "RobertaTokenizer") {
    SetRole(tokenizer_config, "bos_token", "<s>");
    SetRole(tokenizer_config, "eos_token", "</s>");
  } else if (entries->contains("<|endoftext|>")) {
    SetRole(tokenizer_config, "eos_token", "<|endoftext|>");
  }
  return fmt::format(
      R"({{"version":"1.0","added_tokens":[{}],"normalizer":{},"pre_tokenizer":{},"post_processor":{},"decoder":{},)"
      R"("model":{{"type":"BPE","vocab":{},"merges":[{}]}}}})",
      *more, splits->normalizer, splits->pre_tokenizer, splits->post_processor, kByteLevel, entries->dump(),
      MergesOf(**merges));
}

}  // namespace

api::Result<std::optional<std::string>> ReadOtherVocabulary(const ModelSource& source,
                                                            std::string_view model_type,
                                                            ordered_json& tokenizer_config) {
  constexpr std::string_view kTekken = "tekken.json";
  const auto text = ReadIfAny(source, kTekken);
  if (!text) return std::unexpected(text.error());
  if (!*text) return ReadWordPairs(source, model_type, tokenizer_config);
  const std::string file = source.PathOf(kTekken).string();
  const auto document = ParseJson(**text, file);
  if (!document) return std::unexpected(document.error());
  auto tokenizer = TekkenReader(*document, file).Run();
  if (!tokenizer) return std::unexpected(tokenizer.error());
  SetRole(tokenizer_config, "bos_token", "<s>");
  SetRole(tokenizer_config, "eos_token", "</s>");
  return *std::move(tokenizer);
}

}  // namespace quire::runner::weights
