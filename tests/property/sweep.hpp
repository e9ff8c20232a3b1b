// The combinations for the property tests: the registry, and parameters that its variants leave at their defaults.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "actzip/registry.hpp"
#include "actzip/spec.hpp"
#include "actzip/types.hpp"

namespace actzip::testing {

inline constexpr std::size_t kSizeCount = 13;

/// Sizes to test: 0, 1, around 8, 32 and a group, seven groups, and a prime that spans many groups.
std::array<std::int64_t, kSizeCount> sweep_sizes(const CodecSpec& spec);

/// Elements of a group, or of a sample of `dual`; an arbitrary number for codecs without groups.
std::int64_t group_of(const CodecSpec& spec);

/// A type to decode to: the encoded type, or i64 for `index`, which cannot decode to every type it encodes.
DType output_type(const CodecSpec& spec, DType encoded);

/// The floor of an `affine` spec; -inf for all others and if it has none.
double floor_of(const CodecSpec& spec);

/// Whether the encoding depends on the seed.
bool uses_noise(const CodecSpec& spec);

/// All variants of all codecs, as the registry lists them.
std::vector<CodecSpec> registry_variants();

/// Other group sizes, statistics in f32, a floor, and other maps, for some widths.
std::vector<CodecSpec> further_variants();

/// The registry's variants and the further ones.
std::vector<CodecSpec> all_variants();

/// All variants of type `Codec`.
template <class Codec>
std::vector<Codec> variants_of() {
  std::vector<Codec> result;
  for (const CodecSpec& spec : all_variants()) {
    if (const auto* codec = std::get_if<Codec>(&spec)) result.push_back(*codec);
  }
  return result;
}

struct Combination {
  CodecSpec spec;
  DType dtype;
  std::int64_t elems;
};

/// Every variant x every element type it encodes x every size.
std::vector<Combination> combinations();

std::string describe(const CodecSpec& spec, DType dtype, std::int64_t elems);
std::string describe(const Combination& combination);

inline constexpr std::array kFloats{DType::f32, DType::f16, DType::bf16};

}  // namespace actzip::testing
