// Which files of a repository are the model that a tag means.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "api/base/ascii.h"
#include "api/base/parse_integer.h"
#include "server/registry/hub.h"

namespace quire::server::registry {
namespace {

constexpr size_t kNamesShownMax = 40;

std::string_view FileNameOf(std::string_view path) { return path.substr(path.rfind('/') + 1); }

std::string_view FolderOf(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? std::string_view() : path.substr(0, slash);
}

bool IsGguf(const HubFile& file) { return api::AsciiLower(file.path).ends_with(".gguf"); }

bool IsProjector(const HubFile& file) {
  return IsGguf(file) && api::AsciiLower(FileNameOf(file.path)).find("mmproj") != std::string::npos;
}

// Whether a GGUF file holds a model's weights, as far as its name says.
bool IsWeights(const HubFile& file) {
  return IsGguf(file) && !IsProjector(file) &&
         api::AsciiLower(FileNameOf(file.path)).find("imatrix") == std::string::npos;
}

// "a/b-00001-of-00003.gguf" is part 1 of 3 of "a/b".
struct Split {
  std::string_view stem;
  int number = 1;
  int count = 1;
};

Split SplitOf(std::string_view path) {
  constexpr std::string_view kForm = "-00001-of-00003";
  const std::string_view stem = path.substr(0, path.rfind('.'));
  if (stem.size() <= kForm.size()) return {stem};
  const std::string_view end = stem.substr(stem.size() - kForm.size());
  const auto number = api::ParseInteger<int>(end.substr(1, 5)),
             count = api::ParseInteger<int>(end.substr(10));
  if (end[0] != '-' || end.substr(6, 4) != "-of-" || !number || !count || *number < 1 || *count < *number)
    return {stem};
  return {stem.substr(0, stem.size() - kForm.size()), *number, *count};
}

// Whether the name has the tag as a word: "demo-Q8_0", "demo.q8_0", "Q8_0/demo".
bool HasWord(std::string_view stem, std::string_view tag) {
  const std::string text = api::AsciiLower(stem), word = api::AsciiLower(tag);
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    const auto is_edge = [&text](size_t i) {
      return std::string_view("-./").find(text[i]) != std::string_view::npos;
    };
    const size_t end = at + word.size();
    if ((at == 0 || is_edge(at - 1)) && (end == text.size() || is_edge(end))) return true;
  }
  return false;
}

// "Q4_K_M" of a stem that ends so; else the stem's file name.
std::string QuantizationOf(std::string_view stem) {
  const std::string_view name = FileNameOf(stem);
  const size_t at = name.find_last_of("-.");
  const std::string_view last = at == std::string_view::npos ? name : name.substr(at + 1);
  const bool known = last.size() > 1 &&
                     std::string_view("QqIiBbFfTtMm").find(last[0]) != std::string_view::npos &&
                     last.find_first_of("0123456789") != std::string_view::npos;
  return std::string(known ? last : name);
}

std::unexpected<api::Error> NoSuchFile(const std::vector<const HubFile*>& weights, std::string_view tag) {
  std::set<std::string> names;
  for (const HubFile* file : weights) names.insert(QuantizationOf(SplitOf(file->path).stem));
  std::vector<std::string> shown(names.begin(), names.end());
  if (shown.size() > kNamesShownMax) shown.resize(kNamesShownMax);
  return api::Fail(api::ErrorCode::kNotFound,
                   fmt::format("no GGUF file for \"{}\"; there are: {}", tag, fmt::join(shown, ", ")));
}

// The file that the tag means, or the first part of it; null: none. Of several the one with the shortest
// path.
const HubFile* FindWeights(const std::vector<const HubFile*>& weights, std::string_view tag) {
  const auto choose = [&weights](const auto& fits) {
    const HubFile* best = nullptr;
    for (const HubFile* file : weights) {
      if (!fits(file->path) || SplitOf(file->path).number != 1) continue;
      const auto rank = [](const HubFile* each) {
        return std::pair(each->path.size(), std::string_view(each->path));
      };
      if (best == nullptr || rank(file) < rank(best)) best = file;
    }
    return best;
  };
  const auto named = [&choose](std::string_view word) {
    const HubFile* file = choose([word](std::string_view path) {
      return api::EqualIgnoringCase(FileNameOf(path), word) || api::EqualIgnoringCase(path, word);
    });
    return file != nullptr
               ? file
               : choose([word](std::string_view path) { return HasWord(SplitOf(path).stem, word); });
  };
  if (tag != "latest") return named(tag);
  for (const std::string_view usual : {"Q4_K_M", "Q8_0"}) {
    if (const HubFile* file = named(usual)) return file;
  }
  return choose([](std::string_view) { return true; });
}

// The parts of a split file in order, or the file.
api::Result<std::vector<HubFile>> WithParts(const std::vector<const HubFile*>& weights,
                                            const HubFile& first) {
  const Split part = SplitOf(first.path);
  std::vector<HubFile> files = {first};
  for (int number = 2; number <= part.count; ++number) {
    const std::string path = fmt::format("{}-{:05}-of-{:05}.gguf", part.stem, number, part.count);
    const auto found = std::ranges::find(weights, path, &HubFile::path);
    if (found == weights.end())
      return api::Fail(api::ErrorCode::kNotFound, fmt::format("{} is missing", path));
    files.push_back(**found);
  }
  return files;
}

// What sees images for the model: in its folder or the repository's, F16 before others.
const HubFile* FindProjector(const std::vector<HubFile>& files, const HubFile& weights) {
  const HubFile* best = nullptr;
  const auto rank = [](const HubFile& file) {
    const std::string stem = api::AsciiLower(SplitOf(file.path).stem);
    const bool half = stem.ends_with("f16") && !stem.ends_with("bf16");
    return std::pair(half ? 0 : stem.ends_with("bf16") ? 1 : 2, stem);
  };
  for (const HubFile& file : files) {
    const std::string_view folder = FolderOf(file.path);
    if (!IsProjector(file) || (!folder.empty() && folder != FolderOf(weights.path))) continue;
    if (best == nullptr || rank(file) < rank(*best)) best = &file;
  }
  return best;
}

// "1_Pooling", "additional_chat_templates": folders with files of a model in safetensors.
bool IsModule(std::string_view folder) {
  return folder == "additional_chat_templates" ||
         (folder.size() > 2 && folder[0] >= '0' && folder[0] <= '9' && folder[1] == '_');
}

std::vector<HubFile> Safetensors(const std::vector<HubFile>& files) {
  std::vector<HubFile> chosen;
  bool tensors = false, first_copy = false;
  for (const HubFile& file : files) {
    const std::string_view folder = FolderOf(file.path), name = FileNameOf(file.path);
    const bool is_tensors = name.ends_with(".safetensors");
    const bool text = name.ends_with(".json") || name.ends_with(".jinja") || name == "tokenizer.model" ||
                      name == "merges.txt";
    if ((!folder.empty() && !IsModule(folder)) || (!is_tensors && !text)) continue;
    tensors |= is_tensors && folder.empty();
    first_copy |= is_tensors && folder.empty() && !name.starts_with("consolidated");
    chosen.push_back(file);
  }
  if (!tensors) return {};
  // Mistral's files hold the tensors of the others again, by other names.
  if (first_copy) {
    std::erase_if(chosen, [](const HubFile& file) {
      return file.path.starts_with("consolidated") && file.path.ends_with(".safetensors");
    });
  }
  return chosen;
}

}  // namespace

api::Result<HubChoice> ChooseFiles(const std::vector<HubFile>& files, std::string_view tag) {
  std::vector<const HubFile*> weights;
  for (const HubFile& file : files) {
    if (IsWeights(file)) weights.push_back(&file);
  }
  if (weights.empty()) {
    std::vector<HubFile> chosen = Safetensors(files);
    if (chosen.empty())
      return api::Fail(api::ErrorCode::kNotFound, "the repository has no *.gguf or *.safetensors files");
    return HubChoice{std::move(chosen), tag != "latest"};
  }
  const HubFile* first = FindWeights(weights, tag);
  if (first == nullptr) return NoSuchFile(weights, tag);
  auto parts = WithParts(weights, *first);
  if (!parts) return std::unexpected(parts.error());
  HubChoice choice{*std::move(parts)};
  if (const HubFile* projector = FindProjector(files, *first)) choice.files.push_back(*projector);
  return choice;
}

}  // namespace quire::server::registry
