#include "runner/weights/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "runner/weights/byte_ranges.h"
#include "runner/weights/text.h"

namespace quire::runner::weights {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian");

constexpr uint64_t kHeaderBytesMax = uint64_t{64} << 20;
constexpr size_t kShapeDimensionsMax = 8;
constexpr size_t kFileTensorsMax = 1U << 20;

struct Dtype {
  std::string_view name;
  int64_t bytes;
  std::optional<DataType> type;
};

constexpr auto kDtypes = std::to_array<Dtype>({
    {"F32", 4, DataType::kF32},
    {"F16", 2, DataType::kF16},
    {"BF16", 2, DataType::kBF16},
    {"BOOL", 1, {}},
    {"U8", 1, {}},
    {"I8", 1, {}},
    {"U16", 2, {}},
    {"I16", 2, {}},
    {"U32", 4, {}},
    {"I32", 4, {}},
    {"U64", 8, {}},
    {"I64", 8, {}},
    {"F64", 8, {}},
    {"F8_E4M3", 1, {}},
    {"F8_E5M2", 1, {}},
    {"F8_E8M0", 1, {}},
});

struct HeaderEntry {
  std::string name;
  const Dtype* dtype = nullptr;
  std::vector<int64_t> shape;
  std::vector<uint64_t> offsets;  // begin and end
  bool has_shape = false;
};

// Builds the entries while the header is parsed, so that neither depth nor repeated keys cost memory. Knows
// one shape of document only: {"__metadata__": {string: string}, NAME: {"dtype": string, "shape": [..],
// "data_offsets": [..]}}.
class HeaderHandler : public nlohmann::json_sax<json> {
 public:
  std::vector<HeaderEntry> entries;
  std::string reason;  // why parsing stopped

  bool start_object(size_t) override {
    if (depth_ == 0 || (depth_ == 1 && field_ == Field::kNone)) {
      ++depth_;
      return true;
    }
    return Refuse("unexpected object");
  }

  bool end_object() override {
    --depth_;
    if (depth_ != 1) return true;
    if (in_metadata_) {
      in_metadata_ = false;
      return true;
    }
    const HeaderEntry& entry = entries.back();
    if (entry.dtype == nullptr) return RefuseEntry("has no dtype");
    if (!entry.has_shape) return RefuseEntry("has no shape");
    if (entry.offsets.size() != 2) return RefuseEntry("has no pair of data_offsets");
    return true;
  }

  bool key(std::string& text) override {
    if (depth_ == 1) return StartEntry(text);
    if (in_metadata_) return true;
    const HeaderEntry& entry = entries.back();
    bool repeated = false;
    if (text == "dtype") {
      field_ = Field::kDtype;
      repeated = entry.dtype != nullptr;
    } else if (text == "shape") {
      field_ = Field::kShape;
      repeated = entry.has_shape;
    } else if (text == "data_offsets") {
      field_ = Field::kOffsets;
      repeated = !entry.offsets.empty();
    } else {
      return RefuseEntry(fmt::format("has a field {}", Quoted(text)));
    }
    return !repeated || RefuseEntry(fmt::format("has a duplicate field {}", Quoted(text)));
  }

  bool string(std::string& text) override {
    if (in_metadata_ && depth_ == 2) return true;
    if (field_ != Field::kDtype) return Refuse("unexpected string");
    field_ = Field::kNone;
    const auto* found = std::ranges::find(kDtypes, std::string_view(text), &Dtype::name);
    if (found == kDtypes.end()) return RefuseEntry(fmt::format("has unknown dtype {}", Quoted(text)));
    entries.back().dtype = found;
    return true;
  }

  bool start_array(size_t) override {
    if (in_array_ || (field_ != Field::kShape && field_ != Field::kOffsets))
      return Refuse("unexpected array");
    in_array_ = true;
    if (field_ == Field::kShape) entries.back().has_shape = true;
    return true;
  }

  bool end_array() override {
    in_array_ = false;
    field_ = Field::kNone;
    return true;
  }

  bool number_unsigned(uint64_t value) override {
    if (!in_array_) return Refuse("unexpected number");
    HeaderEntry& entry = entries.back();
    if (field_ == Field::kOffsets) {
      if (entry.offsets.size() == 2) return RefuseEntry("has more than two data_offsets");
      entry.offsets.push_back(value);
      return true;
    }
    if (entry.shape.size() == kShapeDimensionsMax) return RefuseEntry("has too many dimensions");
    if (value == 0 || value > static_cast<uint64_t>(INT64_MAX)) {
      return RefuseEntry(fmt::format("has a dimension of {}", value));
    }
    entry.shape.push_back(static_cast<int64_t>(value));
    return true;
  }

  bool number_integer(int64_t value) override {
    return in_array_ ? RefuseEntry(fmt::format("has the number {}", value)) : Refuse("unexpected number");
  }
  bool number_float(double, const std::string& text) override {
    return Refuse(fmt::format("unexpected number {}", Quoted(text)));
  }
  bool null() override { return Refuse("unexpected null"); }
  bool boolean(bool) override { return Refuse("unexpected boolean"); }
  bool binary(json::binary_t&) override { return Refuse("unexpected binary value"); }
  bool parse_error(size_t position, const std::string&, const json::exception&) override {
    return Refuse(fmt::format("not valid JSON at byte {}", position));
  }

 private:
  enum class Field : uint8_t { kNone, kDtype, kShape, kOffsets };

  bool Refuse(std::string text) {
    reason = fmt::format("header: {}", text);
    return false;
  }
  bool RefuseEntry(const std::string& text) {
    reason = fmt::format("tensor {} {}", Quoted(entries.back().name), text);
    return false;
  }

  bool StartEntry(const std::string& name) {
    if (!names_.insert(name).second) {
      reason = fmt::format("tensor {} occurs twice", Quoted(name));
      return false;
    }
    in_metadata_ = name == "__metadata__";
    if (in_metadata_) return true;
    if (name.empty()) return Refuse("a tensor has an empty name");
    if (entries.size() == kFileTensorsMax) return Refuse("too many tensors");
    entries.push_back({.name = name, .dtype = nullptr, .shape = {}, .offsets = {}, .has_shape = false});
    return true;
  }

  int depth_ = 0;  // open objects: 1 in the header, 2 in a tensor or __metadata__
  bool in_metadata_ = false;
  bool in_array_ = false;
  Field field_ = Field::kNone;
  std::set<std::string> names_;
};

// The entry's bytes in `data`, or the reason why there are none.
std::expected<std::span<const std::byte>, std::string> Place(const HeaderEntry& entry,
                                                             std::span<const std::byte> data) {
  int64_t bytes = entry.dtype->bytes;
  for (const int64_t dimension : entry.shape) {
    if (__builtin_mul_overflow(bytes, dimension, &bytes)) return std::unexpected("has too many elements");
  }
  const uint64_t begin = entry.offsets[0];
  const uint64_t end = entry.offsets[1];
  if (begin > end || end > data.size()) {
    return std::unexpected(
        fmt::format("has data_offsets [{}, {}], but there are {} bytes of data", begin, end, data.size()));
  }
  if (end - begin != static_cast<uint64_t>(bytes)) {
    return std::unexpected(fmt::format("has {} bytes of data, but its shape and dtype {} need {}",
                                       end - begin, entry.dtype->name, bytes));
  }
  return data.subspan(begin, end - begin);
}

}  // namespace

api::Result<std::vector<SafetensorsEntry>> ParseSafetensors(std::span<const std::byte> bytes,
                                                            const std::string& file) {
  const auto refuse = [&file](std::string_view reason) {
    return api::Fail(api::ErrorCode::kBadModel, fmt::format("{}: {}", file, reason));
  };
  uint64_t header_bytes = 0;
  const std::string_view stand_in = StandIn({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (!stand_in.empty()) return refuse(stand_in);
  if (bytes.size() < sizeof(header_bytes)) return refuse("too short for a safetensors file");
  std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
  const auto rest = bytes.subspan(sizeof(header_bytes));
  if (header_bytes > rest.size()) {
    return refuse(fmt::format("a header of {} bytes does not fit in the file", header_bytes));
  }
  if (header_bytes > kHeaderBytesMax)
    return refuse(fmt::format("a header of {} bytes is too long", header_bytes));
  const auto* header = reinterpret_cast<const char*>(rest.data());
  const auto data = rest.subspan(header_bytes);

  HeaderHandler handler;
  if (header_bytes == 0) return refuse("the header is empty");
  if (!json::sax_parse(header, header + header_bytes, &handler)) return refuse(handler.reason);

  std::vector<SafetensorsEntry> entries;
  std::vector<ByteRange> ranges;
  entries.reserve(handler.entries.size());
  ranges.reserve(handler.entries.size());
  for (HeaderEntry& entry : handler.entries) {
    const auto placed = Place(entry, data);
    if (!placed) return refuse(fmt::format("tensor {} {}", Quoted(entry.name), placed.error()));
    ranges.push_back({entry.offsets[0], entry.offsets[1], entries.size()});
    entries.push_back({.name = std::move(entry.name),
                       .dtype = entry.dtype->name,
                       .type = entry.dtype->type,
                       .shape = std::move(entry.shape),
                       .data = *placed});
  }
  if (const auto overlap = FindOverlap(std::move(ranges))) {
    return refuse(fmt::format("tensors {} and {} overlap", Quoted(entries[overlap->first].name),
                              Quoted(entries[overlap->second].name)));
  }
  return entries;
}

}  // namespace quire::runner::weights
