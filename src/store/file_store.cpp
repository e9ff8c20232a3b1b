#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <utility>

#include "actzip/error.hpp"
#include "store/arena.hpp"
#include "store/file_blocks.hpp"
#include "store/store.hpp"

namespace actzip::store {

namespace {

class FileQueue;

/// A file and the arena that divides it.
struct Volume {
  Volume(const std::string& folder, std::size_t block_bytes)
      : file(FileBlocks::create(folder)), arena(Arena::create(file, block_bytes)) {}
  std::shared_ptr<FileBlocks> file;
  std::shared_ptr<Arena> arena;
};

/// The owner of bytes in a file.
struct FileBlob {
  FileBlob(std::shared_ptr<FileQueue> its_queue, const Volume& volume, std::size_t size)
      : queue(std::move(its_queue)), file(volume.file), bytes(volume.arena->allocate(size)) {}
  FileBlob(const FileBlob&) = delete;
  FileBlob& operator=(const FileBlob&) = delete;
  ~FileBlob();

  const std::shared_ptr<FileQueue> queue;
  const std::shared_ptr<FileBlocks> file;
  const Allocation bytes;

  // Guarded by the queue.
  enum class Phase { reserved, put_away, fetched } phase = Phase::reserved;
  bool is_known = false;           ///< to the queue
  bool is_asked = false;           ///< read ahead and not fetched since
  std::uint64_t window = 0;        ///< the one that it was asked in
  std::uint64_t fetched_pass = 0;  ///< the last in which it was fetched
  FileBlob* before = nullptr;      ///< those put away before and after it
  FileBlob* after = nullptr;
};

/// Blobs in the order in which they were put away. Backward wants them the other way round: a fetch asks the system for
/// those before it, each once, as many as fit into the window.
class FileQueue {
 public:
  explicit FileQueue(std::size_t window_bytes) : window_bytes_(window_bytes) {}

  void reserved(FileBlob& blob);
  void put_away(FileBlob& blob);
  /// Before the bytes are read.
  void fetch(FileBlob& blob);
  void note_wait();
  void freed(FileBlob& blob) noexcept;
  [[nodiscard]] StoreStats stats() const;

 private:
  void begin_pass_if_again(const FileBlob& blob);
  void ask_for_earlier();
  void leave_device(const FileBlob& blob) noexcept;
  void enter_device(const FileBlob& blob) noexcept;
  void forget_asked(FileBlob& blob) noexcept;

  const std::size_t window_bytes_;
  mutable std::mutex mutex_;
  FileBlob* last_ = nullptr;
  FileBlob* next_asked_ = nullptr;  ///< the next to be read ahead; those after it were
  std::uint64_t window_ = 1;
  std::uint64_t pass_ = 1;  ///< a backward; one that keeps the graph is followed by another over the same blobs
  std::size_t num_known_ = 0;
  std::size_t num_unread_ = 0;  ///< known ones not fetched in this pass
  StoreStats stats_;
};

void FileQueue::reserved(FileBlob& blob) {
  const std::lock_guard lock(mutex_);
  enter_device(blob);
}

void FileQueue::put_away(FileBlob& blob) {
  const std::lock_guard lock(mutex_);
  if (blob.is_known) return;
  blob.is_known = true;
  blob.phase = FileBlob::Phase::put_away;
  blob.before = last_;
  if (last_ != nullptr) last_->after = &blob;
  last_ = &blob;
  ++num_known_;
  ++num_unread_;
  leave_device(blob);
  stats_.file_bytes += blob.bytes.size;
  stats_.peak_file_bytes = std::max(stats_.peak_file_bytes, stats_.file_bytes);
}

void FileQueue::fetch(FileBlob& blob) {
  const std::lock_guard lock(mutex_);
  if (!blob.is_known) return;
  ++stats_.fetches;
  if (blob.phase == FileBlob::Phase::put_away) {
    blob.phase = FileBlob::Phase::fetched;
    stats_.file_bytes -= blob.bytes.size;
    enter_device(blob);
  }
  begin_pass_if_again(blob);
  const bool is_first = blob.fetched_pass != pass_;
  if (is_first) --num_unread_;
  blob.fetched_pass = pass_;
  if (blob.is_asked) {
    forget_asked(blob);
  } else if (is_first) {
    // Nobody foresaw this one: a backward begins, or goes another way. What was asked for and is not used, because its
    // graph is kept and forgotten, must not fill the window for ever.
    ++window_;
    stats_.ahead_bytes = 0;
    next_asked_ = blob.before;
  }
  ask_for_earlier();
}

/// A blob that several operators share is fetched several times in one pass. If all others have been, too, it is a new
/// one.
void FileQueue::begin_pass_if_again(const FileBlob& blob) {
  if (blob.fetched_pass != pass_ || num_unread_ > 0) return;
  ++pass_;
  num_unread_ = num_known_;
}

void FileQueue::ask_for_earlier() {
  while (next_asked_ != nullptr) {
    FileBlob& blob = *next_asked_;
    const bool is_due = !blob.is_asked && blob.fetched_pass != pass_;
    if (is_due && stats_.ahead_bytes + blob.bytes.size > window_bytes_) return;
    if (is_due) {
      blob.is_asked = true;
      blob.window = window_;
      stats_.ahead_bytes += blob.bytes.size;
      stats_.peak_ahead_bytes = std::max(stats_.peak_ahead_bytes, stats_.ahead_bytes);
      blob.file->read_ahead(blob.bytes.data, blob.bytes.size);
    }
    next_asked_ = blob.before;
  }
}

void FileQueue::note_wait() {
  const std::lock_guard lock(mutex_);
  ++stats_.waits;
}

void FileQueue::freed(FileBlob& blob) noexcept {
  const std::lock_guard lock(mutex_);
  if (blob.phase == FileBlob::Phase::put_away) {
    stats_.file_bytes -= blob.bytes.size;
  } else {
    leave_device(blob);
  }
  if (!blob.is_known) return;
  forget_asked(blob);
  --num_known_;
  if (blob.fetched_pass != pass_) --num_unread_;
  if (next_asked_ == &blob) next_asked_ = blob.before;
  if (last_ == &blob) last_ = blob.before;
  if (blob.before != nullptr) blob.before->after = blob.after;
  if (blob.after != nullptr) blob.after->before = blob.before;
}

void FileQueue::forget_asked(FileBlob& blob) noexcept {
  if (blob.is_asked && blob.window == window_) stats_.ahead_bytes -= blob.bytes.size;
  blob.is_asked = false;
}

void FileQueue::enter_device(const FileBlob& blob) noexcept {
  stats_.device_bytes += blob.bytes.size;
  stats_.peak_device_bytes = std::max(stats_.peak_device_bytes, stats_.device_bytes);
}

void FileQueue::leave_device(const FileBlob& blob) noexcept { stats_.device_bytes -= blob.bytes.size; }

StoreStats FileQueue::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

FileBlob::~FileBlob() {
  queue->freed(*this);
  file->discard(bytes.data, bytes.size);
}

FileBlob& blob_of(const Allocation& bytes) { return *static_cast<FileBlob*>(bytes.owner.get()); }

void require_cpu(const Stream& stream) {
  if (stream.device().kind == DeviceKind::cpu) return;
  throw Error(ErrorCode::device_mismatch,
              "store: bytes of a CUDA device are given to a store in a file (allowed: tensors of the CPU)");
}

class FileStore final : public Store {
 public:
  FileStore(std::string folder, std::size_t window_bytes, std::size_t block_bytes)
      : folder_(std::move(folder)),
        block_bytes_(block_bytes),
        queue_(std::make_shared<FileQueue>(window_bytes)),
        volume_(folder_, block_bytes) {}
  FileStore(const FileStore&) = delete;
  FileStore& operator=(const FileStore&) = delete;
  ~FileStore() override { volume_.arena->close(); }

  Allocation reserve(std::size_t bytes, const Stream& stream, Memory& /*memory*/) override {
    require_cpu(stream);
    auto blob = std::make_shared<FileBlob>(queue_, sound_volume(), bytes);
    queue_->reserved(*blob);
    blob->file->prepare(blob->bytes.data, bytes);
    return {blob->bytes.data, bytes, std::move(blob)};
  }

  Allocation put_away(Allocation bytes, const Stream& writer, Memory& /*memory*/) override {
    require_cpu(writer);
    FileBlob& blob = blob_of(bytes);
    queue_->put_away(blob);
    blob.file->put_away(bytes.data, bytes.size);
    return bytes;
  }

  Allocation fetch(const Allocation& held, const Stream& /*writer*/, const Stream& reader,
                   Memory& /*memory*/) override {
    require_cpu(reader);
    FileBlob& blob = blob_of(held);
    const bool is_waiting = !blob.file->is_resident(held.data, held.size);
    if (is_waiting) queue_->note_wait();
    queue_->fetch(blob);
    blob.file->read(held.data, held.size);
    return held;
  }

  void trim() override { volume().arena->trim(); }
  [[nodiscard]] StoreStats stats() const override { return queue_->stats(); }

 private:
  Volume volume() {
    const std::lock_guard lock(mutex_);
    return volume_;
  }

  /// A file that can take bytes: a new one after a failure, and in a process that was forked.
  Volume sound_volume() {
    const std::lock_guard lock(mutex_);
    if (volume_.file->is_lost()) {
      Volume fresh(folder_, block_bytes_);
      volume_.arena->close();
      volume_ = std::move(fresh);
    }
    return volume_;
  }

  const std::string folder_;
  const std::size_t block_bytes_;
  const std::shared_ptr<FileQueue> queue_;
  std::mutex mutex_;
  Volume volume_;
};

}  // namespace

std::shared_ptr<Store> file_store(const std::string& folder, std::size_t window_bytes, std::size_t block_bytes) {
  return std::make_shared<FileStore>(folder, window_bytes, block_bytes);
}

}  // namespace actzip::store
