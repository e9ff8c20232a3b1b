// Checks in one line that a call throws a given code with a given message.
#pragma once

#include <gtest/gtest.h>

#include <string_view>

#include "actzip/error.hpp"

namespace actzip::test {

template <class Body>
void expect_error(ErrorCode code, std::string_view message, Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(to_string(error.code()), to_string(code));
    EXPECT_EQ(std::string_view(error.what()), message);
    return;
  }
  ADD_FAILURE() << "nothing was thrown; expected: " << message;
}

}  // namespace actzip::test
