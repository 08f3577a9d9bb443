#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace quire::server {

// One SHA-256 over pieces given in order. Not thread-safe.
class Sha256 {
 public:
  Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  ~Sha256();

  void Update(std::string_view bytes);
  // 64 lower-case hex characters. REQUIRES: called once, last.
  std::string Finish();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

std::string Sha256Of(std::string_view bytes);

}  // namespace quire::server
