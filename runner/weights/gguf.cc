#include "runner/weights/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "api/base/utf8.h"
#include "runner/weights/byte_ranges.h"
#include "runner/weights/ggml_types.h"
#include "runner/weights/text.h"

namespace quire::runner::weights {
namespace {

using nlohmann::ordered_json;

static_assert(std::endian::native == std::endian::little, "GGUF numbers are little-endian");

enum class ValueType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr uint32_t kVersionMin = 2;
constexpr uint32_t kVersionMax = 3;
constexpr uint32_t kDimensionsMax = 4;
constexpr uint64_t kAlignmentDefault = 32;
// Far above any published model; they keep what the key/values cost in memory a small multiple of a large
// vocabulary.
constexpr uint64_t kKeyValuesMax = 1U << 16;
constexpr uint64_t kArrayItemsMax = 1U << 23;
constexpr uint64_t kTensorsMax = 1U << 20;
constexpr uint64_t kNameBytesMax = 65535;
constexpr uint64_t kTextBytesMax = uint64_t{256} << 20;  // all keys, names and strings together
constexpr std::string_view kAlignmentKey = "general.alignment";

// Least bytes an item of this type takes in the file; 0 for a type that no array holds.
uint64_t ItemBytesMin(ValueType type) {
  switch (type) {
    case ValueType::kUint8:
    case ValueType::kInt8:
    case ValueType::kBool:
      return 1;
    case ValueType::kUint16:
    case ValueType::kInt16:
      return 2;
    case ValueType::kUint32:
    case ValueType::kInt32:
    case ValueType::kFloat32:
      return 4;
    case ValueType::kUint64:
    case ValueType::kInt64:
    case ValueType::kFloat64:
    case ValueType::kString:
      return 8;
    case ValueType::kArray:
      return 0;
  }
  return 0;
}

double ShortestDouble(float value) {
  if (!std::isfinite(value)) return static_cast<double>(value);
  std::array<char, 32> digits;
  const auto written = std::to_chars(digits.data(), digits.data() + digits.size(), value);
  double result = 0;
  std::from_chars(digits.data(), written.ptr, result);
  return static_cast<float>(result) == value ? result : static_cast<double>(value);
}

// One pass over the file. Every method that reads returns false after it has noted the reason in error_.
class Parser {
 public:
  Parser(std::span<const std::byte> bytes, const std::string& file) : bytes_(bytes), file_(file) {}

  api::Result<GgufContents> Run() {
    uint64_t tensor_count = 0;
    uint64_t key_value_count = 0;
    if (!ReadHeader(tensor_count, key_value_count) || !ReadKeyValues(key_value_count) ||
        !ReadTensors(tensor_count) || !PlaceTensors()) {
      return api::Fail(api::ErrorCode::kBadModel, fmt::format("{}: {}", file_, error_));
    }
    GgufContents contents;
    contents.version = version_;
    contents.metadata = std::make_shared<ordered_json>(std::move(metadata_));
    contents.pairs = std::move(pairs_);
    contents.empty = std::move(empty_);
    for (size_t i = 0; i < tensors_.size(); ++i) {
      Tensor& tensor = tensors_[i];
      if (integer_bytes_[i] > 0) {
        contents.integers.push_back(
            {std::move(tensor.name), std::move(tensor.shape), tensor.data, integer_bytes_[i]});
      } else {
        contents.tensors.push_back(std::move(tensor));
      }
    }
    return contents;
  }

 private:
  uint64_t Remaining() const { return bytes_.size() - at_; }

  bool Refuse(std::string reason) {
    error_ = std::move(reason);
    return false;
  }

  template <class T>
  bool Read(T& value, std::string_view what) {
    if (Remaining() < sizeof(T)) return Refuse(fmt::format("the file ends inside {}", what));
    std::memcpy(&value, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return true;
  }

  // The view lies in the file.
  bool ReadBytes(std::string_view& text, std::string_view what, uint64_t bytes_max) {
    uint64_t length = 0;
    if (!Read(length, what)) return false;
    if (length > Remaining()) {
      return Refuse(
          fmt::format("{} has a length of {} bytes, but {} are left in the file", what, length, Remaining()));
    }
    if (length > bytes_max || length > kTextBytesMax - text_bytes_) {
      return Refuse(fmt::format("{} has a length of {} bytes, more than supported", what, length));
    }
    text_bytes_ += length;
    text = {reinterpret_cast<const char*>(bytes_.data()) + at_, static_cast<size_t>(length)};
    at_ += length;
    return true;
  }

  bool ReadName(std::string_view& name, std::string_view what) {
    if (!ReadBytes(name, what, kNameBytesMax)) return false;
    if (name.empty()) return Refuse(fmt::format("{} is empty", what));
    if (!api::IsValidUtf8(name)) return Refuse(fmt::format("{} {} is not valid UTF-8", what, Quoted(name)));
    return true;
  }

  bool ReadHeader(uint64_t& tensor_count, uint64_t& key_value_count) {
    uint32_t magic = 0;
    const std::string_view stand_in = StandIn({reinterpret_cast<const char*>(bytes_.data()), bytes_.size()});
    if (!stand_in.empty()) return Refuse(std::string(stand_in));
    if (!Read(magic, "the header")) return false;
    if (magic != kMagic) return Refuse("not a GGUF file");
    if (!Read(version_, "the header")) return false;
    if (version_ != 0 && (version_ & 0xffff) == 0) return Refuse("big-endian GGUF files are not supported");
    if (version_ < kVersionMin || version_ > kVersionMax) {
      return Refuse(fmt::format("GGUF version {} is not supported (versions {} and {} are)", version_,
                                kVersionMin, kVersionMax));
    }
    if (!Read(tensor_count, "the header") || !Read(key_value_count, "the header")) return false;
    // A pair is at least a key length, a one-byte key, a type and a one-byte value; a tensor at least a name
    // length, a one-byte name, a dimension count, a type and an offset.
    return CheckCount(key_value_count, 8 + 1 + 4 + 1, kKeyValuesMax, "key/values") &&
           CheckCount(tensor_count, 8 + 1 + 4 + 4 + 8, kTensorsMax, "tensors");
  }

  bool CheckCount(uint64_t count, uint64_t bytes_each, uint64_t count_max, std::string_view what) {
    if (count > count_max)
      return Refuse(fmt::format("{} {}; at most {} are supported", count, what, count_max));
    if (count > Remaining() / bytes_each) {
      return Refuse(
          fmt::format("{} {} do not fit in the {} bytes left in the file", count, what, Remaining()));
    }
    return true;
  }

  bool ReadKeyValues(uint64_t count) {
    metadata_ = ordered_json::object();
    // ordered_json looks keys up one after the other, so a set finds the duplicates and the pairs are only
    // appended.
    auto& pairs = metadata_.get_ref<ordered_json::object_t&>();
    pairs.reserve(count);
    std::set<std::string_view> keys;
    for (uint64_t i = 0; i < count; ++i) {
      std::string_view key;
      uint32_t type = 0;
      if (!ReadName(key, "a key")) return false;
      const uint64_t value_begin = at_;
      if (!Read(type, "the type of a key")) return false;
      if (!keys.insert(key).second) return Refuse(fmt::format("key {} occurs twice", Quoted(key)));
      ordered_json value;
      if (!ReadValue(static_cast<ValueType>(type), key, value)) return false;
      if (key == kAlignmentKey && !SetAlignment(value)) return false;
      pairs.emplace_back(std::string(key), std::move(value));
      pairs_.push_back({key, bytes_.subspan(value_begin, at_ - value_begin)});
    }
    return true;
  }

  bool SetAlignment(const ordered_json& value) {
    if (!value.is_number_unsigned())
      return Refuse(fmt::format("{} is not an unsigned number", kAlignmentKey));
    const auto alignment = value.get<uint64_t>();
    if (alignment > std::numeric_limits<uint32_t>::max() || alignment % 8 != 0 ||
        !std::has_single_bit(alignment)) {
      return Refuse(fmt::format("{} is {}, not a power of two of at least 8", kAlignmentKey, alignment));
    }
    alignment_ = alignment;
    return true;
  }

  bool ReadValue(ValueType type, std::string_view key, ordered_json& out) {
    if (type == ValueType::kArray) return ReadArray(key, out);
    if (ItemBytesMin(type) == 0) {
      return Refuse(
          fmt::format("key {} has unknown value type {}", Quoted(key), static_cast<uint32_t>(type)));
    }
    if (!ReadItem(type, key, out)) return false;
    if (out.is_string() && !api::IsValidUtf8(out.get_ref<const std::string&>())) {
      return Refuse(fmt::format("the text of key {} is not valid UTF-8", Quoted(key)));
    }
    return true;
  }

  bool ReadArray(std::string_view key, ordered_json& out) {
    uint32_t type_id = 0;
    uint64_t count = 0;
    if (!Read(type_id, "an array") || !Read(count, "an array")) return false;
    const auto type = static_cast<ValueType>(type_id);
    if (type == ValueType::kArray) return Refuse(fmt::format("key {} is an array of arrays", Quoted(key)));
    const uint64_t item_bytes = ItemBytesMin(type);
    if (item_bytes == 0) {
      return Refuse(fmt::format("key {} is an array of unknown type {}", Quoted(key), type_id));
    }
    if (!CheckCount(count, item_bytes, kArrayItemsMax - array_items_,
                    fmt::format("items of key {}", Quoted(key)))) {
      return false;
    }
    array_items_ += count;
    out = ordered_json::array();
    auto& items = out.get_ref<ordered_json::array_t&>();
    items.resize(count);
    return std::ranges::all_of(items, [&](ordered_json& item) { return ReadItem(type, key, item); });
  }

  template <class T>
  bool ReadNumber(std::string_view key, ordered_json& out) {
    T value{};
    if (!Read(value, "a value")) return Refuse(fmt::format("the file ends inside key {}", Quoted(key)));
    if constexpr (std::is_same_v<T, float>) {
      out = ShortestDouble(value);
    } else {
      out = value;
    }
    return true;
  }

  bool ReadBool(std::string_view key, ordered_json& out) {
    uint8_t value = 0;
    if (!Read(value, "a value")) return Refuse(fmt::format("the file ends inside key {}", Quoted(key)));
    if (value > 1) return Refuse(fmt::format("key {} is a bool of value {}", Quoted(key), value));
    out = value == 1;
    return true;
  }

  // REQUIRES: ItemBytesMin(type) > 0.
  bool ReadItem(ValueType type, std::string_view key, ordered_json& out) {
    switch (type) {
      case ValueType::kUint8:
        return ReadNumber<uint8_t>(key, out);
      case ValueType::kInt8:
        return ReadNumber<int8_t>(key, out);
      case ValueType::kUint16:
        return ReadNumber<uint16_t>(key, out);
      case ValueType::kInt16:
        return ReadNumber<int16_t>(key, out);
      case ValueType::kUint32:
        return ReadNumber<uint32_t>(key, out);
      case ValueType::kInt32:
        return ReadNumber<int32_t>(key, out);
      case ValueType::kUint64:
        return ReadNumber<uint64_t>(key, out);
      case ValueType::kInt64:
        return ReadNumber<int64_t>(key, out);
      case ValueType::kFloat32:
        return ReadNumber<float>(key, out);
      case ValueType::kFloat64:
        return ReadNumber<double>(key, out);
      case ValueType::kBool:
        return ReadBool(key, out);
      case ValueType::kString: {
        std::string_view text;
        if (!ReadBytes(text, "a string", kTextBytesMax)) {
          return Refuse(fmt::format("key {}: {}", Quoted(key), error_));
        }
        out = std::string(text);
        return true;
      }
      case ValueType::kArray:
        return false;
    }
    return false;
  }

  bool ReadTensors(uint64_t count) {
    tensors_.reserve(count);
    offsets_.reserve(count);
    std::set<std::string_view> names;
    for (uint64_t i = 0; i < count; ++i) {
      std::string_view name;
      if (!ReadName(name, "a tensor name")) return false;
      if (!names.insert(name).second) return Refuse(fmt::format("tensor {} occurs twice", Quoted(name)));
      Tensor tensor{.name = std::string(name), .type = DataType::kF32, .shape = {}, .data = {}};
      uint64_t offset = 0;
      if (!ReadShape(tensor)) return false;
      if (std::ranges::find(tensor.shape, 0) != tensor.shape.end()) {
        uint32_t type = 0;
        if (!Read(type, "the list of tensors") || !Read(offset, "the list of tensors")) return false;
        empty_.push_back(std::move(tensor.name));
        continue;
      }
      if (!ReadType(tensor) || !Read(offset, "the list of tensors")) return false;
      offsets_.push_back(offset);
      tensors_.push_back(std::move(tensor));
    }
    return true;
  }

  bool ReadShape(Tensor& tensor) {
    uint32_t dimensions = 0;
    if (!Read(dimensions, "the list of tensors")) return false;
    if (dimensions > kDimensionsMax) {
      return Refuse(fmt::format("tensor {} has {} dimensions; at most {} are supported", Quoted(tensor.name),
                                dimensions, kDimensionsMax));
    }
    tensor.shape.resize(dimensions);
    int64_t elements = 1;
    // GGUF lists the fastest-running dimension first.
    for (auto dimension = tensor.shape.rbegin(); dimension != tensor.shape.rend(); ++dimension) {
      if (!Read(*dimension, "the list of tensors")) return false;
      if (*dimension < 0 || __builtin_mul_overflow(elements, *dimension, &elements)) {
        return Refuse(fmt::format("tensor {} has a dimension of {}, or too many elements",
                                  Quoted(tensor.name), *dimension));
      }
    }
    return true;
  }

  bool ReadType(Tensor& tensor) {
    uint32_t id = 0;
    if (!Read(id, "the list of tensors")) return false;
    const GgmlType* type = FindGgmlType(id);
    if (type == nullptr) return Refuse(fmt::format("tensor {} has unknown type {}", Quoted(tensor.name), id));
    const bool integer = id == kGgmlI64 || id == kGgmlI32;
    if (!type->type && !integer) {
      return Refuse(fmt::format("tensor {} has type {}, which this build does not support",
                                Quoted(tensor.name), type->name));
    }
    if (tensor.columns() % type->block_elements != 0) {
      return Refuse(fmt::format("tensor {}: a row of {} elements is not a multiple of the {} block size {}",
                                Quoted(tensor.name), tensor.columns(), type->name, type->block_elements));
    }
    int64_t bytes = 0;
    if (__builtin_mul_overflow(tensor.elements() / type->block_elements, int64_t{type->block_bytes},
                               &bytes)) {
      return Refuse(fmt::format("tensor {} is too large", Quoted(tensor.name)));
    }
    tensor.type = type->type.value_or(DataType::kF32);
    integer_bytes_.push_back(integer ? static_cast<size_t>(type->block_bytes) : 0);
    sizes_.push_back(static_cast<uint64_t>(bytes));
    return true;
  }

  bool PlaceTensors() {
    if (tensors_.empty()) return true;
    const uint64_t begin = (at_ + alignment_ - 1) / alignment_ * alignment_;
    if (begin > bytes_.size()) return Refuse("the file ends before the tensor data");
    const auto data = bytes_.subspan(begin);
    std::vector<ByteRange> ranges;
    ranges.reserve(tensors_.size());
    for (size_t i = 0; i < tensors_.size(); ++i) {
      const uint64_t offset = offsets_[i];
      const uint64_t size = sizes_[i];
      if (offset % alignment_ != 0) {
        return Refuse(fmt::format("tensor {} begins at offset {}, not a multiple of {}",
                                  Quoted(tensors_[i].name), offset, alignment_));
      }
      if (offset > data.size() || size > data.size() - offset) {
        return Refuse(
            fmt::format("tensor {} of {} bytes at offset {} ends beyond the {} bytes of tensor data",
                        Quoted(tensors_[i].name), size, offset, data.size()));
      }
      tensors_[i].data = data.subspan(offset, size);
      ranges.push_back({offset, offset + size, i});
    }
    if (const auto overlap = FindOverlap(std::move(ranges))) {
      return Refuse(fmt::format("tensors {} and {} overlap", Quoted(tensors_[overlap->first].name),
                                Quoted(tensors_[overlap->second].name)));
    }
    return true;
  }

  const std::span<const std::byte> bytes_;
  const std::string& file_;
  uint64_t at_ = 0;  // <= bytes_.size()
  std::string error_;
  uint32_t version_ = 0;
  uint64_t alignment_ = kAlignmentDefault;
  uint64_t array_items_ = 0;  // over all arrays
  uint64_t text_bytes_ = 0;   // over all keys, names and strings
  ordered_json metadata_;
  std::vector<GgufPair> pairs_;
  std::vector<Tensor> tensors_;
  std::vector<std::string> empty_;
  std::vector<uint64_t> offsets_;  // [tensors], from the start of the tensor data
  std::vector<uint64_t> sizes_;    // [tensors], bytes
  // [tensors], of an element of integers: the type in tensors_ means nothing; else 0.
  std::vector<size_t> integer_bytes_;
};

}  // namespace

api::Result<GgufContents> ParseGguf(std::span<const std::byte> bytes, const std::string& file) {
  return Parser(bytes, file).Run();
}

}  // namespace quire::runner::weights
