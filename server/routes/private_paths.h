// The daemon's own folders in texts for clients: an error names the model or the blob, not where it lies.
// Immutable; any thread.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace quire::server {

class PrivatePaths {
 public:
  // `store`: the root of the model store. `folders`: others, in which only file names are for clients.
  explicit PrivatePaths(const std::filesystem::path& store,
                        const std::vector<std::filesystem::path>& folders = {});

  // The message with each path in these folders replaced: a manifest's by `model NAME`, any other by its file
  // name, which is a blob's digest, and the store's root by `the model store`.
  std::string Hide(std::string_view message) const;

 private:
  struct Replacement {
    size_t length = 0;  // of the path, 0: there is none
    std::string text;
  };
  Replacement Find(std::string_view text) const;

  std::string store_;
  std::vector<std::string> folders_;  // the store among them; without a '/' at the end
};

// A file of the store: an admin sees where it is, others see its name.
std::string PathShownTo(bool admin, const std::filesystem::path& file);

}  // namespace quire::server
