#include "tests/golden/draft_verification.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "runner/draft/drafters.h"
#include "runner/draft/ngram_index.h"
#include "runner/models/draft_model.h"
#include "runner/weights/model_files.h"
#include "runner/weights/quantized_checkpoint.h"
#include "tests/golden/golden_arrays.h"

namespace quire::runner::golden {
namespace {

using models::TokenId;

constexpr size_t kDrafterBytes = size_t{256} << 20;  // caches of a drafter; taken as they are used
constexpr size_t kCatchUpTokens = 512;               // that a drafter computes in a call, at least

// The answer to a prompt without any draft.
struct PlainAnswer {
  std::vector<TokenId> tokens;             // the prompt and the answer
  std::vector<std::vector<float>> logits;  // [vocab] behind the prompt and behind each token of the answer
  StateDump states;                        // behind all
};

class Verification {
 public:
  Verification(GoldenRun& target, draft::Drafter* drafter, ThreadPool& pool)
      : target_(target), drafter_(drafter), pool_(pool) {}

  void Prompt(std::span<const TokenId> ids, size_t i) {
    const PlainAnswer plain = Answer(ids);
    cache::Sequence shared = target_.cache().NewSequence();
    tokens_.assign(ids.begin(), ids.end());
    ngrams_.Clear();
    Evaluated last = target_.Append(shared, ids, 1);
    std::unique_ptr<draft::DraftState> state;
    if (drafter_ != nullptr)
      state = drafter_->CreateState({.isolation = {}, .tokens = tokens_, .boundaries = {}});
    for (size_t position = 0; position < kVerifiedTokens; ++position) {
      Check(last.logits == plain.logits[position]);
      tokens_.push_back(Argmax(last.logits));
      std::string line = fmt::format("p{}@{}: prompt lookup {}", i, tokens_.size() - 1,
                                     Score(shared, Lookup(), plain, position, result_.lookup));
      if (drafter_ != nullptr) {
        const auto drafts = Propose(*state, shared, last.hidden);
        line += fmt::format(", {} {}", drafter_->architecture(),
                            Score(shared, drafts, plain, position, result_.drafter));
      }
      result_.lines.push_back(std::move(line));
      last = target_.Append(shared, std::span(tokens_).last(1), 1);
    }
    Check(last.logits == plain.logits.back() && tokens_ == plain.tokens &&
          target_.States(shared) == plain.states);
    if (drafter_ != nullptr) drafter_->End(std::move(state), tokens_);
  }
  DraftVerification result() && { return std::move(result_); }

 private:
  void Check(bool same) { result_.bit_identical = result_.bit_identical && same; }

  PlainAnswer Answer(std::span<const TokenId> ids) {
    cache::Sequence sequence = target_.cache().NewSequence();
    PlainAnswer plain{.tokens = {ids.begin(), ids.end()}, .logits = {}, .states = {}};
    plain.logits.push_back(target_.Append(sequence, ids, 1).logits);
    for (size_t position = 0; position < kVerifiedTokens; ++position) {
      plain.tokens.push_back(Argmax(plain.logits.back()));
      plain.logits.push_back(target_.Append(sequence, std::span(plain.tokens).last(1), 1).logits);
    }
    plain.states = target_.States(sequence);
    return plain;
  }

  std::vector<TokenId> Lookup() {
    std::vector<TokenId> drafts;
    ngrams_.Extend(tokens_);
    if (ngrams_.Find(tokens_, kDraftTokens, drafts) == 0) drafts.clear();
    return drafts;
  }

  // `hidden`: the target's states of the tokens since the last call.
  std::vector<TokenId> Propose(draft::DraftState& state, cache::Sequence& shared,
                               std::span<const float> hidden) {
    if (drafter_->required_hidden() == draft::RequiredHidden::kLast) {
      hidden = hidden.last(static_cast<size_t>(target_.model().hidden_size()));
    }
    std::vector<TokenId> drafts;
    const draft::DraftRequest request{.state = &state,
                                      .tokens = tokens_,
                                      .target = &shared,
                                      .hidden = hidden,
                                      .num_draft_tokens = kDraftTokens,
                                      .draft_tokens = &drafts};
    for (size_t from = 0; drafts.empty() && from < tokens_.size(); from += kCatchUpTokens) {
      drafter_->ProposeDrafts({&request, 1}, pool_);
    }
    return drafts;
  }

  // Computes the newest token and the drafts on a fork of `shared`, which has all tokens but the newest.
  std::string Score(const cache::Sequence& shared, std::span<const TokenId> drafts, const PlainAnswer& plain,
                    size_t position, DraftVerification::Count& count) {
    auto isolated = target_.cache().SpeculateIsolated(shared);
    if (!isolated) {  // nothing is open on it, and it has all its state
      std::fputs(fmt::format("cache: {}\n", isolated.error().message).c_str(), stderr);
      std::abort();
    }
    std::vector<TokenId> rows = {tokens_.back()};
    rows.insert(rows.end(), drafts.begin(), drafts.end());
    const std::vector<float> logits = target_.Append(isolated->sequence(), rows, rows.size()).logits;
    const auto width = static_cast<size_t>(target_.model().vocab_size());
    const auto row = [&](size_t r) { return std::span(logits).subspan(r * width, width); };
    size_t accepted = 0;
    while (accepted < drafts.size() && drafts[accepted] == Argmax(row(accepted))) ++accepted;
    for (size_t r = 0; r <= accepted && position + 1 + r < plain.logits.size(); ++r) {
      Check(std::ranges::equal(row(r), plain.logits[position + 1 + r]));
    }
    count.proposed += drafts.size();
    count.accepted += accepted;
    return fmt::format("{}/{} [{}]{}{}", accepted, drafts.size(), fmt::join(drafts.first(accepted), " "),
                       accepted < drafts.size() ? " " : "", fmt::join(drafts.subspan(accepted), " "));
  }

  GoldenRun& target_;
  draft::Drafter* const drafter_;
  ThreadPool& pool_;
  draft::NgramIndex ngrams_;
  std::vector<TokenId> tokens_;  // of the prompt at hand and its answer so far
  DraftVerification result_;
};

}  // namespace

std::string DraftVerification::Verdict() const {
  return fmt::format("drafts: {} prompt lookup {}/{} accepted, drafter {}/{}",
                     bit_identical ? "PASS" : "FAIL", lookup.accepted, lookup.proposed, drafter.accepted,
                     drafter.proposed);
}

api::Result<DraftPrompts> ReadDraftPrompts(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / "golden.json";
  const auto json = ReadGoldenJson(path);
  if (!json) return std::unexpected(json.error());
  DraftPrompts read;
  const auto none = nlohmann::ordered_json();
  const auto list = json->is_object() ? json->value("prompts", none) : none;
  for (const auto& prompt : list) {
    const auto ids = Ids(prompt.is_object() ? prompt.value("ids", none) : none, int64_t{INT32_MAX} + 1);
    if (!list.is_array() || !ids || ids->empty()) {
      return api::Fail(api::ErrorCode::kBadModel, fmt::format("{}: a prompt has no ids", path.string()));
    }
    read.prompts.push_back(*ids);
  }
  if (read.prompts.empty())
    return api::Fail(api::ErrorCode::kBadModel, fmt::format("{}: no prompts", path.string()));
  if (const auto target = json->value("draft_of", none); target.is_string())
    read.target = target.get<std::string>();
  return read;
}

api::Result<GoldenRun> OpenTarget(const std::filesystem::path& target, const DraftPrompts& prompts,
                                  ThreadPool& pool) {
  size_t longest = 0;
  TokenId largest = 0;
  for (const auto& ids : prompts.prompts) {
    longest = std::max(longest, ids.size());
    largest = std::max(largest, std::ranges::max(ids));
  }
  const size_t tokens = longest + kVerifiedTokens + kDraftTokens + 1;
  auto run = GoldenRun::Open(target, pool, 2, static_cast<int64_t>(tokens));
  if (run && largest >= run->model().vocab_size()) {
    return api::Fail(api::ErrorCode::kBadModel,
                     fmt::format("{} has {} tokens, but a prompt has the id {}", target.string(),
                                 run->model().vocab_size(), largest));
  }
  return run;
}

api::Result<std::unique_ptr<draft::Drafter>> OpenDrafter(const std::filesystem::path& model,
                                                         const std::filesystem::path& target_path,
                                                         GoldenRun& target) {
  auto files = weights::Open(model.empty() ? target_path : model);
  if (files) files = weights::ConvertCheckpoint(*std::move(files), 1);
  if (!files) return std::unexpected(files.error());
  const int32_t vocab = target.model().vocab_size();
  if (model.empty()) {
    auto layer = models::LoadMtpLayer(*std::move(files), target.model());
    if (!layer) return std::unexpected(layer.error());
    if (*layer == nullptr) return nullptr;
    return draft::MakeMtpDrafter(*std::move(layer), vocab, target.model().hidden_size(), kDrafterBytes);
  }
  if (models::IsDraftModel(**files)) {
    auto head = models::LoadDraftModel(*std::move(files), target.model());
    if (!head) return std::unexpected(head.error());
    return draft::MakeHeadDrafter(*std::move(head), vocab, target.cache());
  }
  auto small = models::LoadModel(*std::move(files));
  if (!small) return std::unexpected(small.error());
  return draft::MakeModelDrafter(*std::move(small), vocab, kDrafterBytes);
}

DraftVerification VerifyDrafts(GoldenRun& target, draft::Drafter* drafter, const DraftPrompts& prompts,
                               ThreadPool& pool) {
  Verification verification(target, drafter, pool);
  for (size_t i = 0; i < prompts.prompts.size(); ++i) verification.Prompt(prompts.prompts[i], i);
  return std::move(verification).result();
}

}  // namespace quire::runner::golden
