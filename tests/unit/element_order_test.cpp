#include "format/element_order.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "actzip/view.hpp"
#include "expect_error.hpp"

namespace actzip::format {
namespace {

using test::expect_error;

struct Dim {
  std::int64_t size;
  std::int64_t stride;
};

Shape shape_of(const std::vector<Dim>& dims) {
  Shape shape;
  shape.rank = static_cast<int>(dims.size());
  for (std::size_t d = 0; d < dims.size(); ++d) {
    shape.sizes[d] = dims[d].size;
    shape.strides[d] = dims[d].stride;
  }
  return shape;
}

/// An index and where it lies.
struct Place {
  std::vector<std::int64_t> index;
  std::int64_t offset;
};

/// Section 1 of format.md, word by word: sort the dimensions, then count like an odometer.
std::vector<Place> plain_order(const Shape& shape) {
  std::vector<std::size_t> dims;
  for (std::size_t d = 0; d < static_cast<std::size_t>(shape.rank); ++d) {
    if (shape.sizes[d] == 0) return {};
    if (shape.sizes[d] != 1 && shape.strides[d] != 0) dims.push_back(d);
  }
  std::stable_sort(dims.begin(), dims.end(),
                   [&](std::size_t a, std::size_t b) { return shape.strides[a] > shape.strides[b]; });
  std::vector<Place> places;
  std::vector<std::int64_t> index(static_cast<std::size_t>(shape.rank), 0);
  for (bool done = false; !done;) {
    places.push_back({index, 0});
    for (const std::size_t d : dims) places.back().offset += index[d] * shape.strides[d];
    done = true;
    for (auto d = dims.rbegin(); d != dims.rend() && done; ++d) {
      done = ++index[*d] == shape.sizes[*d];
      if (done) index[*d] = 0;
    }
  }
  return places;
}

/// Permuted, gapped, expanded and overlapping shapes, with sizes 0 and 1 among them.
Shape random_shape(std::mt19937& random) {
  const auto below = [&](int n) { return static_cast<std::int64_t>(random() % static_cast<unsigned>(n)); };
  std::vector<Dim> dims(static_cast<std::size_t>(below(6)));
  std::int64_t stride = 1 + (below(4) == 0 ? below(3) : 0);
  for (Dim& dim : dims) {
    dim = {below(40) == 0 ? 0 : 1 + below(4), stride};
    if (below(6) == 0) dim.stride = 0;         // expanded
    if (below(6) == 0) dim.stride = below(8);  // overlapping, perhaps
    stride *= std::max<std::int64_t>(dim.size, 1);
    if (below(5) == 0) stride += below(5);  // gapped
  }
  std::shuffle(dims.begin(), dims.end(), random);
  return shape_of(dims);
}

std::string text_of(const Shape& shape) {
  std::string text;
  for (std::size_t d = 0; d < static_cast<std::size_t>(shape.rank); ++d) {
    text += std::to_string(shape.sizes[d]) + "*" + std::to_string(shape.strides[d]) + " ";
  }
  return text;
}

bool really_overlaps(const std::vector<Place>& places) {
  std::set<std::int64_t> offsets;
  for (const Place& place : places) offsets.insert(place.offset);
  return offsets.size() != places.size();
}

constexpr int kTrials = 20000;

TEST(ElementOrder, ListsTheOffsetsOfThePlainOrderForAnyShape) {
  std::mt19937 random(1);
  for (int trial = 0; trial < kTrials; ++trial) {
    const Shape shape = random_shape(random);
    const std::vector<Place> places = plain_order(shape);
    const ElementOrder order = element_order(shape);
    ASSERT_EQ(order.elems, static_cast<std::int64_t>(places.size())) << text_of(shape);
    ASSERT_EQ(unique_elems(shape), order.elems);
    for (std::size_t i = 0; i < places.size(); ++i) {
      ASSERT_EQ(order.offset(static_cast<std::int64_t>(i)), places[i].offset) << text_of(shape) << "at " << i;
    }
  }
}

TEST(ElementOrder, NoTwoNeighboursAreLeftThatCouldBeOne) {
  std::mt19937 random(2);
  for (int trial = 0; trial < kTrials; ++trial) {
    const Shape shape = random_shape(random);
    const ElementOrder order = element_order(shape);
    for (int d = 0; d < order.rank; ++d) {
      ASSERT_GT(order.sizes[d], 1) << text_of(shape);
      ASSERT_GT(order.strides[d], 0) << text_of(shape);
      if (d == 0) continue;
      ASSERT_GE(order.strides[d - 1], order.strides[d]) << text_of(shape);
      ASSERT_NE(order.strides[d - 1], order.sizes[d] * order.strides[d]) << text_of(shape);
    }
  }
}

TEST(ElementOrder, ADenseTensorInAnyDimensionOrderIsOneRun) {
  std::vector<Dim> dims = {{2, 60}, {3, 20}, {1, 7}, {5, 4}, {4, 1}};
  std::vector<std::size_t> turn(dims.size());
  std::iota(turn.begin(), turn.end(), 0U);
  do {
    std::vector<Dim> permuted;
    for (const std::size_t d : turn) permuted.push_back(dims[d]);
    const ElementOrder order = element_order(shape_of(permuted));
    ASSERT_EQ(order.rank, 1);
    ASSERT_EQ(order.sizes[0], 120);
    ASSERT_TRUE(order.dense());
  } while (std::next_permutation(turn.begin(), turn.end()));
}

TEST(ElementOrder, ExpandedDimensionsAreCountedOnce) {
  const ElementOrder order = element_order(shape_of({{100, 0}, {3, 1}, {7, 0}}));
  EXPECT_EQ(order.elems, 3);
  EXPECT_TRUE(order.dense());
}

TEST(ElementOrder, OneElementHasRank0AndNoneHasNoElements) {
  EXPECT_EQ(element_order(Shape{}).elems, 1);
  EXPECT_EQ(element_order(Shape{}).rank, 0);
  EXPECT_EQ(element_order(shape_of({{1, 5}, {9, 0}})).elems, 1);
  EXPECT_EQ(element_order(shape_of({{3, 0}, {0, 1}})).elems, 0);
  EXPECT_EQ(element_order(shape_of({{3, 1}, {0, 0}})).elems, 0) << "an expanded dimension of size 0 is empty too";
}

TEST(ElementOrder, WindowsThatOverlapAreListedOneAfterTheOther) {
  const ElementOrder order = element_order(shape_of({{3, 1}, {3, 1}}));
  std::vector<std::int64_t> offsets;
  for (std::int64_t i = 0; i < order.elems; ++i) offsets.push_back(order.offset(i));
  EXPECT_EQ(offsets, (std::vector<std::int64_t>{0, 1, 2, 1, 2, 3, 2, 3, 4}));
}

TEST(ElementOrder, EveryOverlapIsFound) {
  std::mt19937 random(3);
  int overlapping = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    const Shape shape = random_shape(random);
    if (!really_overlaps(plain_order(shape))) continue;
    ++overlapping;
    ASSERT_TRUE(overlaps_itself(element_order(shape))) << text_of(shape);
  }
  EXPECT_GT(overlapping, kTrials / 20);
}

TEST(ElementOrder, PermutedGappedAndExpandedShapesDoNotOverlap) {
  for (const std::vector<Dim>& dims : {std::vector<Dim>{{4, 1}, {3, 4}}, std::vector<Dim>{{3, 10}, {4, 2}},
                                       std::vector<Dim>{{9, 0}, {4, 1}}, std::vector<Dim>{{1, 1}, {4, 1}}}) {
    EXPECT_FALSE(overlaps_itself(element_order(shape_of(dims)))) << text_of(shape_of(dims));
  }
  EXPECT_FALSE(overlaps_itself(element_order(Shape{})));
}

TEST(ElementOrder, CompactKeepsTheOrderAndLeavesNoGap) {
  std::mt19937 random(4);
  for (int trial = 0; trial < kTrials; ++trial) {
    const Shape shape = random_shape(random);
    const Shape result = compact(shape);
    ASSERT_TRUE(element_order(result).dense()) << text_of(shape);
    const std::vector<Place> before = plain_order(shape);
    const std::vector<Place> after = plain_order(result);
    ASSERT_EQ(before.size(), after.size()) << text_of(shape);
    for (std::size_t i = 0; i < before.size(); ++i) {
      ASSERT_EQ(before[i].index, after[i].index) << text_of(shape) << "at " << i;
      ASSERT_EQ(after[i].offset, static_cast<std::int64_t>(i)) << text_of(shape);
    }
    for (std::size_t d = 0; d < static_cast<std::size_t>(shape.rank); ++d) {
      ASSERT_EQ(result.sizes[d], shape.sizes[d]);
      ASSERT_EQ(result.strides[d] == 0, shape.strides[d] == 0) << text_of(shape);
    }
    ASSERT_EQ(compact(result), result) << "a dense shape is returned unchanged";
  }
}

TEST(ElementOrder, CompactOfADenseShapeIsTheShape) {
  for (const std::vector<Dim>& dims : {std::vector<Dim>{{4, 1}, {3, 4}}, std::vector<Dim>{{3, 4}, {1, 99}, {4, 1}},
                                       std::vector<Dim>{{0, 3}, {5, 2}}}) {
    EXPECT_EQ(compact(shape_of(dims)), shape_of(dims)) << text_of(shape_of(dims));
  }
}

TEST(ElementOrder, ContiguousIsRowMajor) {
  EXPECT_EQ(Shape::contiguous({2, 3, 4}), shape_of({{2, 12}, {3, 4}, {4, 1}}));
  EXPECT_EQ(Shape::contiguous({}), Shape{});
  EXPECT_EQ(element_order(Shape::contiguous({2, 0, 4})).elems, 0);
}

TEST(ElementOrder, ShapesThatMakeNoSenseAreRefused) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 62;
  Shape deep;
  deep.rank = 9;
  expect_error(ErrorCode::invalid_view, "shape: rank 9 (allowed: 0 to 8)", [&] { element_order(deep); });
  deep.rank = -1;
  expect_error(ErrorCode::invalid_view, "shape: rank -1 (allowed: 0 to 8)", [&] { unique_elems(deep); });
  expect_error(ErrorCode::invalid_view, "shape: rank 9 (allowed: 0 to 8)",
               [] { Shape::contiguous({1, 1, 1, 1, 1, 1, 1, 1, 1}); });
  expect_error(ErrorCode::invalid_view, "shape: size -3 of dimension 1 is negative (allowed: 0 and up)",
               [] { Shape::contiguous({2, -3}); });
  expect_error(ErrorCode::invalid_view, "shape: size -3 of dimension 0 is negative (allowed: 0 and up)",
               [] { element_order(shape_of({{-3, 1}})); });
  expect_error(ErrorCode::invalid_view, "shape: stride -1 of dimension 1 is negative (allowed: 0 and up)",
               [] { compact(shape_of({{3, 4}, {4, -1}})); });
  expect_error(ErrorCode::invalid_view, "shape: the number of elements exceeds 64 bits: 4611686018427387904 * 2",
               [] { element_order(shape_of({{kHuge, 1}, {2, 1}})); });
  expect_error(ErrorCode::invalid_view, "shape: the number of elements exceeds 64 bits: 4 * 4611686018427387904",
               [] { Shape::contiguous({1, kHuge, 4}); });
  expect_error(ErrorCode::invalid_view, "shape: the greatest offset exceeds 64 bits: 3 * 4611686018427387904",
               [] { element_order(shape_of({{4, kHuge}})); });
  expect_error(ErrorCode::invalid_view,
               "shape: the greatest offset is 1152921504606846976 elements or more (allowed: less)",
               [] { element_order(shape_of({{2, kHuge}})); });
}

TEST(ElementOrder, NumbersNearTheLimitOf64BitsDoNotWrap) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(unique_elems(shape_of({{kMost, 0}, {2, 1}})), 2) << "expanded sizes do not count";
  EXPECT_EQ(unique_elems(shape_of({{1, kMost}, {2, 1}})), 2) << "nor strides of one element";
  EXPECT_EQ(unique_elems(shape_of({{kMost, 1}, {0, 1}})), 0);
  EXPECT_EQ(unique_elems(shape_of({{std::int64_t{1} << 60, 1}})), std::int64_t{1} << 60);
}

}  // namespace
}  // namespace actzip::format
