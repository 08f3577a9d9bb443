#include "server/fleet/picker_agent.h"

#include <fmt/format.h>
#include <signal.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <exception>
#include <map>
#include <optional>
#include <utility>

#include "server/fleet/node_picker.h"
#include "server/fleet/prompt_chain.h"
#include "server/fleet/spop.h"

namespace quire::server {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using Clock = std::chrono::steady_clock;

constexpr auto kAgentResult = asio::as_tuple(asio::use_awaitable);
constexpr uint32_t kInvalidFrame = 3;
constexpr uint32_t kNoVersion = 4;
constexpr size_t kConnectionsMax = 1024;

std::vector<std::string> NamesOf(const std::vector<FleetNode>& nodes) {
  std::vector<std::string> names;
  names.reserve(nodes.size());
  for (const FleetNode& node : nodes) names.push_back(node.name);
  return names;
}

std::string_view TextOf(const std::map<std::string, std::string>& arguments, const char* name) {
  const auto it = arguments.find(name);
  return it == arguments.end() ? std::string_view() : it->second;
}

}  // namespace

class PickerAgent::Impl {
 public:
  explicit Impl(Options options)
      : options_(std::move(options)), acceptor_(io_), signals_(io_), picker_(NamesOf(options_.nodes)) {}

  api::Result<uint16_t> Listen();
  void Run();
  void Stop() {
    asio::post(io_, [this] { io_.stop(); });
  }

 private:
  asio::awaitable<void> Accept();
  asio::awaitable<void> Serve(tcp::socket socket);
  asio::awaitable<bool> ServeFrame(tcp::socket& socket, std::string& bytes);
  asio::awaitable<void> Poll(size_t node);
  std::string Answer(const spop::Frame& frame, bool& goes_on);
  std::string Pick(const spop::Frame& frame);
  void LogState(size_t node, const std::string& error);

  Options options_;
  asio::io_context io_{1};
  tcp::acceptor acceptor_;
  asio::signal_set signals_;
  NodePicker picker_;
  std::map<size_t, std::string> errors_ = {};  // of nodes, as logged last
  size_t connections_ = 0;
};

api::Result<uint16_t> PickerAgent::Impl::Listen() {
  boost::system::error_code error;
  tcp::resolver resolver(io_);
  const auto found = resolver.resolve(options_.listen_host, std::to_string(options_.listen_port), error);
  const tcp::endpoint where = error ? tcp::endpoint() : found.begin()->endpoint();
  if (!error) acceptor_.open(where.protocol(), error);
  if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor_.bind(where, error);
  if (!error) acceptor_.listen(tcp::acceptor::max_listen_connections, error);
  if (error) {
    return api::Fail(api::ErrorCode::kUnavailable,
                     fmt::format("cannot listen on {}:{}: {}", options_.listen_host, options_.listen_port,
                                 error.message()));
  }
  return acceptor_.local_endpoint().port();
}

void PickerAgent::Impl::Run() {
  ::signal(SIGPIPE, SIG_IGN);
  signals_.add(SIGTERM);
  signals_.add(SIGINT);
  signals_.async_wait([this](const boost::system::error_code& error, int) {
    if (!error) io_.stop();
  });
  for (size_t i = 0; i < options_.nodes.size(); ++i) asio::co_spawn(io_, Poll(i), asio::detached);
  asio::co_spawn(io_, Accept(), asio::detached);
  for (bool ended = false; !ended;) {
    try {
      io_.run();
      ended = true;
    } catch (const std::exception& error) {  // no memory for one connection's next step
      spdlog::error("a connection failed: {}", error.what());
    }
  }
}

asio::awaitable<void> PickerAgent::Impl::Accept() {
  asio::steady_timer pause(io_);
  for (;;) {
    auto [error, socket] = co_await acceptor_.async_accept(kAgentResult);
    if (!error && connections_ < kConnectionsMax) {
      asio::co_spawn(io_, Serve(std::move(socket)), asio::detached);
      continue;
    }
    if (!error) continue;                                 // closes it
    pause.expires_after(std::chrono::milliseconds(100));  // no descriptors left, for example
    co_await pause.async_wait(kAgentResult);
  }
}

asio::awaitable<void> PickerAgent::Impl::Serve(tcp::socket socket) {
  ++connections_;
  boost::system::error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  std::string bytes;
  try {
    for (bool goes_on = true; goes_on;) goes_on = co_await ServeFrame(socket, bytes);
  } catch (const std::exception& error) {
    spdlog::warn("a connection of HAProxy ended: {}", error.what());
  }
  --connections_;
}

asio::awaitable<bool> PickerAgent::Impl::ServeFrame(tcp::socket& socket, std::string& bytes) {
  bytes.resize(spop::kLengthBytes);
  const auto [header_error, header_read] =
      co_await asio::async_read(socket, asio::buffer(bytes), kAgentResult);
  if (header_error) co_return false;
  const size_t length = spop::ParseLength(bytes);
  if (length > spop::kFrameBytesMax) co_return false;
  bytes.resize(length);
  const auto [read_error, read] = co_await asio::async_read(socket, asio::buffer(bytes), kAgentResult);
  if (read_error) co_return false;
  bool goes_on = true;
  std::string reply;
  if (const auto frame = spop::ParseFrame(bytes)) {
    reply = Answer(*frame, goes_on);
  } else {
    reply = spop::EncodeDisconnect(kInvalidFrame, frame.error().message);
    goes_on = false;
  }
  const auto [write_error, written] = co_await asio::async_write(socket, asio::buffer(reply), kAgentResult);
  co_return goes_on && !write_error;
}

std::string PickerAgent::Impl::Answer(const spop::Frame& frame, bool& goes_on) {
  switch (frame.type) {
    case spop::FrameType::kHaproxyHello: {
      const auto hello = spop::ParseHello(frame.payload);
      goes_on = hello && !hello->health_check;
      if (hello) return spop::EncodeHello(std::min<uint64_t>(hello->frame_bytes_max, spop::kFrameBytesMax));
      const bool version = hello.error().code == api::ErrorCode::kUnsupported;
      return spop::EncodeDisconnect(version ? kNoVersion : kInvalidFrame, hello.error().message);
    }
    case spop::FrameType::kNotify:
      return Pick(frame);
    case spop::FrameType::kHaproxyDisconnect:
      goes_on = false;
      return spop::EncodeDisconnect(0, "bye");
    default:
      goes_on = false;
      return spop::EncodeDisconnect(kInvalidFrame, "unexpected frame");
  }
}

// A request that cannot be read is answered too, without a node: the daemon names its error.
std::string PickerAgent::Impl::Pick(const spop::Frame& frame) {
  const auto arguments = spop::ParseNotify(frame.payload);
  if (!arguments) return spop::EncodeAck(frame, {}, {});
  const std::string_view key = TextOf(*arguments, "key");
  const auto chain =
      ReadPromptChain(TextOf(*arguments, "body"), key.empty() ? TextOf(*arguments, "api_key") : key);
  const std::string_view node = chain ? picker_.Pick(*chain, Clock::now()) : std::string_view();
  return spop::EncodeAck(frame, node.empty() ? "" : "node", node);
}

asio::awaitable<void> PickerAgent::Impl::Poll(size_t node) {
  asio::steady_timer timer(io_);
  for (;;) {
    std::string failure;
    try {
      auto report = co_await RequestReport(options_.nodes[node], options_.access);
      if (report) {
        picker_.SetReport(node, *std::move(report), Clock::now());
      } else {
        failure = report.error().message;
      }
    } catch (const std::exception& error) {
      failure = error.what();
    }
    if (!failure.empty()) picker_.SetUnreachable(node);
    LogState(node, failure);
    timer.expires_after(options_.report_interval);
    co_await timer.async_wait(kAgentResult);
  }
}

// A line at each change.
void PickerAgent::Impl::LogState(size_t node, const std::string& error) {
  const auto [it, first] = errors_.try_emplace(node, error);
  if (!first && it->second == error) return;
  it->second = error;
  if (error.empty()) {
    spdlog::info("node {} answers", options_.nodes[node].name);
  } else {
    spdlog::warn("node {} does not answer: {}", options_.nodes[node].name, error);
  }
}

PickerAgent::PickerAgent(Options options) : impl_(std::make_unique<Impl>(std::move(options))) {}
PickerAgent::~PickerAgent() = default;
api::Result<uint16_t> PickerAgent::Listen() { return impl_->Listen(); }
void PickerAgent::Run() { impl_->Run(); }
void PickerAgent::Stop() { impl_->Stop(); }

}  // namespace quire::server
