// A view is encoded and decoded as its elements in memory order, however they are laid out.
#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>

#include "actzip/codec.hpp"
#include "property/sweep.hpp"
#include "support/backends.hpp"
#include "support/generators.hpp"
#include "support/harness.hpp"

namespace actzip::testing {
namespace {

class Views : public BackendTest {};
INSTANTIATE_TEST_SUITE_P(Cpu, Views, ::testing::ValuesIn(cpu_backends()), backend_name);
INSTANTIATE_TEST_SUITE_P(Cuda, Views, ::testing::ValuesIn(cuda_backends()), backend_name);

struct NamedShape {
  std::string_view name;
  Shape shape;
  bool overlapping = false;  ///< can be read but not written
};

std::vector<NamedShape> shapes() {
  return {
      {"scalar", strided({}, {})},
      {"one element of many dimensions", strided({1, 1, 1}, {5, 0, 3})},
      {"dense", strided({7, 11, 13}, {143, 13, 1})},
      {"permuted dense", strided({5, 7, 33}, {1, 165, 5})},
      {"channels last", strided({2, 19, 5, 7}, {665, 1, 133, 19})},
      {"dimensions of size 1 with odd strides", strided({1, 300, 1}, {999, 1, 7})},
      {"rows with gaps", strided({9, 37}, {50, 1})},
      {"wide rows with gaps", strided({70, 300}, {320, 1})},
      {"rows of 8 with gaps", strided({129, 8}, {16, 1})},
      {"every second element", strided({700}, {2})},
      {"gaps in both dimensions", strided({13, 21}, {64, 2})},
      {"transposed with gaps", strided({33, 65}, {1, 40})},
      {"box of a volume", strided({7, 11, 29}, {1000, 40, 1})},
      {"eight dimensions", strided({2, 3, 2, 3, 2, 2, 2, 3}, {2000, 400, 190, 60, 28, 13, 6, 1})},
      {"expanded outside", strided({4, 19, 23}, {0, 23, 1})},
      {"expanded inside", strided({19, 23, 6}, {23, 1, 0})},
      {"expanded between gaps", strided({19, 5, 23}, {30, 0, 1})},
      {"all expanded", strided({19, 23}, {0, 0})},
      {"unfolded windows", strided({60, 8}, {3, 1}), true},
      {"equal strides", strided({40, 30}, {1, 1}), true},
      {"empty", strided({4, 0, 3}, {3, 3, 1})},
  };
}

Bytes memory_for(const CodecSpec& spec, DType dtype, const Shape& shape) {
  return sample(spec, dtype, extent(shape), 61);
}

std::vector<Segments> segments_for(std::int64_t elems) {
  std::vector<Segments> result;
  for (const std::int64_t count : {1, 3, 7, 20}) {
    if (elems % count == 0) result.push_back({count});
  }
  return result;
}

TEST_P(Views, encode_alike_to_a_dense_copy_in_memory_order) {
  Harness harness(device());
  for (const CodecSpec& spec : all_variants()) {
    for (const DType dtype : codec_info(spec).encodes) {
      for (const NamedShape& view : shapes()) {
        const std::vector<std::int64_t> order = memory_order(view.shape);
        SCOPED_TRACE(describe(spec, dtype, unique_elems(view.shape)) + ", " + std::string(view.name));
        ASSERT_EQ(unique_elems(view.shape), static_cast<std::int64_t>(order.size()));
        const Tensor src{dtype, view.shape, memory_for(spec, dtype, view.shape)};
        const Tensor copy = dense(dtype, gather(dtype, src.memory, order));
        for (const Segments segments : segments_for(unique_elems(view.shape))) {
          const Call call{.segments = segments};
          ASSERT_TRUE(harness.encode(spec, src, call) == harness.encode(spec, copy, call)) << segments.count;
        }
      }
    }
  }
}

TEST_P(Views, decode_touches_the_elements_of_its_destination_and_not_the_gaps) {
  Harness harness(device());
  for (const CodecSpec& spec : all_variants()) {
    for (const DType dtype : codec_info(spec).encodes) {
      const DType out = output_type(spec, dtype);
      for (const NamedShape& view : shapes()) {
        if (view.overlapping) continue;
        const std::vector<std::int64_t> order = memory_order(view.shape);
        const auto elems = static_cast<std::int64_t>(order.size());
        SCOPED_TRACE(describe(spec, dtype, elems) + ", " + std::string(view.name));
        const Bytes encoded = harness.encode(spec, dense(dtype, sample(spec, dtype, elems, 62)));
        const Bytes values = harness.decode(spec, encoded, out, line(elems));
        const Bytes memory = harness.decode(spec, encoded, out, view.shape);

        Bytes expected(memory.size(), std::byte{0xA5});
        const std::size_t width = dtype_bytes(out);
        for (std::size_t i = 0; i < order.size(); ++i) {
          std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(i * width), width,
                      expected.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(order[i]) * width));
        }
        ASSERT_TRUE(memory == expected);
      }
    }
  }
}

TEST_P(Views, misaligned_starts_change_nothing) {
  Harness harness(device());
  for (const CodecSpec& spec : all_variants()) {
    for (const DType dtype : codec_info(spec).encodes) {
      const std::int64_t elems = 2 * group_of(spec) + 3;
      SCOPED_TRACE(describe(spec, dtype, elems));
      const Tensor src = dense(dtype, sample(spec, dtype, elems, 63));
      const DType out = output_type(spec, dtype);
      const Bytes encoded = harness.encode(spec, src);
      const Bytes decoded = harness.decode(spec, encoded, out, src.shape);
      for (const std::size_t shift : {1U, 2U, 3U, 4U, 7U}) {
        ASSERT_TRUE(harness.encode(spec, src, {.misaligned = shift * dtype_bytes(dtype)}) == encoded) << shift;
        ASSERT_TRUE(harness.decode(spec, encoded, out, src.shape, {.misaligned = shift * dtype_bytes(out)}) == decoded)
            << shift;
      }
    }
  }
}

TEST_P(Views, compact_lists_every_element_at_its_own_index) {
  Harness harness(device());
  for (const NamedShape& view : shapes()) {
    SCOPED_TRACE(view.name);
    const Tensor src{DType::i32, view.shape, memory_for(Copy{}, DType::i32, view.shape)};
    const Shape room = compact(view.shape);
    EXPECT_LE(extent(room), std::max<std::int64_t>(unique_elems(view.shape), 1)) << "not dense";
    const Bytes decoded = harness.decode(Copy{}, harness.encode(Copy{}, src), DType::i32, room);
    EXPECT_TRUE(gather(DType::i32, src.memory, index_order(view.shape)) ==
                gather(DType::i32, decoded, index_order(room)));
  }
}

/// Rows of 77 elements: no group holds elements of two rows, so each row codes as it would alone, but for the noise.
TEST_P(Views, segments_share_nothing) {
  Harness harness(device());
  const std::int64_t rows = 9;
  for (const CodecSpec& spec : all_variants()) {
    if (!std::holds_alternative<Affine>(spec) && !std::holds_alternative<Rotated>(spec)) continue;
    for (const std::int64_t length : {std::int64_t{1}, std::int64_t{77}, group_of(spec), 2 * group_of(spec) + 5}) {
      SCOPED_TRACE(describe(spec, DType::f32, rows * length));
      const Call call{.segments = {rows}};
      Values x = gaussian(rows * length, 64);
      const Values before = harness.round_trip(spec, dense(DType::f32, x), DType::f32, call);
      for (std::int64_t i = 0; i < length; ++i)
        x[static_cast<std::size_t>(4 * length + i)] = 1000.0 + static_cast<double>(i);
      const Values after = harness.round_trip(spec, dense(DType::f32, x), DType::f32, call);
      for (std::int64_t i = 0; i < rows * length; ++i) {
        if (i / length == 4) continue;
        ASSERT_EQ(before[static_cast<std::size_t>(i)], after[static_cast<std::size_t>(i)]) << "element " << i;
      }
    }
  }
}

TEST_P(Views, an_overlapping_destination_is_refused) {
  Harness harness(device());
  for (const NamedShape& view : shapes()) {
    if (!view.overlapping) continue;
    const Bytes encoded(encoded_bytes(Copy{}, DType::f32, view.shape));
    try {
      harness.decode(Copy{}, encoded, DType::f32, view.shape);
      ADD_FAILURE() << view.name;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_view) << error.what();
    }
  }
}

}  // namespace
}  // namespace actzip::testing
