// JPEGs as pixels.
#pragma once

#include <string>

#include "file.hpp"
#include "images.hpp"

namespace actzip::data {

/// Decodes grey, colour and CMYK images, at a fraction of their size where the hint allows it. If it wants a part, the
/// pixels of that part are those of the whole image, and what lies below is not looked at. Throws DamagedRecord with
/// this name if the bytes are no JPEG, end early or hold codes that mean nothing in what was looked at.
Image decode_jpeg(Bytes bytes, const DecodeHint& hint, const std::string& name);

/// Reads the head alone. Throws DamagedRecord.
struct JpegSize {
  int height = 0;
  int width = 0;
};
JpegSize jpeg_size(Bytes bytes, const std::string& name);

}  // namespace actzip::data
