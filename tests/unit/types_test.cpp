#include "actzip/types.hpp"

#include <gtest/gtest.h>

#include "expect_error.hpp"

namespace actzip {
namespace {

using test::expect_error;

TEST(Types, EveryElementTypeIsReadBackFromItsName) {
  int count = 0;
  for (int i = 0; to_string(static_cast<DType>(i)) != "unknown"; ++i, ++count) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(parse_dtype(to_string(dtype)), dtype);
    EXPECT_GT(dtype_bytes(dtype), 0U);
  }
  EXPECT_EQ(count, 10);
  EXPECT_EQ(to_string(DType::boolean), "bool");
}

TEST(Types, AnUnknownNameIsRefusedWithTheList) {
  for (const std::string_view text : {"float", "", "F32"}) {
    expect_error(ErrorCode::unsupported_dtype,
                 "parse_dtype: '" + std::string(text) +
                     "' is not an element type (allowed: f32, f16, bf16, f64, bool, u8, i8, i16, i32, i64)",
                 [&] { parse_dtype(text); });
  }
}

TEST(Types, ASeedIsAValueOrAnAddress) {
  const std::uint64_t value = 5;
  EXPECT_EQ(Seed(7).value(), 7U);
  EXPECT_EQ(Seed(7).address(), nullptr);
  EXPECT_EQ(Seed::at(&value).address(), &value);
}

}  // namespace
}  // namespace actzip
