#include "scheduler/file_opener.h"

#include <boost/asio/post.hpp>
#include <memory>
#include <utility>

namespace quire::scheduler {
namespace {

constexpr size_t kThreads = 4;  // of them some may hang

api::Result<FileOpener::Files> OpenAll(const std::vector<std::filesystem::path>& models) {
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

}  // namespace

FileOpener::FileOpener(boost::asio::any_io_executor executor)
    : executor_(std::move(executor)), threads_(kThreads) {}

void FileOpener::Open(std::vector<std::filesystem::path> models, Deliver deliver) {
  boost::asio::post(threads_, [models = std::move(models), deliver = std::move(deliver), home = executor_] {
    boost::asio::post(home, [deliver, opened = OpenAll(models)]() mutable { deliver(std::move(opened)); });
  });
}

void FileOpener::Stop() { threads_.join(); }

}  // namespace quire::scheduler
