#include "observe/site_sequence.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace actzip::torch {

bool SiteSequence::begin() {
  const bool says_something = !follows_ && is_whole_ && !current_.empty();  // evaluation, for example, saves nothing
  if (says_something) {
    const bool again = current_ == learned_;
    repeats_ = again ? repeats_ + 1 : 0;
    if (!again) std::swap(learned_, current_);
  }
  current_.clear();
  position_ = 0;
  is_whole_ = true;
  is_left_ = false;
  follows_ = !gave_up_ && repeats_ >= enough_;
  return follows_;
}

void SiteSequence::add(const Save& save) {
  if (current_.size() == kMostSaves) is_whole_ = false;
  if (is_whole_ && !gave_up_) current_.push_back(save);
}

void SiteSequence::forget() {
  learned_.clear();
  current_.clear();
  follows_ = false;
  repeats_ = 0;
}

void SiteSequence::leave() {
  learned_.clear();
  follows_ = is_whole_ = false;
  is_left_ = true;
  repeats_ = 0;
  enough_ = std::min(2 * enough_, kMostRepeats);
}

}  // namespace actzip::torch
