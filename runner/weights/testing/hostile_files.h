// Builds small GGUF and safetensors files for tests and remembers where their integers lie, so that a test
// can set each of them to a hostile value.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace quire::runner::weights::testing {

inline std::span<const std::byte> AsBytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

class Image {
 public:
  struct Integer {
    size_t offset = 0;
    size_t width = 0;
  };

  template <class T>
  Image& Number(T value) {
    if constexpr (std::is_integral_v<T>) integers_.push_back({bytes_.size(), sizeof(T)});
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(T));
    return *this;
  }
  Image& Raw(std::string_view bytes) {
    bytes_ += bytes;
    return *this;
  }
  // A GGUF string: 64-bit length and bytes.
  Image& Text(std::string_view text) { return Number<uint64_t>(text.size()).Raw(text); }
  Image& PadTo(size_t alignment) {
    bytes_.resize((bytes_.size() + alignment - 1) / alignment * alignment);
    return *this;
  }

  // ---- GGUF ----
  Image& GgufHeader(uint64_t tensors, uint64_t pairs, uint32_t version = 3) {
    return Raw("GGUF").Number<uint32_t>(version).Number<uint64_t>(tensors).Number<uint64_t>(pairs);
  }
  template <class T>
  Image& Pair(std::string_view key, uint32_t type, T value) {
    return Text(key).template Number<uint32_t>(type).Number(value);
  }
  Image& TextPair(std::string_view key, std::string_view value) {
    return Text(key).Number<uint32_t>(8).Text(value);
  }
  Image& ArrayPair(std::string_view key, uint32_t type, uint64_t count) {
    return Text(key).Number<uint32_t>(9).Number<uint32_t>(type).Number<uint64_t>(count);
  }
  Image& TensorInfo(std::string_view name, const std::vector<uint64_t>& dimensions, uint32_t type,
                    uint64_t offset) {
    Text(name).Number<uint32_t>(static_cast<uint32_t>(dimensions.size()));
    for (const uint64_t dimension : dimensions) Number<uint64_t>(dimension);
    return Number<uint32_t>(type).Number<uint64_t>(offset);
  }

  const std::string& bytes() const { return bytes_; }
  const std::vector<Integer>& integers() const { return integers_; }

 private:
  std::string bytes_;
  std::vector<Integer> integers_;
};

// A file whole enough to hold every kind of value and two tensors.
inline Image SmallGguf() {
  Image image;
  image.GgufHeader(2, 16)
      .TextPair("general.architecture", "tiny")
      .Pair<uint32_t>("general.alignment", 4, 32)
      .Pair<uint8_t>("u8", 0, 200)
      .Pair<int8_t>("i8", 1, -3)
      .Pair<uint16_t>("u16", 2, 60000)
      .Pair<int16_t>("i16", 3, -30000)
      .Pair<uint32_t>("u32", 4, 4000000000)
      .Pair<int32_t>("i32", 5, -2000000000)
      .Pair<float>("f32", 6, 1e-5F)
      .Pair<uint8_t>("bool", 7, 1)
      .Pair<uint64_t>("u64", 10, uint64_t{1} << 63)
      .Pair<int64_t>("i64", 11, -(int64_t{1} << 62))
      .Pair<double>("f64", 12, 0.1)
      .ArrayPair("numbers", 5, 3)
      .Number<int32_t>(1)
      .Number<int32_t>(-1)
      .Number<int32_t>(7)
      .ArrayPair("texts", 8, 2)
      .Text("a")
      .Text("\xff\xfe")
      .ArrayPair("nothing", 8, 0)
      .TensorInfo("a.weight", {4, 3}, 0, 0)
      .TensorInfo("b.weight", {32, 2}, 8, 64)
      .PadTo(32)
      .Raw(std::string(64 + 68, '\x11'));
  return image;
}

// Header of `json` padded to a multiple of 8, then `data_bytes` of data.
inline Image Safetensors(std::string json, size_t data_bytes) {
  json.resize((json.size() + 7) / 8 * 8, ' ');
  Image image;
  image.Text(json).Raw(std::string(data_bytes, '\x22'));
  return image;
}

inline Image SmallSafetensors() {
  return Safetensors(R"({"__metadata__":{"format":"pt"},)"
                     R"("a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                     R"("b":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]},)"
                     R"("c":{"dtype":"I64","shape":[],"data_offsets":[32,40]}})",
                     40);
}

// Calls `parse` with the image damaged in every way that matters, one at a time: each integer set to 0, 1,
// -1, the largest of its sign and the top bit, each byte flipped several ways, and the image cut at each
// length. A parser that survives all of it, under the sanitizers, is done; what it answers is its own affair.
inline void ForEachDamage(const Image& image, const std::function<void(std::string_view)>& parse) {
  for (const Image::Integer& integer : image.integers()) {
    for (const uint64_t value : {uint64_t{0}, uint64_t{1}, ~uint64_t{0}, ~uint64_t{0} >> 1, uint64_t{1} << 63,
                                 uint64_t{0x7fffffff}, uint64_t{0x80000000}, ~uint64_t{0} / 34}) {
      std::string damaged = image.bytes();
      std::memcpy(damaged.data() + integer.offset, &value, integer.width);
      parse(damaged);
    }
  }
  for (size_t at = 0; at < image.bytes().size(); ++at) {
    for (const unsigned mask : {0x01U, 0x80U, 0xffU, 0x20U}) {
      std::string damaged = image.bytes();
      damaged[at] = static_cast<char>(static_cast<unsigned char>(damaged[at]) ^ mask);
      parse(damaged);
    }
    parse(std::string_view(image.bytes()).substr(0, at));
  }
}

// Peak resident memory of this process so far.
inline int64_t PeakBytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

// The memory that a file with excessive counts may use before it is rejected.
inline constexpr int64_t kGrowthBytesMax = int64_t{16} << 20;

// A directory that is gone with the test.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "quire-test-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path Write(const std::string& name, std::string_view bytes) const {
    std::ofstream stream(path_ / name, std::ios::binary);
    stream.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    EXPECT_TRUE(stream.flush());
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace quire::runner::weights::testing
