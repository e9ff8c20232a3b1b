#include "fake_device.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "actzip/error.hpp"
#include "stamped.hpp"

namespace actzip::test {

namespace {

Allocation unowned(std::byte* data, std::size_t size) { return {data, size, nullptr}; }

void sleep_for(int microseconds) {
  if (microseconds > 0) std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
}

}  // namespace

void FakeEvent::pass() {
  const std::lock_guard lock(mutex_);
  has_passed_ = true;
  changed_.notify_all();
}

void FakeEvent::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return has_passed_; });
}

bool FakeEvent::has_passed() {
  const std::lock_guard lock(mutex_);
  return has_passed_;
}

FakeStream::FakeStream() : thread_([this] { run(); }) {}

FakeStream::~FakeStream() {
  {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void FakeStream::enqueue(std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  tasks_.push_back(std::move(task));
  changed_.notify_all();
}

std::shared_ptr<FakeEvent> FakeStream::record() {
  auto event = std::make_shared<FakeEvent>();
  enqueue([event] { event->pass(); });
  return event;
}

void FakeStream::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return is_closed_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    const std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    lock.lock();
  }
}

bool Refusals::next() {
  if (until_refusal_ > 0 && --until_refusal_ == 0) return true;
  const std::uint32_t one_in = one_in_;
  if (one_in == 0) return false;
  const std::uint32_t mixed = ++calls_ * 0x9E3779B1U;
  return (mixed >> 8U) % one_in == 0;
}

struct FakeDevice::Block {
  std::unique_ptr<std::byte[]> memory;
  std::size_t bytes = 0;
  FakeStream* home = nullptr;
  std::mutex mutex;
  std::set<FakeStream*> users;  ///< other streams that its memory is kept for
};

class FakeDevice::DeviceCopier final : public Copier {
 public:
  DeviceCopier(FakeDevice& device, int index)
      : device_(device), outward_(device.new_stream(index)), inward_(device.new_stream(index)) {}

  Allocation allocate_pinned(std::size_t bytes) override {
    if (device_.pinned_bytes + bytes > device_.pinned_limit || device_.refused_allocations.next()) {
      throw Error(ErrorCode::store_failure, "store: the fake host has no pinned memory");
    }
    auto* const data = new std::byte[bytes];
    device_.note_live(data, bytes);
    device_.pinned_bytes += bytes;
    ++device_.pinned_blocks;
    return {data, bytes, std::shared_ptr<void>(data, [&device = device_, bytes](void* memory) {
              auto* const start = static_cast<std::byte*>(memory);
              device.note_dead(start);
              std::memset(start, 0xEE, bytes);
              device.pinned_bytes -= bytes;
              delete[] start;
            })};
  }

  [[nodiscard]] Stream outward() const override { return outward_; }
  [[nodiscard]] Stream inward() const override { return inward_; }

  void copy(std::byte* dst, const std::byte* src, std::size_t bytes, const Stream& stream) override {
    if (device_.refused_copies.next()) throw Error(ErrorCode::cuda_failure, "the fake device refuses a copy");
    stream_of(stream).enqueue([&device = device_, dst, src, bytes] {
      sleep_for(device.copy_microseconds);
      if (!device.is_live(dst, bytes) || !device.is_live(src, bytes)) {
        ++device.faults;
        return;
      }
      std::memcpy(dst, src, bytes);
    });
  }

  void let_wait(const Stream& stream, const std::shared_ptr<void>& point) override {
    if (device_.refused_points.next()) throw Error(ErrorCode::cuda_failure, "the fake device refuses to wait");
    stream_of(stream).enqueue([event = std::static_pointer_cast<FakeEvent>(point)] { event->wait(); });
  }

  bool has_passed(const std::shared_ptr<void>& point) override {
    return std::static_pointer_cast<FakeEvent>(point)->has_passed();
  }

  void keep_for(const Allocation& bytes, const Stream& stream) override {
    if (device_.refused_keeps.next()) throw Error(ErrorCode::cuda_failure, "the fake device refuses to keep memory");
    auto& block = *static_cast<Block*>(bytes.owner.get());
    const std::lock_guard lock(block.mutex);
    block.users.insert(&stream_of(stream));
  }

 private:
  FakeDevice& device_;
  const Stream outward_;
  const Stream inward_;
};

FakeDevice::FakeDevice(int num_devices) : reaper_(std::make_unique<FakeStream>()) {
  for (int i = 0; i < num_devices; ++i) copiers_.push_back(std::make_unique<DeviceCopier>(*this, i));
}

FakeDevice::~FakeDevice() { synchronize(); }

Stream FakeDevice::new_stream(int device) {
  const std::lock_guard lock(mutex_);
  streams_.push_back(std::make_unique<FakeStream>());
  return Stream::cuda(streams_.back().get(), device);
}

void FakeDevice::write(const Stream& stream, const Allocation& bytes, std::uint64_t seed) {
  stream_of(stream).enqueue([this, data = bytes.data, size = bytes.size, seed] {
    if (!is_live(data, size)) {
      ++faults;
      return;
    }
    stamp(unowned(data, size), seed);
  });
}

void FakeDevice::read(const Stream& stream, const Allocation& bytes, std::uint64_t seed) {
  stream_of(stream).enqueue([this, data = bytes.data, size = bytes.size, seed] {
    if (!is_live(data, size) || !has_stamp(unowned(data, size), seed)) ++faults;
  });
}

void FakeDevice::delay(const Stream& stream, int microseconds) {
  stream_of(stream).enqueue([microseconds] { sleep_for(microseconds); });
}

void FakeDevice::synchronize() {
  std::vector<FakeStream*> all;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& stream : streams_) all.push_back(stream.get());
  }
  for (FakeStream* stream : all) stream->synchronize();
  reaper_->synchronize();
  look_what_is_free();
}

/// New memory is what the order of `stream` has just let go: what is enqueued there may still write to it.
Allocation FakeDevice::allocate(std::size_t bytes, const Stream& stream) {
  if (refused_allocations.next()) throw Error(ErrorCode::store_failure, "the fake device has no memory");
  if (in_allocator) in_allocator();
  look_what_is_free();
  if (device_bytes + bytes > device_limit) wait_for_freed();
  if (device_bytes + bytes > device_limit) throw Error(ErrorCode::store_failure, "the fake device is full");
  auto block = std::make_shared<Block>();
  block->memory = std::make_unique<std::byte[]>(bytes);
  block->bytes = bytes;
  block->home = &stream_of(stream);
  std::byte* const data = block->memory.get();
  note_live(data, bytes);
  const std::size_t now = device_bytes += bytes;
  std::size_t peak = peak_device_bytes;
  while (peak < now && !peak_device_bytes.compare_exchange_weak(peak, now)) {
  }
  block->home->enqueue([data, bytes] { std::memset(data, 0xDD, bytes); });
  Block* const raw = block.get();
  return {data, bytes, std::shared_ptr<void>(raw, [this, block](void*) { free_block(block); })};
}

/// Its bytes become another's when its own stream and all that it is kept for have come to this point. In the order of
/// its own stream they may be given out again at once: an allocator counts them as free.
void FakeDevice::free_block(const std::shared_ptr<Block>& block) {
  if (in_allocator) in_allocator();
  std::vector<std::shared_ptr<FakeEvent>> points{block->home->record()};
  if (block->users.empty()) device_bytes -= block->bytes;
  for (FakeStream* user : block->users) points.push_back(user->record());
  if (!block->users.empty()) {
    const std::lock_guard lock(mutex_);
    freed_.push_back({points, block->bytes});
  }
  reaper_->enqueue([this, block, points] {
    for (const auto& point : points) point->wait();
    note_dead(block->memory.get());
    std::memset(block->memory.get(), 0xEE, block->bytes);
  });
}

/// As allocators do when they are asked for memory.
void FakeDevice::look_what_is_free() {
  const std::lock_guard lock(mutex_);
  std::erase_if(freed_, [&](const Freed& freed) {
    const bool is_free = std::ranges::all_of(freed.points, [](const auto& point) { return point->has_passed(); });
    if (is_free) device_bytes -= freed.bytes;
    return is_free;
  });
}

/// As allocators do before they say that there is no memory.
void FakeDevice::wait_for_freed() {
  std::vector<std::shared_ptr<FakeEvent>> points;
  {
    const std::lock_guard lock(mutex_);
    for (const Freed& freed : freed_) points.insert(points.end(), freed.points.begin(), freed.points.end());
  }
  for (const auto& point : points) point->wait();
  look_what_is_free();
}

void FakeDevice::hand_over(const Allocation& bytes, const Stream& writer, const Stream& reader) {
  Copier& any = *copiers_.front();
  any.let_wait(reader, point_in(writer));
  any.keep_for(bytes, reader);
}

std::shared_ptr<void> FakeDevice::point_in(const Stream& stream) {
  if (stream.device().kind == DeviceKind::cpu || is_capturing) return nullptr;
  if (refused_points.next()) throw Error(ErrorCode::cuda_failure, "the fake device refuses an event");
  return stream_of(stream).record();
}

void FakeDevice::wait_for(const std::shared_ptr<void>& point) { std::static_pointer_cast<FakeEvent>(point)->wait(); }

Copier* FakeDevice::copier(const Stream& stream) {
  if (stream.device().kind == DeviceKind::cpu || is_capturing) return nullptr;
  return copiers_[static_cast<std::size_t>(stream.device().index)].get();
}

void FakeDevice::note_live(const std::byte* data, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  live_[data] = bytes;
}

void FakeDevice::note_dead(const std::byte* data) {
  const std::lock_guard lock(mutex_);
  live_.erase(data);
}

bool FakeDevice::is_live(const std::byte* data, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  auto block = live_.upper_bound(data);
  if (block == live_.begin()) return false;
  --block;
  return data + bytes <= block->first + block->second;
}

}  // namespace actzip::test
