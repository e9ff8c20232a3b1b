#include <fmt/format.h>
#include <unistd.h>

#include <exception>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "actzip/error.hpp"
#include "store/pinned_lane.hpp"
#include "store/store.hpp"

namespace actzip::store {

namespace {

PinnedBlob& pinned_blob(const Allocation& bytes) { return *static_cast<PinnedBlob*>(bytes.owner.get()); }

StoreStats sum_of(const StoreStats& a, const StoreStats& b) {
  return {.device_bytes = a.device_bytes + b.device_bytes,
          .peak_device_bytes = a.peak_device_bytes + b.peak_device_bytes,
          .away_bytes = a.away_bytes + b.away_bytes,
          .peak_away_bytes = a.peak_away_bytes + b.peak_away_bytes,
          .ahead_bytes = a.ahead_bytes + b.ahead_bytes,
          .peak_ahead_bytes = a.peak_ahead_bytes + b.peak_ahead_bytes,
          .pinned_bytes = a.pinned_bytes + b.pinned_bytes,
          .copied_out = a.copied_out + b.copied_out,
          .copied_in = a.copied_in + b.copied_in,
          .passed_over = a.passed_over + b.passed_over,
          .fetches = a.fetches + b.fetches,
          .waits = a.waits + b.waits,
          .host_waits = a.host_waits + b.host_waits};
}

class PinnedStore final : public Store {
 public:
  explicit PinnedStore(PinnedOptions options) : options_(std::move(options)), process_(getpid()) {}
  PinnedStore(const PinnedStore&) = delete;
  PinnedStore& operator=(const PinnedStore&) = delete;
  ~PinnedStore() override {
    for (const auto& [device, lane] : lanes_) lane->close();
  }

  [[nodiscard]] bool takes(const Stream& stream, Memory& memory) const override {
    return memory.copier(stream) != nullptr;
  }

  Allocation reserve(std::size_t bytes, const Stream& stream, Memory& memory, HeldMemory::Part held) override {
    Allocation device = memory.allocate(bytes, stream);
    auto blob = std::make_shared<PinnedBlob>(lane_of(stream, memory), bytes);
    blob->lane->note_reserved(*blob);
    blob->device = std::move(device);
    blob->held = std::move(held);
    std::byte* const data = blob->device.data;
    return {data, bytes, std::move(blob)};
  }

  /// The result has no address: the bytes may move.
  Allocation put_away(Allocation bytes, const Stream& writer, Memory& /*memory*/, const LeaveNote& note) override {
    PinnedBlob& blob = pinned_blob(bytes);
    blob.lane->put_away(blob, writer, note);
    return {nullptr, bytes.size, std::move(bytes.owner)};
  }

  Allocation fetch(const Allocation& held, const Stream& /*writer*/, const Stream& reader, Memory& memory) override {
    if (getpid() != process_) {
      throw Error(
          ErrorCode::store_failure,
          fmt::format("store: bytes in pinned memory are asked for by process {}, but process {} put them there "
                      "and may have freed them since (allowed: backward in the process of its forward)",
                      getpid(), process_));
    }
    if (!takes(reader, memory)) {
      throw Error(ErrorCode::store_failure,
                  "store: bytes that were put away are asked for while a graph is captured (allowed: forward and "
                  "backward in the same capture, or neither)");
    }
    PinnedBlob& blob = pinned_blob(held);
    return blob.lane->fetch(blob, reader);
  }

  void foresee(const Stream& reader, Memory& memory) override {
    if (!takes(reader, memory)) return;
    if (const auto lane = known_lane_of(reader)) lane->foresee(reader);
  }

  HeldMemory::Part make_room(std::size_t bytes) override {
    while (options_.budget) {
      HeldMemory::Part part = options_.budget->try_hold(bytes);
      if (part || bytes > options_.budget->limit()) return part;
      if (!any_gives_way(all_lanes())) return {};
    }
    return {};
  }

  std::string take_notice() override {
    for (const auto& lane : all_lanes()) {
      if (std::string notice = lane->take_notice(); !notice.empty()) return notice;
    }
    return {};
  }

  void trim() override {
    for (const auto& lane : all_lanes()) lane->trim();
  }

  [[nodiscard]] StoreStats stats() const override {
    StoreStats sum;
    for (const auto& lane : all_lanes()) sum = sum_of(sum, lane->stats());
    return sum;
  }

 private:
  using LanePointer = std::shared_ptr<PinnedLane>;

  /// Frees some memory of one device. An Error of one counts only if no other can.
  static bool any_gives_way(const std::vector<LanePointer>& lanes) {
    std::exception_ptr first_error;
    for (const LanePointer& lane : lanes) {
      try {
        if (lane->give_way()) return true;
      } catch (const std::exception&) {
        if (!first_error) first_error = std::current_exception();
      }
    }
    if (first_error) std::rethrow_exception(first_error);
    return false;
  }

  /// Returns the lane for the device of `stream`, which the store takes.
  LanePointer lane_of(const Stream& stream, Memory& memory) {
    const std::lock_guard lock(mutex_);
    LanePointer& lane = lanes_[stream.device().index];
    if (!lane) lane = std::make_shared<PinnedLane>(options_, memory, *memory.copier(stream));
    return lane;
  }

  [[nodiscard]] LanePointer known_lane_of(const Stream& stream) const {
    const std::lock_guard lock(mutex_);
    const auto found = lanes_.find(stream.device().index);
    return found == lanes_.end() ? nullptr : found->second;
  }

  [[nodiscard]] std::vector<LanePointer> all_lanes() const {
    const std::lock_guard lock(mutex_);
    std::vector<LanePointer> lanes;
    for (const auto& [device, lane] : lanes_) lanes.push_back(lane);
    return lanes;
  }

  const PinnedOptions options_;
  const pid_t process_;
  mutable std::mutex mutex_;
  std::map<int, LanePointer> lanes_;  ///< by device
};

}  // namespace

std::shared_ptr<Store> pinned_store(const PinnedOptions& options) { return std::make_shared<PinnedStore>(options); }

}  // namespace actzip::store
