// Every backend must write and read the bytes of tests/golden, equal byte for byte, or for `rotated` within the
// tolerance of format.md, section 7.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "conformance/runner.hpp"
#include "dispatch.hpp"
#include "format/geometry.hpp"
#include "math/element.hpp"
#include "support/backends.hpp"

namespace actzip::testing {
namespace {
using nlohmann::json;

std::string golden_path(const std::string& name) { return std::string(ACTZIP_GOLDEN_DIR) + "/" + name; }

std::ifstream open(const std::string& name) {
  std::ifstream file(golden_path(name), std::ios::binary);
  if (!file) throw std::runtime_error(golden_path(name) + " cannot be opened");
  return file;
}

const json& manifest() {
  static const json parsed = [] {
    std::ifstream file = open("manifest.json");
    return json::parse(file);
  }();
  return parsed;
}

/// Bytes of golden.bin that `place`, [offset, bytes], names.
Bytes part(const json& place) {
  std::ifstream file = open("golden.bin");
  file.seekg(place.at(0).get<std::streamoff>());
  Bytes bytes(place.at(1).get<std::size_t>());
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (!file) throw std::runtime_error("golden.bin is shorter than manifest.json says");
  return bytes;
}

/// What format.md allows between two computations of `rotated` that start or end in `dtype`; the CPU computes f32 in
/// f32.
double tolerance(DType dtype, DeviceKind device) {
  return dtype == DType::f32 && device == DeviceKind::cpu ? 0x1p-18 : 0x1p-6;
}

double smallest_step(DType dtype) { return dtype == DType::f16 ? 0x1p-24 : dtype == DType::bf16 ? 0x1p-133 : 0x1p-149; }

std::vector<double> widened(const Bytes& bytes, DType dtype) {
  std::vector<double> values;
  with_float(dtype, [&]<DType Type>() {
    using Element = math::Element<Type>;
    std::vector<typename Element::Storage> elements(bytes.size() / sizeof(typename Element::Storage));
    std::memcpy(elements.data(), bytes.data(), bytes.size());
    for (const auto element : elements) values.push_back(static_cast<double>(Element::widen(element)));
  });
  return values;
}

double root_mean_square(std::span<const double> values) {
  double squares = 0.0;
  for (const double value : values) squares += value * value;
  return std::sqrt(squares / static_cast<double>(values.size()));
}

void expect_close(const Bytes& got, const Bytes& wanted, DType dtype, const format::Geometry& geometry,
                  double tolerance) {
  ASSERT_EQ(got.size(), wanted.size());
  const std::vector<double> a = widened(got, dtype);
  const std::vector<double> b = widened(wanted, dtype);
  for (std::int64_t g = 0; g < geometry.groups(); ++g) {
    const format::GroupRange range = format::group_range(geometry, g);
    const auto first = static_cast<std::size_t>(range.first);
    const double rms = root_mean_square(std::span(b).subspan(first, static_cast<std::size_t>(range.count)));
    for (std::size_t i = first; i < first + static_cast<std::size_t>(range.count); ++i) {
      if (std::isnan(b[i])) {
        ASSERT_TRUE(std::isnan(a[i])) << "element " << i;
      } else {
        const double allowed = tolerance * std::max(rms, std::abs(b[i])) + smallest_step(dtype);
        ASSERT_LE(std::abs(a[i] - b[i]), allowed) << "element " << i << ": " << a[i] << ", golden " << b[i];
      }
    }
  }
}

std::uint32_t bits_at(const Bytes& bytes, std::size_t first, int count) {
  std::uint32_t result = 0;
  for (int k = 0; k < count; ++k) {
    const std::size_t bit = first + static_cast<std::size_t>(k);
    result |= (std::to_integer<std::uint32_t>(bytes.at(bit / 8)) >> (bit % 8) & 1U) << k;
  }
  return result;
}

Bytes slice(const Bytes& bytes, std::int64_t offset, std::int64_t count) {
  return {bytes.begin() + offset, bytes.begin() + offset + count};
}

/// Means and scales of two encodings, pair by pair. A mean that was rounded to the other side moves all of its group:
/// what is coded there is compared by the rules of format.md in test_conformance.py, and not here. Gives the others.
std::vector<bool> expect_same_statistics(const std::vector<double>& a, const std::vector<double>& b, double allowed,
                                         int group) {
  std::vector<bool> same;
  for (std::size_t g = 0; g + 1 < b.size(); g += 2) {
    const double spread = b[g + 1] * std::sqrt(static_cast<double>(group));
    EXPECT_EQ(std::isnan(a[g]), std::isnan(b[g])) << "group " << g / 2;
    if (!std::isnan(b[g])) {
      EXPECT_LE(std::abs(a[g] - b[g]), allowed * std::max(std::abs(b[g]), spread)) << "mean of group " << g / 2;
    }
    same.push_back(std::isnan(b[g]) || a[g] == b[g]);
    if (!same.back()) continue;
    EXPECT_LE(std::abs(a[g + 1] - b[g + 1]), allowed * b[g + 1]) << "scale of group " << g / 2;
  }
  return same;
}

void expect_same_rotated(const Case& test, const Bytes& got, const Bytes& wanted, const Bytes& doubtful,
                         DeviceKind device) {
  const auto& spec = std::get<Rotated>(test.spec);
  const format::Geometry geometry = format::geometry(spec, test.elems, test.segments);
  const format::Sections sections = format::sections(spec, geometry, test.dtype, test.segments.total_bits);
  ASSERT_EQ(got.size(), wanted.size());
  EXPECT_EQ(slice(got, sections.mask, sections.total - sections.mask),
            slice(wanted, sections.mask, sections.total - sections.mask));

  const DType stats = spec.stats == StatsType::bf16 ? DType::bf16 : DType::f32;
  const double allowed = std::max(tolerance(test.dtype, device), tolerance(stats, device));
  const std::vector<bool> same = expect_same_statistics(
      widened(slice(got, sections.stats, sections.stats_used), stats),
      widened(slice(wanted, sections.stats, sections.stats_used), stats), allowed, geometry.group);
  EXPECT_EQ(slice(got, 0, sections.stats), slice(wanted, 0, sections.stats)) << "bits and starts of the segments";

  const Bytes a = slice(got, sections.codes, sections.codes_used);
  const Bytes b = slice(wanted, sections.codes, sections.codes_used);
  const std::int64_t run = format::run_codes(spec, geometry);
  for (std::int64_t s = 0; s < geometry.segments; ++s) {
    int bits = spec.bits.value;
    std::size_t first = static_cast<std::size_t>(s * sections.code_words) * 32;
    if (sections.has_segment_bits()) {
      bits = std::to_integer<int>(wanted.at(static_cast<std::size_t>(s)));
      first = std::size_t{bits_at(wanted, static_cast<std::size_t>(sections.starts + 4 * s) * 8, 32)} * 32;
    }
    for (std::int64_t i = 0; i < run; ++i) {
      const std::int64_t g = s * (geometry.groups() / geometry.segments) + i / geometry.group;
      if (!same.at(static_cast<std::size_t>(g))) continue;
      if (bits_at(doubtful, static_cast<std::size_t>(s * run + i), 1) != 0) continue;
      const std::size_t at = first + static_cast<std::size_t>(i * bits);
      ASSERT_EQ(bits_at(a, at, bits), bits_at(b, at, bits)) << "code " << i << " of segment " << s;
    }
  }
}

class Golden : public BackendTest {};

TEST_P(Golden, encode_writes_the_golden_bytes) {
  int compared = 0;
  for (const json& row : manifest().at("cases")) {
    SCOPED_TRACE(row.dump());
    const Case test = read_case(row, "dtype");
    const Encoded encoded = encode_on(device(), test, part(row.at("input")));
    const Bytes wanted = part(row.at("encoded"));
    if (row.contains("doubtful")) {
      expect_same_rotated(test, encoded.bytes, wanted, part(row.at("doubtful")), device().kind);
    } else {
      EXPECT_EQ(encoded.bytes, wanted);
    }
    if (row.contains("overflow")) {
      EXPECT_EQ(bits_at(encoded.workspace, 0, 32), row.at("overflow").get<std::uint32_t>());
    }
    ++compared;
  }
  EXPECT_EQ(compared, 260);
}

TEST_P(Golden, decode_gives_the_golden_elements) {
  int compared = 0;
  for (const json& row : manifest().at("cases")) {
    SCOPED_TRACE(row.dump());
    const Case test = read_case(row, "decode_dtype");
    const Bytes decoded = decode_on(device(), test, part(row.at("encoded")));
    const Bytes wanted = part(row.at("decoded"));
    if (row.contains("doubtful") && test.dtype != DType::boolean) {
      expect_close(decoded, wanted, test.dtype,
                   format::geometry(std::get<Rotated>(test.spec), test.elems, test.segments),
                   tolerance(test.dtype, device().kind));
    } else {
      EXPECT_EQ(decoded, wanted);
    }
    ++compared;
  }
  EXPECT_EQ(compared, 260);
}

INSTANTIATE_TEST_SUITE_P(Cpu, Golden, ::testing::ValuesIn(cpu_backends()), backend_name);
INSTANTIATE_TEST_SUITE_P(Cuda, Golden, ::testing::ValuesIn(cuda_backends()), backend_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Golden);

}  // namespace
}  // namespace actzip::testing
