// The models that tests of the engine run over.
#pragma once

#include <gtest/gtest.h>

#include <cctype>
#include <filesystem>
#include <string>
#include <vector>

#include "api/base/kv_type.h"
#include "runner/engine/testing/engine_harness.h"
#include "tests/data/test_data.h"

namespace quire::runner::engine {

struct Subject {
  std::string model;
  api::KvType kv_cache_type = api::kDefaultKvType;
};

// The bundled model and a checkpoint of every family.
inline std::vector<Subject> Subjects() {
  std::vector<std::string> models = {kDemoModel, "packaging/models/quire-demo-Q8_0.gguf"};
  for (const std::filesystem::path& path : test_data::List("models")) {
    // A draft model reads its target's states; it runs no requests.
    if (!path.filename().string().ends_with("_assistant")) models.push_back(path.string());
  }
  // The other sets of fixtures, where they are there.
  for (const char* name :
       {"deepseek_v3", "deepseek_v32", "deepseek_v4", "falcon_h1", "gemma3n", "glm4_moe", "gpt_oss_mxfp4",
        "granitemoehybrid", "hy_v4", "jamba", "kimi_linear", "mamba2", "minimax", "minimax_m3",
        "nemotron_h_moe", "olmo_hybrid", "qwen3_moe", "qwen4_exp", "zamba2"}) {
    const std::filesystem::path path = test_data::Find(std::filesystem::path("models") / name);
    if (!path.empty()) models.push_back(path.string());
  }
  std::vector<Subject> subjects;
  for (const std::string& model : models) subjects.push_back({model});
  for (const api::KvType type :
       {api::KvType::kF32, api::KvType::kF16, api::KvType::kBF16, api::KvType::kQ8_0}) {
    subjects.push_back({kDemoModel, type});
  }
  return subjects;
}

inline std::string NameOf(const testing::TestParamInfo<Subject>& subject) {
  std::string name = std::filesystem::path(subject.param.model).filename().string();
  if (subject.param.kv_cache_type != api::kDefaultKvType) name += api::NameOf(subject.param.kv_cache_type);
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
}

}  // namespace quire::runner::engine
