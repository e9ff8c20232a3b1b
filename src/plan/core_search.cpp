// Every solution is the relaxation's picks plus some deviations. A deviation changes the weight by w and the cost by c.
// Against the price of weight it loses c + price * w, which is never negative, because the picks are optimal at that
// price. The total cost is the relaxation's lower bound, plus all losses, plus price * (slack left over). So a solution
// better than a known one can contain only deviations that lose less than the known solution lies above the bound. The
// items with such deviations are the core: usually a few items in thousands.
//
// The search adds one item of the core after the other to a list of states, the heavy ones first. For the items not yet
// added it uses the relaxation again. That bounds what a state can still become, and states that cannot beat the best
// known solution are dropped. Rounded, the relaxation also completes the most promising state to a solution.
#include "plan/core_search.hpp"

#include <algorithm>
#include <bit>
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
constexpr double kNoise = 1e-14;                          ///< relative rounding error of a difference between two costs
constexpr std::size_t kMostTried = std::size_t{1} << 18;  ///< states in total: bounds the time
constexpr std::size_t kMostStates = std::size_t{1} << 15;  ///< states in the list: bounds the memory

constexpr std::size_t kCompleted = 4;  ///< states completed at a time

/// An option that differs from the relaxation's pick.
struct Deviation {
  std::uint32_t option;
  std::int64_t weight;  ///< relative to the pick; may be negative
  double loss;
};

struct CoreItem {
  std::uint32_t item;
  std::vector<Deviation> deviations{};
  double least_loss = kInfinity;
  double least_rate = kInfinity;  ///< loss per unit of weight
  std::int64_t most_added = 0;    ///< weight of the heaviest deviation
  std::int64_t most_saved = 0;    ///< weight that the lightest deviation gives back
};

/// What items can add to the weight at the least loss, if they may be divided; or what they can save.
class Reserve {
 public:
  void clear() {
    weights_.assign(1, 0.0);
    losses_.assign(1, 0.0);
    rates_.clear();
  }

  /// Adds the next item; rates must not fall from one item to the next.
  void add(std::int64_t weight, double rate) {
    weights_.push_back(weights_.back() + static_cast<double>(weight));
    losses_.push_back(losses_.back() + rate * static_cast<double>(weight));
    rates_.push_back(rate);
  }

  /// Returns the least loss at which the items move `weight`. A unit that none of them moves loses `otherwise`.
  [[nodiscard]] double least_loss(double weight, double otherwise) const {
    const auto after = std::ranges::lower_bound(weights_, weight);
    if (after == weights_.end()) return losses_.back() + (weight - weights_.back()) * otherwise;
    if (after == weights_.begin()) return 0.0;
    const auto last = static_cast<std::size_t>(after - weights_.begin()) - 1;  // the item that is divided
    return losses_[last] + (weight - weights_[last]) * rates_[last];
  }

 private:
  std::vector<double> weights_;  ///< sums over the items before each one
  std::vector<double> losses_;   ///< the same
  std::vector<double> rates_;
};

/// Deviations made so far, taken together.
struct State {
  std::int64_t weight = 0;
  double loss = 0.0;
  double bound = 0.0;            ///< lower bound on the loss of all solutions that this state can become
  std::uint32_t trail = kNone;   ///< trail of the last deviation
  std::uint32_t option = kNone;  ///< a further deviation, which has no trail of its own yet
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
  void refresh_pending(std::uint32_t next);
  void expand(const CoreItem& item);
  void keep_undominated(const CoreItem& item);
  void note_best();
  void note(const State& state);
  void complete(State state);
  void complete_some();
  [[nodiscard]] double bound(const State& state) const;
  [[nodiscard]] double limit() const { return best_loss_ - rounding_; }  ///< the loss to be improved on
  [[nodiscard]] std::uint32_t trail_to(std::uint32_t before, std::uint32_t item, std::uint32_t option);
  [[nodiscard]] Picks best_picks() const;

  const Problem& problem_;
  const Relaxation& relaxation_;
  const double price_;
  std::int64_t slack_;
  double rounding_ = 0.0;
  double base_cost_ = 0.0;  ///< cost of the relaxation's picks
  double best_loss_ = 0.0;  ///< loss of the best known solution, above the bound
  std::uint32_t best_trail_ = kNone;
  bool improved_ = false;  ///< the best known solution is that of best_trail_, not the relaxation's filled picks

  std::vector<CoreItem> core_;          ///< in the order in which they are added to the states
  std::vector<std::uint32_t> pending_;  ///< items of the core that are not yet added, nearest to the price first
  Reserve to_add_;                      ///< of the pending items
  Reserve to_save_;
  std::size_t tried_ = 0;
  States states_;  ///< by rising weight and falling cost
  States merged_;
  States shifted_;
  States scratch_;
  std::vector<Trail> trails_;
};

CoreSearch::CoreSearch(const Problem& problem, const Relaxation& relaxation)
    : problem_(problem), relaxation_(relaxation), price_(relaxation.price), slack_(relaxation.slack) {
  base_cost_ = total_cost(problem, relaxation.picks);
  rounding_ = kRounding * total_cost(problem, relaxation.filled);
  best_loss_ = price_ * static_cast<double>(slack_);
  // Item by item, since the totals may be large and their difference small.
  for (std::size_t i = 0; i < problem.items(); ++i) {
    best_loss_ += problem.options[relaxation.filled[i]].cost - problem.options[relaxation.picks[i]].cost;
  }
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
      if (loss < kNoise * std::abs(worth)) loss = 0.0;
      if (loss >= best_loss_) continue;
      core.deviations.push_back({i, weight, loss});
      core.least_loss = std::min(core.least_loss, loss);
      core.least_rate = std::min(core.least_rate, loss / static_cast<double>(std::abs(weight)));
      core.most_added = std::max(core.most_added, weight);
      core.most_saved = std::max(core.most_saved, -weight);
    }
    if (!core.deviations.empty()) core_.push_back(std::move(core));
  }
}

/// If all weights are multiples of one number, no deviation can use the remainder of the slack, so the bound is higher.
void CoreSearch::tighten_slack() {
  std::int64_t unit = 0;
  for (const CoreItem& core : core_) {
    for (const Deviation& deviation : core.deviations) unit = std::gcd(unit, deviation.weight);
  }
  const std::int64_t unused = unit == 0 ? slack_ : slack_ % unit;
  slack_ -= unused;
  best_loss_ -= price_ * static_cast<double>(unused);
}

/// Items near to the price come first, because their states lose little, and heavy ones, because they decide how much
/// is left for the rest: the lighter the rest is, the tighter is its relaxation.
void CoreSearch::order_core() {
  const auto order = [](const CoreItem& core) {
    const auto heaviest = static_cast<double>(std::max(core.most_added, core.most_saved));
    return std::tuple(core.least_rate / std::sqrt(heaviest), -heaviest, core.item);
  };
  std::ranges::sort(core_, {}, order);
  pending_.resize(core_.size());
  std::iota(pending_.begin(), pending_.end(), 0U);
  std::ranges::stable_sort(pending_, {}, [&](std::uint32_t i) { return core_[i].least_rate; });
}

/// Keeps as pending only items from `next` on that a better solution may change.
void CoreSearch::refresh_pending(std::uint32_t next) {
  std::erase_if(pending_, [&](std::uint32_t i) { return i < next || core_[i].least_loss >= limit(); });
  to_add_.clear();
  to_save_.clear();
  for (const std::uint32_t i : pending_) {
    to_add_.add(core_[i].most_added, core_[i].least_rate);
    to_save_.add(core_[i].most_saved, core_[i].least_rate);
  }
}

/// Remaining slack is left over, or filled by items that lose on it; excess weight must be given back.
double CoreSearch::bound(const State& state) const {
  const auto room = static_cast<double>(slack_ - state.weight);
  return state.loss + (room >= 0 ? to_add_.least_loss(room, price_) : to_save_.least_loss(-room, kInfinity));
}

void CoreSearch::expand(const CoreItem& item) {
  const auto keep_if_hopeful = [&](State state, States& to) {
    if (state.loss >= limit()) return;
    state.bound = bound(state);
    if (state.bound < limit()) to.push_back(state);
  };
  const auto lighter = [](const State& a, const State& b) { return a.weight < b.weight; };
  merged_.clear();
  for (const State& state : states_) keep_if_hopeful(state, merged_);
  for (const Deviation& deviation : item.deviations) {
    if (deviation.loss >= limit()) continue;
    tried_ += states_.size();
    shifted_.clear();
    for (State state : states_) {
      state.weight += deviation.weight;
      state.loss += deviation.loss;
      state.option = deviation.option;
      keep_if_hopeful(state, shifted_);
    }
    scratch_.clear();
    std::ranges::merge(merged_, shifted_, std::back_inserter(scratch_), lighter);
    merged_.swap(scratch_);
  }
  keep_undominated(item);
}

/// Drops dominated states: another state weighs no more and costs no more. Survivors get their trails.
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
    if (state.option != kNone) state.trail = trail_to(state.trail, item.item, state.option);
    state.option = kNone;
  }
}

std::uint32_t CoreSearch::trail_to(std::uint32_t before, std::uint32_t item, std::uint32_t option) {
  trails_.push_back({before, item, option});
  return static_cast<std::uint32_t>(trails_.size() - 1);
}

/// Notes the heaviest state that fits: cost falls with weight, so it is the best.
void CoreSearch::note_best() {
  const auto heavier = std::ranges::upper_bound(states_, slack_, {}, &State::weight);
  if (heavier != states_.begin()) note(*std::prev(heavier));
}

void CoreSearch::note(const State& state) {
  const double loss = state.loss + price_ * static_cast<double>(slack_ - state.weight);
  if (loss >= limit()) return;
  best_loss_ = loss;
  best_trail_ = state.trail;
  improved_ = true;
}

/// Adds deviations of pending items greedily: as long as there is too much weight, those that save weight; then those
/// that fit. Notes the result if it is the best so far.
void CoreSearch::complete(State state) {
  const std::size_t trails_before = trails_.size();
  for (const std::uint32_t i : pending_) {
    const std::int64_t room = slack_ - state.weight;
    const auto helps = [&](const Deviation& deviation) {
      return room < 0 ? deviation.weight < 0 : deviation.weight > 0 && deviation.weight <= room;
    };
    const auto found = std::ranges::find_if(core_[i].deviations, helps);
    if (found == core_[i].deviations.end()) continue;
    state.weight += found->weight;
    state.loss += found->loss;
    state.trail = trail_to(state.trail, core_[i].item, found->option);
    if (state.loss >= limit()) break;
  }
  if (state.weight <= slack_) note(state);
  if (best_trail_ != state.trail) trails_.resize(trails_before);
}

/// Completes the most promising state, and some others, as many states may promise the same.
void CoreSearch::complete_some() {
  if (states_.empty()) return;
  complete(*std::ranges::min_element(states_, {}, &State::bound));
  const std::size_t stride = (states_.size() + kCompleted - 1) / kCompleted;
  for (std::size_t i = 0; i < states_.size(); i += stride) complete(states_[i]);
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
  states_ = {State{}};
  std::uint32_t next = 0;
  std::size_t refresh_at = 0;
  while (next < core_.size() && !states_.empty()) {
    const CoreItem& item = core_[next];
    if (tried_ > kMostTried || states_.size() > kMostStates) break;
    ++next;
    if (item.least_loss >= limit()) continue;
    const bool refresh = tried_ >= refresh_at;  // bounds that count too many items as pending are valid, but loose
    if (refresh) refresh_pending(next);
    expand(item);
    note_best();
    if (!refresh) continue;
    complete_some();
    refresh_at = tried_ + pending_.size();  // as much work goes into the bounds as into the states
  }
  double least_loss = best_loss_;
  if (next < core_.size()) {
    for (const State& state : states_) least_loss = std::min(least_loss, state.bound);
  }
  const double bound_cost = base_cost_ - price_ * static_cast<double>(slack_);
  return {best_picks(), std::max(0.0, bound_cost + least_loss), best_loss_ - least_loss <= rounding_};
}

}  // namespace

Solution search_core(const Problem& problem, const Relaxation& relaxation) {
  return CoreSearch(problem, relaxation).run();
}

}  // namespace actzip::plan
