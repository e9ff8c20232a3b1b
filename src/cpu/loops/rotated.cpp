// rotated: format.md, section 7. Sums have 32 partial sums at every level, so that all levels write the same bytes.
#include "math/rotated.hpp"

#include "cpu/loops/elements.hpp"
#include "cpu/loops/groups.hpp"
#include "cpu/loops/hadamard.hpp"
#include "cpu/loops/pack.hpp"

namespace actzip::cpu::ACTZIP_CPU_LEVEL {
namespace {

constexpr int kMaxGroup = 256;
constexpr float kNan = __builtin_bit_cast(float, math::kNanF32);

/// A sum of 32 partial sums, which are then added halves onto halves. The order does not depend on the width of a
/// vector.
class Sum {
 public:
  /// `number` is the vector's number in its group.
  void add(int number, Floats x) { parts_[number % kParts] += x; }

  [[nodiscard]] float total() {
    for (int half = kParts / 2; half > 0; half /= 2) {
      for (int i = 0; i < half; ++i) parts_[i] += parts_[i + half];
    }
    return reduce(parts_[0], [](Floats a, Floats b) { return a + b; });
  }

 private:
  static constexpr int kParts = 32 / kLanes;
  Floats parts_[kParts] = {};
};

/// The signs of one group, one bit for each element, in order.
template <int Group>
class Signs {
 public:
  Signs(math::HashKey key, std::int64_t g) {
    const auto e = static_cast<std::uint64_t>(g) * Group;
    const std::uint64_t counter = math::sign_word(e);
    const math::HashKey upper = key.for_upper(static_cast<std::uint32_t>(counter >> 32));
    std::uint8_t bytes[Group / 8];
    for (int i = 0; i < Group / 8; ++i) {
      // Eight elements share a word: bits 0 to 3 belong to the even ones, bits 16 to 19 to the odd ones.
      std::uint32_t bits = math::hash_word(upper, static_cast<std::uint32_t>(counter) + static_cast<std::uint32_t>(i));
      bits = (bits >> math::sign_bit(e)) & 0x000f000fU;
      bits = (bits | bits << 2) & 0x00330033U;
      bits = (bits | bits << 1) & 0x00550055U;
      bytes[i] = static_cast<std::uint8_t>(bits | bits >> 15);
    }
    __builtin_memcpy(bits_, bytes, sizeof bits_);
  }

  /// The second signs of a group, in the order in which the first transform leaves the coefficients: bits 0 and 5 of
  /// the index are exchanged, so even and odd elements take their signs from neighbouring words.
  static Signs second(math::HashKey key, std::int64_t g) {
    Signs result(key.for_second_signs(), g);
    for (int i = 0; i < Group / 32; i += 2) {
      const std::uint32_t first = result.bits_[i];
      const std::uint32_t second = result.bits_[i + 1];
      result.bits_[i] = (first & 0x55555555U) | (second & 0x55555555U) << 1;
      result.bits_[i + 1] = (first >> 1 & 0x55555555U) | (second & 0xaaaaaaaaU);
    }
    return result;
  }

  /// Applies the signs of elements [i, i + kLanes).
  [[nodiscard]] Floats apply(std::int64_t i, Floats x) const { return negate_where(bits_[i / 32] >> (i % 32), x); }

 private:
  std::uint32_t bits_[Group / 32];
};

/// Computes H D2 H v in place. Each transform exchanges bits 0 and 5 of the index, so after two all elements are in
/// order.
template <int Group>
__attribute__((noinline, flatten)) void mix(Floats (&v)[Group / kLanes], math::HashKey key, std::int64_t g) {
  const Signs<Group> second = Signs<Group>::second(key, g);
  hadamard<Group>(v);
  detail::unrolled<Group / kLanes>([&]<int I>() { v[I] = second.apply(I * kLanes, v[I]); });
  hadamard<Group>(v);
}

/// Chooses the codes and levels of a group with root mean square `sigma`.
template <int Bits>
struct Quantizer {
  static constexpr int kCuts = math::kLevelCount<Bits> - 1;
  Floats cuts[kCuts + 1];

  explicit Quantizer(float sigma) {
    detail::unrolled<kCuts>([&]<int I>() { cuts[I] = broadcast(math::level_cut<Bits>(I) * sigma); });
  }

  struct Result {
    Words code;
    Floats level;
  };
  [[nodiscard]] Result operator()(Floats y) const {
    const Floats magnitude = floats_of(bits_of(y) & 0x7fffffffU);
    Result result{(bits_of(y) >> 31) << (Bits - 1), broadcast(math::level<Bits>(0))};
    detail::unrolled<kCuts>([&]<int I>() {
      const Flags above = magnitude > cuts[I];
      result.code -= Words(above);
      result.level = above ? broadcast(math::level<Bits>(I + 1)) : result.level;
    });
    return result;
  }
};

/// A group between its transform and its codes.
template <int Group>
struct Transformed {
  format::GroupRange range;
  float mean;
  float energy;  ///< the sum of the squares of `y`; not finite if the group is unrepresentable
  Floats y[Group / kLanes];
};

/// Transforms a group. `x` holds its elements, followed by zeros up to `Group`.
template <int Group>
__attribute__((flatten)) void transform(const float* x, bool bf16_mean, math::HashKey key, std::int64_t g,
                                        Transformed<Group>& result) {
  auto& y = result.y;
  Sum sum;
  detail::unrolled<Group / kLanes>([&]<int I>() { sum.add(I, load<Floats>(x + I * kLanes)); });
  const int count = result.range.count;
  const float exact = sum.total() / static_cast<float>(count);
  const float mean = (bf16_mean ? math::bf16_to_f32(math::f32_to_bf16(exact)) : exact) + 0.0F;

  const Signs<Group> signs(key, g);
  detail::unrolled<Group / kLanes>(
      [&]<int I>() { y[I] = signs.apply(I * kLanes, load<Floats>(x + I * kLanes) - mean); });
  if (count < Group) {
    for (int i = 0; i < Group / kLanes; ++i) {
      y[i] = iota() + static_cast<std::uint32_t>(i * kLanes) < static_cast<std::uint32_t>(count) ? y[i] : Floats{};
    }
  }
  mix<Group>(y, key, g);
  Sum squares;
  detail::unrolled<Group / kLanes>([&]<int I>() { squares.add(I, y[I] * y[I]); });
  result.mean = mean;
  result.energy = squares.total();
}

/// Packs the codes of the coefficients. Returns (mean, scale) as stored; `noise` rounds the scale.
template <int Bits, int Group>
__attribute__((flatten)) Stats quantize(const Transformed<Group>& group, StatsType type, std::uint32_t noise,
                                        std::byte* packed) {
  const float energy = group.energy;
  if (!(energy <= 0x1.fffffep127F && energy > 0.0F)) {
    __builtin_memset(packed, 0, Group / 8 * Bits);
    return {energy == 0.0F ? group.mean : kNan, 0.0F};
  }
  const Quantizer<Bits> quantizer(__builtin_sqrtf(energy / static_cast<float>(Group)));
  Sum products;
  detail::unrolled<Group / kPackStep>([&]<int I>() {
    Words codes[4];
    detail::unrolled<4>([&]<int J>() {
      const Floats y = group.y[4 * I + J];
      const auto [code, level] = quantizer(y);
      products.add(4 * I + J, floats_of(bits_of(y) & 0x7fffffffU) * level);
      codes[J] = code;
    });
    pack_lanes<Bits>(codes, packed + I * (kPackStep / 8 * Bits));
  });
  const float scale = energy / (static_cast<float>(Group * Group) * products.total());
  return {group.mean, type == StatsType::bf16 ? math::bf16_stochastic(scale, noise) : scale};
}

/// The level of each code, for lookup().
template <int Bits>
struct Values {
  float of_code[Bits < 4 ? 8 : 1 << Bits] = {};
  constexpr Values() {
    for (int i = 0; i < math::kLevelCount<Bits>; ++i) {
      of_code[i] = math::level<Bits>(i);
      of_code[i + math::kLevelCount<Bits>] = -math::level<Bits>(i);
    }
  }
};

/// Looks up the levels of a group's codes and transforms them.
template <int Bits, int Group>
__attribute__((flatten)) void decode_group(const std::uint8_t* codes, math::HashKey key, std::int64_t g,
                                           Floats (&v)[Group / kLanes]) {
  static constexpr Values<Bits> kValues;
  detail::unrolled<Group / kLanes>([&]<int I>() { v[I] = lookup(kValues.of_code, load_bytes(codes + I * kLanes)); });
  mix<Group>(v, key, g);
}

/// Stores one bit for each of `count` values, a multiple of 32: 1 where the value is not 0.
void store_mask(const float* x, int count, std::byte* words) {
  for (int i = 0; i < count; i += 32, words += 4) {
    std::uint32_t word = 0;
    for (int j = 0; j < 32; j += kLanes) word |= bits_of(Flags(load<Floats>(x + i + j) != 0.0F)) << j;
    __builtin_memcpy(words, &word, 4);
  }
}

/// Reads and transforms group `g`, and stores its bits of the mask plane.
template <int Group>
void take_in(const Rotated& spec, const codec::EncodeJob& job, math::HashKey key, std::int64_t g, FloatReader& reader,
             Transformed<Group>& result) {
  alignas(64) float values[Group];
  result.range = format::group_range(job.geometry, g);
  const int count = result.range.count;
  const float* x = count < Group ? reader.read(count, values) : reader.next(Group, values);
  for (int i = count; i < Group; ++i) values[i] = 0.0F;
  transform<Group>(x, spec.stats == StatsType::bf16 || job.src.dtype != DType::f32, key, g, result);
  if (spec.mask_plane) {
    store_mask(x, round_up(count, 32), job.dst + mask_offset(job.geometry, job.sections, result.range));
  }
}

/// Each group is transformed before the previous one is quantized, so that the instructions of one fill the waits of
/// the other.
template <int Bits, int Group>
void encode_groups(const Rotated& spec, const codec::EncodeJob& job, math::HashKey key, Range groups) {
  Transformed<Group> slots[2];
  FloatReader reader(job.src, format::group_range(job.geometry, groups.first).first);
  take_in(spec, job, key, groups.first, reader, slots[groups.first % 2]);
  for (std::int64_t g = groups.first; g < groups.last; ++g) {
    if (g + 1 < groups.last) take_in(spec, job, key, g + 1, reader, slots[(g + 1) % 2]);
    const Transformed<Group>& now = slots[g % 2];
    const std::uint32_t noise = math::scale_noise(key, static_cast<std::uint64_t>(g));
    std::byte* const codes = job.dst + codes_offset(job.geometry, job.sections, now.range, Bits);
    store_stats(job.dst + job.sections.stats, spec.stats, g, quantize<Bits>(now, spec.stats, noise, codes));
  }
}

template <int Bits, int Group>
void decode_groups(const Rotated& spec, const codec::DecodeJob& job, math::HashKey key, Range groups) {
  alignas(64) std::uint8_t codes[Group];
  alignas(64) std::uint32_t kept[Group / 32];
  Floats sums[Group / kLanes];
  FloatWriter<> writer(job.dst, format::group_range(job.geometry, groups.first).first);
  for (std::int64_t g = groups.first; g < groups.last; ++g) {
    const format::GroupRange range = format::group_range(job.geometry, g);
    unpack<Bits>(job.src + codes_offset(job.geometry, job.sections, range, Bits), Group, codes);
    decode_group<Bits, Group>(codes, key, g, sums);
    if (spec.mask_plane) {
      const std::byte* words = job.src + mask_offset(job.geometry, job.sections, range);
      __builtin_memcpy(kept, words, static_cast<std::size_t>(word_bytes(range.count, 1)));
    }
    const Signs<Group> signs(key, g);
    const auto [mean, scale] = load_stats(job.src + job.sections.stats, spec.stats, g);
    const float bound = magnitude(mean) + 3.0F * Group * Group * magnitude(scale);
    writer.write(range.count, bound, [&, mean = mean, scale = scale, masked = spec.mask_plane](std::int64_t i) {
      const Floats value = signs.apply(i, sums[i / kLanes] * scale) + mean;
      return masked ? (flags_of(kept[i / 32] >> (i % 32)) ? value : Floats{}) : value;
    });
  }
}

/// Decodes the mask plane alone, to booleans.
void decode_plane(const codec::DecodeJob& job, Range groups) {
  alignas(64) std::byte words[kMaxGroup / 8] = {};
  alignas(64) std::uint8_t bits[kMaxGroup] = {};
  Writer<std::uint8_t> writer(job.dst, format::group_range(job.geometry, groups.first).first);
  for (std::int64_t g = groups.first; g < groups.last; ++g) {
    const format::GroupRange range = format::group_range(job.geometry, g);
    const std::byte* src = job.src + mask_offset(job.geometry, job.sections, range);
    __builtin_memcpy(words, src, static_cast<std::size_t>(word_bytes(range.count, 1)));
    unpack<1>(words, round_up(range.count, kPackStep), bits);
    writer.write(bits, range.count);
  }
}

template <int Bits>
void encode_bits(const Rotated& spec, const codec::EncodeJob& job, math::HashKey key, Range groups) {
  (job.geometry.group == 128 ? encode_groups<Bits, 128> : encode_groups<Bits, 256>)(spec, job, key, groups);
}

template <int Bits>
void decode_bits(const Rotated& spec, const codec::DecodeJob& job, math::HashKey key, Range groups) {
  (job.geometry.group == 128 ? decode_groups<Bits, 128> : decode_groups<Bits, 256>)(spec, job, key, groups);
}

}  // namespace

void encode(const Rotated& spec, const codec::EncodeJob& job, math::HashKey key, Range groups) {
  with_width<Rotated::kMostBits>(spec.bits.value, [&]<int Bits>() { encode_bits<Bits>(spec, job, key, groups); });
}

void decode(const Rotated& spec, const codec::DecodeJob& job, math::HashKey key, Range groups) {
  if (job.dst.dtype == DType::boolean) return decode_plane(job, groups);
  with_width<Rotated::kMostBits>(spec.bits.value, [&]<int Bits>() { decode_bits<Bits>(spec, job, key, groups); });
}

}  // namespace actzip::cpu::ACTZIP_CPU_LEVEL
