// Encoded bytes with everything that is needed to decode them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "actzip/memory.hpp"
#include "actzip/session.hpp"
#include "session/share_table.hpp"
#include "store/held_memory.hpp"
#include "store/store.hpp"

namespace actzip {

class Blob : public std::enable_shared_from_this<Blob> {
 public:
  struct Contents {
    Keep how = Keep::as_is;
    CodecSpec spec = Copy{};
    DType dtype = DType::f32;
    std::int64_t elems = 0;
    Seed seed{0};
    Segments segments;                         ///< samples with bits of their own, or one
    Stream stream;                             ///< the one it was encoded on; on the CPU its executor is not used again
    std::shared_ptr<store::Store> store = {};  ///< where the bytes wait; null: on the device, in the framework's memory
    Allocation bytes;                          ///< empty unless encoded
    std::shared_ptr<void> encoded;      ///< if it has indices on a device: the point of Memory when they are encoded
    const std::string* site = nullptr;  ///< its name, in the state
    bool is_dropped = false;            ///< it passed the budget: there are no bytes, and backward fails
    store::HeldMemory::Part held = {};  ///< what it counts for in a budget

    [[nodiscard]] store::Store& where() const { return store ? *store : store::device_store(); }
  };

  Blob(std::shared_ptr<session::State> state, Contents contents);
  Blob(const Blob&) = delete;
  Blob& operator=(const Blob&) = delete;
  ~Blob();

  [[nodiscard]] const Contents& contents() const { return contents_; }
  /// Whether bytes are to be written into it before anybody may have it.
  [[nodiscard]] bool wants_bytes() const { return contents_.how == Keep::encoded && !contents_.is_dropped; }
  [[nodiscard]] ByteSpan bytes() const {
    return {contents_.bytes.data, contents_.bytes.size, contents_.stream.device()};
  }
  /// When they have been written: its store holds them from now on.
  void put_away(Memory& memory, const store::LeaveNote& note);
  [[nodiscard]] session::State& state() const { return *state_; }

  // What the table knows it by; all of it is set before it is put there.
  session::ShareKeys keys;
  session::Want want{};           ///< what its site asks for
  session::Want have{};           ///< what is kept: more, if others ask for it
  session::Site* site = nullptr;  ///< null until it is kept
  double kept_at = -1.0;          ///< when its site kept it; below 0: it holds nothing

 private:
  std::shared_ptr<session::State> state_;
  Contents contents_;
};

}  // namespace actzip
