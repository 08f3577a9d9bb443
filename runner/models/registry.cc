#include <fmt/format.h>

#include <array>
#include <string>
#include <string_view>

#include "runner/models/lfm2.h"
#include "runner/models/model.h"
#include "runner/weights/model_files.h"

namespace quire::runner::models {
namespace {

struct Family {
  std::string_view architecture;  // as ModelFiles::architecture() gives it
  api::Result<std::unique_ptr<Model>> (*load)(std::shared_ptr<const weights::ModelFiles>);
};

constexpr std::array kFamilies = {
    Family{"lfm2", LoadLfm2},
};

}  // namespace

api::Result<std::unique_ptr<Model>> LoadModel(std::shared_ptr<const weights::ModelFiles> files) {
  const std::string architecture = files->architecture().substr(0, 100);  // it goes into a message
  std::string known;
  for (const Family& family : kFamilies) {
    if (family.architecture == architecture) return family.load(std::move(files));
    known += known.empty() ? "" : ", ";
    known += family.architecture;
  }
  return api::Fail(api::ErrorCode::kBadModel,
                   fmt::format("{}: the architecture \"{}\" is not among those supported: {}", files->path(),
                               architecture, known));
}

}  // namespace quire::runner::models
