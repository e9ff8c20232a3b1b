// GELU and SiLU: value and slope together, since they share the costly part. `Functions` provides exp(x), divide(a, b)
// and the share of the unit normal distribution below x, given its density at x: normal_share(x, density) as a factor
// of the value, and share_in_slope(x, density), which may be less exact, as a term of the slope.
#pragma once

#include <cmath>

#include "actzip/activation.hpp"
#include "macros.hpp"

namespace actzip::math {

struct ValueAndSlope {
  float value;
  float slope;
};

/// The share of the unit normal distribution below x, by a polynomial in 1 / (1 + p |x|) times the density. Its error
/// is below 2^-23.
template <class Functions>
ACTZIP_HD float normal_share(float x, float density) {
  const float t = Functions::divide(1.0F, fmaf(fabsf(x), 0.2316419F, 1.0F));
  float sum = fmaf(t, 1.330274429F, -1.821255978F);
  sum = fmaf(sum, t, 1.781477937F);
  sum = fmaf(sum, t, -0.356563782F);
  sum = fmaf(sum, t, 0.319381530F);
  const float tail = density * sum * t;
  return x < 0.0F ? tail : 1.0F - tail;
}

template <class Functions>
ACTZIP_HD ValueAndSlope gelu(float x) {
  constexpr float kInverseRootOfTwoPi = 0.3989422804F;
  const float density = kInverseRootOfTwoPi * Functions::exp(-0.5F * x * x);
  return {x * Functions::normal_share(x, density), fmaf(x, density, Functions::share_in_slope(x, density))};
}

/// x * s(u), where s is the sigmoid and u_slope the derivative of u.
template <class Functions>
ACTZIP_HD ValueAndSlope gated(float x, float u, float u_slope) {
  const float share = Functions::divide(1.0F, 1.0F + Functions::exp(-u));
  return {x * share, share * fmaf(x * (1.0F - share), u_slope, 1.0F)};
}

template <class Functions>
ACTZIP_HD ValueAndSlope gelu_tanh(float x) {
  constexpr float kTwiceRootOfTwoOverPi = 1.5957691216F;  // (1 + tanh(u)) / 2 is the sigmoid of 2 u
  constexpr float kCubic = 0.044715F;
  const float square = x * x;
  return gated<Functions>(x, kTwiceRootOfTwoOverPi * x * fmaf(kCubic, square, 1.0F),
                          kTwiceRootOfTwoOverPi * fmaf(3.0F * kCubic, square, 1.0F));
}

template <class Functions>
ACTZIP_HD ValueAndSlope value_and_slope(Activation activation, float x) {
  switch (activation) {
    case Activation::gelu: return gelu<Functions>(x);
    case Activation::gelu_tanh: return gelu_tanh<Functions>(x);
    case Activation::silu: break;
  }
  return gated<Functions>(x, x, 1.0F);
}

}  // namespace actzip::math
