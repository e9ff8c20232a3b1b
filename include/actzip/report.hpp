// What a session did with everything that was saved in its last step, and why.
#pragma once

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

/// Bits of the samples of one tensor.
struct SampleBits {
  std::int64_t samples = 0;
  int fewest = 0;
  double mean = 0.0;
  int most = 0;
  double error = 0.0;  ///< relative squared error, samples counted as they matter
};

/// What is known of all samples of a data set.
struct SampleStatistics {
  std::int64_t samples = 0;
  std::size_t bytes = 0;  ///< that it takes on the device
};

/// What became of a saved tensor.
enum class SiteKind : std::uint8_t {
  as_is,       ///< kept as it is; `cause` says why
  shape_only,  ///< backward asks for its shape alone
  recomputed,  ///< its operator runs again in backward
  shared,      ///< another site keeps the same memory: `kept_by`
  derived,     ///< computed from what another site keeps: `kept_by`
  encoded,     ///< by `codec`
};

/// "as is", "shape only", "recomputed", "shared", "derived", "encoded".
std::string_view to_string(SiteKind kind) noexcept;

/// Why a tensor is kept as it is, in a word; `reason` says more.
enum class Cause : std::uint8_t {
  none,       ///< it is not
  parameter,  ///< it exists anyway, or is computed from what does: then it has bytes
  small,      ///< fewer elements than the session compresses
  type,       ///< no codec takes this kind of tensor
  rule,       ///< a rule of the session
  policy,     ///< the table, the preset or a plan
  guard,      ///< few bits of it were seen to spoil a gradient
};

/// "parameter"; "" for none.
std::string_view to_string(Cause cause) noexcept;

/// One place of the step where tensors are saved.
struct SiteReport {
  std::string site;        ///< "layers.0.conv1: convolution.input", "#1" and so on for repetitions
  std::string module;      ///< "" where no model is known
  std::string op;          ///< "convolution"
  std::string slot;        ///< "input"
  int ordinal = 0;         ///< how often the same module, operator and slot came before in the step
  Use use = Use::unknown;  ///< what its gradient needs of it
  Shape shape;             ///< of the last tensor
  DType dtype = DType::f32;
  SiteKind kind = SiteKind::as_is;
  std::string codec;                ///< for people: "rotated:2" if it is encoded, else the word for its kind
  std::string kept_by;              ///< if shared or derived: the site that keeps it
  std::size_t bytes_before = 0;     ///< what the framework would keep for it; 0 if something else keeps it anyway
  std::size_t bytes_after = 0;      ///< what is kept
  std::size_t bytes_offloaded = 0;  ///< of that, what left its device, or memory
  std::string reason;
  std::int64_t saves = 0;  ///< since the session began
  /// Variance of the gradient, relative to its square, for a relative squared error of 1 in the memory that this site
  /// keeps, with everything that shares it; if the session knows.
  std::optional<double> sensitivity = {};
  std::optional<double> variance = {};         ///< that times the error of its codec: what it adds as it is kept
  std::optional<SampleBits> sample_bits = {};  ///< if its samples have bits of their own, and the device has said which
  Cause cause = Cause::none;
  /// When what it keeps was kept and freed, in seconds since the step began; none if it keeps nothing, and not freed
  /// yet.
  std::optional<double> kept_at = {};
  std::optional<double> freed_at = {};
};

/// What a session that adapts has found. Variances are relative to the square of the gradient.
struct PlanReport {
  double budget_bits = 0.0;
  double average_bits = 0.0;  ///< of the codes, over the elements of the sites that the plan chose for; 0 before any
  std::int64_t plans = 0;     ///< made so far
  std::optional<std::size_t> predicted_bytes = {};  ///< that the step keeps, by the plan
  std::optional<double> predicted_variance = {};    ///< that compression adds to the gradient
  std::optional<double> measured_variance = {};
  std::optional<double> gradient_variance = {};  ///< its own, over batches

  /// Whether compression adds more than 10 % to the gradient's own variance, as far as is known.
  [[nodiscard]] bool adds_much() const;
};

/// What a session with a budget holds between forward and backward, tensors that are kept exactly included.
struct BudgetReport {
  std::string asked;                      ///< as it was asked for
  std::optional<std::size_t> bytes = {};  ///< of the last step; none while it is not known
  std::size_t most_held = 0;              ///< at any time of the last step
};

/// What a session that offloads has done since it began.
struct OffloadReport {
  std::uint64_t copied_out = 0;   ///< bytes, from a device to pinned memory; into a file nothing is copied
  std::uint64_t copied_in = 0;    ///< bytes, back
  std::uint64_t passed_over = 0;  ///< bytes that stayed, because copies were behind or there was no pinned memory
  std::uint64_t fetches = 0;      ///< of what was put away
  std::uint64_t waits = 0;        ///< of these, those that began a copy when backward asked, or waited for the disk
  std::uint64_t host_waits = 0;   ///< times that forward waited for a device
  std::size_t pinned_bytes = 0;   ///< of the host, taken for the session now
};

struct Report {
  std::string preset;
  std::string runs_as = {};  ///< the level that runs in place of the one asked for; mostly empty
  bool dry = false;          ///< nothing was compressed: the report says what would be done
  std::int64_t steps = 0;
  std::vector<SiteReport> sites;  ///< of the last step, in the order of their first save
  std::size_t bytes_before = 0;   ///< sums over the sites
  std::size_t bytes_after = 0;
  std::size_t bytes_offloaded = 0;
  std::size_t live_bytes = 0;                              ///< encoded bytes that wait for backward now
  std::optional<PlanReport> plan = {};                     ///< of a session that adapts
  std::optional<BudgetReport> budget = {};                 ///< of one that has a budget
  std::optional<OffloadReport> offload = {};               ///< of one that offloads
  std::optional<SampleStatistics> sample_statistics = {};  ///< of one that knows gradients by sample
  bool index_overflow = false;  ///< a device has found an index outside its operator's bound: a gradient was wrong

  /// bytes_before / bytes_after: how many times smaller. 1 where nothing was saved, infinite where nothing is kept of
  /// what was.
  [[nodiscard]] double ratio() const;

  /// For people: a summary in one line, then a table. The table has the sites that keep the most bytes, without
  /// parameters and small tensors, and a last line that counts the others; with `all` it has every site, in the order
  /// of the step.
  [[nodiscard]] std::string to_text(bool all = false) const;
  /// One JSON object; keys are the names of the fields above.
  [[nodiscard]] std::string to_json() const;
};

}  // namespace actzip
