// Predicts in which order backward will need what was put away.
#pragma once

#include <cstddef>
#include <cstdint>

namespace actzip::store {

/// Blobs in the order in which they were put away. Backward needs them in reverse: after a fetch, the queue names those
/// put away before it, each once, as many as fit into a window. Not thread-safe: its owner guards it.
class FetchQueue {
 public:
  /// The part of a blob that the queue needs; blobs of a store derive from it. Remove an entry before destroying it.
  struct Entry {
    explicit Entry(std::size_t its_size) : size(its_size) {}
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;
    ~Entry() = default;

    const std::size_t size;
    bool is_away = false;            ///< set by its owner: it has to be brought back before it is read
    bool is_known = false;           ///< this and the rest belong to the queue
    bool is_asked = false;           ///< requested ahead and not fetched since
    std::uint64_t window = 0;        ///< the window in which it was requested
    std::uint64_t fetched_pass = 0;  ///< the last pass in which it was fetched
    Entry* before = nullptr;         ///< the entries put away before and after it
    Entry* after = nullptr;
  };

  explicit FetchQueue(std::size_t window_bytes) : window_bytes_(window_bytes) {}

  /// Adds an entry that was put away after all others.
  void add(Entry& entry) noexcept;
  void remove(Entry& entry) noexcept;

  void note_fetch(Entry& entry) noexcept;

  /// Says that backward has begun with something that is in no queue.
  void foresee() noexcept;

  /// Returns the next entry worth requesting. Null if there is none, or no room in the window. A window that is not 0
  /// has room for at least one entry, however large.
  Entry* peek_ahead() noexcept;

  /// The same, and counts it as requested.
  Entry* next_ahead() noexcept;

  /// Prefetching failed: the entry is next in line again.
  void take_back(Entry& entry) noexcept;

  /// The entry was prefetched, but is away again before anyone fetched it.
  void forget_asked(Entry& entry) noexcept;

  /// Whether the entry is about to be fetched, as far as the queue can tell.
  [[nodiscard]] bool is_ahead(const Entry& entry) const { return entry.is_asked && entry.window == window_; }

  [[nodiscard]] std::size_t ahead_bytes() const { return ahead_bytes_; }
  [[nodiscard]] std::size_t peak_ahead_bytes() const { return peak_ahead_bytes_; }

 private:
  void begin_pass_if_again(const Entry& entry) noexcept;
  void begin_window() noexcept;
  void continue_from(Entry* first) noexcept;

  const std::size_t window_bytes_;
  Entry* last_ = nullptr;
  Entry* next_asked_ = nullptr;  ///< the next to be requested; those after it have been
  bool is_forward_ = false;      ///< nothing was fetched since the last add()
  std::uint64_t window_ = 1;
  /// One backward; a backward that keeps its graph may be followed by another over the same blobs.
  std::uint64_t pass_ = 1;
  std::size_t num_known_ = 0;
  std::size_t num_unread_ = 0;  ///< known entries not fetched in this pass
  std::size_t ahead_bytes_ = 0;
  std::size_t peak_ahead_bytes_ = 0;
};

}  // namespace actzip::store
