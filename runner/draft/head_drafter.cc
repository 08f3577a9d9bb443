#include <algorithm>
#include <utility>
#include <vector>

#include "runner/draft/drafters.h"

namespace quire::runner::draft {
namespace {

class HeadDrafter final : public Drafter {
 public:
  HeadDrafter(std::unique_ptr<models::DraftModel> head, int32_t vocab, cache::HybridCache& cache)
      : head_(std::move(head)), cache_(cache), logits_(static_cast<size_t>(vocab)) {}

  const std::string& architecture() const override { return head_->architecture(); }
  int64_t weight_bytes() const override { return head_->weight_bytes(); }
  RequiredHidden required_hidden() const override { return RequiredHidden::kLast; }
  bool follows() const override { return false; }

  std::unique_ptr<DraftState> CreateState(const DraftContext&) override {
    return std::make_unique<DraftState>();
  }
  void End(std::unique_ptr<DraftState>, std::span<const TokenId>) override {}

  void ProposeDrafts(std::span<const DraftRequest> requests, ThreadPool& pool) override {
    for (const DraftRequest& request : requests) {
      if (request.draft_tokens == nullptr) continue;
      request.draft_tokens->clear();
      // Forced tokens of a constrained answer are not in the target's caches yet.
      const bool caught_up = request.target->offset() + 1 == std::ssize(request.tokens);
      if (!caught_up || request.hidden.empty() || request.target->offset() == 0) continue;
      const auto view = cache_.View(*request.target);
      if (!view) continue;
      hidden_.assign(request.hidden.begin(), request.hidden.end());
      TokenId token = request.tokens.back();
      for (int32_t i = 0; i < request.num_draft_tokens; ++i) {
        head_->Draft(**view, pool, token, hidden_, logits_);
        token = static_cast<TokenId>(std::ranges::max_element(logits_) - logits_.begin());
        request.draft_tokens->push_back(token);
      }
    }
  }

 private:
  std::unique_ptr<models::DraftModel> head_;
  cache::HybridCache& cache_;
  std::vector<float> logits_, hidden_;
};

}  // namespace

std::unique_ptr<Drafter> MakeHeadDrafter(std::unique_ptr<models::DraftModel> head, int32_t vocab,
                                         cache::HybridCache& cache) {
  return std::make_unique<HeadDrafter>(std::move(head), vocab, cache);
}

}  // namespace quire::runner::draft
