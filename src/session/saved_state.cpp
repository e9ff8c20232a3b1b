// Saves a session as text, and loads it: a line for the session, one for its plan, one for each site. Fields are
// separated by tabs.
#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "actzip/error.hpp"
#include "session/state.hpp"

namespace actzip::session {

namespace {

constexpr std::string_view kTitle = "actzip session 3";
constexpr std::string_view kNone = "-";

[[noreturn]] void fail(std::string_view what) {
  throw Error(ErrorCode::invalid_state,
              fmt::format("session: {} (allowed: what save_state() of a session with the same options gave)", what));
}

template <class Number>
std::string text_of(const std::optional<Number>& value) {
  return value ? fmt::format("{}", *value) : std::string(kNone);
}

std::string text_of(const std::optional<Want>& want) {
  if (!want) return std::string(kNone);
  return fmt::format("{} {} {}", static_cast<int>(want->how), int{want->not_negative}, to_string(want->spec));
}

/// Reads fields from the front of a line, or words from the front of a field.
class Reader {
 public:
  Reader(std::string_view text, char separator) : rest_(text), separator_(separator) {}

  std::string_view next() {
    if (is_done_) fail("a line of its state is too short");
    const std::size_t end = rest_.find(separator_);
    is_done_ = end == std::string_view::npos;
    const std::string_view field = rest_.substr(0, end);
    rest_ = is_done_ ? std::string_view() : rest_.substr(end + 1);
    return field;
  }

  /// Reads a number from 0 to `most`, so that counting on from it cannot overflow.
  template <class T>
  T count(T most = T{1} << (std::numeric_limits<T>::digits - 2)) {
    const T value = number<T>();
    if (value < 0 || value > most) fail(fmt::format("it counts {}", value));
    return value;
  }

  bool flag() { return count<int>(1) == 1; }

  /// Reads a number for a plan: finite and not negative.
  double amount() {
    const auto value = number<double>();
    if (!std::isfinite(value) || value < 0.0) fail(fmt::format("'{}' is no amount", value));
    return value;
  }

  std::optional<std::size_t> optional_count() {
    return skips_none() ? std::nullopt : std::optional(count<std::size_t>());
  }

  std::optional<double> optional_amount() { return skips_none() ? std::nullopt : std::optional(amount()); }

  /// Reads a number that is only reported: any number.
  std::optional<double> optional_number() { return skips_none() ? std::nullopt : std::optional(number<double>()); }

  std::optional<Want> want() {
    const std::string_view field = next();
    if (field == kNone) return std::nullopt;
    Reader words(field, ' ');
    const int how = words.count<int>(static_cast<int>(Keep::encoded));
    const bool not_negative = words.flag();
    const CodecSpec spec = spec_of(words.next());
    words.check_done();
    return Want{static_cast<Keep>(how), spec, not_negative};
  }

  std::optional<CodecSpec> optional_spec() { return skips_none() ? std::nullopt : std::optional(spec_of(next())); }

  [[nodiscard]] bool is_done() const { return is_done_; }

  void check_done() const {
    if (!is_done_) fail("a line of its state is too long");
  }

 private:
  bool skips_none() {
    const bool is_none = rest_.substr(0, rest_.find(separator_)) == kNone;
    if (is_none) next();
    return is_none;
  }

  template <class T>
  T number() {
    const std::string_view field = next();
    T value{};
    const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
    if (error != std::errc{} || end != field.data() + field.size()) fail(fmt::format("'{}' is no number", field));
    return value;
  }

  static CodecSpec spec_of(std::string_view text) {
    try {
      return parse_spec(text);
    } catch (const Error& error) {
      fail(error.what());
    }
  }

  std::string_view rest_;
  char separator_;
  bool is_done_ = false;
};

struct SavedSite {
  std::string_view module, op, slot;
  int ordinal = 0;
  std::optional<Want> asked, planned;
  std::optional<double> sensitivity;
  bool has_plane = false;
  Look look = Look::none;
  std::int64_t look_step = 0;
  std::optional<CodecSpec> raised;
  StepPart part = StepPart::unknown;
  Bits least_bits{1};
  Holder holder = Holder::unknown;
  std::int64_t saves = 0;
};

SavedSite read_site(std::string_view line) {
  Reader fields(line, '\t');
  SavedSite site;
  site.module = fields.next();
  site.op = fields.next();
  site.slot = fields.next();
  site.ordinal = fields.count<int>();
  site.asked = fields.want();
  site.planned = fields.want();
  site.sensitivity = fields.optional_amount();
  site.has_plane = fields.flag();
  site.look = static_cast<Look>(fields.count<int>(static_cast<int>(Look::spoilt)));
  site.look_step = fields.count<std::int64_t>();
  site.raised = fields.optional_spec();
  if ((site.look == Look::noisy) != site.raised.has_value()) fail("a site has more bits without a reason");
  site.part = static_cast<StepPart>(fields.count<int>(static_cast<int>(StepPart::loss)));
  site.holder = static_cast<Holder>(fields.count<int>(static_cast<int>(Holder::nobody)));
  site.least_bits = Bits(fields.count<int>(Affine::kMostBits));
  site.saves = fields.count<std::int64_t>();
  fields.check_done();
  return site;
}

Adaptation::Progress read_progress(std::string_view line, PlanReport report) {
  Reader fields(line, '\t');
  Adaptation::Progress progress;
  progress.steps = fields.count<std::int64_t>();
  progress.is_due = fields.flag();
  report.plans = fields.count<std::int64_t>();
  report.average_bits = fields.amount();
  report.predicted_bytes = fields.optional_count();
  report.predicted_variance = fields.optional_number();
  report.measured_variance = fields.optional_number();
  report.gradient_variance = fields.optional_number();
  fields.check_done();
  progress.report = report;
  return progress;
}

}  // namespace

std::string State::save() {
  const std::lock_guard lock(mutex_);
  const auto [steps, is_due, plan] = adaptation_.progress();
  const auto limit = held->limit() != HeldMemory::kNoLimit ? std::optional(held->limit()) : std::nullopt;
  std::string text = fmt::format("{}\n{}\t{}\t{}\t{}\t{}\n", kTitle, encoded_count_.load(), saves_.load(), step_.load(),
                                 text_of(limit), text_of(overlap_));
  text += fmt::format("{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\n", steps, int{is_due}, plan.plans, plan.average_bits,
                      text_of(plan.predicted_bytes), text_of(plan.predicted_variance), text_of(plan.measured_variance),
                      text_of(plan.gradient_variance));
  for (const Site& site : sites_) {
    text += fmt::format("{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\n", site.module, site.op, site.slot,
                        site.ordinal, text_of(site.asked), text_of(site.planned), text_of(site.sensitivity),
                        int{site.has_plane}, static_cast<int>(site.look.load()), site.look_step.load(),
                        site.raised ? to_string(*site.raised) : kNone, static_cast<int>(site.part.load()),
                        static_cast<int>(site.holder.load()), site.least_bits.value, site.saves);
  }
  return text;
}

void State::load(std::string_view text) {
  if (text.empty() || text.back() != '\n') fail("its state is cut off");
  Reader lines(text.substr(0, text.size() - 1), '\n');
  if (lines.next() != kTitle) fail(fmt::format("its state does not begin with '{}'", kTitle));
  Reader counts(lines.next(), '\t');
  const auto encoded = counts.count<std::uint64_t>();
  const auto saves = counts.count<std::int64_t>();
  const auto step = counts.count<std::int64_t>();
  const auto limit = counts.optional_count();
  const auto overlap = counts.optional_amount();
  counts.check_done();

  const std::lock_guard lock(mutex_);
  if (step_ > 0 || !sites_.empty()) fail("it has begun already");
  const Adaptation::Progress progress = read_progress(lines.next(), adaptation_.report());
  std::vector<SavedSite> sites;
  while (!lines.is_done()) sites.push_back(read_site(lines.next()));

  encoded_count_ = encoded;
  saves_ = saves;
  step_ = step;
  if (budget_ && limit) held->set_limit(*limit);
  overlap_ = planned_overlap_ = overlap;
  adaptation_.set_progress(progress);
  for (const SavedSite& saved : sites) {
    Site& site = sites_[make_site({saved.module, saved.op, saved.slot, saved.ordinal}).value];
    site.asked = saved.asked;
    site.planned = saved.planned;
    site.sensitivity = saved.sensitivity;
    site.has_plane = saved.has_plane;
    site.look = saved.look;
    site.look_step = saved.look_step;
    site.raised = saved.raised;
    site.part = saved.part;
    site.least_bits = saved.least_bits;
    site.holder = saved.holder;
    site.saves = saved.saves;
  }
}

}  // namespace actzip::session
