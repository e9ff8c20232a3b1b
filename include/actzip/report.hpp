// What a session did with every tensor that was saved in its last step, and why.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "actzip/types.hpp"
#include "actzip/use.hpp"
#include "actzip/view.hpp"

namespace actzip {

/// How the bits of one tensor are distributed over its samples.
struct SampleBits {
  std::int64_t samples = 0;
  int fewest = 0;
  double mean = 0.0;
  int most = 0;
  double error = 0.0;  ///< relative squared error, with samples weighted as they matter
};

/// What is known of all samples of a data set.
struct SampleStatistics {
  std::int64_t samples = 0;
  std::size_t bytes = 0;  ///< that it occupies on the device
};

/// How a saved tensor was kept.
enum class SiteKind : std::uint8_t {
  as_is,       ///< kept as is; `cause` says why
  shape_only,  ///< backward needs only its shape
  recomputed,  ///< its operator runs again in backward
  shared,      ///< the site in `kept_by` keeps the same memory
  derived,     ///< computed from what the site in `kept_by` keeps
  encoded,     ///< encoded by `codec`
};

/// "as is", "shape only", "recomputed", "shared", "derived", "encoded".
std::string_view to_string(SiteKind kind) noexcept;

/// Why a tensor is kept as is, in a word; `reason` says more.
enum class Cause : std::uint8_t {
  none,       ///< it is not kept as is
  parameter,  ///< it exists anyway, or is computed from one that does and then has bytes
  small,      ///< fewer elements than the session compresses
  type,       ///< no codec takes this kind of tensor
  rule,       ///< a rule of the session
  policy,     ///< the table, the preset or a plan
  guard,      ///< compressing it was seen to spoil a gradient
  caller,     ///< the caller holds it until backward anyway, so it counts as 0 bytes
};
inline constexpr std::array kCauses = {Cause::none, Cause::parameter, Cause::small, Cause::type,
                                       Cause::rule, Cause::policy,    Cause::guard, Cause::caller};

/// "parameter"; "" for none.
std::string_view to_string(Cause cause) noexcept;

/// One place in the step where tensors are saved.
struct SiteReport {
  std::string site;        ///< "layers.0.conv1: convolution.input", with " #1" and so on for repetitions
  std::string module;      ///< "" if no model is known
  std::string op;          ///< "convolution"
  std::string slot;        ///< "input"
  int ordinal = 0;         ///< how often the same module, operator and slot came before in the step
  Use use = Use::unknown;  ///< what its gradient needs of it
  Shape shape;             ///< of the last tensor saved here
  DType dtype = DType::f32;
  SiteKind kind = SiteKind::as_is;
  std::string codec;                ///< for people: "rotated:2" if it is encoded, else the name of its kind
  std::string kept_by;              ///< if shared or derived: the site that keeps it
  std::size_t bytes_before = 0;     ///< what the framework alone would keep; 0 if something else keeps it anyway
  std::size_t bytes_after = 0;      ///< what is kept
  std::size_t bytes_offloaded = 0;  ///< the part of bytes_after that left its device, or memory
  std::string reason;
  std::int64_t saves = 0;  ///< since the session began
  /// Variance of the gradient, relative to its square, for a relative squared error of 1 in the memory that this site
  /// keeps, including every site that shares it. Not set if the session does not know it.
  std::optional<double> sensitivity = {};
  std::optional<double> variance = {};  ///< sensitivity times the error of its codec: what this site adds
  /// If its samples have bits of their own, and the device has reported them.
  std::optional<SampleBits> sample_bits = {};
  Cause cause = Cause::none;
  /// When its memory was kept and freed, in seconds since the step began. kept_at is not set if it keeps nothing,
  /// freed_at not before it is freed.
  std::optional<double> kept_at = {};
  std::optional<double> freed_at = {};
};

/// Where a site is, and what it would keep under a budget.
struct SiteBytes {
  std::string module;
  std::string op;
  std::size_t before = 0;    ///< without the session; 0 if something else keeps it anyway
  std::size_t least = 0;     ///< with the fewest bits
  std::size_t by_table = 0;  ///< with the bits of the table
};

/// What a session that adapts has found out. Variances are relative to the square of the gradient.
struct PlanReport {
  double budget_bits = 0.0;
  double average_bits = 0.0;  ///< of the codes, over the elements of the planned sites; 0 before any plan
  std::int64_t plans = 0;     ///< number of plans so far
  std::optional<std::size_t> predicted_bytes = {};  ///< that the step keeps according to the plan
  std::optional<double> predicted_variance = {};    ///< what compression adds to the gradient
  std::optional<double> measured_variance = {};
  std::optional<double> gradient_variance = {};  ///< the gradient's own variance over batches

  /// Whether compression adds more than 10 % to the gradient's own variance, as far as is known.
  [[nodiscard]] bool adds_much() const;
};

/// What a session with a budget holds between forward and backward, including tensors that are kept exactly.
struct BudgetReport {
  std::string asked;                      ///< SessionOptions::budget
  std::optional<std::size_t> bytes = {};  ///< the limit of the last step; not set while it is unknown
  std::size_t most_held = 0;              ///< the maximum during the last step
};

/// What a session that offloads has done since it began.
struct OffloadReport {
  std::uint64_t copied_out = 0;   ///< bytes from a device to pinned memory; writing into a file copies nothing
  std::uint64_t copied_in = 0;    ///< bytes from pinned memory back to a device
  std::uint64_t passed_over = 0;  ///< bytes that stayed because copies were behind or pinned memory was used up
  std::uint64_t fetches = 0;      ///< fetches of bytes that were put away
  std::uint64_t waits = 0;        ///< fetches that had to start a copy, or to wait for the disk
  std::uint64_t host_waits = 0;   ///< how often forward waited for a device
  std::size_t pinned_bytes = 0;   ///< pinned host memory that the session occupies now
};

struct Report {
  std::string preset;
  std::string runs_as = {};  ///< the level that runs in place of the requested one; usually empty
  bool dry = false;          ///< nothing was compressed; the report says what would be done
  std::int64_t steps = 0;
  std::vector<SiteReport> sites;  ///< of the last step, in the order of their first save
  std::size_t bytes_before = 0;   ///< sums over the sites
  std::size_t bytes_after = 0;
  std::size_t bytes_offloaded = 0;
  std::size_t live_bytes = 0;                              ///< encoded bytes that currently wait for backward
  std::optional<PlanReport> plan = {};                     ///< if the session adapts
  std::optional<BudgetReport> budget = {};                 ///< if it has a budget
  std::optional<OffloadReport> offload = {};               ///< if it offloads
  std::optional<SampleStatistics> sample_statistics = {};  ///< if it knows gradients by sample
  bool index_overflow = false;  ///< a device has found an index outside its operator's bound: a gradient was wrong

  /// bytes_before / bytes_after: how many times smaller. 1 if nothing was saved, infinite if tensors were saved and
  /// nothing is kept of them.
  [[nodiscard]] double ratio() const;

  /// Text for people: a summary in one line, then a table of the sites that keep the most bytes, without parameters and
  /// small tensors, and a last line that counts the others. With `all`, the table has every site, in the order of the
  /// step.
  [[nodiscard]] std::string to_text(bool all = false) const;
  /// One JSON object, whose keys are the names of the fields above.
  [[nodiscard]] std::string to_json() const;
};

}  // namespace actzip
