#include "scheduler/file_opener.h"

#include <boost/asio/post.hpp>
#include <memory>
#include <new>
#include <utility>

#include "scheduler/persistent_post.h"

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
    return api::Fail(api::ErrorCode::kUnavailable, "out of memory");  // short: allocates nothing
  }
}

// Holds from the start what its end needs.
struct OpenTask {
  std::vector<std::filesystem::path> models;
  FileOpener::Deliver deliver;
  api::Result<FileOpener::Files> opened = {};
};

}  // namespace

FileOpener::FileOpener(boost::asio::any_io_executor executor)
    : executor_(std::move(executor)), threads_(kThreads) {}

void FileOpener::Open(std::vector<std::filesystem::path> models, Deliver deliver) {
  auto task = std::make_shared<OpenTask>(std::move(models), std::move(deliver));
  boost::asio::post(threads_, [task, home = executor_] {
    task->opened = OpenAll(task->models);
    PostPersistently(home, [task] { task->deliver(std::move(task->opened)); });
  });
}

void FileOpener::Stop() { threads_.join(); }

}  // namespace quire::scheduler
