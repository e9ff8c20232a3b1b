// Counts what a session holds between forward and backward: now, at most, and how much it may.
#pragma once

#include <atomic>
#include <cstddef>
#include <limits>
#include <utility>

namespace actzip::store {

/// A counter of bytes with a limit. Without a limit, it counts all the same. Thread-safe.
class HeldMemory {
 public:
  static constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();

  /// Bytes that count as held until the part is destroyed. The HeldMemory must outlive its parts.
  class Part {
   public:
    Part() = default;
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;
    Part(Part&& other) noexcept : of_(std::exchange(other.of_, nullptr)), bytes_(other.bytes_) {}
    Part& operator=(Part&& other) noexcept {
      std::swap(of_, other.of_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    /// Whether the part counts any bytes as held.
    explicit operator bool() const { return of_ != nullptr; }
    ~Part() {
      if (of_ != nullptr) of_->now_ -= bytes_;
    }

   private:
    friend class HeldMemory;
    Part(HeldMemory& of, std::size_t bytes) : of_(&of), bytes_(bytes) {}
    HeldMemory* of_ = nullptr;
    std::size_t bytes_ = 0;
  };

  /// Returns an empty part if the limit would be passed.
  Part try_hold(std::size_t bytes) {
    std::size_t held = now_;
    do {
      if (bytes > limit_ || held > limit_ - bytes) return {};
    } while (!now_.compare_exchange_weak(held, held + bytes));
    raise_peak(held + bytes);
    return Part(*this, bytes);
  }

  void set_limit(std::size_t bytes) { limit_ = bytes; }
  [[nodiscard]] std::size_t limit() const { return limit_; }
  [[nodiscard]] std::size_t now() const { return now_; }

  /// The most held at any time since the step began.
  [[nodiscard]] std::size_t peak() const { return peak_; }
  void begin_step() { peak_ = now_.load(); }

  /// How much more may be held; 0 if the limit was lowered below what is held.
  [[nodiscard]] std::size_t room() const {
    const std::size_t held = now_;
    const std::size_t limit = limit_;
    return limit > held ? limit - held : 0;
  }

 private:
  void raise_peak(std::size_t held) {
    std::size_t peak = peak_;
    while (peak < held && !peak_.compare_exchange_weak(peak, held)) {
    }
  }

  std::atomic<std::size_t> limit_{kNoLimit};
  std::atomic<std::size_t> now_{0};
  std::atomic<std::size_t> peak_{0};
};

}  // namespace actzip::store
