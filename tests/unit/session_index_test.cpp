// Indices outside their bound, found immediately or late.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "actzip/error.hpp"
#include "expect_error.hpp"
#include "session_fixture.hpp"

namespace actzip {
namespace {

using test::SessionTest;

constexpr std::string_view kOutOfBound =
    "embedding.indices: an index outside the bound that the operator's arguments state; gradients that use it are "
    "wrong";

TEST_F(SessionTest, AnIndexOutsideItsBoundIsAnErrorAtOnceOnTheCpu) {
  std::vector<std::int64_t> indices(4096, 3);
  SavedTensor tensor;
  tensor.view = {indices.data(), DType::i64, Shape::contiguous({4096})};
  tensor.facts.index_bound = 100;
  keep("embedding", "indices", tensor);
  EXPECT_FALSE(session->report().index_overflow);
  indices[7] = 100;
  test::expect_error(ErrorCode::index_out_of_bound, kOutOfBound, [&] { keep("embedding", "indices", tensor); });
  EXPECT_TRUE(session->report().index_overflow);
  EXPECT_EQ(session->live_bytes(), 0U);
  indices[7] = 99;
  keep("embedding", "indices", tensor);
}

TEST_F(SessionTest, AnIndexThatADeviceFindsLateIsFoundBeforeAnybodyUsesTheGradient) {
  std::vector<std::int64_t> indices(4096, 3);
  SavedTensor tensor;
  tensor.view = {indices.data(), DType::i64, Shape::contiguous({4096})};
  tensor.facts.index_bound = 100;
  EXPECT_FALSE(index_check(keep("embedding", "indices", tensor))) << "on the CPU it is known already";
  memory.is_device = true;
  const Kept kept = keep("embedding", "indices", tensor);
  restore(kept, Stream(), memory);
  const auto check = index_check(kept);
  ASSERT_TRUE(check);
  check->finish(memory);
  memory.finds_late = true;
  test::expect_error(ErrorCode::index_out_of_bound, kOutOfBound, [&] { check->finish(memory); });
  EXPECT_TRUE(session->report().index_overflow);
}

TEST_F(SessionTest, AnIndexFoundByADeviceIsAnErrorWhenItIsNextLookedAt) {
  std::vector<std::int64_t> indices(4096, 3);
  SavedTensor tensor;
  tensor.view = {indices.data(), DType::i64, Shape::contiguous({4096})};
  tensor.facts.index_bound = 100;
  const Kept kept = keep("embedding", "indices", tensor);
  const auto raise = [&] { std::memset(memory.last_flag.data, 1, 1); };  // as a kernel would, at any time
  raise();
  EXPECT_TRUE(session->report().index_overflow);
  test::expect_error(ErrorCode::index_out_of_bound, kOutOfBound, [&] { restore(kept, Stream(), memory); });
  restore(kept, Stream(), memory);
  raise();
  test::expect_error(ErrorCode::index_out_of_bound, kOutOfBound, [&] { session->begin_step(); });
  session->begin_step();
}

}  // namespace
}  // namespace actzip
