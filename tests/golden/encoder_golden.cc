#include "tests/golden/encoder_golden.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "runner/models/encoder.h"
#include "runner/tokenizer/frame_tokens.h"
#include "runner/tokenizer/model_tokenizer.h"
#include "runner/weights/block_formats.h"
#include "runner/weights/model_files.h"
#include "tests/golden/golden_arrays.h"

namespace quire::runner::golden {
namespace {

using EncoderJson = nlohmann::ordered_json;
using models::TokenId;

constexpr int64_t kEncoderVocabMax = 1 << 24;
constexpr float kScoreTolerance = 1e-3F;
constexpr double kCosineMin = 0.999;      // the mean of quantized weights
constexpr double kCosineOfOneMin = 0.99;  // of a single vector

std::string TextOf(const EncoderJson& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

void ReadCases(const EncoderJson& json, const char* list, const char* prefix, Arrays& arrays,
               EncoderGolden& golden) {
  const auto entries = json.find(list);
  if (entries == json.end() || !entries->is_array()) return;
  const auto floats = [&](const std::string& name) {
    return arrays.Find(name) != nullptr ? arrays.Floats(name) : std::vector<float>();
  };
  for (size_t i = 0; i < entries->size(); ++i) {
    const EncoderJson& entry = (*entries)[i];
    EncoderCase one;
    one.name = fmt::format("{}{}", prefix, i);
    one.ids = arrays.Integers(one.name + ".ids");
    if (arrays.Find(one.name + ".token_type_ids") != nullptr) {
      one.types = arrays.Integers(one.name + ".token_type_ids");
    }
    one.text = TextOf(entry, "text") + TextOf(entry, "query");
    one.second = TextOf(entry, "document");
    one.hidden = floats(one.name + ".last_hidden");
    one.embedding = floats(one.name + ".embedding");
    one.score = floats(one.name + ".score");
    if (Ids(entry.value("ids", EncoderJson()), golden.vocab) != one.ids || one.ids.empty()) {
      arrays.Fail(fmt::format("the ids of {} differ from golden.json", one.name));
    }
    if (one.hidden.size() % one.ids.size() != 0 ||
        (!one.types.empty() && one.types.size() != one.ids.size())) {
      arrays.Fail(fmt::format("{} does not have the shape of its ids", one.name));
    }
    if (arrays.error()) return;
    golden.cases.push_back(std::move(one));
  }
}

bool HasText(const EncoderCase& one) { return !one.text.empty() || !one.second.empty(); }

float MaxDifference(std::span<const float> a, std::span<const float> b) {
  float most = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const float difference = std::abs(a[i] - b[i]);
    most = std::isfinite(difference) ? std::max(most, difference) : INFINITY;
  }
  return most;
}

struct EncoderRunner {
  models::Encoder& encoder;
  const tokenizer::Tokenizer* tokenizer;  // null where the golden has no texts
  ThreadPool& pool;
  EncoderComparison& result;

  std::vector<float> Hidden(std::span<const EncoderCase* const> cases, ThreadPool& on) const {
    models::EncoderBatch batch;
    batch.row_begin.push_back(0);
    for (const EncoderCase* one : cases) {
      batch.tokens.insert(batch.tokens.end(), one->ids.begin(), one->ids.end());
      batch.types.insert(batch.types.end(), one->types.begin(), one->types.end());
      batch.types.resize(batch.tokens.size());
      batch.row_begin.push_back(static_cast<int32_t>(batch.tokens.size()));
    }
    std::vector<float> hidden(batch.tokens.size() * static_cast<size_t>(encoder.hidden_size()));
    encoder.Forward(batch, on, hidden);
    return hidden;
  }

  void CheckIds(const EncoderCase& one) const {
    if (!HasText(one)) return;
    ++result.ids_total;
    const auto text = tokenizer->Encode(one.text, tokenizer::SpecialTokens::kAsText);
    if (!text) return;
    std::vector<TokenId> ids = *text;
    std::vector<int32_t> types;
    if (!one.second.empty()) {
      const auto second = tokenizer->Encode(one.second, tokenizer::SpecialTokens::kAsText);
      if (!second) return;
      auto framed = tokenizer::FramePair(*tokenizer, *text, *second, SIZE_MAX);
      if (!framed) return result.lines.push_back(one.name + ": " + framed.error().message);
      ids = std::move(framed->ids);
      types = std::move(framed->types);
    } else {
      if (tokenizer->add_bos()) ids.insert(ids.begin(), *tokenizer->bos_id());
      if (tokenizer->add_eos()) ids.push_back(*tokenizer->eos_id());
    }
    const bool equal = ids == one.ids && (one.types.empty() || types.empty() || types == one.types);
    result.ids_equal += equal ? 1 : 0;
    if (!equal) result.lines.push_back(one.name + ": other token ids than the reference's");
  }

  // The largest difference; `cosine` of the vectors.
  float Compare(const EncoderCase& one, std::span<const float> hidden, double& cosine) const {
    float most = 0;
    if (hidden.size() == one.hidden.size()) {
      most = MaxDifference(hidden, one.hidden);
      ++result.states;
      if (encoder.ranks()) result.AddCosine(Cosine(hidden, one.hidden));
    } else if (!one.hidden.empty()) {
      most = INFINITY;
    }
    if (!one.embedding.empty() && !encoder.ranks()) {
      const auto vector = models::EncoderHead::Finish(
          encoder.head().Pool(pool, hidden, encoder.hidden_size()), 0, IsNormalized(one.embedding));
      if (vector.size() == one.embedding.size()) {
        most = std::max(most, MaxDifference(vector, one.embedding));
        cosine = Cosine(vector, one.embedding);
        result.AddCosine(cosine);
        ++result.vectors;
      } else {
        most = INFINITY;
      }
    }
    result.max_abs = std::max(result.max_abs, most);
    return most;
  }
};

}  // namespace

double Cosine(std::span<const float> a, std::span<const float> b) {
  double dot = 0, left = 0, right = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    dot += double{a[i]} * double{b[i]};
    left += double{a[i]} * double{a[i]};
    right += double{b[i]} * double{b[i]};
  }
  return left > 0 && right > 0 ? dot / std::sqrt(left * right) : (left == right ? 1 : 0);
}

bool IsNormalized(std::span<const float> vector) {
  double squares = 0;
  for (const float value : vector) squares += double{value} * double{value};
  return std::abs(squares - 1) < 1e-3;
}

bool SameOrder(const std::vector<std::pair<float, float>>& scores, float equal) {
  for (const auto& [mine, theirs] : scores) {
    for (const auto& [other_mine, other_theirs] : scores) {
      if (theirs > other_theirs + equal && !(mine > other_mine)) return false;
    }
  }
  return true;
}

void EncoderComparison::AddCosine(double cosine) {
  min_cosine = std::min(min_cosine, cosine);
  cosine_sum += cosine;
  ++cosines;
}

bool EncoderComparison::pass(float tolerance) const {
  if (ids_equal != ids_total || !bit_identical || !order || states + vectors + scores == 0) return false;
  if (quantized) return mean_cosine() >= kCosineMin && min_cosine >= kCosineOfOneMin;
  return max_abs <= tolerance && max_score <= kScoreTolerance;
}

std::string EncoderComparison::Verdict(float tolerance) const {
  return fmt::format("golden: {} max_abs={:.1e} score={:.1e} cosine={:.6f} (min {:.6f}) ids={}/{}{}{}",
                     pass(tolerance) ? "PASS" : "FAIL", max_abs, max_score, mean_cosine(), min_cosine,
                     ids_equal, ids_total, order ? "" : " order differs",
                     bit_identical ? "" : " not bit-identical");
}

bool IsEncoderGolden(const std::filesystem::path& directory) {
  const auto json = ReadGoldenJson(directory / "golden.json");
  if (!json || !json->is_object()) return false;
  const std::string kind = TextOf(*json, "kind");
  return kind == "embedding" || kind == "reranker";
}

api::Result<EncoderGolden> ReadEncoderGolden(const std::filesystem::path& directory) {
  const auto json = ReadGoldenJson(directory / "golden.json");
  if (!json) return std::unexpected(json.error());
  auto arrays = Arrays::Open(directory / "golden.safetensors");
  if (!arrays) return std::unexpected(arrays.error());
  EncoderGolden golden;
  golden.ranks = TextOf(*json, "kind") == "reranker";
  const auto vocab = json->find("vocab_size");
  if (vocab == json->end() || !vocab->is_number_unsigned() || vocab->get<uint64_t>() > kEncoderVocabMax) {
    return api::Fail(api::ErrorCode::kBadModel,
                     "golden.json: vocab_size is missing or not a vocabulary's size");
  }
  golden.vocab = vocab->get<int32_t>();
  for (const auto& [list, prefix] :
       {std::pair("prompts", "p"), std::pair("texts", "t"), std::pair("pairs", "pair")}) {
    ReadCases(*json, list, prefix, *arrays, golden);
  }
  if (arrays->error()) return std::unexpected(*arrays->error());
  return golden;
}

api::Result<EncoderComparison> CompareEncoder(const std::filesystem::path& model, const EncoderGolden& golden,
                                              ThreadPool& pool) {
  const auto files = weights::Open(model);
  if (!files) return std::unexpected(files.error());
  if (!models::IsEncoder(**files)) {
    return api::Fail(api::ErrorCode::kBadModel, model.string() + ": not an encoder of a supported family");
  }
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer;
  if (std::ranges::any_of(golden.cases, HasText)) {
    auto loaded = tokenizer::LoadTokenizer(**files);
    if (!loaded) return std::unexpected(loaded.error());
    tokenizer = std::move(*loaded);
  }
  auto encoder = models::LoadEncoder(*files);
  if (!encoder) return std::unexpected(encoder.error());
  if ((*encoder)->vocab_size() != golden.vocab || (*encoder)->ranks() != golden.ranks) {
    return api::Fail(api::ErrorCode::kBadModel, model.string() + ": not the model of this golden");
  }
  EncoderComparison result;
  for (const weights::Tensor& tensor : (*files)->tensors()) {
    result.quantized |= weights::BlockElements(tensor.type) > 1;
  }
  const EncoderRunner run{**encoder, tokenizer.get(), pool, result};
  std::vector<const EncoderCase*> all;
  for (const EncoderCase& one : golden.cases) {
    if (std::ssize(one.ids) > (*encoder)->context_length()) {
      return api::Fail(api::ErrorCode::kBadModel, one.name + ": longer than the model's context");
    }
    all.push_back(&one);
  }
  const std::vector<float> together = run.Hidden(all, pool);
  ThreadPool single(1);
  size_t at = 0;
  std::vector<std::pair<float, float>> scores;
  for (const EncoderCase* one : all) {
    run.CheckIds(*one);
    const std::vector<float> hidden = run.Hidden(std::span(&one, 1), single);
    result.bit_identical &= std::ranges::equal(hidden, std::span(together).subspan(at, hidden.size()));
    at += hidden.size();
    double cosine = 1;
    const float most = run.Compare(*one, hidden, cosine);
    std::string line =
        fmt::format("{}: {} tokens, max_abs={:.1e} cosine={:.6f}", one->name, one->ids.size(), most, cosine);
    if (golden.ranks && one->score.size() == 1) {
      const float score = (*encoder)->head().Score(pool, hidden, (*encoder)->hidden_size());
      result.max_score = std::max(result.max_score, MaxDifference(std::span(&score, 1), one->score));
      scores.emplace_back(score, one->score.front());
      ++result.scores;
      line += fmt::format(", score {:.6f} ({:.6f})", score, one->score.front());
    }
    result.lines.push_back(std::move(line));
  }
  result.order = SameOrder(scores, result.quantized ? 0.05F : 2 * kScoreTolerance);
  return result;
}

}  // namespace quire::runner::golden
