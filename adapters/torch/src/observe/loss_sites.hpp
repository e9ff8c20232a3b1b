// Finds the sites that belong to a loss: those that save after the last operator of a step that has a parameter, and
// either in no module, or in the forward of the model itself if several there keep values. A single one may be the
// model's last activation.
//
// This is known when a step has ended, so it applies from the next step on. Until then a site counts as a loss's if it
// is in no module and modules have saved before it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "actzip/session.hpp"
#include "actzip/use.hpp"
#include "observe/site_sequence.hpp"

namespace actzip::torch {

class LossSites {
 public:
  /// `session` keeps what is learned.
  explicit LossSites(actzip::Session& session) : session_(session) {}

  /// Call it when a step has ended. Learns from the step if an operator with a parameter saved in it.
  void end_step() {
    for (std::size_t i = 0; model_end_ > 0 && i < saves_.size(); ++i) {
      const Where where = saves_[i].where;
      const bool is_in_loss =
          i >= model_end_ && (where == Where::outside || (where == Where::root && values_behind_ > 1));
      session_.note_part(saves_[i].site, is_in_loss ? StepPart::loss : StepPart::model);
    }
    give_up_step();
    saw_module_ = false;
  }

  /// Forgets this step: saves of steps that run at the same time have no order.
  void give_up_step() {
    saves_.clear();
    model_end_ = 0;
    values_behind_ = 0;
  }

  struct Save {
    SiteId site;
    Use use = Use::unknown;
    Where where = Where::outside;
    bool has_parameter = false;
  };
  /// Records that a site saves. Returns whether the site belongs to a loss.
  bool add(const Save& save) {
    if (saves_.size() == kMostSaves) give_up_step();  // probably a whole training in one scope
    saves_.push_back(save);
    if (save.has_parameter) model_end_ = saves_.size();
    values_behind_ = save.has_parameter ? 0 : values_behind_ + (keeps_values(save.use) ? 1 : 0);
    const bool is_outside = save.where == Where::outside;
    saw_module_ = saw_module_ || !is_outside;
    const StepPart part = session_.part_of(save.site);
    return part == StepPart::unknown ? saw_module_ && is_outside : part == StepPart::loss;
  }

 private:
  static constexpr std::size_t kMostSaves = std::size_t{1} << 17U;
  static bool keeps_values(Use use) {
    return use != Use::sign && use != Use::interval && use != Use::dropout_mask && use != Use::shape &&
           use != Use::index && use != Use::pool_index;
  }

  actzip::Session& session_;   ///< the core's, not the one of torch.hpp
  std::vector<Save> saves_;    ///< of this step, in order
  std::size_t model_end_ = 0;  ///< how many saves come before the loss
  int values_behind_ = 0;      ///< saves of values after these
  bool saw_module_ = false;    ///< in this step
};

}  // namespace actzip::torch
