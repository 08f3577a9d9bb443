#include "runner/models/rank_head.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "runner/models/config_reader.h"
#include "runner/models/decoder_config.h"
#include "runner/models/tensor_binder.h"
#include "runner/weights/json_text.h"

namespace quire::runner::models {
namespace {

using nlohmann::ordered_json;

constexpr const char* kGgufRankTemplate = "tokenizer.chat_template.rerank";
constexpr const char* kRankTemplate =
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the "
    "Instruct "
    "provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n<Instruct>: "
    "Given a "
    "web search query, retrieve relevant passages that answer the query\n<Query>: {query}\n<Document>: "
    "{document}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";

std::optional<RankPrompt> SplitRankTemplate(const std::string& text) {
  constexpr std::string_view kQuery = "{query}", kDocument = "{document}";
  const size_t query = text.find(kQuery), document = text.find(kDocument);
  if (query == text.npos || document == text.npos || document < query) return std::nullopt;
  if (text.find(kQuery, query + 1) != text.npos || text.find(kDocument, document + 1) != text.npos) {
    return std::nullopt;
  }
  const size_t between = query + kQuery.size();
  RankPrompt prompt{.before = text.substr(0, query),
                    .between = text.substr(between, document - between),
                    .after = text.substr(document + kDocument.size())};
  // As the model card writes it: "<Instruct>: ...\n<Query>: ".
  constexpr std::string_view kInstruction = "<Instruct>: ", kBehind = "\n<Query>:";
  const size_t instruction = prompt.before.rfind(kInstruction), end = prompt.before.rfind(kBehind);
  if (instruction != text.npos && end != text.npos && end >= instruction + kInstruction.size()) {
    prompt.instruction_begin = instruction + kInstruction.size();
    prompt.instruction_end = end;
  }
  return prompt;
}

const weights::SentenceModule* LogitScoreOf(const std::vector<weights::SentenceModule>& modules) {
  const auto found = std::ranges::find(modules, "LogitScore", &weights::SentenceModule::kind);
  return found == modules.end() ? nullptr : &*found;
}

double Dot(std::span<const float> row, std::span<const float> state) {
  double sum = 0;
  for (size_t i = 0; i < row.size(); ++i) sum += static_cast<double>(row[i]) * static_cast<double>(state[i]);
  return sum;
}

api::Result<RankHead> ReadGgufRankHead(const weights::ModelFiles& files) {
  ConfigReader read(files);
  const int32_t hidden = read.Small({"", "embedding_length"}, 1, kMaxWidth);
  const auto labels = read.Texts({"", "classifier.output_labels"}, 2);
  if (labels && *labels != std::vector<std::string>{"yes", "no"}) {
    read.Fail("classifier.output_labels: only yes and no, in this order, are supported");
  }
  const auto stored = files.config().find(kGgufRankTemplate);
  const bool own = stored != files.config().end() && stored->is_string();
  const auto prompt = SplitRankTemplate(own ? stored->get<std::string>() : kRankTemplate);
  if (!prompt) {
    read.Fail(fmt::format("{} does not have {{query}} and {{document}} once each, in this order",
                          kGgufRankTemplate));
  }
  if (read.error()) return std::unexpected(*read.error());
  TensorBinder bind(files);
  std::vector<float> rows = bind.Outside().Table({"", "cls.output.weight"}, 2, hidden);
  if (bind.error()) return std::unexpected(*bind.error());
  RankHead head{.yes = {}, .no = {}, .tokens = std::nullopt, .prompt = *prompt};
  head.yes.assign(rows.begin(), rows.begin() + hidden);
  head.no.assign(rows.begin() + hidden, rows.end());
  return head;
}

// transformers' ...ForSequenceClassification of a decoder: a matrix on the final hidden state of the last
// token.
bool IsSequenceClassifier(const weights::ModelFiles& files) {
  if (files.format() == weights::Format::kGguf) return false;
  const auto names = files.config().find("architectures");
  return names != files.config().end() && names->is_array() && names->size() == 1 &&
         names->front().is_string() &&
         names->front().get_ref<const std::string&>().ends_with("ForSequenceClassification");
}

api::Result<RankHead> ReadClassifier(const weights::ModelFiles& files) {
  ConfigReader read(files);
  const int32_t hidden = read.Small({"hidden_size", ""}, 1, kMaxWidth);
  if (read.error()) return std::unexpected(*read.error());
  TensorBinder bind(files);
  RankHead head{.yes = bind.Outside().Table({"score.weight", ""}, 1, hidden),
                .no = {},
                .tokens = std::nullopt,
                .prompt = {}};
  if (bind.error()) return std::unexpected(*bind.error());
  // Some Qwen3 classifiers were made of Qwen3-Reranker, and others were not; their files do not say which.
  if (files.architecture() == "qwen3") head.prompt = SplitRankTemplate(kRankTemplate).value_or(RankPrompt());
  head.prompt.only_with_instruction = true;
  return head;
}

}  // namespace

float RankHead::Score(std::span<const float> state) const {
  return static_cast<float>(Dot(yes, state) - Dot(no, state.first(no.size())));
}

bool RanksByAnswer(const weights::ModelFiles& files) {
  if (IsSequenceClassifier(files)) return true;
  if (files.architecture() != "qwen3") return false;
  if (files.format() == weights::Format::kGguf) {
    const auto pooling = files.config().find("qwen3.pooling_type");
    return files.Find("cls.output.weight") != nullptr && pooling != files.config().end() && *pooling == 4;
  }
  const auto modules = files.sentence_modules();
  return modules && LogitScoreOf(*modules) != nullptr;
}

api::Result<RankHead> MakeRankHead(const weights::ModelFiles& files, int32_t yes, int32_t no) {
  ConfigReader read(files);
  const int32_t vocab = read.Small({"vocab_size", ""}, 1, kMaxVocab);
  const int32_t hidden = read.Small({"hidden_size", ""}, 1, kMaxWidth);
  const bool tied = read.Boolean({"tie_word_embeddings", ""}, false);
  if (yes < 0 || yes >= vocab || no < 0 || no >= vocab) read.Fail("the tokens of the answers do not exist");
  if (read.error()) return std::unexpected(*read.error());
  TensorBinder bind(files);
  const kernels::Matrix output = tied ? bind.Global().Matrix({"embed_tokens", ""}, vocab, hidden)
                                      : bind.Outside().Matrix({"lm_head", ""}, vocab, hidden);
  if (bind.error()) return std::unexpected(*bind.error());
  RankHead head{.yes = std::vector<float>(static_cast<size_t>(hidden)),
                .no = std::vector<float>(static_cast<size_t>(hidden)),
                .tokens = std::array{yes, no},
                .prompt = SplitRankTemplate(kRankTemplate).value_or(RankPrompt())};
  kernels::EmbeddingRows(output, std::span(&yes, 1), head.yes);
  kernels::EmbeddingRows(output, std::span(&no, 1), head.no);
  return head;
}

api::Result<RankHead> ReadRankHead(const weights::ModelFiles& files) {
  if (files.format() == weights::Format::kGguf) return ReadGgufRankHead(files);
  if (IsSequenceClassifier(files)) return ReadClassifier(files);
  const auto modules = files.sentence_modules();
  if (!modules) return std::unexpected(modules.error());
  const weights::SentenceModule& score = *LogitScoreOf(*modules);
  const std::string path = score.path + "/config.json";
  const auto config = weights::ParseJson(score.config_json.empty() ? "{}" : score.config_json, path);
  if (!config) return std::unexpected(config.error());
  const auto refuse = [&](const std::string& why) {
    return api::Fail(api::ErrorCode::kBadModel, fmt::format("{}: {}: {}", files.path(), path, why));
  };
  for (const auto& member : config->items()) {
    const bool known = member.key() == "true_token_id" || member.key() == "false_token_id" ||
                       (member.key() == "module_input_name" && member.value() == "causal_logits");
    if (!known) return refuse(member.key().substr(0, 64) + " is not supported");
  }
  const auto id = [&](const char* key) {
    const auto found = config->find(key);
    const auto value = found == config->end() ? std::nullopt : ConfigReader::WholeNumber(*found);
    return value && *value >= 0 && *value < kMaxVocab ? static_cast<int32_t>(*value) : -1;
  };
  const int32_t yes = id("true_token_id"), no = id("false_token_id");
  if (yes < 0 || no < 0) return refuse("true_token_id and false_token_id are not both token ids");
  return MakeRankHead(files, yes, no);
}

}  // namespace quire::runner::models
