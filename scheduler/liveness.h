// Whether a runner goes on: when it last said something, and when what it says last showed progress.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>

#include "api/ipc/messages.h"
#include "scheduler/plan.h"

namespace quire::scheduler {

// Belongs to one runner. I/O thread only. Pure: times are given.
class Liveness {
 public:
  // `timeout`: without a frame or progress; <= 0: never.
  explicit Liveness(std::chrono::nanoseconds timeout) : timeout_(timeout) {}

  void RecordFrame(Time now) { last_frame_at_ = now; }
  // With the last frame.
  void Record(const api::ipc::Heartbeat& heartbeat) {
    if (heartbeat.progress != heartbeat_.progress) last_progress_at_ = last_frame_at_;
    heartbeat_ = heartbeat;
  }
  // From now on it has to show progress.
  void StartService(Time now) {
    last_progress_at_ = now;
    serves_ = true;
  }
  void EndService() { serves_ = false; }

  const api::ipc::Heartbeat& heartbeat() const { return heartbeat_; }  // the last
  // The last frame; while it serves, the last progress.
  Time last_activity() const {
    return serves_ ? std::min(last_frame_at_, last_progress_at_) : last_frame_at_;
  }
  Time StalledAt() const {
    const Time since = last_activity();
    if (timeout_ <= timeout_.zero() || timeout_ > Time::max() - since) return Time::max();
    return since + std::chrono::duration_cast<Time::duration>(timeout_);
  }
  // No frame came, where else only the progress is missing.
  bool IsSilent(Time now) const { return now - last_frame_at_ > timeout_ / 2; }
  void RecordHang() {
    // A runner that goes on shows it within this time (Heartbeat::progress). Where it hung later, nobody is
    // blamed.
    constexpr std::chrono::seconds kProgressInterval{2};
    // One that is stuck in a preparation shows progress until that is plain.
    constexpr std::chrono::seconds kStuckUnseen{10};
    hung_ = {last_activity() - kStuckUnseen, last_activity() + kProgressInterval};
  }
  const std::optional<DeathTime>& hung() const { return hung_; }

 private:
  const std::chrono::nanoseconds timeout_;
  Time last_frame_at_{};     // of any frame
  Time last_progress_at_{};  // of the last heartbeat with another progress
  bool serves_ = false;
  api::ipc::Heartbeat heartbeat_;
  std::optional<DeathTime> hung_;
};

}  // namespace quire::scheduler
