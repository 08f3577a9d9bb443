// A runner without a model, for the scheduler's tests: it speaks the real protocol and follows scripted
// commands.
//
// By --name: "no-hello" never speaks, "bad-version" greets with another version, "rude" starts with another
// frame, "faults-at-start" dies before, "fault-at-first-start" does so once. By the model's file name:
// "gate-load" loads when it gets a byte from the fifo "gate" beside it, "hang-load" never does, "fail-load"
// and "abort-load" and "exit-load" do not survive it, "dud" dies right after it, "killed-once" is killed in
// the first, "stubborn" ends on nothing but SIGKILL, "need-N" needs N bytes beside its caches, "roomy-N" too,
// and holds 10 tokens in a byte of them ("gate" before its estimate, where a request goes on in it),
// "unmeasured" loads without asking, "lies-SEED" damages what it sends from its estimate on. The same names
// with "-inspect" for inspections; "late-inspect" waits at "gate" before it reads. Any other name loads. By
// the raw prompt's text: see Serve().
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "api/ipc/exit_status.h"
#include "api/ipc/messages.h"

namespace {

namespace ipc = quire::api::ipc;
using quire::api::RequestId;

constexpr int kHeartbeatMilliseconds = 20;
constexpr int32_t kFloodIds = 8'000'000;
constexpr int kTokensPerByte = 10;
constexpr int kSilentMax = 10;  // heartbeats without a frame from the daemon, for a runner that lies

[[noreturn]] void SleepForever() {
  while (true) ::pause();
}

[[noreturn]] void Abort() {
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  ::signal(SIGABRT, SIG_DFL);
  std::abort();
}

// As a runner does with a signal from another process.
void ReportExternalSignal(int signal, siginfo_t* info, void* /*context*/) {
  if (info->si_pid != ::getpid()) ::_exit(ipc::kExternalSignalExit + signal);
  ::raise(signal);
}

// A line on a pipe that may be full: what does not fit is dropped, or waits for room.
void PrintLine(std::string_view line, bool wait) {
  pollfd polled{STDERR_FILENO, POLLOUT, 0};
  if (wait) ::poll(&polled, 1, -1);
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

// Several times what a pipe holds.
void Flood() {
  for (int i = 0; i < 100'000; ++i) PrintLine("a line of a flood\n", /*wait=*/false);
}

// Waits for a byte of its own.
void PassGate(const std::filesystem::path& gate) {
  const int fd = ::open(gate.c_str(), O_RDONLY);
  char pass = 0;
  if (fd < 0 || ::read(fd, &pass, 1) != 1) std::exit(6);
  ::close(fd);
}

// By its first file's descriptor: it is not told a path before it has greeted.
std::filesystem::path FolderOfModel() {
  return std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(ipc::kFirstModelFd)).parent_path();
}

// "NAME=BYTES;" of every file, by the descriptors alone.
std::string ReadAll(const std::vector<ipc::ModelFile>& files) {
  std::string all;
  for (const ipc::ModelFile& file : files) {
    char bytes[256];
    const ssize_t read = ::pread(file.fd, bytes, sizeof(bytes), 0);
    all += file.name + "=" + (read < 0 ? "?" : std::string(bytes, static_cast<size_t>(read))) + ";";
  }
  return all;
}

class FakeRunner {
 public:
  FakeRunner(int fd, std::string name) : fd_(fd), name_(std::move(name)) {}

  void Run() {
    if (name_ == "no-hello") SleepForever();
    if (name_ == "flood-then-exit") {
      Flood();
      std::exit(7);
    }
    if (name_ == "faults-at-start") Abort();
    const bool once = name_ == "fault-at-first-start";
    if (once && std::filesystem::create_directory(FolderOfModel() / "was started")) Abort();
    if (name_ == "rude") Send(ipc::Heartbeat{});
    const auto version = static_cast<uint16_t>(name_ == "bad-version" ? ipc::kVersion + 1 : ipc::kVersion);
    Send(ipc::Hello{.version = version, .pid = ::getpid()});
    while (const auto message = Read()) {
      std::visit([this](const auto& each) { On(each); }, *message);
      Stream();
    }
  }

 private:
  struct Answer {
    int next = 0;
    int deltas = 0;
    int credit = ipc::kInitialCredit;
    bool stalled = false;
  };

  std::optional<ipc::ToRunner> Read() {
    while (true) {
      auto frame = frames_.Next();
      if (!frame) std::exit(10);
      if (*frame) {
        auto message = ipc::DecodeToRunner(**frame);
        if (!message) std::exit(11);
        return *std::move(message);
      }
      pollfd polled{fd_, POLLIN, 0};
      if (::poll(&polled, 1, kHeartbeatMilliseconds) == 0) {
        // The daemon waits for what was left out.
        if (lies_ && ++silent_ > kSilentMax) std::exit(13);
        Send(ipc::Heartbeat{.progress = stuck_ ? progress_ : ++progress_});
        continue;
      }
      silent_ = 0;
      char buffer[4096];
      const ssize_t bytes = ::read(fd_, buffer, sizeof(buffer));
      if (bytes <= 0) return std::nullopt;
      frames_.Append({buffer, static_cast<size_t>(bytes)});
    }
  }

  void Write(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
      if (written <= 0) std::exit(12);
      bytes.remove_prefix(static_cast<size_t>(written));
    }
  }
  void Send(const ipc::ToDaemon& message) {
    if (!lies_) return Write(ipc::Encode(message));
    for (const std::string& frame : Damaged(ipc::Encode(message))) Write(frame);
  }

  // What is sent in a frame's place: mostly the frame.
  std::vector<std::string> Damaged(std::string frame) {
    const auto below = [this](size_t bound) { return (*lies_)() % bound; };
    sent_.push_back(frame);
    if (below(8) != 0) return {frame};
    switch (below(7)) {
      case 0:  // a bit
        frame[below(frame.size())] ^= static_cast<char>(1U << below(8));
        return {frame};
      case 1:  // a byte of the body: lengths and counts
        frame[std::min(frame.size() - 1, ipc::kHeaderBytes + below(12))] = static_cast<char>(below(256));
        return {frame};
      case 2:
        return {frame, frame};
      case 3:
        return {};
      case 4:  // out of order
        return {sent_[below(sent_.size())], frame};
      case 5:  // short by some bytes
        return {frame.substr(0, below(frame.size()))};
      default: {  // for somebody else, or nobody
        const RequestId id{below(4) == 0 ? UINT64_MAX : below(3000)};
        return {ipc::Encode(ipc::RequestEvent{
                    id, quire::api::TextDelta{.text = "a lie", .logprobs = {}, .tokens = 1}}),
                frame};
      }
    }
  }
  // Deltas with as many ids as fit a frame, and no text.
  void FloodWithIds(RequestId id, int32_t tokens, int deltas) {
    ipc::RequestEvent event{id, quire::api::TextDelta{.text = "", .logprobs = {}, .tokens = tokens}};
    std::get<quire::api::TextDelta>(event.event).token_ids.assign(kFloodIds, 7);
    const std::string frame = ipc::Encode(event);
    for (int sent = 0; sent < deltas; ++sent) Write(frame);
  }
  // As large as the header can say, of one text.
  void FloodWithFrame(uint16_t type) {
    std::string header = ipc::Encode(ipc::Heartbeat{}).substr(0, ipc::kHeaderBytes);
    for (size_t i = 0; i < 2; ++i) header[6 + i] = static_cast<char>(type >> (8 * i));
    for (size_t i = 0; i < 4; ++i) header[8 + i] = static_cast<char>(ipc::kFrameBytesMax >> (8 * i) & 0xff);
    Write(header);
    const std::string part(size_t{1} << 20, '\x01');
    for (size_t sent = 0; sent < ipc::kFrameBytesMax; sent += part.size()) Write(part);
  }
  void SendEvent(RequestId id, quire::api::Event event) { Send(ipc::RequestEvent{id, std::move(event)}); }
  void Delta(RequestId id, std::string text) {
    ipc::RequestEvent event{id, quire::api::TextDelta{.text = std::move(text), .logprobs = {}, .tokens = 1}};
    std::get<quire::api::TextDelta>(event.event).token_ids.push_back(7);
    Send(event);
  }

  void On(const ipc::LoadModel& load) {
    const std::filesystem::path path(load.path);
    const std::string mode = path.filename();
    if (mode == "hang-load") SleepForever();
    if (mode == "abort-load") Abort();
    if (mode == "exit-load") std::exit(3);
    const std::filesystem::path mark = path.parent_path() / "was killed";
    if (mode == "killed-once" && std::filesystem::create_directory(mark)) ::kill(::getpid(), SIGKILL);
    if (mode == "fail-load") {
      return Send(ipc::LoadFailed{{quire::api::ErrorCode::kBadModel, "model.gguf: truncated tensor"}});
    }
    ipc::MemoryEstimate estimate{
        .weight_bytes = 1000, .scratch_bytes = 0, .cache_bytes = 234, .cache_min_bytes = 34};
    if (mode.starts_with("need-")) estimate.weight_bytes = std::stoll(mode.substr(5));
    if (mode.starts_with("roomy-")) {
      estimate.weight_bytes = std::stoll(mode.substr(6));
      estimate.cache_min_bytes = std::max<int64_t>(34, load.context_min / kTokensPerByte);
      const std::filesystem::path gate = path.parent_path() / "gate";
      if (load.context_min > 0 && std::filesystem::exists(gate)) PassGate(gate);
    }
    path_ = path;
    if (mode.starts_with("lies-")) lies_.emplace(static_cast<uint32_t>(std::stoul(mode.substr(5))));
    if (mode == "unmeasured") return On(ipc::LoadApproved{.cache_bytes = 234});
    Send(estimate);
  }

  void On(const ipc::LoadApproved& approved) {
    const std::string mode = path_.filename();
    if (mode == "gate-load") {
      Send(ipc::LoadProgress{.fraction = 0.25F, .stage = "opening the gate"});
      PassGate(path_.parent_path() / "gate");
    }
    if (mode == "stubborn") {
      stubborn_ = true;
      ::signal(SIGTERM, SIG_IGN);
    }
    Send(ipc::LoadProgress{.fraction = 0.5F, .stage = "mapping weights"});
    ipc::Loaded loaded;
    loaded.info.architecture = "fake";
    loaded.info.context_length = 8192;
    loaded.info.num_ctx = 4096;  // what its caches hold of one sequence
    if (mode.starts_with("roomy-"))
      loaded.info.num_ctx = static_cast<int32_t>(approved.cache_bytes * kTokensPerByte);
    loaded.info.weight_bytes = 1000;
    loaded.info.cache_bytes = approved.cache_bytes;
    Send(loaded);
    if (mode == "dud") std::exit(4);
  }

  void On(const ipc::InspectModel& inspect) {
    const std::string mode = std::filesystem::path(inspect.path).filename();
    if (mode == "hang-inspect") SleepForever();
    if (mode == "abort-inspect") Abort();
    if (mode == "late-inspect") PassGate(std::filesystem::path(inspect.path).parent_path() / "gate");
    ipc::Inspected inspected;
    if (mode == "fail-inspect") {
      inspected.error = quire::api::Error{quire::api::ErrorCode::kBadModel, "not a model"};
    } else {
      inspected.model_info_json = inspect.verbose ? R"({"verbose":true})" : R"({"verbose":false})";
      inspected.parameters = 7;
      inspected.chat_template = ReadAll(inspect.files) + ReadAll(inspect.draft_files);
    }
    Send(inspected);
  }

  void On(const ipc::ConvertModel& convert) {
    const std::string mode = std::filesystem::path(convert.from).filename();
    if (mode == "abort-convert") Abort();
    Send(ipc::LoadProgress{.fraction = 0.5F, .stage = "quantizing"});
    if (mode == "hang-convert") SleepForever();
    ipc::Converted converted;
    if (mode == "fail-convert") {
      converted.error = quire::api::Error{quire::api::ErrorCode::kBadModel, "not a model"};
    }
    Send(converted);
  }

  void On(const ipc::Submit& submit) {
    const auto* raw = std::get_if<quire::api::RawPrompt>(&submit.request.prompt);
    Serve(submit, raw ? raw->text : "");
  }

  void Serve(const ipc::Submit& submit, const std::string& what) {
    const RequestId id = submit.id;
    const int num_ctx = submit.request.params.num_ctx;
    const int resumed = static_cast<int>(submit.resume.deltas);
    if (what == "mute") return;                  // never started
    if (what == "early") return Delta(id, "x");  // text before PromptReady
    if (what == "refuse") {
      return SendEvent(id,
                       quire::api::Failed{{quire::api::ErrorCode::kContextLengthExceeded, "9000 of 8192"}});
    }
    if (what == "garbage") return Write(std::string(64, '\x5a'));
    if (what == "half-frame") {
      Write(ipc::Encode(ipc::ToDaemon(ipc::Heartbeat{})).substr(0, ipc::kHeaderBytes + 1));
      std::exit(5);
    }
    if (what == "unasked") return Send(ipc::Inspected{});
    SendEvent(id, quire::api::PromptReady{.prompt_tokens = 11, .cached_tokens = 3});
    if (what == "die" || what == "crash") {
      if (resumed == 0) Delta(id, "last words");
      if (what == "crash") Abort();
      ::kill(::getpid(), SIGKILL);
    }
    if (what == "print") {
      [[maybe_unused]] const ssize_t written = ::write(STDOUT_FILENO, "to standard output\n", 19);
      PrintLine("to standard error\n", /*wait=*/true);
      return SendEvent(id, quire::api::Finished{});
    }
    if (what == "print flood") {
      Flood();
      PrintLine("\nthe last line\n", /*wait=*/true);
      return SendEvent(id, quire::api::Finished{});
    }
    if (what == "stop") ::kill(::getpid(), SIGSTOP);
    if (what == "circle") {
      stuck_ = true;
      return;
    }
    if (what == "seed") {
      if (resumed == 0) Delta(id, std::to_string(submit.request.params.seed));
      if (resumed == 0) ::kill(::getpid(), SIGKILL);
      Delta(id, " " + std::to_string(submit.request.params.seed));
      return SendEvent(id, quire::api::Finished{});
    }
    if (what == "hang up") {
      ::close(fd_);
      SleepForever();
    }
    if (what == "flood" && resumed > 0) return Write(std::string(64, '\x5a'));
    if (what == "flood") {
      for (int i = 0; i <= ipc::kInitialCredit; ++i) Delta(id, "x");
    }
    if (what == "bulk") {
      for (int i = 0; i < 40; ++i) Delta(id, std::string(size_t{1} << 20, 'x'));
    }
    if (what == "16 million ids") return FloodWithIds(id, kFloodIds, 2);
    if (what == "ids only" || what == "too many ids") {
      return FloodWithIds(id, what == "ids only" ? 1 : kFloodIds, 64);
    }
    if (what.starts_with("frame ")) return FloodWithFrame(static_cast<uint16_t>(std::stoi(what.substr(6))));
    if (what == "stranger") Delta(RequestId{UINT64_MAX}, "for nobody");
    if (what == "moved") {  // what it takes along, in each runner
      const auto& spent = submit.resume.spent;
      Delta(id, "context=" + std::to_string(submit.resume.context) +
                    " now=" + std::to_string(submit.request.now_s) +
                    " cached=" + (spent ? std::to_string(spent->cached_tokens) : "none") + "\n");
      if (resumed > 0) return SendEvent(id, quire::api::Finished{});
    }
    if (what == "num_ctx") {
      Delta(id, std::to_string(num_ctx));
      return SendEvent(id, quire::api::Finished{});
    }
    Answer& answer = answers_[id];
    answer.stalled = what == "stall" || what == "moved";
    answer.next = resumed;
    answer.credit = submit.resume.credit;
    answer.deltas = what.starts_with("answer ") ? std::stoi(what.substr(7)) : 0;
  }

  void On(const ipc::Credit& credit) {
    if (const auto found = answers_.find(credit.id); found != answers_.end())
      found->second.credit += credit.deltas;
  }
  // Everyone else hears of it.
  void On(const ipc::Cancel& cancel) {
    answers_.erase(cancel.id);
    for (const auto& [id, answer] : answers_) Delta(id, "another was cancelled");
  }
  // By the model's file name: "other-text" shows the text of another key, "unasked-cache" answers twice.
  void On(const ipc::InspectCache& question) {
    const std::string mode = path_.filename();
    if (mode == "dies-asked") ::kill(::getpid(), SIGKILL);
    ipc::CacheInspected inspected{.id = question.id, .version = 7, .unchanged = question.known_version == 7};
    if (!inspected.unchanged) {
      inspected.nodes.push_back({.id = 1, .to = 4, .begin = question.isolation});
      if (question.others) inspected.nodes.push_back({.id = 2, .tree = 1, .to = 4});
      if (mode == "other-text") inspected.nodes.push_back({.id = 3, .tree = 1, .to = 4, .begin = "secret"});
    }
    Send(inspected);
    if (mode == "unasked-cache") Send(inspected);
  }
  void On(const ipc::InspectEngine& question) {
    ipc::EngineInspected inspected{.id = question.id, .building = 0, .steps = 5};
    for (const auto& [id, answer] : answers_)
      inspected.sequences.push_back({.id = id, .output_tokens = answer.next});
    Send(inspected);
  }
  void On(const ipc::Shutdown&) {
    if (!stubborn_) std::exit(0);
  }

  // Sends what the credit of each answer allows.
  void Stream() {
    for (auto answer = answers_.begin(); answer != answers_.end();) {
      Answer& a = answer->second;
      for (; !a.stalled && a.next < a.deltas && a.credit > 0; ++a.next, --a.credit) {
        Delta(answer->first, "t" + std::to_string(a.next) + " ");
      }
      if (a.stalled || a.next < a.deltas) {
        ++answer;
        continue;
      }
      quire::api::Finished finished;
      finished.usage.output_tokens = a.deltas;
      SendEvent(answer->first, finished);
      answer = answers_.erase(answer);
    }
  }

  const int fd_;
  const std::string name_;
  std::filesystem::path path_;        // of the model
  std::optional<std::mt19937> lies_;  // set: it lies
  std::vector<std::string> sent_;     // while it lies
  int silent_ = 0;                    // heartbeats since it heard something
  ipc::FrameReader frames_{ipc::Receiver::kRunner};
  std::map<RequestId, Answer> answers_;
  bool stubborn_ = false;
  bool stuck_ = false;
  uint64_t progress_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  constexpr std::string_view kFd = "--ipc-fd=";
  constexpr std::string_view kName = "--name=";
  int fd = -1;
  std::string name;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument.starts_with(kFd)) fd = std::atoi(argument.substr(kFd.size()).data());
    if (argument.starts_with(kName)) name = argument.substr(kName.size());
  }
  if (fd < 0) return 2;
  struct sigaction action {};
  action.sa_sigaction = ReportExternalSignal;
  action.sa_flags = SA_SIGINFO | static_cast<int>(SA_RESETHAND);
  ::sigaction(SIGSEGV, &action, nullptr);
  FakeRunner(fd, name).Run();
  return 0;
}
