#include "runner/engine/steps/engine_images.h"

#include <algorithm>
#include <span>
#include <tuple>
#include <utility>

namespace quire::runner::engine {

PromptImages::PromptImages(EngineState& state)
    : state_(state),
      encoder_(state.model.tower ? std::make_unique<ImageEncoder>(std::move(state.model.tower)) : nullptr) {}

bool PromptImages::Fit(const std::vector<ImageSpan>& images) const {
  return std::ranges::all_of(
      images, [this](const ImageSpan& span) { return encoder_ && encoder_->Fits(*span.image); });
}

// Ids of images are no tokens that a context could begin with or a draft repeat, and none is cut away.
void PromptImages::Set(std::vector<ImageSpan> images, api::Request& request, ActiveRequest& active) {
  if (images.empty()) return;
  active.images.encoded.resize(images.size());
  active.images.spans = std::move(images);
  active.waiting().images_ready = false;
  // Its id has 31 bits.
  const auto is_tiny = [](const ImageSpan& span) { return span.image->tokens() < 2; };
  if (std::ranges::any_of(active.images.spans, is_tiny)) active.reuses = false;
  request.shift = false;
  request.return_context = false;
  request.params.draft_num_predict = 0;
}

// Takes the embeddings that waiting requests need and that are there. What a prefix holds needs none.
void PromptImages::Collect() {
  if (!encoder_) return;
  for (const auto& request : state_.waiting) {
    auto& [spans, encoded, encodes_all] = request->images;
    if (request->waiting().images_ready || request->waiting().paused) continue;
    // Before anything is encoded that a lower tier holds.
    if (state_.prefixes.StandsAside(*request, state_.running)) continue;
    const int32_t reusable = encodes_all ? 0 : state_.prefixes.Reusable(*request, state_.running);
    bool ready = true;
    for (size_t i = 0; i < spans.size(); ++i) {
      if (spans[i].end() <= reusable || encoded[i]) continue;
      encoded[i] = encoder_->Find(*spans[i].image);
      ready = ready && encoded[i] != nullptr;
    }
    request->waiting().images_ready = ready;
  }
}

// Parties in the order of their virtual times. A party is charged for what is begun for it.
void PromptImages::StartPass() {
  std::vector<const ActiveRequest*> requests;
  for (const auto& request : state_.waiting) {
    const WaitingRequest& waits = request->waiting();
    if (!waits.images_ready && !waits.paused && !waits.tier_until) requests.push_back(request.get());
  }
  const auto order = [&](const ActiveRequest* request) {
    return std::tuple(state_.VirtualTime(request->party), request->arrival);
  };
  std::ranges::sort(requests, {}, order);
  std::vector<SharedImage> wanted;
  std::vector<const fair::PartyId*> parties;
  for (const ActiveRequest* request : requests) {
    const auto& [spans, encoded, encodes_all] = request->images;
    const int32_t reusable = encodes_all ? 0 : state_.prefixes.Reusable(*request, state_.running);
    for (size_t i = 0; i < spans.size(); ++i) {
      const ImageSpan& span = spans[i];
      if (span.end() <= reusable || encoded[i]) continue;
      const auto same = [&](const SharedImage& other) { return other->digest == span.image->digest; };
      if (std::ranges::any_of(wanted, same)) continue;
      wanted.push_back(span.image);
      parties.push_back(&request->party);
    }
  }
  if (wanted.empty()) return;
  const size_t begun = encoder_->Start(wanted);
  for (size_t i = 0; i < begun; ++i) state_.Charge(*parties[i], wanted[i]->tokens());
}

bool PromptImages::Encode() {
  if (!encoder_) return false;
  if (encoder_->idle()) StartPass();
  if (encoder_->idle()) return false;
  const auto kernels_before = state_.pool.busy();
  encoder_->Advance(state_.pool);
  kernel_time_ += state_.pool.busy() - kernels_before;
  return true;
}

// The images behind a prefix that was reused are there.
bool PromptImages::HasBehind(const ActiveRequest& request, int32_t reused) {
  const auto& [spans, encoded, encodes_all] = request.images;
  for (size_t i = 0; i < spans.size(); ++i) {
    if (spans[i].end() > reused && !encoded[i]) return false;
  }
  return true;
}

void PromptImages::Release(ActiveRequest& request) {
  auto& [spans, encoded, encodes_all] = request.images;
  for (size_t i = 0; i < spans.size(); ++i) {
    if (spans[i].end() <= request.generation->sequence().computed()) encoded[i] = nullptr;
  }
}

// Where rows of an image see each other, they are computed in one step: a step ends before an image or
// behind it.
void PromptImages::Align(std::vector<StepItem>& items) const {
  if (!state_.model.model->image_rules().both_ways) return;
  for (StepItem& item : items) {
    const ActiveRequest& request = *state_.running[item.sequence];
    const int32_t from = request.generation->sequence().computed(), to = from + item.tokens;
    for (const ImageSpan& span : request.images.spans) {
      if (span.begin >= to || span.end() <= to) continue;
      item.tokens = span.begin > from ? span.begin - from : span.end() - from;
      break;
    }
  }
}

// What the model needs of images in the rows of an item, which begin at `row`.
void PromptImages::AddRows(const ActiveRequest& request, int32_t row, int32_t rows,
                           models::Batch& batch) const {
  const int32_t from = request.generation->sequence().computed(), to = from + rows;
  for (size_t i = 0; i < request.images.spans.size(); ++i) {
    const ImageSpan& span = request.images.spans[i];
    const int32_t begin = std::max(span.begin, from), end = std::min(span.end(), to);
    if (begin >= end) continue;
    const EncodedImage& image = *request.images.encoded[i];
    const int32_t first = span.first + begin - span.begin;
    models::EmbeddedRows& embedded =
        batch.embedded.emplace_back(models::EmbeddedRows{.begin = row + begin - from,
                                                         .end = row + end - from,
                                                         .embeddings = image.Rows(0, first, end - begin)});
    for (size_t plane = 1; plane <= encoder_->deepstack(); ++plane) {
      embedded.behind_layers.push_back(image.Rows(plane, first, end - begin));
    }
    std::fill(batch.tokens.begin() + embedded.begin, batch.tokens.begin() + embedded.end, 0);
  }
}

// The same of all rows, where any of them is an image's or comes behind one.
void PromptImages::PlaceRows(const std::vector<StepItem>& items, models::Batch& batch) const {
  const models::ImageRules rules = state_.model.model->image_rules();
  const auto has_images = [&](const StepItem& item) {
    return !state_.running[item.sequence]->images.spans.empty();
  };
  if (std::ranges::none_of(items, has_images)) return;
  const bool sees = rules.both_ways && !batch.embedded.empty();
  for (size_t i = 0; i < items.size(); ++i) {
    const ActiveRequest& request = *state_.running[items[i].sequence];
    const int32_t from = request.generation->sequence().computed();
    const int32_t rows = batch.row_begin[i + 1] - batch.row_begin[i];
    if (rules.grid_positions) AppendRopePositions(request.images.spans, from, rows, batch.rope_positions);
    for (int32_t row = 0; sees && row < rows; ++row) batch.seen_end.push_back(from + row + 1);
    for (const ImageSpan& span : request.images.spans) {
      for (int32_t at = std::max(span.begin, from); sees && at < std::min(span.end(), from + rows); ++at)
        batch.seen_end[static_cast<size_t>(batch.row_begin[i] + at - from)] = span.end();
    }
  }
}

}  // namespace quire::runner::engine
