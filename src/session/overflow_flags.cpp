// The flag words by which a device reports that an index lay outside its bound.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "actzip/error.hpp"
#include "session/state.hpp"

namespace actzip::session {

namespace {

std::atomic_ref<std::uint32_t> value_of(const Allocation& word) {
  return std::atomic_ref(*reinterpret_cast<std::uint32_t*>(word.data));
}

}  // namespace

ByteSpan OverflowFlags::flag(const Site& site, const Stream& stream, Memory& memory) {
  const std::lock_guard lock(mutex_);
  auto found = std::ranges::find_if(
      flags_, [&](const Flag& flag) { return flag.site == &site && flag.device == stream.device(); });
  if (found == flags_.end()) {
    Allocation word = memory.allocate_visible(sizeof(std::uint32_t), stream);
    found = flags_.insert(found, {&site, stream.device(), std::move(word)});
  }
  return {found->word.data, found->word.size, found->device};
}

void OverflowFlags::check() {
  const std::lock_guard lock(mutex_);
  for (const Flag& flag : flags_) {
    if (value_of(flag.word).exchange(0) == 0) continue;
    raised_ = true;
    throw Error(ErrorCode::index_out_of_bound,
                fmt::format("{}: an index outside the bound that the operator's arguments state; gradients that use it "
                            "are wrong",
                            flag.site->name));
  }
}

bool OverflowFlags::raised() {
  const std::lock_guard lock(mutex_);
  return raised_ || std::ranges::any_of(flags_, [](const Flag& flag) { return value_of(flag.word).load() != 0; });
}

}  // namespace actzip::session
