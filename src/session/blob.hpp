// Encoded bytes with everything needed to decode them.
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
    Segments segments;  ///< samples with bits of their own, or one segment
    Stream stream;      ///< the stream it was encoded on; on the CPU its executor is not used again
    /// Where the bytes wait. Null: on the device, in the framework's memory.
    std::shared_ptr<store::Store> store = {};
    Allocation bytes;  ///< empty unless encoded
    /// If it has indices on a device: the point of Memory at which they are encoded.
    std::shared_ptr<void> encoded;
    const std::string* site = nullptr;  ///< name of its site, owned by the state
    bool is_dropped = false;            ///< it passed the budget: it has no bytes, and backward fails
    store::HeldMemory::Part held = {};  ///< the bytes that it counts for in a budget

    [[nodiscard]] store::Store& where() const { return store ? *store : store::device_store(); }
  };

  Blob(std::shared_ptr<session::State> state, Contents contents);
  Blob(const Blob&) = delete;
  Blob& operator=(const Blob&) = delete;
  ~Blob();

  [[nodiscard]] const Contents& contents() const { return contents_; }
  /// Whether its bytes must be written before anyone may use it.
  [[nodiscard]] bool wants_bytes() const { return contents_.how == Keep::encoded && !contents_.is_dropped; }
  [[nodiscard]] ByteSpan bytes() const {
    return {contents_.bytes.data, contents_.bytes.size, contents_.stream.device()};
  }
  /// Gives the written bytes to its store, which holds them from now on.
  void put_away(Memory& memory, const store::LeaveNote& note);
  [[nodiscard]] session::State& state() const { return *state_; }

  // What the table of shares knows about it; all of this is set before insertion.
  session::ShareKeys keys;
  Want want{};                    ///< what its site needs
  Want have{};                    ///< what is kept; more if other sites need it
  session::Site* site = nullptr;  ///< null until it is kept
  double kept_at = -1.0;          ///< when its site kept it; below 0 if it holds nothing

 private:
  std::shared_ptr<session::State> state_;
  Contents contents_;
};

}  // namespace actzip
