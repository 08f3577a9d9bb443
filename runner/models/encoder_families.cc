// The table of the encoders' families, and loading one of them.
#include "runner/models/encoder_families.h"

#include <fmt/format.h>

#include <array>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "runner/models/panel_store.h"

namespace quire::runner::models {
namespace {

using weights::ModelFiles;

struct EncoderFamily {
  Architecture architecture;
  Encoding (*read)(ConfigReader&);
};

constexpr std::array kEncoders = {
    EncoderFamily{{"BERT", "bert", "bert"}, ReadBert},
    EncoderFamily{{"RoBERTa, XLM-RoBERTa", "xlm-roberta|roberta|camembert", "bert"}, ReadBert},
    EncoderFamily{{"DistilBERT", "distilbert", ""}, ReadDistilBert},
    EncoderFamily{{"MPNet", "mpnet", ""}, ReadMpnet},
    EncoderFamily{{"ModernBERT", "modernbert", "modern-bert"}, ReadModernBert},
    EncoderFamily{{"EmbeddingGemma", "gemma3_text", "gemma-embedding"}, ReadEmbeddingGemma},
    EncoderFamily{{"Nomic BERT", "nomic_bert", "nomic-bert|nomic-bert-moe"}, ReadNomicBert},
    EncoderFamily{{"Jina BERT v2", "jina_bert", "jina-bert-v2"}, ReadJinaBert},
    EncoderFamily{{"Jina embeddings v3", "jina_embeddings_v3", "jina-bert-v3"}, ReadJinaV3},
    EncoderFamily{{"GTE", "new|gte", ""}, ReadGte},
    EncoderFamily{{"EuroBERT", "eurobert", "eurobert"}, ReadEuroBert},
    EncoderFamily{{"Llama Embed", "", "llama-embed"}, ReadEuroBert},
    EncoderFamily{{"NeoBERT", "", "neo-bert"}, ReadEuroBert},
};

bool Names(std::string_view list, std::string_view name) {
  while (!list.empty()) {
    const size_t bar = list.find('|');
    if (list.substr(0, bar) == name) return true;
    list = bar == std::string_view::npos ? std::string_view() : list.substr(bar + 1);
  }
  return false;
}

const EncoderFamily* FindEncoder(const ModelFiles& files) {
  const bool gguf = files.format() == weights::Format::kGguf;
  const std::string name = files.architecture();
  for (const EncoderFamily& family : kEncoders) {
    if (Names(gguf ? family.architecture.gguf : family.architecture.hugging_face, name)) return &family;
  }
  return nullptr;
}

void BindScore(ConfigReader& read, TensorBinder& bind, const Encoding& made, ScoreHead& score) {
  const TensorScope outside = bind.Outside();
  const int64_t hidden = made.form.hidden;
  const auto bias = [&](Bias of_checkpoint) { return read.gguf() ? Bias::kIfStored : of_checkpoint; };
  score.pooling = made.score_pooling;
  score.activation = made.score_activation;
  const auto* labels = read.Find({"id2label", ""});
  if (labels != nullptr && labels->size() > 1) {
    return read.Fail(fmt::format("id2label: a classification head of {} labels is not supported, only of one",
                                 labels->size()));
  }
  const bool alone = read.gguf() && !outside.HasWeight(made.score_out);
  if (alone) {  // one matrix, which scores
    score.out = outside.BindLinear(made.score_dense, 1, hidden, Bias::kIfStored);
    return;
  }
  const bool absent = read.gguf() && !outside.HasWeight(made.score_dense);
  if (!absent) {
    score.dense = outside.BindLinear(made.score_dense, hidden, hidden, bias(made.score_dense_bias));
    score.late = made.score_late;
  }
  if (!made.score_norm.gguf.empty() && outside.HasWeight(made.score_norm)) {
    score.norm = {.kind = NormKind::kLayer,
                  .weight = outside.Norm(made.score_norm, made.form.hidden),
                  .bias = outside.BiasOf(made.score_norm, made.form.hidden, Bias::kIfStored),
                  .eps = made.form.norm_eps};
  }
  score.out = outside.BindLinear(made.score_out, 1, hidden, bias(made.score_out_bias));
}

}  // namespace

std::vector<Architecture> EncoderArchitectures() {
  std::vector<Architecture> architectures;
  architectures.reserve(std::size(kEncoders));
  for (const EncoderFamily& family : kEncoders) architectures.push_back(family.architecture);
  return architectures;
}

bool IsEncoder(const ModelFiles& files) {
  if (FindEncoder(files) == nullptr) return false;
  if (files.architecture() != "gemma3_text") return true;
  const auto both = files.config().find("use_bidirectional_attention");
  return both != files.config().end() && *both == true;
}

bool HasScoreHead(const ModelFiles& files) {
  if (files.format() == weights::Format::kGguf) {
    return files.Find("cls.output.weight") != nullptr || files.Find("cls.weight") != nullptr;
  }
  const auto architectures = files.config().find("architectures");
  return architectures != files.config().end() && architectures->is_array() && architectures->size() == 1 &&
         architectures->front().is_string() &&
         architectures->front().get_ref<const std::string&>().ends_with("ForSequenceClassification");
}

api::Result<std::unique_ptr<Encoder>> LoadEncoder(std::shared_ptr<const ModelFiles> files) {
  ConfigReader read(*files);
  const EncoderFamily* family = FindEncoder(*files);
  read.Require("is_causal", false);
  read.Require("causal", false);
  constexpr ConfigKey kCausal = {"", "attention.causal"};
  if (read.Boolean(kCausal, false))
    read.Fail(read.Name(kCausal) + ": only false is supported for an encoder");
  Encoding made = family->read(read);
  if (!read.error()) read.RefuseUnreadKeys();
  if (read.error()) return std::unexpected(*read.error());
  PanelStore* const panels = AttachPanels(&files);
  TensorBinder bind(*files, panels);
  EncoderHead head;
  if (HasScoreHead(*files)) {
    head.pooling = EncoderPooling::kNone;
    if (made.score_out.gguf.empty()) read.Fail("a classification head is not supported for this family");
    if (!read.error()) BindScore(read, bind, made, head.score);
  } else {
    ReadEncoderHead(read, bind, made.form.hidden, head);
  }
  if (read.error()) return std::unexpected(*read.error());
  if (bind.error()) return std::unexpected(*bind.error());
  auto encoder = std::make_unique<Encoder>(files, bind, made.form, std::move(head));
  if (bind.error()) return std::unexpected(*bind.error());
  return encoder;
}

}  // namespace quire::runner::models
