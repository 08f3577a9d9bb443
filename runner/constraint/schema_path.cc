#include "runner/constraint/schema_path.h"

#include <utility>
#include <vector>

#include "runner/work/work_budget.h"

namespace quire::runner::constraint {

SchemaPath::SchemaPath(std::string_view text) : SchemaPath(Part{.outer = nullptr, .name = text}) {}

SchemaPath SchemaPath::Member(std::string_view name) const {
  CountWork(4);
  return SchemaPath(Part{.outer = part_, .name = name});
}

SchemaPath SchemaPath::Item(size_t index) const {
  CountWork(4);
  return SchemaPath(Part{.outer = part_, .index = static_cast<uint32_t>(index), .is_item = true});
}

std::string SchemaPath::Text() const {
  std::vector<const Part*> parts;
  for (const Part* part = part_.get(); part != nullptr; part = part->outer.get()) parts.push_back(part);
  std::string text;
  for (size_t i = parts.size(); i-- > 0;) {
    const Part& part = *parts[i];
    if (part.outer != nullptr) text += '/';
    text += part.is_item ? std::to_string(part.index) : std::string(part.name);
  }
  return text;
}

}  // namespace quire::runner::constraint
