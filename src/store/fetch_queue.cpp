#include "store/fetch_queue.hpp"

#include <algorithm>

namespace actzip::store {

void FetchQueue::add(Entry& entry) noexcept {
  entry.is_known = true;
  entry.before = last_;
  if (last_ != nullptr) last_->after = &entry;
  last_ = &entry;
  ++num_known_;
  ++num_unread_;
  is_forward_ = true;
}

void FetchQueue::remove(Entry& entry) noexcept {
  if (!entry.is_known) return;
  forget_asked(entry);
  entry.is_known = false;
  --num_known_;
  if (entry.fetched_pass != pass_) --num_unread_;
  if (next_asked_ == &entry) next_asked_ = entry.before;
  if (last_ == &entry) last_ = entry.before;
  if (entry.before != nullptr) entry.before->after = entry.after;
  if (entry.after != nullptr) entry.after->before = entry.before;
}

void FetchQueue::note_fetch(Entry& entry) noexcept {
  begin_pass_if_again(entry);
  const bool is_first = entry.fetched_pass != pass_;
  if (is_first) --num_unread_;
  entry.fetched_pass = pass_;
  // Nobody requested this entry, and it is away: backward begins, or takes another order.
  const bool is_surprise = is_first && entry.is_away && !entry.is_asked;
  forget_asked(entry);
  if (is_surprise) begin_window();
  if (is_surprise || is_forward_) continue_from(entry.before);
}

void FetchQueue::foresee() noexcept {
  if (is_forward_) continue_from(last_);
}

/// Entries that were requested but are never used, because their graph is kept and forgotten, must not fill the window
/// for ever.
void FetchQueue::begin_window() noexcept {
  ++window_;
  ahead_bytes_ = 0;
}

/// Requests still count: checkpoints and other threads put entries away in the middle of a backward.
void FetchQueue::continue_from(Entry* first) noexcept {
  is_forward_ = false;
  next_asked_ = first;
}

/// A blob that several operators share is fetched several times in one pass. If all other entries have been fetched as
/// well, this is a new pass.
void FetchQueue::begin_pass_if_again(const Entry& entry) noexcept {
  if (entry.fetched_pass != pass_ || num_unread_ > 0) return;
  ++pass_;
  num_unread_ = num_known_;
}

FetchQueue::Entry* FetchQueue::peek_ahead() noexcept {
  for (; next_asked_ != nullptr; next_asked_ = next_asked_->before) {
    const Entry& entry = *next_asked_;
    if (!entry.is_away || entry.is_asked || entry.fetched_pass == pass_) continue;
    const bool is_alone = ahead_bytes_ == 0 && window_bytes_ > 0;
    return is_alone || ahead_bytes_ + entry.size <= window_bytes_ ? next_asked_ : nullptr;
  }
  return nullptr;
}

FetchQueue::Entry* FetchQueue::next_ahead() noexcept {
  Entry* const entry = peek_ahead();
  if (entry == nullptr) return nullptr;
  next_asked_ = entry->before;
  entry->is_asked = true;
  entry->window = window_;
  ahead_bytes_ += entry->size;
  peak_ahead_bytes_ = std::max(peak_ahead_bytes_, ahead_bytes_);
  return entry;
}

void FetchQueue::take_back(Entry& entry) noexcept {
  forget_asked(entry);
  next_asked_ = &entry;
}

void FetchQueue::forget_asked(Entry& entry) noexcept {
  if (is_ahead(entry)) ahead_bytes_ -= entry.size;
  entry.is_asked = false;
}

}  // namespace actzip::store
