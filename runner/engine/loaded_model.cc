#include "runner/engine/loaded_model.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "runner/engine/cpu_count.h"
#include "runner/engine/prepare.h"
#include "runner/weights/quantize_on_load.h"

namespace quire::runner::engine {
namespace {

api::Result<std::shared_ptr<const tokenizer::Tokenizer>> BuildTokenizer(const weights::ModelFiles& files) {
  const auto build = [&files] {
    if (files.format() == weights::Format::kGguf) return tokenizer::Tokenizer::FromGguf(files.config());
    if (files.tokenizer_json().empty() && !files.tokenizer_model().empty()) {
      return tokenizer::Tokenizer::FromSentencePiece(files.tokenizer_model(), files.tokenizer_config());
    }
    return tokenizer::Tokenizer::FromTokenizerJson(files.tokenizer_json(), files.tokenizer_config());
  };
  auto built = build();
  if (!built) {
    return api::Fail(built.error().code, fmt::format("{}: {}", files.path(), built.error().message),
                     built.error().field);
  }
  return built;
}

std::string TextOf(const tokenizer::Tokenizer& tokenizer, std::optional<api::TokenId> id) {
  return id ? std::string(tokenizer.TokenBytes(*id)) : "";
}

api::Result<std::shared_ptr<const PromptTemplate>> BuildTemplate(const weights::ModelFiles& files,
                                                                 const tokenizer::Tokenizer& tokenizer,
                                                                 std::string_view go_template) {
  if (!go_template.empty()) {
    auto parsed = PromptTemplate::ParseGo(go_template);
    if (parsed || files.chat_template().empty()) return parsed;
    fmt::print(stderr, "quire-runner: the chat template of the model's file is used: {}\n",
               parsed.error().message);
  }
  return PromptTemplate::Build(files, TextOf(tokenizer, tokenizer.bos_id()),
                               TextOf(tokenizer, tokenizer.eos_id()));
}

// The first control token of what stands before an answer; where the template puts nothing there, the first
// one of a conversation that is not its begin.
std::optional<api::TokenId> FindTurnOpener(const tokenizer::Tokenizer& tokenizer,
                                           const PromptTemplate& prompt_template) {
  const auto opens = [&](const std::string& text) -> std::optional<api::TokenId> {
    const tokenizer::Segment segment{text, true};
    const auto tokens = tokenizer.EncodeSegments({&segment, 1});
    if (!tokens) return std::nullopt;
    for (const api::TokenId token : *tokens) {
      if (!tokenizer.IsSpecial(token)) return std::nullopt;
      if (token != tokenizer.bos_id()) return token;
    }
    return std::nullopt;
  };
  const auto probe = prompt_template.ProbeTurns();
  if (!probe) return std::nullopt;
  const auto opener = opens(probe->answer_header);
  return opener ? opener : opens(probe->user_turn);
}

}  // namespace

output::Format FormatOf(const weights::ModelFiles& files, const tokenizer::Tokenizer& tokenizer,
                        const PromptTemplate* go) {
  const bool by_go = go != nullptr && !go->go_source().empty();
  output::Format format =
      output::Detect(by_go ? go->go_source() : files.chat_template(), [&](std::string_view text) {
        const auto tokens = tokenizer.Encode(text, tokenizer::SpecialTokens::kParse);
        return tokens && tokens->size() == 1;
      });
  if (by_go) {
    format.takes_tools = go->UsesGo("Tools");
    format.can_think = (format.can_think || go->UsesGo("Think")) && (format.thinking || format.harmony);
  }
  return format;
}

std::vector<std::string> CapabilitiesOf(const weights::ModelFiles& files, const PromptTemplate* go) {
  std::vector<std::string> capabilities = {"completion"};
  const auto tokenizer = BuildTokenizer(files);
  if (!tokenizer) return capabilities;
  const output::Format format = FormatOf(files, **tokenizer, go);
  if (format.supports_tools()) capabilities.emplace_back("tools");
  if (format.can_think) capabilities.emplace_back("thinking");
  if ((go != nullptr && go->CanInsert()) || FindInsertTokens(**tokenizer)) {
    capabilities.emplace_back("insert");
  }
  return capabilities;
}

std::shared_ptr<const constraint::VocabularyIndex> IndexVocabulary(
    const tokenizer::Tokenizer& tokenizer, const std::unordered_set<api::TokenId>& end_of_generation) {
  return std::make_shared<const constraint::VocabularyIndex>(
      tokenizer.vocab_size(), [&](api::TokenId id) { return tokenizer.TokenBytes(id); },
      [&](api::TokenId id) { return tokenizer.IsSpecial(id); }, end_of_generation);
}

api::Result<LoadedModel> Load(const std::filesystem::path& path, const Progress& progress,
                              const LoadOptions& options) {
  LoadedModel loaded;
  progress(0.0F, "mapping weights");
  auto files = weights::Open(path);
  if (!files) return std::unexpected(files.error());
  if (!options.quantize.empty()) {
    progress(0.1F, "quantising weights");
    files = weights::QuantizeOnLoad(std::move(*files), options.quantize, UsableCores());
    if (!files) return std::unexpected(files.error());
  }
  loaded.files = std::move(*files);

  progress(0.2F, "building tokenizer");
  auto tokenizer = BuildTokenizer(*loaded.files);
  if (!tokenizer) return std::unexpected(tokenizer.error());
  loaded.tokenizer = std::move(*tokenizer);

  progress(0.4F, "parsing chat template");
  auto prompt_template = BuildTemplate(*loaded.files, *loaded.tokenizer, options.go_template);
  if (!prompt_template) return std::unexpected(prompt_template.error());
  loaded.prompt_template = std::move(*prompt_template);
  loaded.turn_opener = FindTurnOpener(*loaded.tokenizer, *loaded.prompt_template);
  loaded.format = FormatOf(*loaded.files, *loaded.tokenizer, loaded.prompt_template.get());

  progress(0.5F, "building model");
  auto model = models::LoadModel(loaded.files, options.kv_type);
  if (!model) return std::unexpected(model.error());
  loaded.model = std::move(*model);
  loaded.pooling = models::ReadPooling(*loaded.files);
  if (loaded.tokenizer->vocab_size() > loaded.model->vocab_size()) {
    return api::Fail(
        api::ErrorCode::kBadModel,
        fmt::format("{}: the tokenizer has {} ids, the model's output only {}", loaded.files->path(),
                    loaded.tokenizer->vocab_size(), loaded.model->vocab_size()));
  }
  for (const int32_t id : loaded.files->end_of_generation_ids()) loaded.end_of_generation.insert(id);
  progress(1.0F, "ready");
  return loaded;
}

}  // namespace quire::runner::engine
