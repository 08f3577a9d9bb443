// Opens the files of models on threads of its own: a file system may be slow, or hang.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/thread_pool.hpp>
#include <filesystem>
#include <functional>
#include <vector>

#include "api/base/error.h"
#include "scheduler/model_descriptors.h"

namespace quire::scheduler {

// I/O thread only. A simulation links another definition, without threads.
class FileOpener {
 public:
  using Files = std::vector<std::vector<OpenFile>>;  // by the model
  using Deliver = std::function<void(api::Result<Files> opened)>;

  explicit FileOpener(boost::asio::any_io_executor executor);

  // Calls `deliver` on the executor, never inside this call. An empty path has no files. Errors of
  // OpenModelFiles.
  void Open(std::vector<std::filesystem::path> models, Deliver deliver);

  // Waits for what is being opened. From then on no thread uses the executor, whose context may end.
  void Stop();

 private:
  const boost::asio::any_io_executor executor_;
  boost::asio::thread_pool threads_;
};

}  // namespace quire::scheduler
