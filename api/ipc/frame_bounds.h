// How large a frame may be, by its type. The daemon does not trust a runner: a frame beyond these bounds is
// refused by its header, and what is within them is decoded in less than 0.1 s and 300 MiB.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "api/ipc/messages.h"

namespace quire::api::ipc {

// Apart from each other, so that a frame sent the wrong way is refused.
inline constexpr uint16_t kFirstTypeToRunner = 1;
inline constexpr uint16_t kFirstTypeToDaemon = 101;

struct FrameBounds {
  size_t bytes = 0;   // of the payload
  size_t values = 0;  // of MessagePack, keys counted
};

// Nothing: the receiver takes no such frame.
std::optional<FrameBounds> BoundsOf(Receiver receiver, uint16_t type);

// What is sent in the place of a message whose frame would be too large, as its receiver waits for an answer.
// Nothing: no sender has such a message.
std::optional<ToDaemon> InsteadOf(const ToDaemon& message);

}  // namespace quire::api::ipc
