// The events of one request between the runner that reports them and the client that takes them.
//
// Invariants: TextDeltas of kInitialCredit and one more at most, one PrefillProgress (the last) and
// kQueuedBytesMax bytes are held, whatever the runner sends: more bytes end the request, whose client is that
// far behind. Token ids are held until the end, for another runner: no more than the request's tokens. The
// order is PromptReady, PrefillProgress*, TextDelta*, then one Finished or Failed, after which nothing is
// taken in. That holds across runners: what a second one says is what the first one would have said next.
// Pure; not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "api/base/error.h"
#include "api/base/event.h"
#include "api/ipc/messages.h"

namespace quire::scheduler {

// The runner broke the protocol: it cannot be trusted with anything further.
inline std::unexpected<api::Error> ProtocolError(std::string what) {
  return api::Fail(api::ErrorCode::kRunnerDied, std::move(what));
}

class EventQueue {
 public:
  // A client this far behind is given new credit in one frame rather than delta by delta.
  static constexpr int32_t kCreditBatch = api::ipc::kInitialCredit / 4;
  static constexpr size_t kQueuedBytesMax = size_t{32} << 20;

  // Tokens that the answer may have, of kAnswerTokensMax; a runner that sends more breaks the protocol.
  void set_tokens_max(int64_t tokens_max) { tokens_max_ = tokens_max; }
  // From the runner. An error says how it broke the protocol; the queue is then as before. What exceeds the
  // bytes that may be held ends the request with an error of its own: the runner is not at fault.
  api::Result<void> Push(api::Event event);
  // From our side: the request ends with this error, after what is queued. Nothing happens if it has ended.
  void Fail(api::Error error);

  std::optional<api::Event> Pop();
  // The credit of deltas popped since the last grant, once they make a batch, and 0 before. A positive answer
  // must reach the runner.
  int32_t PopCredit();

  bool ended() const { return ended_; }  // Finished or Failed was pushed, popped or not
  size_t tokens_held() const { return tokens_.size(); }

  // The runner is gone and another takes the request over: where it is to go on. From now on a second
  // PromptReady is not passed on. REQUIRES: not ended.
  api::ipc::Resume ResumePoint();
  // The runner that reports now has said something new: a delta, or the end.
  bool progressed() const { return progressed_; }
  bool has_credit() const { return credit_ > 0; }

 private:
  void PushProgress(api::PrefillProgress progress);
  void Append(api::Event event, size_t bytes);
  api::Result<void> CheckTokens(const api::TextDelta& delta) const;
  void End();

  std::deque<api::Event> events_;
  size_t bytes_ = 0;
  int32_t credit_ = api::ipc::kInitialCredit;  // for deltas that the runner may still send
  int32_t popped_ = 0;                         // deltas popped since the last grant
  int64_t deltas_ = 0;                         // pushed
  int64_t tokens_max_ = api::ipc::kAnswerTokensMax;
  int64_t token_count_ = 0;                         // of the deltas pushed
  std::vector<api::TokenId> tokens_;                // likewise, until the end
  std::optional<api::ResumeState> state_;           // before the last of them
  std::optional<api::ResumeState> state_at_shift_;  // where the context was full first
  bool prompt_ready_ = false;                       // from this runner
  bool prompt_reported_ = false;                    // from any
  bool progressed_ = false;
  bool ended_ = false;
};

}  // namespace quire::scheduler
