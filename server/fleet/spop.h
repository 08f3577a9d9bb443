// HAProxy's Stream Processing Offload Protocol, version 2.0, as an agent speaks it: frames of one message with texts in,
// one variable out. No I/O.
//
// A frame is [length: 4 bytes, big-endian][type: 1][flags: 4, big-endian][stream id][frame id][payload]; numbers are
// variable-length, texts have their length first. Agents here announce no fragmentation: a frame is whole. Nothing that
// arrives is trusted: every length is checked against the bytes that are there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "api/base/error.h"

namespace quire::server::spop {

inline constexpr size_t kLengthBytes = 4;
inline constexpr size_t kFrameBytesMax = size_t{16}
                                         << 20;  // as an agent takes them; HAProxy's tune.bufsize is smaller

enum class FrameType : uint8_t {
  kHaproxyHello = 1,
  kHaproxyDisconnect = 2,
  kNotify = 3,
  kAgentHello = 101,
  kAgentDisconnect = 102,
  kAck = 103,
};

struct Frame {
  FrameType type = FrameType::kNotify;
  uint64_t stream_id = 0;
  uint64_t frame_id = 0;
  std::string_view payload = {};  // of the bytes that were parsed
};

// `bytes`: a frame behind its length. kInvalidArgument: not a frame, or a fragment of one.
api::Result<Frame> ParseFrame(std::string_view bytes);

// The first four bytes of a frame. REQUIRES: four bytes.
uint32_t ParseLength(std::string_view bytes);

struct Hello {
  uint64_t frame_bytes_max = 0;
  bool health_check = false;  // the connection ends behind the answer
};
// Of kHaproxyHello. kUnsupported: it does not speak version 2.
api::Result<Hello> ParseHello(std::string_view payload);

// The texts of all arguments of all messages of a kNotify, by name. Arguments that are no texts are empty.
api::Result<std::map<std::string, std::string>> ParseNotify(std::string_view payload);

// Whole frames, with their length.
std::string EncodeHello(uint64_t frame_bytes_max);
// Sets a variable of the transaction; an empty name sets none.
std::string EncodeAck(const Frame& notify, std::string_view variable, std::string_view value);
// `status`: 0 = regular, 3 = invalid frame, 4 = no version in common.
std::string EncodeDisconnect(uint32_t status, std::string_view message);

}  // namespace quire::server::spop
