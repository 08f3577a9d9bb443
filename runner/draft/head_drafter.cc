#include "runner/draft/head_drafter.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace quire::runner::draft {
namespace {

class HeadDrafter final : public Drafter {
 public:
  HeadDrafter(std::unique_ptr<models::DraftModel> head, int32_t vocab, cache::HybridCache& cache)
      : head_(std::move(head)), cache_(cache), logits_(static_cast<size_t>(vocab)) {}

  const std::string& architecture() const override { return head_->architecture(); }
  int64_t weight_bytes() const override { return head_->weight_bytes(); }
  HiddenWanted hidden_wanted() const override { return HiddenWanted::kLast; }
  bool follows() const override { return false; }

  std::unique_ptr<Trail> Begin(const Beginning&) override { return std::make_unique<Trail>(); }
  void End(std::unique_ptr<Trail>, std::span<const TokenId>) override {}

  void Guess(std::span<const Wish> wishes, ThreadPool& pool) override {
    for (const Wish& wish : wishes) {
      if (wish.guesses == nullptr) continue;
      wish.guesses->clear();
      // Tokens that an answer's form left no choice about are not in the target's caches yet.
      const bool level = wish.target->offset() + 1 == std::ssize(wish.tokens);
      if (!level || wish.hidden.empty() || wish.target->offset() == 0) continue;
      const auto view = cache_.View(*wish.target);
      if (!view) continue;
      hidden_.assign(wish.hidden.begin(), wish.hidden.end());
      TokenId token = wish.tokens.back();
      for (int32_t i = 0; i < wish.depth; ++i) {
        head_->Draft(**view, pool, token, hidden_, logits_);
        token = static_cast<TokenId>(std::ranges::max_element(logits_) - logits_.begin());
        wish.guesses->push_back(token);
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
