#include "support/generators.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "support/tensor.hpp"

namespace actzip::testing {
namespace {
Values filled(std::int64_t elems, double value) { return Values(static_cast<std::size_t>(elems), value); }

std::int64_t integer_limit(DType dtype) {
  switch (dtype) {
    case DType::boolean: return 2;
    case DType::u8: return 256;
    case DType::i8: return 128;
    case DType::i16: return 32768;
    case DType::i32: return std::int64_t{1} << 31;
    default: return std::int64_t{1} << 40;
  }
}
}  // namespace

std::uint64_t Random::next() {
  state_ += 0x9e3779b97f4a7c15ULL;
  std::uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

double Random::uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }

double Random::normal() {
  const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
  return radius * std::cos(2.0 * std::numbers::pi * uniform());
}

std::int64_t Random::below(std::int64_t bound) {
  return static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(bound));
}

Values gaussian(std::int64_t elems, std::uint64_t seed) {
  Random random(seed);
  Values values = filled(elems, 0.0);
  for (double& v : values) v = random.normal();
  return values;
}

Values relu(std::int64_t elems, std::uint64_t seed) {
  Values values = gaussian(elems, seed);
  for (double& v : values) v = std::max(v, 0.0);
  return values;
}

Values one_spike(std::int64_t elems, std::uint64_t seed) {
  Values values = filled(elems, 0.0);
  if (elems > 0) values[static_cast<std::size_t>(Random(seed).below(elems))] = 10.0;
  return values;
}

Values two_spikes(std::int64_t elems, std::uint64_t seed) {
  Values values = one_spike(elems, seed);
  if (elems > 0) values[static_cast<std::size_t>(Random(seed + 1).below(elems))] = 10.0;
  return values;
}

Values shared_component(std::int64_t elems, std::uint64_t seed) {
  Values values = gaussian(elems, seed);
  for (double& v : values) v = 3.0 + 0.1 * v;
  return values;
}

Values all_negative(std::int64_t elems, std::uint64_t seed) {
  Values values = gaussian(elems, seed);
  for (double& v : values) v = -0.5 - std::abs(v);
  return values;
}

Values constant(std::int64_t elems, double value) { return filled(elems, value); }

Values signed_zeros(std::int64_t elems) {
  Values values = filled(elems, 0.0);
  for (std::size_t i = 1; i < values.size(); i += 2) values[i] = -0.0;
  return values;
}

Values denormals(DType dtype, std::int64_t elems, std::uint64_t seed) {
  Random random(seed);
  Values values = filled(elems, 0.0);
  for (double& v : values) v = static_cast<double>(random.below(129) - 64) * least(dtype);
  return values;
}

Values integers_below(std::int64_t bound, std::int64_t elems, std::uint64_t seed) {
  Random random(seed);
  Values values = filled(elems, 0.0);
  for (double& v : values) v = static_cast<double>(random.below(bound));
  if (elems > 1) values.back() = static_cast<double>(bound - 1);
  return values;
}

Bytes random_bytes(std::size_t count, std::uint64_t seed) {
  Random random(seed);
  Bytes bytes(count);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random.next() >> 56);
  return bytes;
}

std::span<const NamedData> training_data() {
  static constexpr std::array<NamedData, 5> kData{{{"gaussian", gaussian},
                                                   {"relu", relu},
                                                   {"one spike", one_spike},
                                                   {"two spikes", two_spikes},
                                                   {"shared component", shared_component}}};
  return kData;
}

Bytes sample(const CodecSpec& spec, DType dtype, std::int64_t elems, std::uint64_t seed) {
  if (is_floating(dtype)) {
    Values values = gaussian(elems, seed);
    for (std::size_t i = 0; i < values.size(); i += 5) values[i] = 0.0;
    return to_bytes(dtype, values);
  }
  std::int64_t bound = integer_limit(dtype);
  if (const auto* index = std::get_if<Index>(&spec)) bound = std::min(bound, index->bound);
  Values values = integers_below(bound, elems, seed);
  for (std::size_t i = 0; i < values.size(); i += 5) values[i] = 0.0;
  return to_bytes(dtype, values);
}

}  // namespace actzip::testing
