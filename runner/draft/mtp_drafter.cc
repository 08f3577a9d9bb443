#include <new>
#include <string>
#include <utility>
#include <vector>

#include "runner/draft/cached_drafter.h"
#include "runner/draft/drafters.h"

namespace quire::runner::draft {
namespace {

constexpr int64_t kBridgedMax = 64;  // entries in a row that are computed without a state

// Entry i of the cached sequence holds the hidden state of token i and token i + 1.
class MtpDrafter final : public CachedDrafter {
 public:
  MtpDrafter(std::unique_ptr<models::MtpLayer> layer, int32_t hidden_size,
             std::unique_ptr<cache::HybridCache> cache, const Options& options)
      : CachedDrafter(std::move(cache), options),
        layer_(std::move(layer)),
        width_(static_cast<size_t>(hidden_size)) {}

  const std::string& architecture() const override { return name_; }
  int64_t weight_bytes() const override { return layer_->weight_bytes(); }
  RequiredHidden required_hidden() const override { return RequiredHidden::kAll; }

  static Options OptionsFor(int32_t vocab, size_t cache_bytes) {
    return {.vocab = vocab, .logits = vocab, .cache_bytes = cache_bytes, .pairs = true};
  }

 private:
  Confirmed AddConfirmed(const DraftRequest& request, CachedDraftState& state) override;
  void PrepareDraftToken(size_t row) override;
  void Forward(const cache::StepView& step, ThreadPool& pool, std::span<float> logits) override;
  void Replay(size_t, std::byte*, std::span<const std::byte>, int32_t, ThreadPool&) override {}
  // Entries missing between the cached sequence and the known hidden states.
  int64_t Bridge(CachedDraftState& state, int64_t known_from);

  std::unique_ptr<models::MtpLayer> layer_;
  const size_t width_;
  const std::string name_ = "mtp";
  std::vector<float> before_;  // [rows, hidden size]
  std::vector<float> own_;     // [logit rows, hidden size]: the layer's own states
};

int64_t MtpDrafter::Bridge(CachedDraftState& state, int64_t known_from) {
  const int64_t missing = known_from - (state.first + state.sequence.offset());
  if (missing >= 0 && missing <= kBridgedMax) return missing;
  if (missing < 0 && known_from >= state.first) {
    if (cache().Truncate(state.sequence, known_from - state.first)) return 0;
  }
  state.sequence = cache().NewSequence();
  if (!state.sequence) throw std::bad_alloc();
  state.lease = {};
  state.first = known_from;
  return 0;
}

CachedDrafter::Confirmed MtpDrafter::AddConfirmed(const DraftRequest& request, CachedDraftState& state) {
  const auto known = static_cast<int64_t>(request.hidden.size() / width_);
  const int64_t end = std::ssize(request.tokens) - 1;
  if (known == 0 || known > end) return {};
  const int64_t bridged = Bridge(state, end - known);
  before_.resize(batch().tokens.size() * width_);
  before_.resize(before_.size() + static_cast<size_t>(bridged) * width_, 0.0F);
  before_.insert(before_.end(), request.hidden.begin(), request.hidden.end());
  const auto tokens = request.tokens.last(static_cast<size_t>(bridged + known));
  batch().tokens.insert(batch().tokens.end(), tokens.begin(), tokens.end());
  return {.rows = static_cast<int32_t>(tokens.size())};
}

void MtpDrafter::PrepareDraftToken(size_t row) {
  const auto state = std::span(own_).subspan(row * width_, width_);
  before_.resize(batch().tokens.size() * width_);
  before_.insert(before_.end(), state.begin(), state.end());
}

void MtpDrafter::Forward(const cache::StepView& step, ThreadPool& pool, std::span<float> logits) {
  own_.resize(batch().logit_rows.size() * width_);
  batch().hidden_rows = batch().logit_rows;
  layer_->Forward(batch(), before_, step, pool, models::Outputs(logits, own_));
}

}  // namespace

api::Result<std::unique_ptr<Drafter>> MakeMtpDrafter(std::unique_ptr<models::MtpLayer> layer, int32_t vocab,
                                                     int32_t hidden_size, size_t cache_bytes) {
  auto cache = cache::HybridCache::Create(layer->cache_layout(), {.bytes = cache_bytes});
  if (!cache) return api::Fail(api::ErrorCode::kInternal, cache.error().message);
  return std::make_unique<MtpDrafter>(std::move(layer), hidden_size, std::move(*cache),
                                      MtpDrafter::OptionsFor(vocab, cache_bytes));
}

}  // namespace quire::runner::draft
