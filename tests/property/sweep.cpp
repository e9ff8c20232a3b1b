#include "property/sweep.hpp"

#include <initializer_list>
#include <tuple>
#include <variant>

namespace actzip::testing {

std::int64_t group_of(const CodecSpec& spec) {
  if (const auto* affine = std::get_if<Affine>(&spec)) return affine->group.value;
  if (const auto* rotated = std::get_if<Rotated>(&spec)) return rotated->group.value;
  if (const auto* dual = std::get_if<Dual>(&spec)) return dual->size.positions() * dual->last;
  return 256;
}

std::array<std::int64_t, kSizeCount> sweep_sizes(const CodecSpec& spec) {
  const std::int64_t g = group_of(spec);
  return {0, 1, 7, 8, 9, 31, 33, g - 1, g, g + 1, 2 * g + 3, 7 * g, 65537};
}

DType output_type(const CodecSpec& spec, DType encoded) {
  return std::holds_alternative<Index>(spec) ? DType::i64 : encoded;
}

double floor_of(const CodecSpec& spec) {
  const auto* affine = std::get_if<Affine>(&spec);
  return affine == nullptr ? Affine{}.floor : affine->floor;
}

bool uses_noise(const CodecSpec& spec) {
  if (const auto* affine = std::get_if<Affine>(&spec)) return affine->rounding != Rounding::nearest;
  return std::holds_alternative<Rotated>(spec) || std::holds_alternative<Dual>(spec);
}

std::vector<CodecSpec> registry_variants() {
  std::vector<CodecSpec> result;
  for (const CodecInfo& info : codecs()) result.insert(result.end(), info.variants.begin(), info.variants.end());
  return result;
}

std::vector<CodecSpec> further_variants() {
  std::vector<CodecSpec> result;
  for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic, Rounding::dithered}) {
    for (const int group : {32, 64, 128, 512, 1024}) {
      result.emplace_back(Affine{Bits(2), rounding, GroupSize(group), StatsType::bf16});
    }
    for (const int bits : {1, 3, 5, 8}) {
      result.emplace_back(Affine{Bits(bits), rounding, GroupSize(256), StatsType::f32});
      result.emplace_back(Affine{Bits(bits), rounding, GroupSize(32), StatsType::f32});
    }
  }
  result.emplace_back(Affine{Bits(8), Rounding::nearest, GroupSize(256), StatsType::f32, -32.0F});
  for (const bool mask_plane : {false, true}) {
    for (int bits = 1; bits <= 4; ++bits) {
      result.emplace_back(Rotated{Bits(bits), GroupSize(128), StatsType::bf16, mask_plane});
      result.emplace_back(Rotated{Bits(bits), GroupSize(256), StatsType::f32, mask_plane});
    }
  }
  result.emplace_back(Rotated{Bits(2), GroupSize(128), StatsType::f32, true});
  for (const auto& [block, size, last] :
       std::initializer_list<std::tuple<std::int64_t, MapSize, std::int64_t>>{{8, {1, 14, 14}, 1},
                                                                              {8, {1, 7, 7}, 16},
                                                                              {8, {1, 20, 16}, 1},
                                                                              {8, {1, 28, 28}, 1},
                                                                              {8, {1, 7, 7}, 1},
                                                                              {8, {1, 4, 4}, 1},
                                                                              {8, {1, 33, 35}, 1},
                                                                              {8, {1, 12, 21}, 40},
                                                                              {4, {1, 1, 37}, 1},
                                                                              {16, {1, 28, 28}, 3},
                                                                              {2, {3, 5, 9}, 1},
                                                                              {8, {9, 10, 12}, 8},
                                                                              {32, {1, 40, 33}, 1}}) {
    result.emplace_back(Dual{Bits(2), Rounding::stochastic, block, size, last});
    result.emplace_back(Dual{Bits(5), Rounding::dithered, block, size, last});
  }
  return result;
}

std::vector<CodecSpec> all_variants() {
  std::vector<CodecSpec> result = registry_variants();
  const std::vector<CodecSpec> more = further_variants();
  result.insert(result.end(), more.begin(), more.end());
  return result;
}

std::vector<Combination> combinations() {
  std::vector<Combination> result;
  for (const CodecSpec& spec : all_variants()) {
    for (const DType dtype : codec_info(spec).encodes) {
      for (const std::int64_t elems : sweep_sizes(spec)) result.push_back({spec, dtype, elems});
    }
  }
  return result;
}

std::string describe(const CodecSpec& spec, DType dtype, std::int64_t elems) {
  return to_string(spec) + " of " + std::to_string(elems) + " " + std::string(to_string(dtype)) + " elements";
}

std::string describe(const Combination& c) { return describe(c.spec, c.dtype, c.elems); }

}  // namespace actzip::testing
