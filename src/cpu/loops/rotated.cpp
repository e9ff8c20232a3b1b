// rotated: format.md, section 7. Sums are taken in 32 lanes at every level, so that all levels write the same bytes.
#include "math/rotated.hpp"

#include "cpu/loops/elements.hpp"
#include "cpu/loops/groups.hpp"
#include "cpu/loops/hadamard.hpp"
#include "cpu/loops/pack.hpp"

namespace actzip::cpu::ACTZIP_CPU_LEVEL {
namespace {

constexpr int kMaxGroup = 256;
constexpr float kNan = __builtin_bit_cast(float, math::kNanF32);

/// A sum in 32 lanes, then halves onto halves: the order does not depend on the width of a vector.
class Sum {
 public:
  /// `number` is that of the vector in its group.
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

/// The signs of one group. Eight elements share a word; the group's bits of it are shifted to bits 0 to 3 and 16 to 19.
template <int Group>
class Signs {
 public:
  Signs(math::HashKey key, std::int64_t g) {
    const auto e = static_cast<std::uint64_t>(g) * Group;
    const std::uint64_t counter = math::sign_word(e);
    const math::HashKey upper = key.for_upper(static_cast<std::uint32_t>(counter >> 32));
    for (int i = 0; i < Group / 8; i += kLanes) {
      const Words counters = static_cast<std::uint32_t>(counter) + static_cast<std::uint32_t>(i) + iota();
      store(words_ + i, math::hash_word<Words>(upper, counters) >> math::sign_bit(e));
    }
  }

  /// Applies those of elements [i, i + kLanes).
  [[nodiscard]] Floats apply(std::int64_t i, Floats x) const {
    const Words own = spread(i) & masks(detail::Lanes{}, i);
    return floats_of(own != 0U ? bits_of(x) ^ 0x80000000U : bits_of(x));
  }

 private:
  /// Each lane's word.
  [[nodiscard]] Words spread(std::int64_t i) const {
    if constexpr (kLanes == 16) {
      const Words low = broadcast(words_[i / 8]);
      return iota() < 8U ? low : broadcast(words_[i / 8 + 1]);
    }
    return broadcast(words_[i / 8]);
  }

  /// Each lane's bit.
  template <int... Lane>
  static Words masks(std::integer_sequence<int, Lane...> /*lanes*/, std::int64_t i) {
    const Words first{(1U << math::sign_bit(Lane & 7))...};
    return kLanes == 4 && i % 8 != 0 ? first << 2 : first;
  }

  alignas(64) std::uint32_t words_[Group / 8];
};

/// What follows from a group's coefficients.
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

/// The coefficients become packed codes; the result is (mean, scale) as stored. `noise` rounds the scale.
template <int Bits, int Group>
Stats quantize(const Floats (&y)[Group / kLanes], float mean, StatsType type, std::uint32_t noise, std::byte* packed) {
  Sum squares;
  detail::unrolled<Group / kLanes>([&]<int I>() { squares.add(I, y[I] * y[I]); });
  const float energy = squares.total();
  if (!(energy <= 0x1.fffffep127F && energy > 0.0F)) {
    __builtin_memset(packed, 0, Group / 8 * Bits);
    return {energy == 0.0F ? mean : kNan, 0.0F};
  }
  const Quantizer<Bits> quantizer(__builtin_sqrtf(energy / static_cast<float>(Group)));
  Sum products;
  detail::unrolled<Group / kPackStep>([&]<int I>() {
    Words codes[4];
    detail::unrolled<4>([&]<int J>() {
      const Floats own = y[4 * I + J];
      const auto [code, level] = quantizer(own);
      products.add(4 * I + J, floats_of(bits_of(own) & 0x7fffffffU) * level);
      codes[J] = code;
    });
    pack_lanes<Bits>(codes, packed + I * (kPackStep / 8 * Bits));
  });
  const float scale = energy / (static_cast<float>(Group) * products.total());
  return {mean, type == StatsType::bf16 ? math::bf16_stochastic(scale, noise) : scale};
}

/// `x` holds the group, with zeros behind its `count` elements.
template <int Bits, int Group>
Stats encode_group(const float* x, int count, StatsType type, math::HashKey key, std::int64_t g, std::byte* packed) {
  Floats v[Group / kLanes];
  Sum sum;
  detail::unrolled<Group / kLanes>([&]<int I>() {
    v[I] = load<Floats>(x + I * kLanes);
    sum.add(I, v[I]);
  });
  const float exact = sum.total() / static_cast<float>(count);
  const float mean = (type == StatsType::bf16 ? math::bf16_to_f32(math::f32_to_bf16(exact)) : exact) + 0.0F;

  const Signs<Group> signs(key, g);
  detail::unrolled<Group / kLanes>([&]<int I>() { v[I] = signs.apply(I * kLanes, v[I] - mean); });
  if (count < Group) {
    for (int i = 0; i < Group / kLanes; ++i) {
      v[i] = iota() + static_cast<std::uint32_t>(i * kLanes) < static_cast<std::uint32_t>(count) ? v[i] : Floats{};
    }
  }
  hadamard<Group>(v);
  return quantize<Bits, Group>(v, mean, type, math::scale_noise(key, static_cast<std::uint64_t>(g)), packed);
}

/// The levels of the magnitudes, for lookup().
template <int Bits>
struct LevelTable {
  float values[8] = {};
  constexpr LevelTable() {
    for (int i = 0; i < math::kLevelCount<Bits>; ++i) values[i] = math::level<Bits>(i);
  }
};

/// The transform of a group's levels.
template <int Bits, int Group>
void decode_group(const std::uint8_t* codes, Floats (&v)[Group / kLanes]) {
  static constexpr LevelTable<Bits> kLevels;
  detail::unrolled<Group / kLanes>([&]<int I>() {
    const Words code = load_bytes(codes + I * kLanes);
    const Words sign = (code >> (Bits - 1)) << 31;
    v[I] = floats_of(bits_of(lookup(kLevels.values, code & (math::kLevelCount<Bits> - 1U))) | sign);
  });
  hadamard<Group>(v);
}

/// One bit for each of `count` values, a multiple of 32: 1 where it is not 0.
void store_mask(const float* x, int count, std::byte* words) {
  for (int i = 0; i < count; i += 32, words += 4) {
    std::uint32_t word = 0;
    for (int j = 0; j < 32; j += kLanes) word |= bits_of(Flags(load<Floats>(x + i + j) != 0.0F)) << j;
    __builtin_memcpy(words, &word, 4);
  }
}

template <int Bits, int Group>
void encode_groups(const Rotated& spec, const codec::EncodeJob& job, math::HashKey key, Range groups) {
  alignas(64) float values[Group];
  FloatReader reader(job.src, format::group_range(job.geometry, groups.first).first);
  for (std::int64_t g = groups.first; g < groups.last; ++g) {
    const format::GroupRange range = format::group_range(job.geometry, g);
    const bool ragged = range.count < Group;
    const float* x = ragged ? reader.read(range.count, values) : reader.next(Group, values);
    for (int i = range.count; i < Group; ++i) values[i] = 0.0F;

    std::byte* const codes = job.dst + codes_offset(job.geometry, job.sections, range, Bits);
    const Stats stats = encode_group<Bits, Group>(x, range.count, spec.stats, key, g, codes);
    store_stats(job.dst + job.sections.stats, spec.stats, g, stats);
    if (spec.mask_plane) {
      store_mask(x, round_up(range.count, 32), job.dst + mask_offset(job.geometry, job.sections, range));
    }
  }
}

template <int Bits, int Group>
void decode_groups(const Rotated& spec, const codec::DecodeJob& job, math::HashKey key, Range groups) {
  alignas(64) std::uint8_t codes[Group];
  alignas(64) std::uint32_t kept[Group / 32];
  Floats sums[Group / kLanes];
  __builtin_memset(kept, 0xff, sizeof kept);
  FloatWriter<> writer(job.dst, format::group_range(job.geometry, groups.first).first);
  for (std::int64_t g = groups.first; g < groups.last; ++g) {
    const format::GroupRange range = format::group_range(job.geometry, g);
    unpack<Bits>(job.src + codes_offset(job.geometry, job.sections, range, Bits), Group, codes);
    decode_group<Bits, Group>(codes, sums);
    if (spec.mask_plane) {
      const std::byte* words = job.src + mask_offset(job.geometry, job.sections, range);
      __builtin_memcpy(kept, words, static_cast<std::size_t>(word_bytes(range.count, 1)));
    }
    const Signs<Group> signs(key, g);
    const auto [mean, scale] = load_stats(job.src + job.sections.stats, spec.stats, g);
    const float bound = magnitude(mean) + 3.0F * Group * magnitude(scale);
    writer.write(range.count, bound, [&, mean = mean, scale = scale](std::int64_t i) {
      const Floats value = signs.apply(i, sums[i / kLanes] * scale) + mean;
      return flags_of(kept[i / 32] >> (i % 32)) ? value : Floats{};
    });
  }
}

/// The mask plane alone, as booleans.
void decode_plane(const codec::DecodeJob& job, Range groups) {
  alignas(64) std::byte words[kMaxGroup / 8] = {};
  alignas(64) std::uint8_t bits[kMaxGroup];
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
  static constexpr EncodeLoop<Rotated> kByBits[] = {encode_bits<1>, encode_bits<2>, encode_bits<3>, encode_bits<4>};
  kByBits[spec.bits.value - 1](spec, job, key, groups);
}

void decode(const Rotated& spec, const codec::DecodeJob& job, math::HashKey key, Range groups) {
  if (job.dst.dtype == DType::boolean) return decode_plane(job, groups);
  static constexpr DecodeLoop<Rotated> kByBits[] = {decode_bits<1>, decode_bits<2>, decode_bits<3>, decode_bits<4>};
  kByBits[spec.bits.value - 1](spec, job, key, groups);
}

}  // namespace actzip::cpu::ACTZIP_CPU_LEVEL
