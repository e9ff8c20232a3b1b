// Generates images of ten shapes, randomly rotated, moved, scaled and coloured, on a shaded background with noise. Uses
// only plain arithmetic, so that every machine draws the same pixels.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "random.hpp"
#include "sources.hpp"

namespace actzip::data {
namespace {

constexpr int kSide = 32;
constexpr std::uint64_t kSeed = 0x5a4e5;
constexpr std::size_t kTrainPerValidation = 5;

/// Whether a point is inside a shape that fills about [-1, 1] x [-1, 1].
using Inside = bool (*)(float x, float y);

/// Whether a coordinate lies in an odd one of `count` bands of equal width.
bool odd_band(float at, int count) {
  return static_cast<int>(std::floor((at + 1.0F) * 0.5F * static_cast<float>(count))) % 2 != 0;
}
bool in_square(float x, float y) { return std::max(std::abs(x), std::abs(y)) < 0.8F; }

constexpr std::array<Inside, 10> kShapes = {{
    [](float x, float y) { return x * x + y * y < 0.8F; },                                           // disc
    [](float x, float y) { return std::abs(x * x + y * y - 0.6F) < 0.25F; },                         // ring
    [](float x, float y) { return in_square(x, y); },                                                // square
    [](float x, float y) { return in_square(x, y) && !in_square(1.8F * x, 1.8F * y); },              // frame
    [](float x, float y) { return y > -0.7F && y + 1.9F * std::abs(x) < 0.9F; },                     // triangle
    [](float x, float y) { return in_square(x, y) && std::min(std::abs(x), std::abs(y)) < 0.25F; },  // plus
    [](float x, float y) { return x * x + y * y < 0.9F && y < 0.0F; },                               // half disc
    [](float x, float y) { return in_square(x, y) && odd_band(x, 5); },                              // stripes
    [](float x, float y) { return in_square(x, y) && odd_band(x, 5) != odd_band(y, 5); },            // chequers
    [](float x, float y) { return in_square(x, y) && (x < -0.25F || y < -0.25F); },                  // corner
}};

struct Colour {
  std::array<float, 3> values;
};

Colour draw_colour(Draws& draws) { return {{draws.between(20, 235), draws.between(20, 235), draws.between(20, 235)}}; }

float distance(const Colour& a, const Colour& b) {
  float sum = 0.0F;
  for (std::size_t c = 0; c < 3; ++c) sum += std::abs(a.values[c] - b.values[c]);
  return sum;
}

/// The position, size and rotation of a shape: maps pixels to its own coordinates.
struct Placement {
  float centre_x, centre_y, cosine, sine;

  static Placement draw(Draws& draws) {
    const float radius = draws.between(6.0F, 13.0F);
    const float room = (static_cast<float>(kSide) - 2.0F * radius) * 0.5F + 2.0F;
    // A rotation by -90 to 90 degrees, without sine and cosine, whose results differ between libraries.
    const float t = draws.between(-1.0F, 1.0F);
    const float scale = 1.0F / ((1.0F + t * t) * radius);
    const float middle = static_cast<float>(kSide) * 0.5F;
    return {middle + draws.between(-room, room), middle + draws.between(-room, room), (1.0F - t * t) * scale,
            2.0F * t * scale};
  }

  [[nodiscard]] bool covers(Inside inside, float x, float y) const {
    const float dx = x - centre_x;
    const float dy = y - centre_y;
    return inside(cosine * dx + sine * dy, cosine * dy - sine * dx);
  }

  /// Estimates the covered share of a pixel from four sample points.
  [[nodiscard]] float coverage(Inside inside, int x, int y) const {
    int hits = 0;
    for (const float oy : {0.25F, 0.75F}) {
      for (const float ox : {0.25F, 0.75F}) {
        hits += covers(inside, static_cast<float>(x) + ox, static_cast<float>(y) + oy) ? 1 : 0;
      }
    }
    return static_cast<float>(hits) * 0.25F;
  }
};

Image draw_shape(std::size_t shape, Draws draws) {
  constexpr float kLeastContrast = 120.0F;
  constexpr float kNoise = 28.0F;
  const Colour ground = draw_colour(draws);
  Colour ink = draw_colour(draws);
  while (distance(ground, ink) < kLeastContrast) ink = draw_colour(draws);
  const Placement placement = Placement::draw(draws);
  const float shade_x = draws.between(-1.5F, 1.5F);
  const float shade_y = draws.between(-1.5F, 1.5F);

  Image image{kSide, kSide, std::vector<std::uint8_t>(3U * kSide * kSide)};
  std::uint8_t* target = image.rgb.data();
  for (int y = 0; y < kSide; ++y) {
    for (int x = 0; x < kSide; ++x) {
      const float covered = placement.coverage(kShapes[shape], x, y);
      const float shade = shade_x * static_cast<float>(x - kSide / 2) + shade_y * static_cast<float>(y - kSide / 2);
      for (std::size_t c = 0; c < 3; ++c) {
        const float clean = ground.values[c] + (ink.values[c] - ground.values[c]) * covered + shade;
        const float noise = kNoise * (draws.unit() + draws.unit() - 1.0F);
        *target++ = static_cast<std::uint8_t>(std::clamp(clean + noise, 0.0F, 255.0F));
      }
    }
  }
  return image;
}

class Shapes final : public ImageSource {
 public:
  Shapes(std::size_t count, Split split) : count_(count), split_(split) {}

  [[nodiscard]] std::size_t size() const override { return count_; }
  [[nodiscard]] std::int64_t classes() const override { return kShapes.size(); }
  [[nodiscard]] std::string kind() const override { return "generated shapes"; }
  [[nodiscard]] std::string name_of(std::size_t index) const override { return fmt::format("shape {}", index); }

  [[nodiscard]] Example read(std::size_t index, const DecodeHint& /*hint*/) const override {
    const std::size_t shape = index % kShapes.size();
    return {draw_shape(shape, Draws(kSeed, static_cast<std::uint64_t>(split_), index)),
            static_cast<std::int64_t>(shape)};
  }

 private:
  std::size_t count_;
  Split split_;
};

}  // namespace

std::unique_ptr<ImageSource> open_shapes(std::size_t train_count, Split split) {
  return std::make_unique<Shapes>(
      split == Split::train ? train_count : std::max<std::size_t>(1, train_count / kTrainPerValidation), split);
}

}  // namespace actzip::data
