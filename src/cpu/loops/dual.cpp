// dual: format.md, section 9. Samples are measured first, row by row in memory order. Then units of kBlock elements are
// coded, as in the codecs without groups.
#include "math/dual.hpp"

#include "cpu/loops/elements.hpp"
#include "cpu/loops/groups.hpp"
#include "cpu/loops/pack.hpp"
#include "cpu/loops/uniform.hpp"
#include "format/dual.hpp"

namespace actzip::cpu::ACTZIP_CPU_LEVEL {
namespace {

constexpr float kInfinity = __builtin_inff();

/// Sums and extremes of the columns of all blocks at the current depth: one entry for each row of blocks, position
/// along the width, and channel.
struct Columns {
  float* sum;
  float* least;
  float* greatest;
  std::int64_t row_elems;  ///< of a row of positions
  std::int64_t count;

  Columns(float* room, const format::DualLayout& layout)
      : row_elems(layout.width * layout.channels), count(layout.block_rows * row_elems) {
    sum = room;
    least = room + count;
    greatest = room + 2 * count;
  }

  void clear() const {
    for (std::int64_t i = 0; i < count; ++i) {
      sum[i] = 0.0F;
      least[i] = kInfinity;
      greatest[i] = -kInfinity;
    }
  }

  /// Adds `length` elements of a row. `first` is the entry of the first one.
  void take(std::int64_t first, const float* x, std::int64_t length) const {
    for (std::int64_t i = 0; i < length; ++i) {
      const std::int64_t at = first + i;
      sum[at] += x[i];
      least[at] = x[i] < least[at] ? x[i] : least[at];
      greatest[at] = x[i] > greatest[at] ? x[i] : greatest[at];
    }
  }
};

/// Joins the columns of a block: neighbouring sums are added until one is left.
struct Joined {
  float sum;
  float least = kInfinity;
  float greatest = -kInfinity;

  Joined(const Columns& columns, const format::DualLayout& layout, const format::BlockBox& box, std::int64_t channel) {
    constexpr int kMostColumns = 32;
    const std::int64_t band = (box.row_first >> layout.shift) * columns.row_elems;
    const int width = 1 << layout.shift;
    float sums[kMostColumns] = {};
    for (std::int64_t column = box.column_first; column < box.column_last; ++column) {
      const std::int64_t at = band + column * layout.channels + channel;
      sums[column - box.column_first] = columns.sum[at];
      least = columns.least[at] < least ? columns.least[at] : least;
      greatest = columns.greatest[at] > greatest ? columns.greatest[at] : greatest;
    }
    for (int distance = 1; distance < width; distance *= 2) {
      for (int i = 0; i < width; i += 2 * distance) sums[i] += sums[i + distance];
    }
    sum = sums[0];
  }
};

/// The two parts of the statistics section.
struct Parts {
  std::byte* stats;
  std::byte* averages;

  Parts(std::byte* buffer, const format::Sections& sections, const format::DualLayout& layout)
      : stats(buffer + sections.stats), averages(stats + layout.averages_offset()) {}

  [[nodiscard]] float average(std::int64_t i) const { return math::bf16_to_f32(load<std::uint16_t>(averages + 2 * i)); }
  void set_average(std::int64_t i, float value) const {
    store(averages + 2 * i, static_cast<std::uint16_t>(math::bits_of(value) >> 16));
  }
};

/// One sample, read once in memory order.
class Sample {
 public:
  Sample(const format::DualLayout& layout, const Parts& parts, std::int64_t number, float* room)
      : layout_(layout),
        parts_(parts),
        number_(number),
        columns_(room, layout),
        least_(room + 3 * columns_.count),
        negated_most_(least_ + layout.channels) {
    for (std::int64_t i = 0; i < 2 * layout.channels; ++i) least_[i] = kInfinity;
    columns_.clear();
  }

  /// Writes the averages of all blocks.
  void average(FloatReader& reader) {
    alignas(64) float buffer[kBlock];
    std::int64_t left = layout_.elems - number_ * layout_.positions * layout_.channels;
    for (std::int64_t slice = 0; slice < layout_.depth; ++slice) {
      for (std::int64_t row = 0; row < layout_.height; ++row) {
        std::int64_t at = (row >> layout_.shift) * columns_.row_elems;
        const std::int64_t end = at + (left < columns_.row_elems ? left : columns_.row_elems);
        left -= end - at;
        while (at < end) {
          const std::int64_t length = end - at < kBlock ? end - at : kBlock;
          columns_.take(at, reader.next(length, buffer), length);
          at += length;
        }
      }
      const std::int64_t inside = slice & ((std::int64_t{1} << layout_.shift) - 1);
      if (slice + 1 == layout_.depth || inside == (std::int64_t{1} << layout_.shift) - 1) {
        finish_blocks(slice >> layout_.shift);
      }
    }
  }

  /// Writes the statistics of all maps.
  void conclude(float inverse_levels) const {
    for (std::int64_t channel = 0; channel < layout_.channels; ++channel) {
      const math::AffineGroup group = math::dual_group(inverse_levels, least_[channel], -negated_most_[channel]);
      store_stats(parts_.stats, StatsType::bf16, number_ * layout_.channels + channel, {group.min, group.step});
    }
  }

 private:
  /// Writes the averages of the blocks in a slice of blocks, all of whose rows have been read, and updates their maps'
  /// extremes.
  void finish_blocks(std::int64_t slice) {
    const std::int64_t count = layout_.block_rows * layout_.block_columns;
    for (std::int64_t block = slice * count; block < (slice + 1) * count; ++block) {
      const format::BlockBox box = format::block_box(layout_, block);
      for (std::int64_t channel = 0; channel < layout_.channels; ++channel) {
        const std::int64_t elems = format::block_count(layout_, box, layout_.present(number_, channel));
        const Joined joined(columns_, layout_, box, channel);
        const float average = math::dual_average(joined.sum, static_cast<float>(elems));
        parts_.set_average(layout_.average_index(number_, block, channel), average);
        if (elems == 0) continue;
        least_[channel] = math::lesser_or_nan(math::dual_residual(joined.least, average), least_[channel]);
        negated_most_[channel] =
            math::lesser_or_nan(-math::dual_residual(joined.greatest, average), negated_most_[channel]);
      }
    }
    columns_.clear();
  }

  const format::DualLayout& layout_;
  const Parts& parts_;
  std::int64_t number_;
  Columns columns_;
  float* least_;
  float* negated_most_;
};

/// The average, min and step for each element of a unit of kBlock elements.
struct Against {
  alignas(64) float average[kBlock];
  alignas(64) float min[kBlock];
  alignas(64) float step[kBlock];

  Against(const format::DualLayout& layout, const Parts& parts, std::int64_t first, int count) {
    std::int64_t position = first / layout.channels;
    std::int64_t channel = first - position * layout.channels;
    std::int64_t sample = position / layout.positions;
    position -= sample * layout.positions;
    for (int i = 0; i < count;) {
      const std::int64_t block = format::block_of(layout, position);
      for (; channel < layout.channels && i < count; ++channel, ++i) {
        const Stats stats = load_stats(parts.stats, StatsType::bf16, sample * layout.channels + channel);
        average[i] = parts.average(layout.average_index(sample, block, channel));
        min[i] = stats.first;
        step[i] = stats.second;
      }
      channel = 0;
      if (++position == layout.positions) {
        position = 0;
        ++sample;
      }
    }
  }
};

/// The min and inverse step of each lane's map.
struct VectorGroup {
  Floats min;
  Floats inverse;
};

int block_elems(std::int64_t elems, std::int64_t b) {
  const std::int64_t left = elems - b * kBlock;
  return static_cast<int>(left < kBlock ? left : kBlock);
}

/// Elements of unrepresentable maps get code 0. Their step is 0 already; their other numbers are set to 0, so that no
/// NaN is converted.
void drop_unrepresentable(Against& against, float* x, int count) {
  for (int i = 0; i < count; ++i) {
    if (!math::is_nan(against.min[i])) continue;
    x[i] = 0.0F;
    against.average[i] = 0.0F;
    against.min[i] = 0.0F;
  }
}

template <int Bits>
void encode_bits(const Dual& spec, const codec::EncodeJob& job, math::HashKey key, Range blocks) {
  const format::DualLayout layout = format::dual_layout(spec, job.geometry.elems);
  const Parts parts(job.dst, job.sections, layout);
  alignas(64) float x[kBlock + kPackStep] = {};
  alignas(64) std::uint8_t noise[kBlock];
  alignas(64) std::byte packed[kBlock / 8 * Bits];
  FloatReader reader(job.src, blocks.first * kBlock);
  for (std::int64_t b = blocks.first; b < blocks.last; ++b) {
    const int count = block_elems(job.geometry.elems, b);
    reader.read(count, x);
    Against against(layout, parts, b * kBlock, count);
    drop_unrepresentable(against, x, count);
    fill_noise(key, b * kBlock, kBlock, noise);
    for (int i = 0; i < count; i += kPackStep) {
      Words codes[4];
      for (int j = 0; j < 4; ++j) {
        const int at = i + j * kLanes;
        const Floats step = load<Floats>(against.step + at);
        const VectorGroup group{load<Floats>(against.min + at), step == 0.0F ? Floats{} : 1.0F / step};
        const Floats residual = load<Floats>(x + at) - load<Floats>(against.average + at);
        codes[j] = math::affine_steps<true, Floats, Words, VectorOperations>(residual, group) + load_bytes(noise + at);
      }
      pack_lanes<Bits, math::kAffineCodeBit<true> / 8>(codes, packed + i / 8 * Bits);
    }
    copy_packed(job.dst + job.sections.codes + b * (kBlock / 8 * Bits), packed, count, Bits);
  }
}

template <int Bits, bool Dithered>
void decode_blocks(const Dual& spec, const codec::DecodeJob& job, math::HashKey key, Range blocks) {
  const format::DualLayout layout = format::dual_layout(spec, job.geometry.elems);
  const Parts parts(const_cast<std::byte*>(job.src), job.sections, layout);
  alignas(64) std::uint8_t codes[kBlock];
  alignas(64) std::uint8_t noise[kBlock];
  alignas(64) std::byte packed[kBlock / 8 * Bits] = {};
  FloatWriter<> writer(job.dst, blocks.first * kBlock);
  for (std::int64_t b = blocks.first; b < blocks.last; ++b) {
    const int count = block_elems(job.geometry.elems, b);
    __builtin_memcpy(packed, job.src + job.sections.codes + b * (kBlock / 8 * Bits),
                     static_cast<std::size_t>(word_bytes(count, Bits)));
    unpack<Bits>(packed, kBlock, codes);
    if (Dithered) fill_noise(key, b * kBlock, kBlock, noise);
    const Against against(layout, parts, b * kBlock, count);
    writer.write(count, kUnbounded, [&](std::int64_t i) {
      const Floats residual = math::affine_dequantize<Dithered, Floats, Words>(
          load_bytes(codes + i), load<Floats>(against.min + i), load<Floats>(against.step + i),
          Dithered ? load_bytes(noise + i) : Words{});
      return residual + load<Floats>(against.average + i);
    });
  }
}

template <int Bits>
void decode_bits(const Dual& spec, const codec::DecodeJob& job, math::HashKey key, Range blocks) {
  const bool dithered = spec.rounding == Rounding::dithered;
  (dithered ? decode_blocks<Bits, true> : decode_blocks<Bits, false>)(spec, job, key, blocks);
}

}  // namespace

void measure(const Dual& spec, const codec::EncodeJob& job, Range samples, float* room) {
  const format::DualLayout layout = format::dual_layout(spec, job.geometry.elems);
  const Parts parts(job.dst, job.sections, layout);
  const float inverse_levels = math::affine_inverse_levels(spec.bits.value);
  FloatReader reader(job.src, samples.first * layout.positions * layout.channels);
  for (std::int64_t number = samples.first; number < samples.last; ++number) {
    Sample sample(layout, parts, number, room);
    sample.average(reader);
    sample.conclude(inverse_levels);
  }
}

void encode(const Dual& spec, const codec::EncodeJob& job, math::HashKey key, Range blocks) {
  with_width<Dual::kMostBits>(spec.bits.value, [&]<int Bits>() { encode_bits<Bits>(spec, job, key, blocks); });
}

void decode(const Dual& spec, const codec::DecodeJob& job, math::HashKey key, Range blocks) {
  with_width<Dual::kMostBits>(spec.bits.value, [&]<int Bits>() { decode_bits<Bits>(spec, job, key, blocks); });
}

}  // namespace actzip::cpu::ACTZIP_CPU_LEVEL
