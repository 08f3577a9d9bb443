#include "server/fleet/spop.h"

#include <gtest/gtest.h>

namespace quire::server::spop {
namespace {

// As HAProxy 2.6 writes it: a text's length, then the text; below 240 a length is one byte.
std::string Text(std::string_view text) {
  std::string out;
  const size_t size = text.size();
  if (size < 240) {
    out += static_cast<char>(size);
  } else {  // up to 2,287: one further byte
    out += static_cast<char>(static_cast<unsigned char>(size | 240));
    out += static_cast<char>((size - 240) >> 4);
  }
  return out.append(text);
}

std::string TextArgument(std::string_view name, std::string_view text) {
  return Text(name) + "\x08" + Text(text);
}

std::string Notify(std::string_view payload) {
  return std::string("\x03\x00\x00\x00\x01\x05\x07", 7).append(payload);
}

TEST(Spop, GreetsHaproxy) {
  const std::string payload = TextArgument("supported-versions", "2.0") + Text("max-frame-size") +
                              std::string("\x03\xfc\xf0\x06", 4) +
                              TextArgument("capabilities", "pipelining") + Text("healthcheck") + "\x11";
  const auto hello = ParseHello(payload);
  ASSERT_TRUE(hello.has_value()) << hello.error().message;
  EXPECT_EQ(hello->frame_bytes_max, 16380U);
  EXPECT_TRUE(hello->health_check);
  EXPECT_EQ(ParseHello(TextArgument("supported-versions", "1.0")).error().code, api::ErrorCode::kUnsupported);
  EXPECT_TRUE(ParseHello(TextArgument("supported-versions", "1.0, 2.1")).has_value());

  const std::string reply = EncodeHello(16380);
  EXPECT_EQ(ParseLength(reply), reply.size() - kLengthBytes);
  const auto frame = ParseFrame(std::string_view(reply).substr(kLengthBytes));
  ASSERT_TRUE(frame.has_value());
  EXPECT_EQ(frame->type, FrameType::kAgentHello);
  EXPECT_NE(frame->payload.find(std::string("max-frame-size\x03\xfc\xf0\x06", 18)), std::string_view::npos);
}

TEST(Spop, ReadsArgumentsAndSetsAVariable) {
  const std::string body(1000, 'x');
  const std::string bytes =
      Notify(Text("pick") + std::string("\x03") + TextArgument("body", body) + Text("key") +
             std::string(1, '\0') + Text("number") + std::string("\x04\x2a"));
  const auto frame = ParseFrame(bytes);
  ASSERT_TRUE(frame.has_value()) << frame.error().message;
  EXPECT_EQ(frame->stream_id, 5U);
  EXPECT_EQ(frame->frame_id, 7U);
  const auto arguments = ParseNotify(frame->payload);
  ASSERT_TRUE(arguments.has_value());
  EXPECT_EQ(arguments->at("body"), body);
  EXPECT_EQ(arguments->at("key"), "");
  EXPECT_EQ(arguments->at("number"), "");

  const std::string ack = EncodeAck(*frame, "node", "two");
  EXPECT_EQ(ack.substr(kLengthBytes), std::string("\x67\x00\x00\x00\x01\x05\x07\x01\x03\x02", 10) +
                                          Text("node") + "\x08" + Text("two"));
  EXPECT_EQ(EncodeAck(*frame, "", "").substr(kLengthBytes), std::string("\x67\x00\x00\x00\x01\x05\x07", 7));
}

TEST(Spop, EveryTruncationIsRefusedOrShorter) {
  const std::string bytes = Notify(Text("pick") + std::string("\x02") + TextArgument("body", "0123456789") +
                                   TextArgument("key", "k"));
  for (size_t size = 0; size < bytes.size(); ++size) {
    const auto frame = ParseFrame(std::string_view(bytes).substr(0, size));
    if (!frame) continue;
    if (const auto arguments = ParseNotify(frame->payload)) {
      EXPECT_TRUE(arguments->empty()) << size;
    }
  }
}

TEST(Spop, RefusesFragmentsUnknownTypesAndEndlessNumbers) {
  EXPECT_FALSE(ParseFrame(std::string("\x03\x00\x00\x00\x00\x05\x07", 7)).has_value());
  EXPECT_FALSE(ParseNotify(Text("pick") + "\x01" + Text("a") + "\x0f" + "more").has_value());
  EXPECT_FALSE(ParseFrame(std::string("\x03\x00\x00\x00\x01", 5) + std::string(20, '\xff')).has_value());
}

}  // namespace
}  // namespace quire::server::spop
