// Where something stands in a schema, for messages: "#/properties/a/anyOf/0".
//
// A path shares its beginning with those that continue it. A schema has as many paths as it has parts, and a
// client chooses the names in them: as texts they would take far more memory than the schema.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace quire::runner::constraint {

// Immutable. Texts that it is made of outlive it: keywords, and names of the root.
class SchemaPath {
 public:
  SchemaPath() = default;  // empty
  explicit SchemaPath(std::string_view text);
  SchemaPath Member(std::string_view name) const;
  SchemaPath Item(size_t index) const;

  bool empty() const { return part_ == nullptr; }
  std::string Text() const;

 private:
  struct Part {
    std::shared_ptr<const Part> outer;  // null: the first
    std::string_view name = {};
    uint32_t index = 0;  // of an item
    bool is_item = false;
  };
  explicit SchemaPath(Part part) : part_(std::make_shared<const Part>(std::move(part))) {}

  std::shared_ptr<const Part> part_;
};

}  // namespace quire::runner::constraint
