// Predicts which site saves next. Module paths come from hooks on each module's forward, which cost more than
// everything else. Once steps repeat themselves, the order of the saves gives the same information.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "actzip/session.hpp"

namespace actzip::torch {

struct OperatorInfo;

/// What is known about a save without its module. The parameter is included because layers of one kind differ only in
/// their weights.
struct SaveKey {
  const OperatorInfo* op = nullptr;
  int slot = 0;
  const void* parameter = nullptr;  ///< storage of the first parameter that the operator was given
  bool operator==(const SaveKey&) const = default;
};

/// Where in a model a tensor is saved.
enum class Where : std::uint8_t {
  outside,  ///< outside all modules, or unknown
  root,     ///< in the forward of the model itself
  inside,   ///< in one of its modules
};

/// The sites of one module, operator and slot, by ordinal.
struct SiteGroup {
  std::size_t step = 0;
  std::size_t next = 0;  ///< ordinal of the next save in `step`
  std::string slot;
  Use use = Use::unknown;
  bool weight_slot = false;
  std::vector<SiteId> ids;
};

/// The saves of one step: learned in steps with watched modules, then followed without. Not thread-safe.
class SiteSequence {
 public:
  struct Save {
    SaveKey key;
    SiteGroup* group = nullptr;
    SiteId id;
    Where where = Where::outside;
    bool operator==(const Save&) const = default;
  };

  /// Begins a step. Returns whether it follows the learned sequence; if not, modules must be watched.
  bool begin();

  [[nodiscard]] bool follows() const noexcept { return follows_; }

  /// Returns the expected save if it has that key; null if the step leaves the sequence.
  const Save* follow(const SaveKey& key) {
    if (position_ == learned_.size() || learned_[position_].key != key) return nullptr;
    return &learned_[position_++];
  }

  /// Call it when the step leaves the sequence, which is then learned anew, from twice as many equal steps.
  void leave();

  /// Call it between two steps, of which the second will save something else.
  void forget();

  /// Whether this step has left the sequence; its modules are not watched.
  [[nodiscard]] bool is_left() const noexcept { return is_left_; }

  /// Records a save of a step that does not follow.
  void add(const Save& save);

  /// Never follows again, for instance because steps of several threads overlap.
  void give_up() noexcept { gave_up_ = true; }

 private:
  static constexpr int kFirstRepeats = 2;
  static constexpr int kMostRepeats = 1 << 20;
  static constexpr std::size_t kMostSaves = std::size_t{1} << 17U;  ///< steps with more saves are not learned

  bool follows_ = false;
  bool gave_up_ = false;
  bool is_left_ = false;
  bool is_whole_ = true;  ///< `current_` has all saves of the step
  int repeats_ = 0;       ///< how often `learned_` was repeated
  int enough_ = kFirstRepeats;
  std::size_t position_ = 0;
  std::vector<Save> learned_;
  std::vector<Save> current_;
};

}  // namespace actzip::torch
