#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "actzip/error.hpp"
#include "store/arena.hpp"
#include "store/fetch_queue.hpp"
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

/// Bytes in a file.
struct FileBlob final : FetchQueue::Entry {
  FileBlob(std::shared_ptr<FileQueue> its_queue, const Volume& volume, std::size_t its_size)
      : Entry(its_size), queue(std::move(its_queue)), file(volume.file), bytes(volume.arena->allocate(its_size)) {}
  FileBlob(const FileBlob&) = delete;
  FileBlob& operator=(const FileBlob&) = delete;
  ~FileBlob();

  const std::shared_ptr<FileQueue> queue;
  const std::shared_ptr<FileBlocks> file;
  const Allocation bytes;

  // Guarded by the queue.
  enum class Phase { reserved, put_away, fetched } phase = Phase::reserved;
};

/// All blobs of a store in their order, and the store's statistics.
class FileQueue {
 public:
  explicit FileQueue(std::size_t window_bytes) : order_(window_bytes) {}

  void reserved(FileBlob& blob);
  void put_away(FileBlob& blob);
  /// Call it before the bytes are read.
  void fetch(FileBlob& blob);
  void foresee();
  void note_wait();
  void freed(FileBlob& blob) noexcept;
  [[nodiscard]] StoreStats stats() const;

 private:
  void ask_ahead();
  void leave_device(const FileBlob& blob) noexcept;
  void enter_device(const FileBlob& blob) noexcept;

  mutable std::mutex mutex_;
  FetchQueue order_;
  StoreStats stats_;
};

void FileQueue::reserved(FileBlob& blob) {
  const std::lock_guard lock(mutex_);
  enter_device(blob);
}

void FileQueue::put_away(FileBlob& blob) {
  const std::lock_guard lock(mutex_);
  if (blob.is_known) return;
  blob.phase = FileBlob::Phase::put_away;
  blob.is_away = true;
  order_.add(blob);
  leave_device(blob);
  stats_.away_bytes += blob.size;
  stats_.peak_away_bytes = std::max(stats_.peak_away_bytes, stats_.away_bytes);
}

void FileQueue::fetch(FileBlob& blob) {
  const std::lock_guard lock(mutex_);
  if (!blob.is_known) return;
  ++stats_.fetches;
  if (blob.phase == FileBlob::Phase::put_away) {
    blob.phase = FileBlob::Phase::fetched;
    stats_.away_bytes -= blob.size;
    enter_device(blob);
  }
  order_.note_fetch(blob);
  ask_ahead();
}

void FileQueue::foresee() {
  const std::lock_guard lock(mutex_);
  order_.foresee();
  ask_ahead();
}

void FileQueue::ask_ahead() {
  while (FetchQueue::Entry* const next = order_.next_ahead()) {
    const auto& blob = static_cast<const FileBlob&>(*next);
    blob.file->read_ahead(blob.bytes.data, blob.bytes.size);
  }
}

void FileQueue::note_wait() {
  const std::lock_guard lock(mutex_);
  ++stats_.waits;
}

void FileQueue::freed(FileBlob& blob) noexcept {
  const std::lock_guard lock(mutex_);
  if (blob.phase == FileBlob::Phase::put_away) {
    stats_.away_bytes -= blob.size;
  } else {
    leave_device(blob);
  }
  order_.remove(blob);
}

void FileQueue::enter_device(const FileBlob& blob) noexcept {
  stats_.device_bytes += blob.size;
  stats_.peak_device_bytes = std::max(stats_.peak_device_bytes, stats_.device_bytes);
}

void FileQueue::leave_device(const FileBlob& blob) noexcept { stats_.device_bytes -= blob.size; }

StoreStats FileQueue::stats() const {
  const std::lock_guard lock(mutex_);
  StoreStats stats = stats_;
  stats.ahead_bytes = order_.ahead_bytes();
  stats.peak_ahead_bytes = order_.peak_ahead_bytes();
  return stats;
}

FileBlob::~FileBlob() {
  queue->freed(*this);
  file->discard(bytes.data, bytes.size);
}

FileBlob& file_blob(const Allocation& bytes) { return *static_cast<FileBlob*>(bytes.owner.get()); }

void require_cpu(const Stream& stream) {
  if (stream.device().kind == DeviceKind::cpu) return;
  throw Error(ErrorCode::device_mismatch,
              "store: bytes of a CUDA device are given to a store in a file (allowed: tensors of the CPU, or "
              "offload 'host')");
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

  Allocation reserve(std::size_t bytes, const Stream& stream, Memory& /*memory*/, HeldMemory::Part /*held*/) override {
    require_cpu(stream);
    auto blob = std::make_shared<FileBlob>(queue_, sound_volume(), bytes);
    queue_->reserved(*blob);
    blob->file->prepare(blob->bytes.data, bytes);
    return {blob->bytes.data, bytes, std::move(blob)};
  }

  Allocation put_away(Allocation bytes, const Stream& writer, Memory& /*memory*/, const LeaveNote& note) override {
    require_cpu(writer);
    FileBlob& blob = file_blob(bytes);
    queue_->put_away(blob);
    note.tell();
    blob.file->put_away(bytes.data, bytes.size);
    return bytes;
  }

  Allocation fetch(const Allocation& held, const Stream& /*writer*/, const Stream& reader,
                   Memory& /*memory*/) override {
    require_cpu(reader);
    FileBlob& blob = file_blob(held);
    const bool is_waiting = !blob.file->is_resident(held.data, held.size);
    if (is_waiting) queue_->note_wait();
    queue_->fetch(blob);
    blob.file->read(held.data, held.size);
    return held;
  }

  void foresee(const Stream& /*reader*/, Memory& /*memory*/) override { queue_->foresee(); }
  void trim() override { volume().arena->trim(); }
  [[nodiscard]] StoreStats stats() const override { return queue_->stats(); }

 private:
  Volume volume() {
    const std::lock_guard lock(mutex_);
    return volume_;
  }

  /// Returns a file that accepts bytes: a new one after a failure, and in a forked process.
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
