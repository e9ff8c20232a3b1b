// Which sites belong to a loss: those that save after the last operator of a step which has a parameter, in no module;
// or in the forward of the model itself, if several there keep values: a single one may be the model's last activation.
//
// That is known when a step has ended, so it holds from the next one on. Until then a site is taken for a loss's that
// is in no module, after modules have saved.
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
  /// Learns from the step before, if it met a parameter and ended in peace.
  void begin_step() {
    for (std::size_t i = 0; model_end_ > 0 && i < saves_.size(); ++i) {
      const Where where = saves_[i].where;
      const bool is_in_loss =
          i >= model_end_ && (where == Where::outside || (where == Where::root && values_behind_ > 1));
      part_of(saves_[i].site) = is_in_loss ? Part::loss : Part::model;
    }
    give_up_step();
    saw_module_ = false;
  }

  /// The saves of steps that run at the same time have no order.
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
  /// A site saves. Gives whether it belongs to a loss.
  bool add(const Save& save) {
    saves_.push_back(save);
    if (save.has_parameter) model_end_ = saves_.size();
    values_behind_ = save.has_parameter ? 0 : values_behind_ + (keeps_values(save.use) ? 1 : 0);
    const bool is_outside = save.where == Where::outside;
    saw_module_ = saw_module_ || !is_outside;
    const Part part = part_of(save.site);
    return part == Part::unknown ? saw_module_ && is_outside : part == Part::loss;
  }

 private:
  enum class Part : std::uint8_t { unknown, model, loss };
  static bool keeps_values(Use use) {
    return use != Use::sign && use != Use::interval && use != Use::dropout_mask && use != Use::shape &&
           use != Use::index && use != Use::pool_index;
  }
  Part& part_of(SiteId site) {
    if (site.value >= parts_.size()) parts_.resize(site.value + 1, Part::unknown);
    return parts_[site.value];
  }

  std::vector<Part> parts_;    ///< by site
  std::vector<Save> saves_;    ///< of this step, in their order
  std::size_t model_end_ = 0;  ///< how many of them come before the loss
  int values_behind_ = 0;      ///< saves of values among the others
  bool saw_module_ = false;    ///< in this step
};

}  // namespace actzip::torch
