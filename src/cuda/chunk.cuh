// Eight neighbouring elements in registers, and how they are loaded and stored.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/launch.cuh"
#include "format/bits.hpp"
#include "format/element_order.hpp"

namespace actzip::cuda {

/// Eight elements of T as 32-bit words, so that packed arithmetic can work on them in place.
template <class T>
struct Chunk {
  static constexpr int kWords = kChunk * static_cast<int>(sizeof(T)) / 4;
  std::uint32_t w[kWords];

  [[nodiscard]] __device__ T get(int i) const {
    if constexpr (sizeof(T) == 8) {
      return static_cast<T>(static_cast<std::uint64_t>(w[2 * i]) | static_cast<std::uint64_t>(w[2 * i + 1]) << 32);
    } else if constexpr (sizeof(T) == 4) {
      return __builtin_bit_cast(T, w[i]);
    } else {
      constexpr int kPerWord = 4 / static_cast<int>(sizeof(T));
      return static_cast<T>(w[i / kPerWord] >> (i % kPerWord * 8 * static_cast<int>(sizeof(T))));
    }
  }

  /// Only for chunks that start as zeros.
  __device__ void set(int i, T value) {
    if constexpr (sizeof(T) == 8) {
      w[2 * i] = static_cast<std::uint32_t>(static_cast<std::uint64_t>(value));
      w[2 * i + 1] = static_cast<std::uint32_t>(static_cast<std::uint64_t>(value) >> 32);
    } else if constexpr (sizeof(T) == 4) {
      w[i] = __builtin_bit_cast(std::uint32_t, value);
    } else {
      constexpr int kPerWord = 4 / static_cast<int>(sizeof(T));
      const auto bits = static_cast<std::make_unsigned_t<T>>(value);
      w[i / kPerWord] |= static_cast<std::uint32_t>(bits) << (i % kPerWord * 8 * static_cast<int>(sizeof(T)));
    }
  }
};

/// Accesses a run of memory that starts at a multiple of 16 bytes. Chunks start at multiples of 8 elements.
template <class T>
class DenseAccess {
 public:
  static constexpr bool kDense = true;

  DenseAccess(const void* data, const format::ElementOrder& /*order*/)
      : data_(static_cast<T*>(const_cast<void*>(data))) {}

  [[nodiscard]] __device__ T at(std::int64_t i) const { return data_[i]; }

  /// Elements [first, first + count); the others are 0.
  [[nodiscard]] __device__ Chunk<T> load(std::int64_t first, int count) const {
    Chunk<T> chunk = {};
    if (count >= kChunk) {
      if constexpr (sizeof(T) == 1) {
        const uint2 v = __ldcs(reinterpret_cast<const uint2*>(data_ + first));
        chunk.w[0] = v.x;
        chunk.w[1] = v.y;
      } else {
#pragma unroll
        for (int k = 0; k < Chunk<T>::kWords / 4; ++k) {
          const uint4 v = __ldcs(reinterpret_cast<const uint4*>(data_ + first) + k);
          chunk.w[4 * k] = v.x;
          chunk.w[4 * k + 1] = v.y;
          chunk.w[4 * k + 2] = v.z;
          chunk.w[4 * k + 3] = v.w;
        }
      }
    } else {
#pragma unroll
      for (int i = 0; i < kChunk; ++i) {
        if (i < count) chunk.set(i, data_[first + i]);
      }
    }
    return chunk;
  }

  /// The same for 16-bit or 32-bit elements, starting at a multiple of 4 elements; `count` is 4 or 8.
  [[nodiscard]] __device__ Chunk<T> load_quads(std::int64_t first, std::uint32_t count) const {
    using Quad = std::conditional_t<sizeof(T) == 4, uint4, uint2>;
    Chunk<T> chunk = {};
    auto* const quads = reinterpret_cast<Quad*>(chunk.w);
    const auto* const from = reinterpret_cast<const Quad*>(data_ + first);
    quads[0] = __ldcs(from);
    if (count > 4) quads[1] = __ldcs(from + 1);
    return chunk;
  }

  /// Loads a full chunk of 16-bit or 32-bit elements that will soon be read again and should stay in the cache.
  [[nodiscard]] __device__ Chunk<T> load_cached(std::int64_t first) const {
    Chunk<T> chunk;
#pragma unroll
    for (int k = 0; k < Chunk<T>::kWords / 4; ++k) {
      const uint4 v = reinterpret_cast<const uint4*>(data_ + first)[k];
      chunk.w[4 * k] = v.x;
      chunk.w[4 * k + 1] = v.y;
      chunk.w[4 * k + 2] = v.z;
      chunk.w[4 * k + 3] = v.w;
    }
    return chunk;
  }

  /// Stores 16 bytes from element first + offset on, which lies at a multiple of 16 bytes.
  __device__ void store_quad(std::int64_t first, int offset, const std::uint32_t (&w)[4]) const {
    __stcs(reinterpret_cast<uint4*>(data_ + first + offset), make_uint4(w[0], w[1], w[2], w[3]));
  }

  /// The whole warp stores full chunks that are contiguous in memory; this lane's starts at element first + offset.
  /// Chunks of more than 16 bytes are transposed between neighbouring lanes first: a store instruction that fills only
  /// half of each 32-byte sector runs at half the speed.
  __device__ void store_full(std::int64_t first, int offset, Chunk<T> chunk) const {
    constexpr int kQuads = Chunk<T>::kWords / 4;
    if constexpr (kQuads == 0) {
      store(first + offset, kChunk, chunk);
    } else if constexpr (kQuads == 1) {
      store_quad(first, offset, chunk.w);
    } else {
      const int lane = static_cast<int>(threadIdx.x) % kWarp;
      transpose(chunk, lane);
      const int row = lane % kQuads;
      auto* const at = reinterpret_cast<uint4*>(data_ + (first + offset - row * kChunk));
#pragma unroll
      for (int k = 0; k < kQuads; ++k) {
        __stcs(at + k * kQuads + row,
               make_uint4(chunk.w[4 * k], chunk.w[4 * k + 1], chunk.w[4 * k + 2], chunk.w[4 * k + 3]));
      }
    }
  }

  __device__ void store(std::int64_t first, int count, const Chunk<T>& chunk) const {
    if (count >= kChunk) {
      if constexpr (sizeof(T) == 1) {
        __stcs(reinterpret_cast<uint2*>(data_ + first), make_uint2(chunk.w[0], chunk.w[1]));
      } else {
#pragma unroll
        for (int k = 0; k < Chunk<T>::kWords / 4; ++k) {
          __stcs(reinterpret_cast<uint4*>(data_ + first) + k,
                 make_uint4(chunk.w[4 * k], chunk.w[4 * k + 1], chunk.w[4 * k + 2], chunk.w[4 * k + 3]));
        }
      }
    } else {
#pragma unroll
      for (int i = 0; i < kChunk; ++i) {
        if (i < count) data_[first + i] = chunk.get(i);
      }
    }
  }

 private:
  /// Swaps quad k of lane r and quad r of lane k, in each set of as many lanes as a chunk has quads of words.
  __device__ static void transpose(Chunk<T>& chunk, int lane) {
    constexpr int kQuads = Chunk<T>::kWords / 4;
#pragma unroll
    for (int bit = 1; bit < kQuads; bit *= 2) {
      const bool upper = (lane & bit) != 0;
#pragma unroll
      for (int i = 0; i < Chunk<T>::kWords; ++i) {
        if ((i / 4 & bit) != 0) continue;
        std::uint32_t& low = chunk.w[i];
        std::uint32_t& high = chunk.w[i + 4 * bit];
        const std::uint32_t received = __shfl_xor_sync(~0U, upper ? low : high, bit);
        low = upper ? received : low;
        high = upper ? high : received;
      }
    }
  }

  T* data_;
};

/// Not inlined: eight copies of its divisions in every kernel would cost more compile time than they save at run time.
[[nodiscard]] __device__ __noinline__ static std::int64_t strided_offset(const format::ElementOrder& order,
                                                                         std::int64_t i) {
  return order.offset(i);
}

/// Accesses any other view, element by element.
template <class T>
class StridedAccess {
 public:
  static constexpr bool kDense = false;

  StridedAccess(const void* data, const format::ElementOrder& order)
      : data_(static_cast<T*>(const_cast<void*>(data))), order_(order), is_run_(order.dense()) {}

  [[nodiscard]] __device__ T at(std::int64_t i) const { return data_[strided_offset(order_, i)]; }
  __device__ void set(std::int64_t i, T value) const { data_[strided_offset(order_, i)] = value; }

  /// The elements from `first` on, if the view is a run of memory: one that is not aligned, or is cut into groups that
  /// begin anywhere. Otherwise null.
  [[nodiscard]] __device__ T* run(std::int64_t first) const { return is_run_ ? data_ + first : nullptr; }

  [[nodiscard]] __device__ Chunk<T> load(std::int64_t first, int count) const {
    Chunk<T> chunk = {};
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      if (i < count) chunk.set(i, at(first + i));
    }
    return chunk;
  }

  __device__ void store(std::int64_t first, int count, const Chunk<T>& chunk) const {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      if (i < count) set(first + i, chunk.get(i));
    }
  }

 private:
  T* data_;
  format::ElementOrder order_;
  bool is_run_;
};

/// Number of elements of a chunk that exist, for codecs without groups.
[[nodiscard]] __device__ __forceinline__ int count_from(std::int64_t first, std::int64_t elems) {
  return static_cast<int>(min(max(elems - first, std::int64_t{0}), std::int64_t{kChunk}));
}

/// Stores one chunk of a tile whose chunks are contiguous in memory. The whole warp calls it.
template <class Access, class T>
__device__ __forceinline__ void store_tile_chunk(const Access& dst, std::int64_t tile, std::int64_t first,
                                                 std::int64_t elems, const Chunk<T>& chunk) {
  if constexpr (Access::kDense) {
    if ((tile + 1) * kTile <= elems) return dst.store_full(first, 0, chunk);
  }
  if (first < elems) dst.store(first, count_from(first, elems), chunk);
}

/// Calls body(access) with the access that fits. Dense access needs a run of memory, 16-byte alignment, and groups that
/// start at multiples of 8 elements.
template <class T, class Body>
void with_access(const void* data, const format::ElementOrder& order, bool flat, Body&& body) {
  if (order.dense() && flat && reinterpret_cast<std::uintptr_t>(data) % 16 == 0) {
    return body(DenseAccess<T>(data, order));
  }
  body(StridedAccess<T>(data, order));
}

/// Packs eight codes; each starts at bit `From` of a byte of the two words. Bits above the lowest 8 * Bits are
/// undefined. Codes of 1 to 4 bits are moved next to each other by products whose partial sums do not overlap.
template <int Bits, int From = 0>
[[nodiscard]] __device__ __forceinline__ std::uint64_t pack_bytes(std::uint32_t low, std::uint32_t high) {
  if constexpr (Bits == 2) {
    constexpr std::uint32_t kGather = 0x01041040U >> From;  // to the highest byte
    return __byte_perm(low * kGather, high * kGather, 0x7373);
  } else if constexpr (Bits == 4) {
    constexpr std::uint32_t kGather = 0x110U >> From;  // to bytes 1 and 3
    return __byte_perm(low * kGather, high * kGather, 0x7531);
  } else if constexpr (Bits == 3) {
    constexpr std::uint32_t kGather = (0x21U << 5) >> From;  // two codes to the highest 6 bits of bytes 1 and 3
    const std::uint32_t pairs = __byte_perm(low * kGather, high * kGather, 0x7531);
    const std::uint32_t fours = pairs + 3U * (pairs & 0x00ff00ffU);  // to the highest 12 bits of each half
    const std::uint32_t apart = fours >> 4;
    return apart - 0xf000U * (apart >> 16);
  } else if constexpr (From != 0) {
    return pack_bytes<Bits>(low >> From, high >> From);
  } else if constexpr (Bits == 1) {
    return ((low + 16U * high) * 0x01020408U) >> 24;
  } else if constexpr (Bits == 8) {
    return low | static_cast<std::uint64_t>(high) << 32;
  } else {
    const auto four = [](std::uint32_t bytes) {
      const std::uint32_t pairs = (bytes & 0x00ff00ffU) | (bytes & 0xff00ff00U) >> (8 - Bits);
      return (pairs & 0xffffU) | pairs >> 16 << (2 * Bits);
    };
    return four(low) | static_cast<std::uint64_t>(four(high)) << (4 * Bits);
  }
}

/// Codes as bytes, for byte permutes. Codes of 2 and 4 bits are not put in order but only masked: a word holds every (8
/// / Bits)-th code.
template <int Bits>
class CodeBytes {
  static constexpr bool kInPlace = Bits == 2 || Bits == 4;
  static constexpr int kPerWord = 4;
  static constexpr int kPerByte = 8 / Bits;
  static constexpr int kUp = Bits == 2 ? 1 : 0;  ///< left shifts become products, which spare the busiest pipe

 public:
  __device__ explicit CodeBytes(std::uint64_t packed) {
    const auto low = static_cast<std::uint32_t>(packed);
    if constexpr (kInPlace) {
#pragma unroll
      for (int i = 0; i < kPerByte; ++i) {
        words_[i] = (kUp == 1 ? low << (8 - Bits * i) : low >> Bits * i) & 0x01010101U * format::kMaxCode<Bits>;
      }
    } else {
      words_[0] = spread(low & mask(4 * Bits));
      words_[1] = spread(static_cast<std::uint32_t>(packed >> 4 * Bits) & mask(4 * Bits));
    }
  }

  /// Code `i` is byte byte(i) of word(i).
  [[nodiscard]] __device__ std::uint32_t word(int i) const { return words_[kInPlace ? i % kPerByte : i / kPerWord]; }
  [[nodiscard]] __device__ static constexpr int byte(int i) { return kInPlace ? i / kPerByte + kUp : i % kPerWord; }

 private:
  [[nodiscard]] __device__ static constexpr std::uint32_t mask(int bits) {
    return bits == 32 ? ~0U : (1U << bits) - 1U;
  }
  [[nodiscard]] __device__ static std::uint32_t spread(std::uint32_t four) {
    const std::uint32_t pairs = (four & mask(2 * Bits)) | (four >> 2 * Bits << 16);
    return (pairs & 0x00010001U * mask(Bits)) | (pairs << (8 - Bits) & 0x01000100U * mask(Bits));
  }

  std::uint32_t words_[kInPlace ? kPerByte : kChunk / kPerWord];
};

/// Sets the elements from `count` on to the first one, so that they do not affect minimum and maximum.
template <class T>
__device__ __forceinline__ void repeat_first(Chunk<T>& chunk, int count) {
#pragma unroll
  for (int i = 1; i < kChunk; ++i) {
    if (i >= count) chunk.set(i, chunk.get(0));
  }
}

/// The segment of group g. Not inlined, for the same reason as strided_offset(); a division of 64 bits takes five times
/// as long as one of 32.
[[nodiscard]] __device__ __noinline__ static std::int64_t divided(std::int64_t g, std::int64_t segment_groups) {
  const bool narrow = ((g | segment_groups) >> 32) == 0;
  return narrow ? static_cast<std::uint32_t>(g) / static_cast<std::uint32_t>(segment_groups) : g / segment_groups;
}

/// format::group_range() without a division if there is one segment, or if every segment is one group, as rows of norms
/// and of softmax often are.
[[nodiscard]] __device__ __forceinline__ format::GroupRange group_range_of(const format::Geometry& geometry,
                                                                           std::int64_t g) {
  if (geometry.segments == 1) return format::group_range_in(geometry, g, 0);
  return format::group_range_in(geometry, g, geometry.segment_groups == 1 ? g : divided(g, geometry.segment_groups));
}

/// Stores the `Bits` bytes of eight codes, but none at or beyond `room` bytes. `dst` is aligned to the largest power of
/// two, up to 4, that divides `Bits`.
template <int Bits>
__device__ __forceinline__ void store_codes(std::byte* dst, std::uint64_t packed, std::int64_t room) {
  if (room >= Bits) {
    if constexpr (Bits % 4 == 0) {
#pragma unroll
      for (int k = 0; k < Bits / 4; ++k) {
        reinterpret_cast<std::uint32_t*>(dst)[k] = static_cast<std::uint32_t>(packed >> (32 * k));
      }
    } else if constexpr (Bits % 2 == 0) {
#pragma unroll
      for (int k = 0; k < Bits / 2; ++k) {
        reinterpret_cast<std::uint16_t*>(dst)[k] = static_cast<std::uint16_t>(packed >> (16 * k));
      }
    } else {
#pragma unroll
      for (int k = 0; k < Bits; ++k) dst[k] = static_cast<std::byte>(packed >> (8 * k));
    }
    return;
  }
#pragma unroll
  for (int k = 0; k < Bits; ++k) {
    if (k < room) dst[k] = static_cast<std::byte>(packed >> (8 * k));
  }
}

/// Loads the `Bits` bytes of eight codes. Bytes at or beyond `room` read as 0.
template <int Bits>
[[nodiscard]] __device__ __forceinline__ std::uint64_t load_codes(const std::byte* src, std::int64_t room) {
  std::uint64_t packed = 0;
  if (room >= Bits) {
    if constexpr (Bits % 4 == 0) {
#pragma unroll
      for (int k = 0; k < Bits / 4; ++k) {
        packed |= static_cast<std::uint64_t>(reinterpret_cast<const std::uint32_t*>(src)[k]) << (32 * k);
      }
    } else if constexpr (Bits % 2 == 0) {
#pragma unroll
      for (int k = 0; k < Bits / 2; ++k) {
        packed |= static_cast<std::uint64_t>(reinterpret_cast<const std::uint16_t*>(src)[k]) << (16 * k);
      }
    } else {
#pragma unroll
      for (int k = 0; k < Bits; ++k) {
        packed |= static_cast<std::uint64_t>(static_cast<std::uint8_t>(src[k])) << (8 * k);
      }
    }
    return packed;
  }
#pragma unroll
  for (int k = 0; k < Bits; ++k) {
    if (k < room) packed |= static_cast<std::uint64_t>(static_cast<std::uint8_t>(src[k])) << (8 * k);
  }
  return packed;
}

}  // namespace actzip::cuda
