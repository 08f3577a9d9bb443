// SHA-256. A library of its own (quire_sha256): a runner needs none of it.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>

namespace quire::api {

// One SHA-256 over pieces given in order. Not thread-safe.
class Sha256 {
 public:
  using Digest = std::array<unsigned char, 32>;

  Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  ~Sha256();

  void Update(std::string_view bytes);
  // REQUIRES: one of these is called, once, last.
  Digest FinishBytes();
  std::string Finish();  // 64 lower-case hex characters

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

std::string Sha256Of(std::string_view bytes);

}  // namespace quire::api
