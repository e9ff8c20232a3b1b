#include "math/activation.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace actzip::math {
namespace {

struct HostFunctions {
  static float exp(float x) { return std::exp(x); }
  static float divide(float a, float b) { return a / b; }
  static float normal_share(float x, float density) { return math::normal_share<HostFunctions>(x, density); }
  static float share_in_slope(float x, float density) { return normal_share(x, density); }
};

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

double plain_value(Activation activation, double x) {
  switch (activation) {
    case Activation::gelu: return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
    case Activation::gelu_tanh:
      return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case Activation::silu: break;
  }
  return x * sigmoid(x);
}

TEST(Activation, ValuesAndSlopesAreThoseOfTheDefinitions) {
  constexpr double kStep = 1e-5;
  for (const Activation activation : {Activation::gelu, Activation::gelu_tanh, Activation::silu}) {
    for (float x = -9.0F; x <= 9.0F; x += 0.01F) {
      const auto [value, slope] = value_and_slope<HostFunctions>(activation, x);
      const double wanted = (plain_value(activation, x + kStep) - plain_value(activation, x - kStep)) / (2.0 * kStep);
      ASSERT_NEAR(value, plain_value(activation, x), 0x1p-21 * std::fmax(1.0F, std::fabs(x))) << x;
      // What is left of 1 beside the sigmoid is rounded to 2^-24, and multiplied by as much as 40.
      ASSERT_NEAR(slope, wanted, 0x1p-18) << x;
    }
  }
}

}  // namespace
}  // namespace actzip::math
