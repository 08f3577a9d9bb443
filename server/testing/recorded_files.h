// Records what this program's calls do to the files below one directory, so that a test can look at every
// state in which a crash of the machine may leave them. The calls are the C library's, replaced for the whole
// program.
//
// The model: a change of a directory is on disk once that directory was synced, a rename also once its source
// was, and bytes of a file once the file was. Of what was not synced any prefix may be there, with or without
// the files' bytes.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <compare>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace quire::server::testing {

class RecordedFiles {
 public:
  // Files and directories by a number of their own.
  struct Tree {
    std::map<int, std::map<std::string, int>> directories;  // entries; the root is 0
    std::map<int, std::string> files;
    // Makes it below `root`, which is empty.
    void WriteTo(const std::filesystem::path& root) const;
    auto operator<=>(const Tree& other) const = default;
  };
  // What a crash left, and for messages where it was.
  struct Crash {
    Tree tree;
    std::string where;
    bool after_all = false;  // the last call had returned
  };

  // Records from now on until Stop(). One object at a time.
  explicit RecordedFiles(std::filesystem::path root);
  ~RecordedFiles();
  RecordedFiles(const RecordedFiles&) = delete;
  RecordedFiles& operator=(const RecordedFiles&) = delete;

  void Stop();
  size_t calls() const { return calls_.size(); }
  // Every state that a crash before, between or after the recorded calls may leave.
  std::vector<Crash> Crashes() const;

  // The `call`th call that changes something fails from now on with this error; 0: none does. A count from 1.
  static void Fail(int call, int error);
  // Calls since Fail().
  static int calls_seen();

  // For the replaced calls.
  struct Call {
    enum class Kind { kMakeFile, kMakeDirectory, kWrite, kTruncate, kRename, kLink, kUnlink, kSync };
    Kind kind = Kind::kSync;
    int directory = -1;  // of the entry; of a rename: the new one
    std::string name = {};
    int from_directory = -1;  // of a rename
    std::string from_name = {};
    int object = -1;  // the file or directory
    std::string bytes = {};
    int64_t offset = 0;  // of the bytes; or the new size
  };
  void Add(Call call);
  // -1: not below the root.
  int ObjectOf(const struct stat& status) const;
  int NewObject(const struct stat& status);

 private:
  std::vector<bool> OnDisk(size_t crash) const;
  static void Apply(const Call& call, bool with_bytes, Tree& tree);
  int Scan(const std::filesystem::path& path);

  const std::filesystem::path root_;
  Tree begin_;
  dev_t device_ = 0;
  std::map<ino_t, int> objects_;  // the last one of each number
  int next_object_ = 0;
  std::vector<Call> calls_;
};

}  // namespace quire::server::testing
