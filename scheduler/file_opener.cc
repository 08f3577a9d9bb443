#include "scheduler/file_opener.h"

#include <spdlog/spdlog.h>

#include <boost/asio/post.hpp>
#include <exception>
#include <new>
#include <utility>

namespace quire::scheduler {
namespace {

constexpr size_t kThreads = 4;  // of them some may hang

api::Result<FileOpener::Files> OpenAllUnchecked(const std::vector<std::filesystem::path>& models) {
  FileOpener::Files all;
  for (const std::filesystem::path& model : models) {
    std::vector<OpenFile>& files = all.emplace_back();
    if (model.empty()) continue;
    auto opened = OpenModelFiles(model);
    if (!opened) return std::unexpected(std::move(opened).error());
    files = *std::move(opened);
  }
  return all;
}

api::Result<FileOpener::Files> OpenAll(const std::vector<std::filesystem::path>& models) {
  try {
    return OpenAllUnchecked(models);
  } catch (const std::bad_alloc&) {
    return api::Fail(api::ErrorCode::kUnavailable, "not enough memory to open the model files");
  }
}

}  // namespace

FileOpener::FileOpener(boost::asio::any_io_executor executor)
    : executor_(std::move(executor)), threads_(kThreads) {}

void FileOpener::Open(std::vector<std::filesystem::path> models, Deliver deliver) {
  // What leaves a task of the pool would end the daemon.
  auto open = [models = std::move(models), home = executor_, deliver = std::move(deliver)]() mutable {
    try {
      boost::asio::post(home, [opened = OpenAll(models), deliver = std::move(deliver)]() mutable {
        deliver(std::move(opened));
      });
    } catch (const std::exception& e) {  // the session waits until its deadline
      spdlog::error("opening the model files failed: {}", e.what());
    }
  };
  boost::asio::post(threads_, std::move(open));
}

}  // namespace quire::scheduler
