// mask: format.md, section 8. A block is 32 words of 32 bits.
#include "math/mask.hpp"

#include "cpu/loops/elements.hpp"
#include "cpu/loops/groups.hpp"
#include "cpu/loops/pack.hpp"

namespace actzip::cpu::ACTZIP_CPU_LEVEL {
namespace {

/// Number of elements of block `b`.
int block_count(std::int64_t elems, std::int64_t b) {
  const std::int64_t left = elems - b * kBlock;
  return static_cast<int>(left < kBlock ? left : kBlock);
}

/// Stores the bits of `count` elements; word_of(i) returns those of the 32 elements from i on. Bits behind the last
/// element become 0.
template <class WordOf>
void store_bits(int count, std::byte* words, WordOf word_of) {
  for (int i = 0; i < count; i += 32, words += 4) {
    std::uint32_t word = word_of(i);
    if (count - i < 32) word &= (1U << (count - i)) - 1U;
    __builtin_memcpy(words, &word, 4);
  }
}

void encode_bytes(const codec::EncodeJob& job, Range blocks) {
  alignas(64) std::uint8_t buffer[kBlock] = {};
  Reader<std::uint8_t> reader(job.src, blocks.first * kBlock);
  for (std::int64_t b = blocks.first; b < blocks.last; ++b) {
    const int count = block_count(job.geometry.elems, b);
    const std::uint8_t* x = reader.next(count, buffer);
    if (count < kBlock && x != buffer) {  // word_of reads 32 elements, even behind the last one
      __builtin_memcpy(buffer, x, static_cast<std::size_t>(count));
      x = buffer;
    }
    store_bits(count, job.dst + b * (kBlock / 8), [x](int i) { return nonzero_bits(x + i); });
  }
}

void encode_floats(const Mask& spec, const codec::EncodeJob& job, Range blocks) {
  alignas(64) float buffer[kBlock] = {};
  const math::MaskLimits limits = math::mask_limits(spec);
  FloatReader reader(job.src, blocks.first * kBlock);
  for (std::int64_t b = blocks.first; b < blocks.last; ++b) {
    const int count = block_count(job.geometry.elems, b);
    const float* x = count < kBlock ? reader.read(count, buffer) : reader.next(count, buffer);
    store_bits(count, job.dst + b * (kBlock / 8), [&](int i) {
      std::uint32_t off = 0;
      for (int j = 0; j < 32; j += kLanes) {
        off |= bits_of(Flags(math::mask_off<Floats>(load<Floats>(x + i + j), limits))) << j;
      }
      return ~off;
    });
  }
}

/// Unpacks the bits of block `b` to bytes 0 and 1.
void load_bits(const codec::DecodeJob& job, std::int64_t b, int count, std::uint8_t* bits) {
  const std::byte* src = job.src + b * (kBlock / 8);
  if (count == kBlock) return unpack<1>(src, kBlock, bits);
  alignas(64) std::byte words[kBlock / 8] = {};
  __builtin_memcpy(words, src, static_cast<std::size_t>(word_bytes(count, 1)));
  unpack<1>(words, kBlock, bits);
}

void decode_bytes(const codec::DecodeJob& job, Range blocks) {
  alignas(64) std::uint8_t bits[kBlock];
  Writer<std::uint8_t> writer(job.dst, blocks.first * kBlock);
  for (std::int64_t b = blocks.first; b < blocks.last; ++b) {
    const int count = block_count(job.geometry.elems, b);
    load_bits(job, b, count, bits);
    writer.write(bits, count);
  }
}

void decode_floats(const Mask& spec, const codec::DecodeJob& job, Range blocks) {
  alignas(64) std::uint8_t bits[kBlock];
  FloatWriter<Narrowing::infinite> writer(job.dst, blocks.first * kBlock);
  for (std::int64_t b = blocks.first; b < blocks.last; ++b) {
    const int count = block_count(job.geometry.elems, b);
    load_bits(job, b, count, bits);
    writer.write(count, kUnbounded,
                 [&](std::int64_t i) { return load_bytes(bits + i) != 0U ? broadcast(spec.on) : broadcast(spec.off); });
  }
}

}  // namespace

void encode(const Mask& spec, const codec::EncodeJob& job, math::HashKey /*key*/, Range blocks) {
  if (dtype_bytes(job.src.dtype) == 1) return encode_bytes(job, blocks);
  encode_floats(spec, job, blocks);
}

void decode(const Mask& spec, const codec::DecodeJob& job, math::HashKey /*key*/, Range blocks) {
  if (dtype_bytes(job.dst.dtype) == 1) return decode_bytes(job, blocks);
  decode_floats(spec, job, blocks);
}

}  // namespace actzip::cpu::ACTZIP_CPU_LEVEL
