// Data sets that a test makes up.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "data/images.hpp"
#include "data/transforms.hpp"

namespace actzip::test {

/// A folder that is gone at the end.
class TemporaryFolder {
 public:
  TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder();

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::string string() const { return path_.string(); }

  /// Makes folders as needed.
  std::filesystem::path write(const std::string& name, std::string_view content) const;
  std::filesystem::path write(const std::string& name, const std::vector<std::uint8_t>& content) const;

 private:
  std::filesystem::path path_;
};

/// All bytes of a file.
std::string content_of(const std::filesystem::path& path);

/// Smooth, so that a JPEG keeps it well; another for another number.
data::Image smooth_image(int height, int width, int number = 0);

/// Nothing like smooth: every pixel another one, so that a pixel that is moved or interpolated shows.
data::Image noisy_image(int height, int width);

enum class JpegColours : std::uint8_t { rgb, grey, cmyk };
struct JpegLayout {
  int columns = 2;  ///< pixels that share a colour
  int rows = 2;
  bool progressive = false;
};
std::vector<std::uint8_t> as_jpeg(const data::Image& image, JpegColours colours = JpegColours::rgb,
                                  const JpegLayout& layout = {});

/// A file *.jpgs with these images, labels 0, 1, 2, ...
std::vector<std::uint8_t> as_jpegs_file(const std::vector<std::vector<std::uint8_t>>& jpegs);

/// The text of what is thrown; a failure if nothing is.
template <class Exception, class Body>
std::string thrown_by(Body&& body) {
  try {
    body();
  } catch (const Exception& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

}  // namespace actzip::test
