#include "cache/testing/test_rig.h"

#include <utility>

namespace quire::cache {

Rig::Rig(Layout layout, Capacity capacity) : layout_(layout) {
  auto cache = HybridCache::Create(std::move(layout), std::move(capacity));
  if (!cache) {
    ADD_FAILURE() << cache.error().message;
    std::abort();
  }
  cache_ = std::move(*cache);
  entries_.reserve(1000);  // appends hold pointers
}

size_t Rig::New() {
  entries_.push_back(Entry{cache_->NewSequence(), {}});
  return entries_.size() - 1;
}

size_t Rig::Fork(size_t source, Position at) {
  auto fork = cache_->Fork(entries_[source].sequence, at);
  EXPECT_TRUE(fork.has_value());
  const TokenList& from = entries_[source].tokens;
  entries_.push_back(Entry{std::move(*fork), TokenList(from.begin(), from.begin() + at)});
  CheckAll();
  return entries_.size() - 1;
}

size_t Rig::Restore(const Snapshot& snapshot, const TokenList& tokens, Position max_position) {
  const size_t i = New();
  const auto at = cache_->Restore(entries_[i].sequence, snapshot, max_position);
  EXPECT_TRUE(at.has_value()) << at.error().message;
  if (at) entries_[i].tokens.assign(tokens.begin(), tokens.begin() + *at);
  CheckAll();
  return i;
}

void Rig::Commit(size_t i, Speculation& draft, int32_t keep) {
  int32_t replayed = 0;
  const bool all = keep == draft.drafted();
  const auto done = draft.Commit(keep, [&](size_t layer, std::byte* slot, auto inputs, int32_t tokens) {
    ReplayTokens(layout_, layer, slot, inputs, tokens);
    replayed += layer == 0 ? tokens : 0;
  });
  EXPECT_TRUE(done.has_value()) << done.error().message;
  const bool replays = !layout_.recurrent.empty() && keep > 0 && !all;
  EXPECT_EQ(replayed, replays ? keep : 0);
  entries_[i].tokens.resize(static_cast<size_t>(draft.base() + keep));
  CheckAll();
}

void Rig::RemoveRange(size_t i, Position begin, Position end) {
  const auto done = cache_->RemoveRange(entries_[i].sequence, begin, end,
                                        [&](const MovedKeys& moved) { RotateFakeKeys(layout_, moved); });
  EXPECT_TRUE(done.has_value()) << done.error().message;
  TokenList& tokens = entries_[i].tokens;
  tokens.erase(tokens.begin() + begin, tokens.begin() + end);
  CheckAll();
}

void Rig::Truncate(size_t i, Position at) {
  const auto done = cache_->Truncate(entries_[i].sequence, at);
  EXPECT_TRUE(done.has_value()) << done.error().message;
  entries_[i].tokens.resize(static_cast<size_t>(at));
  CheckAll();
}

std::vector<quire::cache::Append> Rig::Appends(const Batch& batch) {
  std::vector<quire::cache::Append> appends;
  for (const auto& [i, tokens] : batch) appends.push_back({&entries_[i].sequence, tokens});
  return appends;
}

void Rig::Run(Step& step, const Batch& batch, std::vector<TokenList> tokens, bool commit) {
  EXPECT_EQ(RunStep(layout_, step, tokens), "");
  if (!commit) return;
  step.Commit();
  for (size_t k = 0; k < batch.size(); ++k) entries_[batch[k].first].tokens = std::move(tokens[k]);
}

void Rig::Append(const Batch& batch) {
  std::vector<TokenList> tokens;
  for (const auto& [i, count] : batch) {
    tokens.push_back(entries_[i].tokens);
    for (int32_t k = 0; k < count; ++k) tokens.back().push_back(next_token_++);
  }
  auto step = cache_->Begin(Appends(batch));
  ASSERT_TRUE(step.has_value()) << step.error().message;
  Run(**step, batch, std::move(tokens), true);
  step->reset();
  CheckAll();
}

void Rig::AppendTokens(size_t i, const TokenList& tokens) {
  const Batch batch = {{i, static_cast<int32_t>(tokens.size())}};
  TokenList all = entries_[i].tokens;
  all.insert(all.end(), tokens.begin(), tokens.end());
  auto step = cache_->Begin(Appends(batch));
  ASSERT_TRUE(step.has_value()) << step.error().message;
  Run(**step, batch, {all}, true);
  step->reset();
  CheckAll();
}

void Rig::CancelledAppend(const Batch& batch) {
  std::vector<TokenList> tokens;
  for (const auto& [i, count] : batch) {
    tokens.push_back(entries_[i].tokens);
    tokens.back().resize(tokens.back().size() + static_cast<size_t>(count), -7);
  }
  auto step = cache_->Begin(Appends(batch));
  ASSERT_TRUE(step.has_value()) << step.error().message;
  Run(**step, batch, std::move(tokens), false);
  step->reset();
  CheckAll();
}

Error Rig::AppendFails(const Batch& batch) {
  auto step = cache_->Begin(Appends(batch));
  EXPECT_FALSE(step.has_value());
  CheckAll();
  return step.has_value() ? Error{} : step.error();
}

Demand Rig::Need(const Batch& batch) { return cache_->Need(Appends(batch)); }

void Rig::CheckAll() {
  const auto ok = cache_->CheckInvariants();
  EXPECT_TRUE(ok.has_value()) << ok.error();
  for (size_t i = 0; i < entries_.size(); ++i) {
    Entry& entry = entries_[i];
    if (!entry.sequence) continue;
    EXPECT_EQ(entry.sequence.offset(), static_cast<Position>(entry.tokens.size()));
    if (!entry.sequence.ready()) continue;
    const auto view = cache_->View(entry.sequence);
    ASSERT_TRUE(view.has_value());
    const TokenList seen(entry.tokens.begin(), entry.tokens.begin() + (*view)->offset(0));
    EXPECT_EQ(CheckVisible(layout_, **view, 0, seen), "") << "sequence " << i;
    EXPECT_EQ(CheckState(layout_, **view, 0, seen), "") << "sequence " << i;
  }
}

}  // namespace quire::cache
