// Decodes JPEGs.
#pragma once

#include <string>

#include "file.hpp"
#include "images.hpp"

namespace actzip::data {

/// Decodes a grey, colour or CMYK image to RGB, at a fraction of its size if the hint allows. If the hint requests a
/// part, that part has the same pixels as in the whole image, and data below it are not read. Throws DamagedRecord with
/// this name if the bytes are no JPEG, or if the data read end early or contain invalid codes.
Image decode_jpeg(Bytes bytes, const DecodeHint& hint, const std::string& name);

/// The size of a JPEG, read from its header only. Throws DamagedRecord.
struct JpegSize {
  int height = 0;
  int width = 0;
};
JpegSize jpeg_size(Bytes bytes, const std::string& name);

}  // namespace actzip::data
