#include "tests/golden/golden_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <utility>

#include "runner/weights/model_files.h"
#include "runner/weights/quantize_on_load.h"
#include "runner/weights/quantized_checkpoint.h"

namespace quire::runner::golden {

models::TokenId Argmax(std::span<const float> logits) {
  return static_cast<models::TokenId>(std::ranges::max_element(logits) - logits.begin());
}

float MaxAbsDifference(std::span<const float> a, std::span<const float> b) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  if (a.size() != b.size()) return kInfinity;
  float largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const float difference = std::abs(a[i] - b[i]);
    if (std::isnan(difference)) return kInfinity;
    largest = std::max(largest, difference);
  }
  return largest;
}

api::Result<GoldenRun> GoldenRun::Open(const std::filesystem::path& path, ThreadPool& pool, int32_t sequences,
                                       int64_t tokens, api::KvType kv_type, std::string_view quantize) {
  auto files = weights::Open(path);
  if (files) files = weights::ConvertCheckpoint(*std::move(files), 1);
  if (files && !quantize.empty()) files = weights::QuantizeOnLoad(*std::move(files), quantize, 1);
  if (!files) return std::unexpected(files.error());
  auto model = models::LoadModel(std::move(*files), kv_type);
  if (!model) return std::unexpected(model.error());
  (*model)->SetContext(tokens);
  const cache::Layout& layout = (*model)->cache_layout();
  // A restored sequence lives beside the one that the snapshots are of, each of which may hold a slot.
  cache::Capacity capacity{.slots = 2 * sequences + static_cast<int32_t>(std::min<int64_t>(tokens, 1 << 16))};
  const int64_t pages = (tokens / layout.page_tokens + 2) * (sequences + 1);
  capacity.pages.assign(layout.groups.size(), static_cast<int32_t>(std::min<int64_t>(pages, INT32_MAX)));
  auto cache = cache::HybridCache::Create(layout, capacity);
  if (!cache) return api::Fail(api::ErrorCode::kInternal, "cache: " + cache.error().message);
  return GoldenRun(std::move(*model), std::move(*cache), pool);
}

size_t GoldenRun::WithoutCut(size_t end) const {
  if (images_ == nullptr || !model_->image_rules().both_ways) return end;
  for (const ImageRows& image : images_->rows) {
    if (static_cast<size_t>(image.begin) < end && end < static_cast<size_t>(image.end)) {
      return static_cast<size_t>(image.end);
    }
  }
  return end;
}

// What of the part's images lies in its rows, which are the last ones of the batch.
void GoldenRun::AddImages(const Part& part, models::Batch* batch) const {
  const int32_t first = batch->row_begin[batch->row_begin.size() - 2],
                count = batch->row_begin.back() - first;
  const auto offset = static_cast<int32_t>(part.sequence->offset());
  const auto width = static_cast<size_t>(model_->hidden_size());
  for (const ImageRows& image : part.images->rows) {
    const int32_t begin = std::max(image.begin, offset), end = std::min(image.end, offset + count);
    if (begin >= end) continue;
    const auto rows_of = [&](const std::vector<float>& all) {
      const auto skipped = static_cast<size_t>(begin - image.begin), kept = static_cast<size_t>(end - begin);
      return std::span(all).subspan(skipped * width, kept * width);
    };
    models::EmbeddedRows rows{.begin = first + begin - offset,
                              .end = first + end - offset,
                              .embeddings = rows_of(image.embeddings)};
    for (const std::vector<float>& added : image.behind_layers) rows.behind_layers.push_back(rows_of(added));
    for (int32_t row = rows.begin; row < rows.end; ++row) {
      batch->tokens[static_cast<size_t>(row)] = -1;  // nobody looks at it
      if (!batch->seen_end.empty()) batch->seen_end[static_cast<size_t>(row)] = image.end;
    }
    batch->embedded.push_back(std::move(rows));
  }
}

// Behind the prompt, positions count up from the largest one on.
void GoldenRun::AddPositions(const Part& part, models::Batch* batch) const {
  const PromptImages none, &images = part.images != nullptr ? *part.images : none;
  int64_t largest = -1;
  for (const auto& axis : images.positions) {
    for (const int64_t position : axis) largest = std::max(largest, position);
  }
  const auto offset = static_cast<size_t>(part.sequence->offset());
  for (size_t i = offset; i < offset + part.tokens.size(); ++i) {
    for (size_t axis = 0; axis < images.positions.size(); ++axis) {
      const std::vector<int64_t>& given = images.positions[axis];
      const auto behind = largest + 1 + static_cast<int64_t>(i - std::min(i, given.size()));
      batch->rope_positions[axis].push_back(i < given.size() ? given[i] : behind);
    }
  }
}

std::vector<float> GoldenRun::Step(std::span<const Part> parts, models::ActivationHook* hook,
                                   std::vector<float>* hidden) {
  models::Batch batch;
  std::vector<cache::Append> appends;
  const models::ImageRules rules = model_->image_rules();
  const bool images = std::ranges::any_of(parts, [](const Part& part) { return part.images != nullptr; });
  batch.row_begin.push_back(0);
  for (const Part& part : parts) {
    const int32_t begin = batch.row_begin.back();
    batch.tokens.insert(batch.tokens.end(), part.tokens.begin(), part.tokens.end());
    batch.row_begin.push_back(begin + static_cast<int32_t>(part.tokens.size()));
    for (const int32_t row : part.logit_rows) batch.logit_rows.push_back(begin + row);
    const int32_t end = batch.row_begin.back();
    const int32_t first_hidden = part.all_hidden ? begin : (part.last_hidden ? end - 1 : end);
    for (int32_t row = first_hidden; row < end; ++row) batch.hidden_rows.push_back(row);
    appends.push_back({.sequence = part.sequence, .tokens = static_cast<int32_t>(part.tokens.size())});
    const auto offset = static_cast<int32_t>(part.sequence->offset());
    for (int32_t row = begin; images && rules.both_ways && row < end; ++row) {
      batch.seen_end.push_back(offset + row - begin + 1);
    }
    if (images && rules.grid_positions) AddPositions(part, &batch);
    if (part.images != nullptr) AddImages(part, &batch);
  }
  std::vector<float> states(batch.hidden_rows.size() * static_cast<size_t>(model_->hidden_size()));
  std::vector<float> logits(batch.logit_rows.size() * static_cast<size_t>(model_->vocab_size()));
  auto step = cache_->Begin(appends);
  if (!step) {  // Open() made room for all that is asked for here
    std::fputs(fmt::format("cache: {}\n", step.error().message).c_str(), stderr);
    std::abort();
  }
  model_->Forward(batch, **step, *pool_, {logits, states}, hook);
  (*step)->Commit();
  if (hidden != nullptr) *hidden = std::move(states);
  return logits;
}

PromptRun GoldenRun::RunPrompt(std::span<const models::TokenId> ids, std::span<const int32_t> rows,
                               size_t steps, size_t chunk, models::ActivationHook* hook) {
  cache::Sequence sequence = cache_->NewSequence();
  const auto width = static_cast<size_t>(model_->vocab_size());
  if (chunk == 0) chunk = ids.size();
  PromptRun run;
  for (size_t from = 0, end = 0; from < ids.size(); from = end) {
    end = WithoutCut(std::min(from + chunk, ids.size()));
    Part part{
        .sequence = &sequence,
        .tokens = {ids.begin() + static_cast<ptrdiff_t>(from), ids.begin() + static_cast<ptrdiff_t>(end)},
        .logit_rows = {},
        .images = images_};
    for (const int32_t row : rows) {
      const auto at = static_cast<size_t>(row);
      if (at >= from && at < end) part.logit_rows.push_back(static_cast<int32_t>(at - from));
    }
    const size_t wanted = part.logit_rows.size();
    const auto last = static_cast<int32_t>(end - from) - 1;
    if (part.logit_rows.empty() || part.logit_rows.back() != last) part.logit_rows.push_back(last);
    const std::vector<float> logits = Step(std::span(&part, 1), hook);
    run.logits.insert(run.logits.end(), logits.begin(),
                      logits.begin() + static_cast<ptrdiff_t>(wanted * width));
    run.last_logits.assign(logits.end() - static_cast<ptrdiff_t>(width), logits.end());
  }
  for (size_t step = 0; step < steps; ++step) {
    run.greedy.push_back(Argmax(run.last_logits));
    const Part part{
        .sequence = &sequence, .tokens = {run.greedy.back()}, .logit_rows = {0}, .images = images_};
    run.last_logits = Step(std::span(&part, 1));
  }
  return run;
}

std::vector<std::vector<models::TokenId>> GoldenRun::Continue(
    std::span<const std::vector<models::TokenId>> prompts, std::span<const models::TokenId> stop,
    size_t steps_max) {
  std::vector<std::vector<models::TokenId>> results(prompts.size());
  std::vector<cache::Sequence> sequences;
  std::vector<Part> parts;
  std::vector<size_t> owners;  // prompt of each part
  for (size_t i = 0; i < prompts.size(); ++i) sequences.push_back(cache_->NewSequence());
  for (size_t i = 0; i < prompts.size(); ++i) {
    parts.push_back({&sequences[i], prompts[i], {static_cast<int32_t>(prompts[i].size()) - 1}});
    owners.push_back(i);
  }
  const auto width = static_cast<size_t>(model_->vocab_size());
  while (!parts.empty()) {
    const std::vector<float> logits = Step(parts);
    std::vector<Part> next;
    std::vector<size_t> next_owners;
    for (size_t i = 0; i < parts.size(); ++i) {
      const models::TokenId id = Argmax(std::span(logits).subspan(i * width, width));
      std::vector<models::TokenId>& result = results[owners[i]];
      if (std::ranges::find(stop, id) != stop.end()) continue;
      result.push_back(id);
      if (result.size() >= steps_max) continue;
      next.push_back({parts[i].sequence, {id}, {0}});
      next_owners.push_back(owners[i]);
    }
    parts = std::move(next);
    owners = std::move(next_owners);
  }
  return results;
}

void GoldenRun::AfterPrompt(std::span<const models::TokenId> ids,
                            const std::function<void(const cache::StepView&, std::span<const float>)>& fn) {
  cache::Sequence sequence = cache_->NewSequence();
  const Part part{
      .sequence = &sequence, .tokens = {ids.begin(), ids.end()}, .logit_rows = {}, .last_hidden = true};
  std::vector<float> hidden;
  Step(std::span(&part, 1), nullptr, &hidden);
  fn(*cache_->View(sequence).value(), hidden);
}

std::vector<float> GoldenRun::HiddenStates(std::span<const models::TokenId> ids) {
  cache::Sequence sequence = cache_->NewSequence();
  return Append(sequence, ids, 0).hidden;
}

StateDump GoldenRun::States(std::span<const models::TokenId> ids) {
  cache::Sequence sequence = cache_->NewSequence();
  Append(sequence, ids, 0);
  return States(sequence);
}

StateDump GoldenRun::States(cache::Sequence& sequence) {
  return DumpStates(*model_, *cache_->View(sequence).value());
}

Evaluated GoldenRun::Append(cache::Sequence& sequence, std::span<const models::TokenId> ids,
                            size_t logit_rows) {
  Part part{.sequence = &sequence,
            .tokens = {ids.begin(), ids.end()},
            .logit_rows = {},
            .all_hidden = true,
            .images = images_};
  for (size_t row = ids.size() - logit_rows; row < ids.size(); ++row) {
    part.logit_rows.push_back(static_cast<int32_t>(row));
  }
  Evaluated evaluated;
  evaluated.logits = Step(std::span(&part, 1), nullptr, &evaluated.hidden);
  return evaluated;
}

std::vector<float> GoldenRun::RunTogether(std::span<const GoldenPrompt> prompts) {
  std::vector<cache::Sequence> sequences;
  std::vector<Part> parts;
  for (size_t i = 0; i < prompts.size(); ++i) sequences.push_back(cache_->NewSequence());
  for (size_t i = 0; i < prompts.size(); ++i) {
    const PromptImages& images = prompts[i].images;
    parts.push_back({.sequence = &sequences[i],
                     .tokens = prompts[i].ids,
                     .logit_rows = prompts[i].logit_rows,
                     .images = images.rows.empty() ? nullptr : &images});
  }
  return Step(parts);
}

bool GoldenRun::GoesOnAlike(const cache::Snapshot& snapshot, std::span<const models::TokenId> ids,
                            std::span<const float> logits) {
  cache::Sequence restored = cache_->NewSequence();
  const auto at = cache_->Restore(restored, snapshot);
  if (!at || *at != snapshot.to()) return false;
  const auto offset = static_cast<size_t>(*at);
  const auto expected = logits.subspan(offset * static_cast<size_t>(model_->vocab_size()));
  return std::ranges::equal(Append(restored, ids.subspan(offset), ids.size() - offset).logits, expected);
}

RestoreCheck GoldenRun::RestoreAtEveryOffset(std::span<const models::TokenId> ids) {
  cache::Sequence sequence = cache_->NewSequence();
  for (size_t offset = 1; offset < ids.size(); ++offset) {
    if (WithoutCut(offset) != offset) continue;
    cache_->ScheduleCapture(sequence, static_cast<cache::Position>(offset)).value();
  }
  const std::vector<float> logits = Append(sequence, ids, ids.size()).logits;
  const std::vector<cache::Snapshot> captured = cache_->TakeCaptures(sequence);
  RestoreCheck check;
  const auto count = [&](bool same, size_t offset) {
    if (same) {
      ++check.same;
    } else {
      check.different.push_back(offset);
    }
  };
  for (size_t offset = 1; offset < ids.size(); ++offset) {
    if (WithoutCut(offset) != offset) continue;
    const auto found =
        std::ranges::find(captured, static_cast<cache::Position>(offset), &cache::Snapshot::to);
    count(found != captured.end() && GoesOnAlike(*found, ids, logits), offset);
    cache::Sequence cut = cache_->NewSequence();
    Append(cut, ids.first(offset), 0);
    count(GoesOnAlike(cache_->CaptureSnapshot(cut).value(), ids, logits), offset);
  }
  return check;
}

}  // namespace quire::runner::golden
