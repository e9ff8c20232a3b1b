#include "jpeg.hpp"

#include <fmt/format.h>
#include <jerror.h>
#include <jpeglib.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdio>  // jpeglib.h needs it

namespace actzip::data {
namespace {

/// Larger than any camera's images. Without a limit, a damaged header could request all memory.
constexpr std::int64_t kMostPixels = std::int64_t{1} << 28;

/// A file may not request many more pixels than its bytes can encode either. A block of 64 pixels takes at least one
/// bit, except in a rarely used coding that is more compact for images of one colour. Small images are exempt.
constexpr std::int64_t kMostPixelsOfByte = 8192;
constexpr std::int64_t kFewPixels = std::int64_t{1} << 20;

/// Each scan processes the whole image again. A dozen is usual.
constexpr int kMostScans = 200;

/// Whether a warning means damage, for which libjpeg would continue with grey pixels.
bool is_damage(int code) {
  return code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER || code == JWRN_HUFF_BAD_CODE ||
         code == JWRN_NOT_SEQUENTIAL || code == JWRN_MUST_RESYNC;
}

/// Owns libjpeg's state. Failures leave libjpeg's C code by longjmp, because an exception must not pass through it. So
/// nothing with a destructor may live between setjmp and the jump.
class Decompressor {
 public:
  Decompressor(Bytes bytes, const std::string& name) : bytes_(bytes), name_(name) {
    state_.err = jpeg_std_error(&errors_);
    state_.client_data = this;
    errors_.error_exit = [](j_common_ptr state) { self(state).leave(); };
    errors_.emit_message = [](j_common_ptr state, int level) {
      if (level < 0 && is_damage(state->err->msg_code)) self(state).leave();
    };
    jpeg_create_decompress(&state_);
    progress_.progress_monitor = [](j_common_ptr state) {
      if (self(state).state_.input_scan_number > kMostScans) self(state).leave();
    };
    state_.progress = &progress_;
  }
  Decompressor(const Decompressor&) = delete;
  Decompressor& operator=(const Decompressor&) = delete;
  ~Decompressor() { jpeg_destroy_decompress(&state_); }

  JpegSize read_head() {
    if (setjmp(jump_) != 0) fail();
    jpeg_mem_src(&state_, bytes_.data(), static_cast<unsigned long>(bytes_.size()));
    jpeg_read_header(&state_, TRUE);
    return {static_cast<int>(state_.image_height), static_cast<int>(state_.image_width)};
  }

  /// Starts decoding at 1/denominator of the size and returns the resulting size. Requires read_head().
  JpegSize prepare(unsigned denominator) {
    if (setjmp(jump_) != 0) fail();
    state_.scale_num = 1;
    state_.scale_denom = denominator;
    const bool four = state_.jpeg_color_space == JCS_CMYK || state_.jpeg_color_space == JCS_YCCK;
    state_.out_color_space = four ? JCS_CMYK : JCS_RGB;
    jpeg_start_decompress(&state_);
    end_ = state_.output_height;
    return {static_cast<int>(state_.output_height), static_cast<int>(state_.output_width)};
  }

  [[nodiscard]] bool four_channels() const { return state_.out_color_space == JCS_CMYK; }

  /// Whether CMYK values are inverted: Adobe's programs store the amount of missing ink.
  [[nodiscard]] bool inverted() const { return state_.saw_Adobe_marker != 0; }

  /// Restricts decoding to `wanted`; requires prepare(). Returns the region that read_rows() will read. It begins at a
  /// block's boundary and includes a margin, because libjpeg interpolates colours across blocks.
  Region cut(const Region& wanted) {
    if (setjmp(jump_) != 0) fail();
    const auto block = static_cast<JDIMENSION>(DCTSIZE) / state_.scale_denom;
    const Span rows = with_margin(wanted.top, wanted.height, block * state_.max_v_samp_factor, state_.output_height);
    Span columns = with_margin(wanted.left, wanted.width, block * state_.max_h_samp_factor, state_.output_width);
    jpeg_crop_scanline(&state_, &columns.begin, &columns.length);
    jpeg_skip_scanlines(&state_, rows.begin);
    begin_ = rows.begin;
    end_ = rows.begin + rows.length;
    return {static_cast<int>(rows.begin), static_cast<int>(columns.begin), static_cast<int>(rows.length),
            static_cast<int>(columns.length)};
  }

  void read_rows(std::uint8_t* pixels) {
    if (setjmp(jump_) != 0) fail();
    const std::size_t row_bytes = static_cast<std::size_t>(state_.output_width) * (four_channels() ? 4 : 3);
    constexpr std::size_t kRowsAtOnce = 8;  // the most that libjpeg returns per call
    while (state_.output_scanline < end_) {
      std::array<JSAMPROW, kRowsAtOnce> rows;
      for (std::size_t i = 0; i < kRowsAtOnce; ++i)
        rows[i] = pixels + (state_.output_scanline - begin_ + i) * row_bytes;
      jpeg_read_scanlines(&state_, rows.data(), std::min<JDIMENSION>(kRowsAtOnce, end_ - state_.output_scanline));
    }
    if (end_ == state_.output_height) jpeg_finish_decompress(&state_);
  }

 private:
  struct Span {
    JDIMENSION begin, length;
  };

  /// Extends a range by one `block` on each side, within the image, and begins it at a block's boundary.
  static Span with_margin(int begin, int length, JDIMENSION block, JDIMENSION limit) {
    const auto first = static_cast<JDIMENSION>(begin) / block;
    const JDIMENSION start = first > 0 ? (first - 1) * block : 0;
    return {start, std::min(static_cast<JDIMENSION>(begin + length) + block, limit) - start};
  }

  static Decompressor& self(j_common_ptr state) { return *static_cast<Decompressor*>(state->client_data); }

  [[noreturn]] void leave() { std::longjmp(jump_, 1); }

  [[noreturn]] void fail() {
    if (state_.input_scan_number > kMostScans)
      throw DamagedRecord(name_, fmt::format("more than {} scans", kMostScans));
    std::array<char, JMSG_LENGTH_MAX> message;
    errors_.format_message(reinterpret_cast<j_common_ptr>(&state_), message.data());
    throw DamagedRecord(name_, fmt::format("not a readable JPEG: {}", message.data()));
  }

  Bytes bytes_;
  const std::string& name_;
  jpeg_decompress_struct state_ = {};
  jpeg_error_mgr errors_ = {};
  jpeg_progress_mgr progress_ = {};
  JDIMENSION begin_ = 0;  ///< the first row that read_rows() reads
  JDIMENSION end_ = 0;    ///< the row after the last that it reads
  std::jmp_buf jump_ = {};
};

unsigned denominator_for(const JpegSize& size, const DecodeHint& hint) {
  unsigned denominator = 1;
  if (hint.at_least == DecodeHint::kFullSize) return denominator;
  const auto shorter = static_cast<unsigned>(std::min(size.height, size.width));
  while (denominator < 8 && shorter / (2 * denominator) >= static_cast<unsigned>(hint.at_least)) denominator *= 2;
  return denominator;
}

/// Whether the end marker is present. If it is missing, the file may be truncated, and only decoding all of it can
/// tell.
bool has_end(Bytes bytes) {
  return bytes.size() >= 2 && bytes[bytes.size() - 2] == 0xff && bytes[bytes.size() - 1] == JPEG_EOI;
}

void ink_to_light(const std::vector<std::uint8_t>& cmyk, bool inverted, std::vector<std::uint8_t>& rgb) {
  const auto light = [&](std::uint8_t ink) { return inverted ? ink : 255 - ink; };
  for (std::size_t pixel = 0; pixel < rgb.size() / 3; ++pixel) {
    const int key = light(cmyk[4 * pixel + 3]);
    for (std::size_t c = 0; c < 3; ++c) {
      rgb[3 * pixel + c] = static_cast<std::uint8_t>((light(cmyk[4 * pixel + c]) * key + 127) / 255);
    }
  }
}

}  // namespace

Image decode_jpeg(Bytes bytes, const DecodeHint& hint, const std::string& name) {
  Decompressor decompressor(bytes, name);
  const JpegSize full = decompressor.read_head();
  const auto length = static_cast<std::int64_t>(bytes.size());
  const std::int64_t most = std::clamp(kMostPixelsOfByte * length, kFewPixels, kMostPixels);
  if (static_cast<std::int64_t>(full.height) * full.width > most) {
    throw DamagedRecord(
        name, fmt::format("{} x {} pixels in {} bytes (allowed: {} in all)", full.width, full.height, length, most));
  }
  const JpegSize size = decompressor.prepare(denominator_for(full, hint));
  Image image{size.height, size.width, {}};
  if (hint.part && has_end(bytes)) image.part = decompressor.cut(hint.part(size.height, size.width));
  const Region held = image.held();
  const std::size_t pixels = static_cast<std::size_t>(held.height) * static_cast<std::size_t>(held.width);
  image.rgb.resize(3 * pixels);
  if (!decompressor.four_channels()) {
    decompressor.read_rows(image.rgb.data());
    return image;
  }
  std::vector<std::uint8_t> cmyk(4 * pixels);
  decompressor.read_rows(cmyk.data());
  ink_to_light(cmyk, decompressor.inverted(), image.rgb);
  return image;
}

JpegSize jpeg_size(Bytes bytes, const std::string& name) { return Decompressor(bytes, name).read_head(); }

}  // namespace actzip::data
