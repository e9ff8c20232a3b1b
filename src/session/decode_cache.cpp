#include <utility>

#include "session/state.hpp"

namespace actzip::session {

std::optional<Allocation> DecodeCache::find(const Key& key) {
  const std::lock_guard lock(mutex_);
  if (key_ != key) return std::nullopt;
  return values_;
}

void DecodeCache::put(const Key& key, const Allocation& values) {
  Allocation old;  // declared before the lock, so that it is freed after unlocking
  const std::lock_guard lock(mutex_);
  old = std::exchange(values_, values);
  key_ = key;
}

void DecodeCache::forget(const Blob& blob) {
  Allocation old;
  const std::lock_guard lock(mutex_);
  if (key_.blob != &blob) return;
  old = std::exchange(values_, {});
  key_ = {};
}

}  // namespace actzip::session
