// The models that tests of the engine run over.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "api/base/kv_type.h"
#include "runner/engine/testing/engine_harness.h"

namespace quire::runner::engine {

inline std::filesystem::path Fixtures() {
  const char* set = std::getenv("QUIRE_FIXTURES");
  return set != nullptr ? set : "../shared/fixtures";
}

struct Subject {
  std::string model;
  api::KvType kv_type = api::KvType::kF16;
};

// The bundled model, and the reference checkpoints where they are.
inline std::vector<Subject> Subjects() {
  std::vector<std::string> models = {kDemoModel, "packaging/models/quire-demo-Q8_0.gguf"};
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(Fixtures() / "models", ignored)) {
    // A draft model reads its target's states; it runs no requests.
    if (!entry.path().filename().string().ends_with("_assistant")) models.push_back(entry.path().string());
  }
  std::ranges::sort(models.begin() + 2, models.end());
  std::vector<Subject> subjects;
  for (const std::string& model : models) subjects.push_back({model});
  for (const api::KvType type : {api::KvType::kF32, api::KvType::kBF16, api::KvType::kQ8_0}) {
    subjects.push_back({kDemoModel, type});
  }
  return subjects;
}

inline std::string NameOf(const testing::TestParamInfo<Subject>& subject) {
  std::string name = std::filesystem::path(subject.param.model).filename().string();
  if (subject.param.kv_type != api::KvType::kF16) name += api::NameOf(subject.param.kv_type);
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
}

}  // namespace quire::runner::engine
