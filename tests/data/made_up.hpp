// Generates data sets for tests.
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

/// A temporary folder, removed by the destructor.
class TemporaryFolder {
 public:
  TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder();

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::string string() const { return path_.string(); }

  /// Writes a file. Creates folders as needed.
  std::filesystem::path write(const std::string& name, std::string_view content) const;
  std::filesystem::path write(const std::string& name, const std::vector<std::uint8_t>& content) const;

 private:
  std::filesystem::path path_;
};

/// Returns all bytes of a file.
std::string content_of(const std::filesystem::path& path);

/// Makes a smooth image, which JPEG preserves well. Each `number` gives another image.
data::Image smooth_image(int height, int width, int number = 0);

/// Makes an image in which all pixels differ, so that moved or interpolated pixels are noticed.
data::Image noisy_image(int height, int width);

enum class JpegColours : std::uint8_t { rgb, grey, cmyk };
/// How a JPEG is encoded: `columns` x `rows` pixels share a colour.
struct JpegLayout {
  int columns = 2;
  int rows = 2;
  bool progressive = false;
};
std::vector<std::uint8_t> as_jpeg(const data::Image& image, JpegColours colours = JpegColours::rgb,
                                  const JpegLayout& layout = {});

/// Makes a *.jpgs file of these images with labels 0, 1, 2, ...
std::vector<std::uint8_t> as_jpegs_file(const std::vector<std::vector<std::uint8_t>>& jpegs);

/// Returns the message of the thrown exception. Fails the test if nothing is thrown.
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
