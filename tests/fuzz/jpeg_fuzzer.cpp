// JPEGs decoded whole, scaled, or only in the part that a crop needs: decode_jpeg() must throw DamagedRecord or return
// an image that a pipeline can use. The first two bytes choose the transform and its seed.
#include <cstdlib>
#include <vector>

#include "data/jpeg.hpp"
#include "data/transforms.hpp"

namespace {

using namespace actzip;

/// Images this large take a second each: they are for the tests.
constexpr std::int64_t kMostPixels = 1 << 20;

void check(data::Bytes jpeg, const data::ImageTransform& transform, std::uint64_t seed) {
  const data::ImagePipeline pipeline(transform);
  const data::Draws draws(seed, 0, 0);
  std::vector<float> out(pipeline.image_elems());
  try {
    const data::Image image = data::decode_jpeg(jpeg, pipeline.decode_hint(draws), "x");
    const data::Region held = image.held();
    if (image.rgb.size() != 3 * static_cast<std::size_t>(held.height) * static_cast<std::size_t>(held.width))
      std::abort();
    pipeline.apply(image, draws, out);
  } catch (const data::DamagedRecord&) {
    return;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  // Exactly its size, so that the first byte read behind it is seen.
  const std::vector<std::uint8_t> jpeg(data + 2, data + size);
  try {
    const data::JpegSize found = data::jpeg_size(jpeg, "x");
    if (static_cast<std::int64_t>(found.height) * found.width > kMostPixels) return 0;
  } catch (const data::DamagedRecord&) {
    return 0;
  }
  const int side = 1 + data[0] % 64;
  const auto split = data[1] % 2 == 0 ? data::Split::train : data::Split::validation;
  check(jpeg, data::imagenet_transform(split, side), data[1]);
  return 0;
}
