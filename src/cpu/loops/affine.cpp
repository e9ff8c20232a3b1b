// affine: format.md, section 6. A group is measured, quantized to bytes and packed, all within the L1 cache. Elements
// are widened wherever they are read, which costs less than storing them widened.
#include "math/affine.hpp"

#include "cpu/loops/elements.hpp"
#include "cpu/loops/groups.hpp"
#include "cpu/loops/pack.hpp"
#include "cpu/loops/uniform.hpp"

namespace actzip::cpu::ACTZIP_CPU_LEVEL {
namespace {

constexpr int kMaxGroup = 1024;

/// A thread's scratch memory. The arrays of a small group lie close together, because a load waits for an earlier store
/// if their addresses differ by a multiple of 4 KiB.
class Scratch {
 public:
  explicit Scratch(int group) : room_(round_up(group, kPackStep)) {}

  /// The elements of group `g`. Those of the group before it are kept.
  template <class T>
  T* elements(std::int64_t g) {
    return reinterpret_cast<T*>(memory_ + g % 2 * 4 * room_);
  }
  std::uint8_t* noise() { return memory_ + 8 * room_; }
  std::uint8_t* codes() { return memory_ + 9 * room_; }
  std::byte* packed() { return reinterpret_cast<std::byte*>(memory_) + 10 * room_; }

 private:
  int room_;
  alignas(64) std::uint8_t memory_[11 * kMaxGroup] = {};
};

struct Extremes {
  float lo;
  float hi;
};

/// The extremes of `count` elements, a multiple of 2 * kLanes. Both are NaN if any element is.
template <DType Type>
Extremes extremes(const Storage<Type>* x, int count) {
  Floats lo = load_widened<Type>(x);
  Floats hi = lo;
  Floats lo2 = lo;
  Floats hi2 = lo;
  NanWatch nan;
  for (int i = 0; i < count; i += 2 * kLanes) {
    const Floats a = load_widened<Type>(x + i);
    const Floats b = load_widened<Type>(x + i + kLanes);
    lo = min(a, lo);
    hi = max(a, hi);
    lo2 = min(b, lo2);
    hi2 = max(b, hi2);
    nan.see(a, b);
  }
  if (nan.any()) return {math::float_of(math::kNanF32), math::float_of(math::kNanF32)};
  return {reduce(min(lo, lo2), min), reduce(max(hi, hi2), max)};
}

/// Quantizes and packs `count` elements, a multiple of kPackStep.
template <DType Type, int Bits, bool Noisy>
void quantize(const Storage<Type>* x, int count, const math::AffineGroup& group, const std::uint8_t* noise,
              std::byte* packed) {
  for (int i = 0; i < count; i += kPackStep) {
    Words codes[4];
    for (int j = 0; j < 4; ++j) {
      const int at = i + j * kLanes;
      codes[j] = math::affine_steps<Noisy, Floats, Words, VectorOperations>(load_widened<Type>(x + at), group);
      if (Noisy) codes[j] += load_bytes(noise + at);
    }
    pack_lanes<Bits, math::kAffineCodeBit<Noisy> / 8>(codes, packed + i / 8 * Bits);
  }
}

/// A group that has been read and measured.
template <DType Type>
struct Measured {
  format::GroupRange range;
  const Storage<Type>* x;  ///< its elements, padded with one of them to a multiple of kPackStep
  math::AffineGroup group;
};

template <DType Type, int Bits>
Measured<Type> measure(const Affine& spec, const codec::EncodeJob& job, std::int64_t g, Reader<Storage<Type>>& reader,
                       Storage<Type>* buffer) {
  Measured<Type> result;
  result.range = format::group_range(job.geometry, g);
  const int count = result.range.count;
  const int padded = round_up(count, kPackStep);
  result.x = reader.next(count, buffer);
  if (padded != count) {
    if (result.x != buffer) __builtin_memcpy(buffer, result.x, static_cast<std::size_t>(count) * sizeof(*buffer));
    for (int i = count; i < padded; ++i) buffer[i] = buffer[0];
    result.x = buffer;
  }
  const Extremes found = extremes<Type>(result.x, padded);
  result.group = math::affine_group<Bits>(found.lo, found.hi, spec.stats, spec.floor);
  return result;
}

/// Each group is measured before the previous one is quantized, so that the instructions of one fill the waits of the
/// other.
template <DType Type, int Bits, bool Noisy>
__attribute__((flatten)) void encode_groups(const Affine& spec, const codec::EncodeJob& job, math::HashKey key,
                                            Range groups) {
  using T = Storage<Type>;
  Scratch scratch(job.geometry.group);
  Reader<T> reader(job.src, format::group_range(job.geometry, groups.first).first);
  const auto read = [&](std::int64_t g) { return measure<Type, Bits>(spec, job, g, reader, scratch.elements<T>(g)); };
  Measured<Type> next = read(groups.first);
  for (std::int64_t g = groups.first; g < groups.last; ++g) {
    const Measured<Type> now = next;
    if (g + 1 < groups.last) next = read(g + 1);
    store_stats(job.dst + job.sections.stats, spec.stats, g, {now.group.min, now.group.step});

    std::byte* const dst = job.dst + codes_offset(job.geometry, job.sections, now.range, Bits);
    const int padded = round_up(now.range.count, kPackStep);
    if (now.group.keep == 0) {
      __builtin_memset(dst, 0, static_cast<std::size_t>(word_bytes(now.range.count, Bits)));
      continue;
    }
    if (Noisy) fill_noise(key, g * job.geometry.group, job.geometry.group, scratch.noise());
    // At the lowest level 16 codes are packed at a time; with odd widths these may end inside a word.
    const bool whole = padded == now.range.count && now.range.count * Bits % 32 == 0;
    quantize<Type, Bits, Noisy>(now.x, padded, now.group, scratch.noise(), whole ? dst : scratch.packed());
    if (!whole) copy_packed(dst, scratch.packed(), now.range.count, Bits);
  }
}

template <int Bits, bool Dithered>
void decode_groups(const Affine& spec, const codec::DecodeJob& job, math::HashKey key, Range groups) {
  Scratch scratch(job.geometry.group);
  FloatWriter<> writer(job.dst, format::group_range(job.geometry, groups.first).first);
  for (std::int64_t g = groups.first; g < groups.last; ++g) {
    const format::GroupRange range = format::group_range(job.geometry, g);
    const std::byte* src = job.src + codes_offset(job.geometry, job.sections, range, Bits);
    if (range.count % kPackStep != 0) {
      __builtin_memcpy(scratch.packed(), src, static_cast<std::size_t>(word_bytes(range.count, Bits)));
      src = scratch.packed();
    }
    unpack<Bits>(src, round_up(range.count, kPackStep), scratch.codes());
    if (Dithered) fill_noise(key, g * job.geometry.group, job.geometry.group, scratch.noise());
    const auto [min, step] = load_stats(job.src + job.sections.stats, spec.stats, g);
    const float bound = magnitude(min) + (1 << Bits) * magnitude(step);
    writer.write(range.count, bound, [&, min = min, step = step](std::int64_t i) {
      const Words noise = Dithered ? load_bytes(scratch.noise() + i) : Words{};
      return math::affine_dequantize<Dithered, Floats, Words>(load_bytes(scratch.codes() + i), min, step, noise);
    });
  }
}

template <int Bits>
void encode_bits(const Affine& spec, const codec::EncodeJob& job, math::HashKey key, Range groups) {
  with_float_type(job.src.dtype, [&]<DType Type>() {
    const bool noisy = spec.rounding != Rounding::nearest;
    (noisy ? encode_groups<Type, Bits, true> : encode_groups<Type, Bits, false>)(spec, job, key, groups);
  });
}

template <int Bits>
void decode_bits(const Affine& spec, const codec::DecodeJob& job, math::HashKey key, Range groups) {
  const bool dithered = spec.rounding == Rounding::dithered;
  (dithered ? decode_groups<Bits, true> : decode_groups<Bits, false>)(spec, job, key, groups);
}

}  // namespace

void encode(const Affine& spec, const codec::EncodeJob& job, math::HashKey key, Range groups) {
  with_width<Affine::kMostBits>(spec.bits.value, [&]<int Bits>() { encode_bits<Bits>(spec, job, key, groups); });
}

void decode(const Affine& spec, const codec::DecodeJob& job, math::HashKey key, Range groups) {
  with_width<Affine::kMostBits>(spec.bits.value, [&]<int Bits>() { decode_bits<Bits>(spec, job, key, groups); });
}

}  // namespace actzip::cpu::ACTZIP_CPU_LEVEL
