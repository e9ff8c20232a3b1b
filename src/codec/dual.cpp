#include "actzip/dual.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>

#include "actzip/codec.hpp"
#include "format/dual.hpp"

namespace actzip {

namespace {

using Dims = std::array<std::size_t, kMaxRank>;

/// Whether strides decrease along `dims`. Dimensions of size 1 do not count.
bool in_order(const Shape& shape, const Dims& dims) {
  std::int64_t above = std::numeric_limits<std::int64_t>::max();
  for (std::size_t i = 0; i < static_cast<std::size_t>(shape.rank); ++i) {
    if (shape.sizes[dims[i]] == 1) continue;
    const std::int64_t stride = shape.strides[dims[i]];
    if (stride <= 0 || stride >= above) return false;
    above = stride;
  }
  return true;
}

}  // namespace

std::optional<Dual> dual_spec(const Dual& parameters, const Shape& shape) {
  constexpr int kLeastRank = 3;
  constexpr int kMostRank = 5;
  if (shape.rank < kLeastRank || shape.rank > kMostRank) return std::nullopt;
  const auto rank = static_cast<std::size_t>(shape.rank);
  const auto extent = [&](std::size_t behind) { return behind + 2 < rank ? shape.sizes[rank - 1 - behind] : 1; };
  Dual spec = parameters;
  spec.size = {extent(2), extent(1), extent(0)};
  if (*std::min_element(shape.sizes.begin(), shape.sizes.begin() + shape.rank) < 1) return std::nullopt;
  if (spec.size.positions() == 1) return std::nullopt;
  Dims first{};
  Dims last{};
  for (std::size_t i = 0; i < rank; ++i) {
    first[i] = i;
    last[i] = i == 0 ? 0 : i + 1 == rank ? 1 : i + 1;
  }
  spec.last = 1;
  if (in_order(shape, first)) return spec;
  spec.last = shape.sizes[1];
  if (in_order(shape, last)) return spec;
  return std::nullopt;
}

DualBytes dual_bytes(const Dual& spec, std::int64_t elems) {
  (void)encoded_bytes(spec, DType::f32, elems);  // throws if there is no layout
  const format::DualLayout layout = format::dual_layout(spec, elems);
  const format::Sections sections = format::sections(spec, format::geometry(spec, elems, {}), DType::f32);
  const auto statistics = static_cast<std::size_t>(layout.averages_offset());
  return {.statistics = statistics,
          .averages = static_cast<std::size_t>(sections.stats_used) - statistics,
          .codes = static_cast<std::size_t>(sections.codes_used)};
}

}  // namespace actzip
