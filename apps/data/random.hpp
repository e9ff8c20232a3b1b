// Random numbers for data sets. Each is a hash of (seed, epoch, record, number of the draw), so it does not depend on
// the thread that draws or on earlier draws.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "math/hash.hpp"

namespace actzip::data {

/// The random numbers of one record in one epoch, at most 65,536.
class Draws {
 public:
  Draws(std::uint64_t seed, std::uint64_t epoch, std::uint64_t record)
      : Draws(epoch_key(seed, epoch, Purpose::records), record << 16U) {}

  /// Returns the stream for shuffling an epoch, which may be of any length.
  static Draws for_order(std::uint64_t seed, std::uint64_t epoch) {
    return {epoch_key(seed, epoch, Purpose::order), 0};
  }

  std::uint32_t word() { return math::hash_word64(key_, counter_++); }

  /// Returns an integer from 0 to `bound` - 1.
  std::uint32_t below(std::uint32_t bound) {
    return static_cast<std::uint32_t>((static_cast<std::uint64_t>(word()) * bound) >> 32U);
  }

  /// Returns a number in [0, 1).
  float unit() { return static_cast<float>(word() >> 8U) * 0x1p-24F; }
  float between(float least, float most) { return least + (most - least) * unit(); }

 private:
  enum class Purpose : std::uint8_t { records, order };

  Draws(math::HashKey key, std::uint64_t counter) : key_(key), counter_(counter) {}

  static math::HashKey epoch_key(std::uint64_t seed, std::uint64_t epoch, Purpose purpose) {
    const math::HashKey key = math::hash_key(seed);
    const std::uint64_t number = 4 * epoch + 2 * static_cast<std::uint64_t>(purpose);
    const std::uint64_t upper = math::hash_word64(key, number);
    return math::hash_key(upper << 32U | math::hash_word64(key, number + 1));
  }

  math::HashKey key_;
  std::uint64_t counter_;
};

/// Returns the numbers 0 to count - 1 in the order of an epoch: a Fisher-Yates shuffle, starting at the end.
inline std::vector<std::size_t> epoch_order(std::size_t count, std::uint64_t seed, std::uint64_t epoch) {
  std::vector<std::size_t> order(count);
  for (std::size_t i = 0; i < count; ++i) order[i] = i;
  Draws draws = Draws::for_order(seed, epoch);
  for (std::size_t i = count; i > 1; --i) std::swap(order[i - 1], order[draws.below(static_cast<std::uint32_t>(i))]);
  return order;
}

}  // namespace actzip::data
