// In which order backward will ask for what was put away.
#pragma once

#include <cstddef>
#include <cstdint>

namespace actzip::store {

/// Blobs in the order in which they were put away. Backward wants them the other way round: after a fetch, the queue
/// names those before it, each once, as many as fit into a window. Its owner guards it against other threads.
class FetchQueue {
 public:
  /// What a store makes its blobs of. An entry goes out of the queue before it is destroyed.
  struct Entry {
    explicit Entry(std::size_t its_size) : size(its_size) {}
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;
    ~Entry() = default;

    const std::size_t size;
    bool is_away = false;            ///< for its owner to say: it has to be brought back before it is read
    bool is_known = false;           ///< the rest is the queue's
    bool is_asked = false;           ///< asked for ahead and not fetched since
    std::uint64_t window = 0;        ///< the one that it was asked in
    std::uint64_t fetched_pass = 0;  ///< the last in which it was fetched
    Entry* before = nullptr;         ///< those put away before and after it
    Entry* after = nullptr;
  };

  explicit FetchQueue(std::size_t window_bytes) : window_bytes_(window_bytes) {}

  /// Put away, after all that are there.
  void add(Entry& entry) noexcept;
  void remove(Entry& entry) noexcept;

  void note_fetch(Entry& entry) noexcept;

  /// Backward has begun, with something that is in no queue.
  void foresee() noexcept;

  /// The next that is worth asking for; from now on it counts as asked. Null if there is none, or no room in the
  /// window. A window that is not 0 has room for one, however large.
  Entry* next_ahead() noexcept;

  /// It could not be had ahead: it is the next again.
  void take_back(Entry& entry) noexcept;

  /// It was had ahead, and is away again before anybody fetched it.
  void forget_asked(Entry& entry) noexcept;

  /// Whether it is about to be fetched, as far as the queue can tell.
  [[nodiscard]] bool is_ahead(const Entry& entry) const { return entry.is_asked && entry.window == window_; }

  [[nodiscard]] std::size_t ahead_bytes() const { return ahead_bytes_; }
  [[nodiscard]] std::size_t peak_ahead_bytes() const { return peak_ahead_bytes_; }

 private:
  void begin_pass_if_again(const Entry& entry) noexcept;
  void begin_window(Entry* first) noexcept;

  const std::size_t window_bytes_;
  Entry* last_ = nullptr;
  Entry* next_asked_ = nullptr;  ///< the next to be asked for; those after it were
  bool is_forward_ = false;      ///< since the last add() nothing was fetched
  std::uint64_t window_ = 1;
  std::uint64_t pass_ = 1;  ///< a backward; one that keeps the graph is followed by another over the same blobs
  std::size_t num_known_ = 0;
  std::size_t num_unread_ = 0;  ///< known ones not fetched in this pass
  std::size_t ahead_bytes_ = 0;
  std::size_t peak_ahead_bytes_ = 0;
};

}  // namespace actzip::store
