// Memory with canaries: a zone before and a zone after the bytes are filled with one value, to be checked afterwards.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "support/device_memory.hpp"

namespace actzip::testing {

class GuardedBuffer {
 public:
  static constexpr std::size_t kGuard = 256;
  static constexpr std::uint8_t kCanary = 0xA5;

  /// Allocates `bytes` bytes that start `offset` bytes after a multiple of 16. Fills everything with `fill`.
  GuardedBuffer(Device device, std::size_t bytes, std::size_t offset = 0, std::uint8_t fill = kCanary)
      : buffer_(device, kGuard + offset + bytes + kGuard), start_(kGuard + offset), bytes_(bytes), fill_(fill) {
    buffer_.fill(fill);
  }

  GuardedBuffer(Device device, std::span<const std::byte> content, std::size_t offset = 0, std::uint8_t fill = kCanary)
      : GuardedBuffer(device, content.size(), offset, fill) {
    buffer_.write(start_, content);
  }

  [[nodiscard]] std::byte* data() const { return buffer_.data() + start_; }
  [[nodiscard]] std::size_t size() const { return bytes_; }
  [[nodiscard]] Bytes content() const { return buffer_.read(start_, bytes_); }
  void write(std::span<const std::byte> content) { buffer_.write(start_, content); }

  [[nodiscard]] bool guards_intact() const {
    return holds_fill(0, start_) && holds_fill(start_ + bytes_, buffer_.size() - start_ - bytes_);
  }

 private:
  [[nodiscard]] bool holds_fill(std::size_t offset, std::size_t bytes) const {
    const Bytes zone = buffer_.read(offset, bytes);
    return std::all_of(zone.begin(), zone.end(), [this](std::byte b) { return b == std::byte{fill_}; });
  }

  DeviceBuffer buffer_;
  std::size_t start_;
  std::size_t bytes_;
  std::uint8_t fill_;
};

}  // namespace actzip::testing
