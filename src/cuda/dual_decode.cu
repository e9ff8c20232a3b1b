// Decodes `dual` on CUDA. Decoding is elementwise; its kernels differ in how often they compute the place of an element.
#include <cstdint>
#include <type_traits>

#include "cuda/backend.hpp"
#include "cuda/dual_decode.cuh"
#include "cuda/dual_launch.cuh"
#include "cuda/dual_tables.cuh"
#include "cuda/launch.cuh"
#include "dispatch.hpp"

namespace actzip::cuda {
namespace {

/// Calls body.operator()<MapStats>() with the class that fits the layout. `dense` says whether the elements are
/// accessed as a dense run.
template <class Body>
void with_stats(const format::DualLayout& layout, bool dense, Body&& body) {
  if (!dense || layout.channels > 1) return body.template operator()<ByElement>();
  with_run<kChunk>(layout, [&]<int Run>() { body.template operator()<ByRuns<Run>>(); });
}

/// The launches that decode by tables. Each returns false if it does not support the layout.
template <DType Type>
struct TableDecoding {
  const codec::DecodeJob& job;
  const DualBuffer& buffer;
  DenseAccess<Storage<Type>> access;

  [[nodiscard]] bool of_maps() const {
    constexpr std::int64_t kMostBytes = 32768;  // enough for maps of 4 x 4; allows many thread blocks at once
    const format::DualLayout& layout = buffer.layout;
    const std::int64_t bytes = most_tables(layout) * static_cast<std::int64_t>(sizeof(CodeTable<Type>));
    if (layout.channels > 1 || layout.depth > 1 || bytes > kMostBytes) return false;
    const auto launch_with = [&]<int Run>() {
      launch_shared(dual_decode_tables_kernel<Type, Run>,
                    checked_blocks(format::ceil_div(layout.elems, std::int64_t{kTableTile})), kThreads,
                    static_cast<std::size_t>(bytes), *job.stream, buffer, access);
    };
    if (is_stacked(layout)) {
      launch_with.template operator()<kStacked>();
    } else {
      with_run<kChunk>(layout, launch_with);
    }
    return true;
  }

  [[nodiscard]] bool of_channels() const {
    if constexpr (Type == DType::f32) {
      return false;
    } else {
      const format::DualLayout& layout = buffer.layout;
      if (layout.channels == 1 || layout.channels % kChunk != 0 || layout.depth > 1 || !in_whole_blocks(layout)) {
        return false;
      }
      const ChannelStrips strips(layout);
      constexpr std::int64_t kMostLanes = 0x7fffffff;
      if (strips.lanes > kMostLanes) return false;
      launch(dual_decode_strips_kernel<Type>, format::ceil_div(strips.lanes, std::int64_t{kWarp}), *job.stream, buffer,
             access, strips);
      return true;
    }
  }
};

}  // namespace

void decode(const Dual& spec, const codec::DecodeJob& job) {
  const DualBuffer buffer(spec, job.src, job.sections, job.geometry.elems);
  const format::DualLayout& layout = buffer.layout;
  const bool dithered = spec.rounding == Rounding::dithered;
  check_maps(layout);
  with_float(job.dst.dtype, [&]<DType Type>() {
    with_access<Storage<Type>>(job.dst.data, job.dst.order, true, [&]<class Access>(Access access) {
      if constexpr (Access::kDense) {
        const TableDecoding<Type> tables{job, buffer, access};
        if (spec.bits.value == 2 && !dithered && (tables.of_maps() || tables.of_channels())) return;
        if (layout.channels > 1 && layout.channels % kChunk == 0 && layout.elems % layout.channels == 0) {
          const ChannelLanes lanes(layout.channels);
          const std::int64_t rows = format::ceil_div(layout.elems / layout.channels, std::int64_t{lanes.positions});
          return with_width_of(spec, [&]<int Bits>() {
            launch(dual_decode_channels_kernel<Type, Bits>,
                   format::ceil_div(rows, std::int64_t{kRowsOfWarp}) * lanes.warps, *job.stream, buffer, access,
                   spec.bits.value, dithered, lanes, KernelSeed(job.seed));
          });
        }
      }
      with_stats(layout, Access::kDense, [&]<class MapStats>() {
        if constexpr (Access::kDense || std::is_same_v<MapStats, ByElement>) {
          with_width_of(spec, [&]<int Bits>() {
            launch(dual_decode_kernel<Type, Bits, MapStats, Access>, format::ceil_div(job.geometry.elems, kTile),
                   *job.stream, buffer, access, spec.bits.value, dithered, KernelSeed(job.seed));
          });
        }
      });
    });
  });
}

}  // namespace actzip::cuda
