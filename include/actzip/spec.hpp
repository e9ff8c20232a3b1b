// A codec with its parameters, as a value: compare it, print it, parse it, store it beside the bytes.
//
//   affine:2                        2 bits, stochastic, groups of 256, min and step in bf16
//   affine:4:dithered:group=128:stats=f32
//   affine:8:nearest:floor=-32      values below -32, -inf too, count as -32
//   rotated:2                       2 bits, groups of 256
//   rotated:2:mask                  with a mask plane, for data after a ReLU
//   mask:lo=0:on=1.25               1 where x > 0; decoded as 0 or 1.25
//   index:bound=50257               integers in [0, 50257), in 16 bits
//   cast:bf16
//   copy
//   dual:2:size=14x14               block averages and a residual in 2 bits, for maps of 14 x 14
//   dual:2:block=4:size=14x14:last=64   the same with blocks of 4 x 4 and 64 channels that vary fastest
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <variant>

#include "actzip/types.hpp"

namespace actzip {

enum class Rounding : std::uint8_t {
  nearest,     ///< smallest error for each element; biased
  stochastic,  ///< up or down at random; unbiased; a value on a level stays there
  /// Stochastic, and decoding subtracts the same noise: unbiased, half the variance; zeros do not stay zeros.
  dithered,
};

/// How the two numbers of a group (affine: min, step; rotated: mean, scale) are stored.
enum class StatsType : std::uint8_t { bf16, f32 };

/// Uniform levels between the least and the greatest value of each group.
struct Affine {
  static constexpr int kMostBits = 8;
  static constexpr int kLeastGroup = 32;
  static constexpr int kMostGroup = 1024;
  Bits bits{2};  ///< 1 to kMostBits
  Rounding rounding = Rounding::stochastic;
  GroupSize group{256};  ///< a power of two from kLeastGroup to kMostGroup
  StatsType stats = StatsType::bf16;
  /// Values below it count as this value, so that a -inf among logarithms spoils nothing. -2^126 to 2^126, with
  /// `nearest` only; or -inf: no floor.
  float floor = -std::numeric_limits<float>::infinity();
  bool operator==(const Affine&) const = default;
};

/// Group mean removed, random signs, Hadamard transform, Lloyd-Max levels, unbiasing scale.
struct Rotated {
  static constexpr int kMostBits = 4;
  static constexpr int kLeastGroup = 128;
  static constexpr int kMostGroup = 256;
  Bits bits{2};          ///< 1 to kMostBits
  GroupSize group{256};  ///< kLeastGroup or kMostGroup
  StatsType stats = StatsType::bf16;
  bool mask_plane = false;  ///< also stores which elements are not zero; the others decode to exactly 0
  bool operator==(const Rotated&) const = default;
};

/// The two values of a mask's bit.
enum class MaskSide : std::uint8_t { off, on };

/// One bit per element: 0 where x <= lo or x >= hi, else 1. An infinite limit excludes nothing, not even an infinite
/// value. Booleans and bytes become 1 where they are not 0; they take no interval.
struct Mask {
  float lo = 0.0F;
  float hi = std::numeric_limits<float>::infinity();
  float off = 0.0F;             ///< what a 0 decodes to in a floating type; booleans and bytes decode to 0 and 1
  float on = 1.0F;              ///< what a 1 decodes to
  MaskSide nan = MaskSide::on;  ///< the side that a NaN goes to
  bool operator==(const Mask&) const = default;
};

/// Integers in [0, bound), each in the fewest of 1, 2, 4, 8, 16 or 32 bits that hold bound - 1.
/// A value outside is stored as 0 and reported through the workspace: see workspace_bytes().
struct Index {
  static constexpr std::int64_t kMostBound = std::int64_t{1} << 32;
  std::int64_t bound = kMostBound;  ///< 1 to kMostBound
  bool operator==(const Index&) const = default;
};

/// Another floating type, rounded to nearest even.
struct Cast {
  DType to = DType::bf16;  ///< bf16 or f16
  bool operator==(const Cast&) const = default;
};

/// The bytes, unchanged.
struct Copy {
  bool operator==(const Copy&) const = default;
};

/// Extents of one channel of one sample; 1 for dimensions that do not exist.
struct MapSize {
  std::int64_t depth = 1;
  std::int64_t height = 1;
  std::int64_t width = 1;
  [[nodiscard]] constexpr std::int64_t positions() const noexcept { return depth * height * width; }
  bool operator==(const MapSize&) const = default;
};

/// A low and a high part: averages of blocks in bf16, and the residual in uniform levels between the least and the
/// greatest residual of each sample and channel (a *map*). The spec has to say how maps lie in the run of elements that
/// the codec sees: see dual_spec(). If the last map is cut short, the elements that exist are coded.
struct Dual {
  static constexpr int kMostBits = 8;
  static constexpr int kLeastBlock = 2;
  static constexpr int kMostBlock = 32;
  Bits bits{2};                              ///< 1 to kMostBits, of the residual
  Rounding rounding = Rounding::stochastic;  ///< or dithered
  std::int64_t block = 8;  ///< edge of a block in each dimension: a power of two from kLeastBlock to kMostBlock
  MapSize size{1, 16, 16};
  std::int64_t last = 1;  ///< channels that vary fastest in memory; 1 if they do not
  bool operator==(const Dual&) const = default;
};

/// One of the codecs with its parameters. The order of the alternatives numbers the codecs.
using CodecSpec = std::variant<Affine, Rotated, Mask, Index, Cast, Copy, Dual>;

/// Canonical text: omits fields that have their default, except for bits. parse_spec() reads it back.
std::string to_string(const CodecSpec& spec);

/// Parses `name[:bits][:word]...[:key=value]...`. Throws Error(invalid_spec), which names what is allowed. The result
/// is valid: see validate().
CodecSpec parse_spec(std::string_view text);

/// Throws Error(invalid_spec) if a field is outside its range.
void validate(const CodecSpec& spec);

std::string_view to_string(Rounding rounding) noexcept;
std::string_view to_string(StatsType stats) noexcept;
std::string_view to_string(MaskSide side) noexcept;

/// Bits that `index` spends on an element: the least of 1, 2, 4, 8, 16, 32 that holds bound - 1.
constexpr int index_bits(std::int64_t bound) noexcept {
  int bits = 1;
  while (bits < 32 && (std::int64_t{1} << bits) < bound) bits *= 2;
  return bits;
}

}  // namespace actzip
