// Every solution is the relaxation's picks and some deviations from them. A deviation changes the weight by w and the
// cost by c; what it loses against the price of weight, c + price * w, is never negative, as the picks are optimal at
// that price. The total cost is the relaxation's lower bound plus all losses plus price * (slack left over). So a
// solution that is better than a known one deviates only in ways that lose less than the known one does above the
// bound: the core, mostly a few items of thousands. The search adds one item of it after the other to a list of states,
// those nearest to the price first, and drops states that cannot become better than the best known solution.
#include "plan/core_search.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

namespace actzip::plan {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
constexpr std::size_t kMostStates = std::size_t{1} << 19;  ///< made in all; bounds time and memory

/// An option that is not the relaxation's.
struct Deviation {
  std::uint32_t option;
  std::int64_t weight;  ///< more than the pick's, or less
  double loss;
};

struct CoreItem {
  std::uint32_t item;
  std::vector<Deviation> deviations{};
  double loss_up = kInfinity;    ///< the least loss for each unit of weight, of deviations that add weight
  double loss_down = kInfinity;  ///< of deviations that save weight
};

/// Deviations made so far, taken together.
struct State {
  std::int64_t weight = 0;
  double loss = 0.0;
  std::uint32_t trail = kNone;   ///< of the last deviation
  std::uint32_t option = kNone;  ///< a deviation from the state of that trail that has no trail of its own yet
};

/// How a state came about: a chain back to the first deviation.
struct Trail {
  std::uint32_t before;
  std::uint32_t item;
  std::uint32_t option;
};

using States = std::vector<State>;

class CoreSearch {
 public:
  CoreSearch(const Problem& problem, const Relaxation& relaxation);
  Solution run();

 private:
  void collect_core();
  void tighten_slack();
  void order_core();
  void expand(const CoreItem& item);
  void keep_undominated(const CoreItem& item);
  void note_best();
  [[nodiscard]] double bound(const State& state) const;
  [[nodiscard]] bool hopeless(const State& state) const { return bound(state) >= best_loss_ - rounding_; }
  [[nodiscard]] Picks best_picks() const;

  const Problem& problem_;
  const Relaxation& relaxation_;
  const double price_;
  std::int64_t slack_;
  double rounding_ = 0.0;
  double base_cost_ = 0.0;  ///< of the relaxation's picks
  double best_loss_ = 0.0;  ///< of the best solution known, above the bound
  std::uint32_t best_trail_ = kNone;
  bool improved_ = false;  ///< the best solution known is that of best_trail_, not the relaxation's filled picks

  std::vector<CoreItem> core_;
  double rest_loss_up_ = kInfinity;  ///< of the items that are not yet in the states, as in CoreItem
  double rest_loss_down_ = kInfinity;
  States states_;  ///< by rising weight and falling cost
  States merged_;
  States shifted_;
  States scratch_;
  std::vector<Trail> trails_;
};

CoreSearch::CoreSearch(const Problem& problem, const Relaxation& relaxation)
    : problem_(problem), relaxation_(relaxation), price_(relaxation.price), slack_(relaxation.slack) {
  const double filled_cost = total_cost(problem, relaxation.filled);
  base_cost_ = total_cost(problem, relaxation.picks);
  rounding_ = kRounding * filled_cost;
  for (std::size_t i = 0; i < problem.items(); ++i) {  // item by item: the totals may be large, and their difference small
    const Option& pick = problem.options[relaxation.picks[i]];
    best_loss_ += problem.options[relaxation.filled[i]].cost - pick.cost;
  }
  best_loss_ += price_ * static_cast<double>(slack_);
}

void CoreSearch::collect_core() {
  for (std::uint32_t item = 0; item < problem_.items(); ++item) {
    const Option& pick = problem_.options[relaxation_.picks[item]];
    CoreItem core{.item = item};
    for (std::uint32_t i = problem_.first[item]; i < problem_.first[item + 1]; ++i) {
      if (i == relaxation_.picks[item]) continue;
      const std::int64_t weight = problem_.options[i].weight - pick.weight;
      const double worth = price_ * static_cast<double>(weight);
      double loss = problem_.options[i].cost - pick.cost + worth;
      if (loss < kRounding * std::abs(worth)) loss = 0.0;
      if (loss >= best_loss_) continue;
      core.deviations.push_back({i, weight, loss});
      double& least = weight > 0 ? core.loss_up : core.loss_down;
      least = std::min(least, loss / static_cast<double>(std::abs(weight)));
    }
    if (!core.deviations.empty()) core_.push_back(std::move(core));
  }
}

/// Weights that are multiples of one number leave the rest of the slack to nobody, so the bound is higher.
void CoreSearch::tighten_slack() {
  std::int64_t unit = 0;
  for (const CoreItem& core : core_) {
    for (const Deviation& deviation : core.deviations) unit = std::gcd(unit, deviation.weight);
  }
  const std::int64_t unused = unit == 0 ? slack_ : slack_ % unit;
  slack_ -= unused;
  best_loss_ -= price_ * static_cast<double>(unused);
}

/// The items nearest to the price come first: what is then left can change little without a loss. Of equally near ones
/// those of little weight come first: they make few states, and fill the slack most closely.
void CoreSearch::order_core() {
  const auto order = [](const CoreItem& core) {
    return std::tuple(std::min(core.loss_up, core.loss_down), std::abs(core.deviations.front().weight), core.item);
  };
  std::ranges::sort(core_, {}, order);
}

/// What the solutions that can still come of a state lose at least: the remaining slack is left over or taken by items
/// that lose on it, and weight in excess must be given back.
double CoreSearch::bound(const State& state) const {
  const auto room = static_cast<double>(slack_ - state.weight);
  return state.loss + (room >= 0 ? std::min(price_, rest_loss_up_) * room : rest_loss_down_ * -room);
}

void CoreSearch::expand(const CoreItem& item) {
  const auto lighter = [](const State& a, const State& b) { return a.weight < b.weight; };
  merged_.clear();
  std::ranges::remove_copy_if(states_, std::back_inserter(merged_), [&](const State& state) { return hopeless(state); });
  for (const Deviation& deviation : item.deviations) {
    shifted_.clear();
    for (const State& state : states_) {
      const State next{state.weight + deviation.weight, state.loss + deviation.loss, state.trail, deviation.option};
      if (!hopeless(next)) shifted_.push_back(next);
    }
    scratch_.clear();
    std::ranges::merge(merged_, shifted_, std::back_inserter(scratch_), lighter);
    merged_.swap(scratch_);
  }
  keep_undominated(item);
}

/// A state is dominated by one that weighs no more and costs no more. Survivors get their trails.
void CoreSearch::keep_undominated(const CoreItem& item) {
  const auto costs_no_more = [&](const State& light, const State& heavy) {
    return light.loss + price_ * static_cast<double>(heavy.weight - light.weight) <= heavy.loss;
  };
  states_.clear();
  for (const State& state : merged_) {
    if (!states_.empty() && costs_no_more(states_.back(), state)) continue;
    if (!states_.empty() && states_.back().weight == state.weight) states_.pop_back();
    states_.push_back(state);
  }
  for (State& state : states_) {
    if (state.option == kNone) continue;
    trails_.push_back({state.trail, item.item, state.option});
    state.trail = static_cast<std::uint32_t>(trails_.size() - 1);
    state.option = kNone;
  }
}

/// Cost falls with weight, so the heaviest state that fits is the best.
void CoreSearch::note_best() {
  const auto heavier = std::ranges::upper_bound(states_, slack_, {}, &State::weight);
  if (heavier == states_.begin()) return;
  const State& state = *std::prev(heavier);
  const double loss = state.loss + price_ * static_cast<double>(slack_ - state.weight);
  if (loss >= best_loss_ - rounding_) return;
  best_loss_ = loss;
  best_trail_ = state.trail;
  improved_ = true;
}

Picks CoreSearch::best_picks() const {
  if (!improved_) return relaxation_.filled;
  Picks picks = relaxation_.picks;
  for (std::uint32_t i = best_trail_; i != kNone; i = trails_[i].before) picks[trails_[i].item] = trails_[i].option;
  return picks;
}

Solution CoreSearch::run() {
  collect_core();
  tighten_slack();
  order_core();
  std::vector<std::pair<double, double>> rest(core_.size() + 1, {kInfinity, kInfinity});  // loss up, loss down
  for (std::size_t i = core_.size(); i-- > 0;) {
    rest[i] = {std::min(rest[i + 1].first, core_[i].loss_up), std::min(rest[i + 1].second, core_[i].loss_down)};
  }
  states_ = {State{}};
  std::size_t made = 0;
  std::size_t added = 0;
  for (; added < core_.size() && !states_.empty() && made < kMostStates; ++added) {
    std::tie(rest_loss_up_, rest_loss_down_) = rest[added + 1];
    expand(core_[added]);
    note_best();
    made += states_.size();
  }
  double least_loss = best_loss_;
  if (added < core_.size()) {
    for (const State& state : states_) least_loss = std::min(least_loss, bound(state));
  }
  const double bound_cost = base_cost_ - price_ * static_cast<double>(slack_);
  return {best_picks(), std::max(0.0, bound_cost + least_loss), best_loss_ - least_loss <= rounding_};
}

}  // namespace

Solution search_core(const Problem& problem, const Relaxation& relaxation) {
  return CoreSearch(problem, relaxation).run();
}

}  // namespace actzip::plan
