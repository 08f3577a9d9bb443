#include "cache/sequence.h"

#include <utility>

#include "cache/check.h"
#include "cache/sequence_state.h"

namespace quire::cache {

Sequence::Sequence() = default;
Sequence::Sequence(std::unique_ptr<SequenceState> state) : state_(std::move(state)) {}
Sequence::Sequence(Sequence&& other) noexcept = default;

Sequence& Sequence::operator=(Sequence&& other) noexcept {
  QUIRE_CACHE_CHECK(state_ == nullptr || (!state_->in_step && !state_->draft));
  state_ = std::move(other.state_);
  return *this;
}

Sequence::~Sequence() { QUIRE_CACHE_CHECK(state_ == nullptr || (!state_->in_step && !state_->draft)); }

Position Sequence::offset() const { return state_->held.offset(); }
bool Sequence::ready() const { return state_->held.complete(); }

}  // namespace quire::cache
