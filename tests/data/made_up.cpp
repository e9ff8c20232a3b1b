#include "made_up.hpp"

#include <jpeglib.h>

#include <cstdio>  // jpeglib.h needs it
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "data/little_endian.hpp"

namespace actzip::test {

TemporaryFolder::TemporaryFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "actzip_data_XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder: " + name);
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::filesystem::path TemporaryFolder::write(const std::string& name, std::string_view content) const {
  const std::filesystem::path path = path_ / name;
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

std::filesystem::path TemporaryFolder::write(const std::string& name, const std::vector<std::uint8_t>& content) const {
  return write(name, std::string_view(reinterpret_cast<const char*>(content.data()), content.size()));
}

std::string content_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

data::Image smooth_image(int height, int width, int number) {
  data::Image image{height, width, {}};
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      image.rgb.push_back(static_cast<std::uint8_t>(40 + 160 * x / width));
      image.rgb.push_back(static_cast<std::uint8_t>(40 + 160 * y / height));
      image.rgb.push_back(static_cast<std::uint8_t>(30 + (number * 37) % 190));
    }
  }
  return image;
}

data::Image noisy_image(int height, int width) {
  data::Image image{height, width, {}};
  data::Draws draws(0, 0, 0);
  for (int i = 0; i < 3 * height * width; ++i) image.rgb.push_back(static_cast<std::uint8_t>(draws.below(256)));
  return image;
}

std::vector<std::uint8_t> as_jpeg(const data::Image& image, JpegColours colours, const JpegLayout& layout) {
  jpeg_compress_struct state = {};
  jpeg_error_mgr errors = {};
  state.err = jpeg_std_error(&errors);
  jpeg_create_compress(&state);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&state, &bytes, &size);
  state.image_height = static_cast<JDIMENSION>(image.height);
  state.image_width = static_cast<JDIMENSION>(image.width);
  const bool cmyk = colours == JpegColours::cmyk;
  state.input_components = cmyk ? 4 : 3;
  state.in_color_space = cmyk ? JCS_CMYK : JCS_RGB;
  jpeg_set_defaults(&state);
  if (colours == JpegColours::grey) jpeg_set_colorspace(&state, JCS_GRAYSCALE);
  jpeg_set_quality(&state, 95, TRUE);
  if (colours == JpegColours::rgb) {
    state.comp_info[0].h_samp_factor = layout.columns;
    state.comp_info[0].v_samp_factor = layout.rows;
  }
  if (layout.progressive) jpeg_simple_progression(&state);
  jpeg_start_compress(&state, TRUE);
  std::vector<std::uint8_t> row;
  while (state.next_scanline < state.image_height) {
    row.clear();
    for (std::size_t x = 0; x < state.image_width; ++x) {
      // Adobe's way, as libjpeg marks it: how much ink is not there, and no black.
      for (std::size_t c = 0; c < 3; ++c)
        row.push_back(image.rgb[(state.next_scanline * state.image_width + x) * 3 + c]);
      if (cmyk) row.push_back(255);
    }
    JSAMPROW pointer = row.data();
    jpeg_write_scanlines(&state, &pointer, 1);
  }
  jpeg_finish_compress(&state);
  jpeg_destroy_compress(&state);
  std::vector<std::uint8_t> result(bytes, bytes + size);
  std::free(bytes);
  return result;
}

std::vector<std::uint8_t> as_jpegs_file(const std::vector<std::vector<std::uint8_t>>& jpegs) {
  std::vector<std::uint8_t> file = {'J', 'P', 'G', 'S'};
  data::append_little_endian(file, static_cast<std::uint32_t>(jpegs.size()));
  for (std::size_t i = 0; i < jpegs.size(); ++i) {
    file.push_back(static_cast<std::uint8_t>(i));
    data::append_little_endian(file, static_cast<std::uint32_t>(jpegs[i].size()));
    file.insert(file.end(), jpegs[i].begin(), jpegs[i].end());
  }
  return file;
}

}  // namespace actzip::test
