#include "store/arena.hpp"
#include "store/blocks.hpp"
#include "store/store.hpp"

namespace actzip::store {

namespace {

class DeviceStore : public Store {
 public:
  Allocation reserve(std::size_t bytes, const Stream& stream, Memory& memory) override {
    return memory.allocate(bytes, stream);
  }

  Allocation fetch(const Allocation& held, const Stream& writer, const Stream& reader, Memory& memory) override {
    if (writer.handle() != reader.handle()) memory.hand_over(held, writer, reader);
    return held;
  }

  [[nodiscard]] StoreStats stats() const override { return {}; }
};

class ArenaStore final : public DeviceStore {
 public:
  explicit ArenaStore(std::size_t block_bytes) : arena_(Arena::create(anonymous_blocks(), block_bytes)) {}
  ArenaStore(const ArenaStore&) = delete;
  ArenaStore& operator=(const ArenaStore&) = delete;
  ~ArenaStore() override { arena_->close(); }

  Allocation reserve(std::size_t bytes, const Stream& stream, Memory& memory) override {
    if (stream.device().kind != DeviceKind::cpu) return DeviceStore::reserve(bytes, stream, memory);
    return arena_->allocate(bytes);
  }

  void trim() override { arena_->trim(); }

  [[nodiscard]] StoreStats stats() const override {
    const Arena::Stats arena = arena_->stats();
    StoreStats stats;
    stats.device_bytes = arena.used_bytes;
    stats.peak_device_bytes = arena.peak_used_bytes;
    return stats;
  }

 private:
  std::shared_ptr<Arena> arena_;
};

}  // namespace

Store& device_store() {
  static DeviceStore store;
  return store;
}

std::shared_ptr<Store> arena_store(std::size_t block_bytes) { return std::make_shared<ArenaStore>(block_bytes); }

}  // namespace actzip::store
