#include "runner/tokenizer/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "api/base/utf8.h"

namespace quire::runner::tokenizer {
namespace {

unsigned Options(NormalForm form) {
  switch (form) {
    case NormalForm::kNone:
      return 0;
    case NormalForm::kNfc:
      return UTF8PROC_STABLE | UTF8PROC_COMPOSE;
    case NormalForm::kNfd:
      return UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
    case NormalForm::kNfkc:
      return UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT;
    case NormalForm::kNfkd:
      return UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT;
  }
  return 0;
}

utf8proc_propval_t CombiningClass(utf8proc_int32_t code_point) {
  return utf8proc_get_property(code_point)->combining_class;
}

// Marks after a starter, ordered by class. utf8proc's own ordering is quadratic in the length of the run.
void OrderMarks(std::vector<utf8proc_int32_t>& code_points) {
  const auto by_class = [](utf8proc_int32_t a, utf8proc_int32_t b) {
    return CombiningClass(a) < CombiningClass(b);
  };
  auto run = code_points.begin();
  while (run != code_points.end()) {
    if (CombiningClass(*run) == 0) {
      ++run;
      continue;
    }
    const auto end = std::find_if(run, code_points.end(), [](auto c) { return CombiningClass(c) == 0; });
    std::stable_sort(run, end, by_class);
    run = end;
  }
}

}  // namespace

bool MayChange(NormalForm form, std::string_view text) {
  if (form == NormalForm::kNone) return false;
  // Below U+0300 every character is its own composed form; below U+0080 its own decomposed form too.
  const uint8_t first_lead = form == NormalForm::kNfc ? 0xCC : 0x80;
  return std::any_of(text.begin(), text.end(), [&](char c) { return static_cast<uint8_t>(c) >= first_lead; });
}

std::string Normalize(NormalForm form, std::string_view text) {
  if (!MayChange(form, text)) return std::string(text);
  const unsigned options = Options(form);
  const auto decomposing =
      static_cast<utf8proc_option_t>((options & ~unsigned{UTF8PROC_COMPOSE}) | unsigned{UTF8PROC_DECOMPOSE});
  constexpr size_t kExpansionMax = 32;  // code points from one; Unicode's longest is 18
  std::vector<utf8proc_int32_t> code_points;
  code_points.reserve(text.size() + kExpansionMax);
  for (size_t at = 0; at < text.size(); at += api::CodePointAt(text, at).bytes) {
    const size_t size = code_points.size();
    code_points.resize(size + kExpansionMax);
    int last_boundclass = 0;
    const utf8proc_ssize_t count = utf8proc_decompose_char(
        static_cast<utf8proc_int32_t>(api::CodePointAt(text, at).value), code_points.data() + size,
        static_cast<utf8proc_ssize_t>(kExpansionMax), decomposing, &last_boundclass);
    code_points.resize(size + static_cast<size_t>(std::clamp<utf8proc_ssize_t>(count, 0, kExpansionMax)));
  }
  OrderMarks(code_points);
  const auto length = static_cast<utf8proc_ssize_t>(code_points.size());
  // Composes in place and writes UTF-8 over the code points; it wants room for one more and a final zero
  // byte.
  code_points.push_back(0);
  const utf8proc_ssize_t bytes =
      utf8proc_reencode(code_points.data(), length, static_cast<utf8proc_option_t>(options));
  if (bytes < 0) return std::string(text);
  return {reinterpret_cast<const char*>(code_points.data()), static_cast<size_t>(bytes)};
}

}  // namespace quire::runner::tokenizer
