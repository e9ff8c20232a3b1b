#include "session/state.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <utility>
#include <variant>

#include "actzip/codec.hpp"
#include "actzip/error.hpp"
#include "actzip/registry.hpp"
#include "session/blob.hpp"
#include "store/store.hpp"

namespace actzip::session {

namespace {

/// Bytes of a tensor kept as it is, below which it costs more to find it again than to keep it twice.
constexpr std::size_t kWorthSharing = 4096;

std::string codec_text(const Outcome& outcome) {
  switch (outcome.kind) {
    case Outcome::Kind::as_is: return "as is";
    case Outcome::Kind::shape_only: return "shape only";
    case Outcome::Kind::shared: return "shared";
    case Outcome::Kind::encoded: break;
  }
  return to_string(outcome.spec);
}

/// As far as the device has said.
std::optional<SampleBits> sample_bits(const Site& site) {
  const auto summary = site.summaries.last();
  if (!summary) return std::nullopt;
  return SampleBits{.samples = site.last.samples,
                    .fewest = summary->fewest_bits,
                    .mean = summary->mean_bits,
                    .most = summary->most_bits,
                    .error = summary->error};
}

std::string name_of(const SiteKey& key) {
  std::string name;
  if (!key.module.empty()) name = fmt::format("{}: ", key.module);
  name += fmt::format("{}.{}", key.op, key.slot);
  if (key.ordinal > 0) name += fmt::format(" #{}", key.ordinal);
  return name;
}

std::size_t tensor_bytes(const SavedTensor& tensor) {
  if (tensor.role != Role::activation) return tensor.bytes;
  return static_cast<std::size_t>(unique_elems(tensor.view.shape)) * dtype_bytes(tensor.view.dtype);
}

/// Values after a ReLU, with the mask plane that serves the ReLU too.
Want with_plane(Want want) {
  if (auto* rotated = std::get_if<Rotated>(&want.spec)) rotated->mask_plane = true;
  return want;
}

Want want_of(const Choice& choice) { return {choice.keep, choice.spec, choice.not_negative}; }

/// A saver that asked for a mask, and is served by a blob of values.
bool asks_for_plane(const Choice& choice, const Blob& blob) {
  return std::holds_alternative<Mask>(choice.spec) && std::holds_alternative<Rotated>(blob.contents().spec);
}

}  // namespace

std::optional<Allocation> DecodeCache::find(const Key& key) {
  const std::lock_guard lock(mutex_);
  if (key_ != key) return std::nullopt;
  return values_;
}

void DecodeCache::put(const Key& key, const Allocation& values) {
  Allocation old;  // freed after the lock
  const std::lock_guard lock(mutex_);
  old = std::exchange(values_, values);
  key_ = key;
}

void DecodeCache::forget(const Blob& blob) {
  Allocation old;
  const std::lock_guard lock(mutex_);
  if (key_.blob != &blob) return;
  old = std::exchange(values_, {});
  key_ = {};
}

State::State(const SessionOptions& options)
    : options_(options),
      policy_(options.preset, policy_bits(options), options.rules),
      by_sample_(parse_adapt(options.adapt).by_sample),
      adaptation_(options) {
  if (options.min_elems < 0) {
    throw Error(ErrorCode::invalid_spec, fmt::format("session: min_elems {} (allowed: 0 or more)", options.min_elems));
  }
}

void State::begin_step() {
  overflow.check();
  const std::lock_guard lock(mutex_);
  ++step_;
  order_.clear();
  is_observed_ = false;
  if (!trial_) adaptation_.begin_step();
}

void State::note_observed() {
  const std::lock_guard lock(mutex_);
  is_observed_ = true;
}

bool State::wants_observation() {
  const std::lock_guard lock(mutex_);
  return trial_ ? trial_->observe : adaptation_.wants_observation();
}

bool State::wants_measurement() {
  const std::lock_guard lock(mutex_);
  return !trial_ && adaptation_.wants_measurement();
}

bool State::learn(const Observation& observation) {
  const auto is_sound = [](double value) { return std::isfinite(value) && value >= 0.0; };
  if (!std::ranges::all_of(observation.sites, is_sound, &SiteSensitivity::value)) return false;
  const std::lock_guard lock(mutex_);
  for (const SiteSensitivity& found : observation.sites) {
    auto& known = sites_[found.site.value].sensitivity;
    known = known ? std::lerp(*known, found.value, observation.weight) : found.value;
  }
  if (observation.gradient_variance && is_sound(*observation.gradient_variance)) {
    adaptation_.set_gradient_variance(*observation.gradient_variance);
  }
  adaptation_.plan(order_);
  return true;
}

void State::set_trial(std::optional<Trial> trial) {
  const std::lock_guard lock(mutex_);
  trial_ = std::move(trial);
  has_trial_ = trial_.has_value();
}

void State::set_measured_variance(double variance) {
  const std::lock_guard lock(mutex_);
  adaptation_.set_measured_variance(variance);
}

bool State::adds_much() {
  const std::lock_guard lock(mutex_);
  return adaptation_.is_on() && adaptation_.report().adds_much();
}

SiteId State::site(const SiteKey& key) {
  std::string name = name_of(key);
  const std::lock_guard lock(mutex_);
  const auto [place, is_new] = site_by_name_.try_emplace(name, SiteId{static_cast<std::uint32_t>(sites_.size())});
  if (is_new) {
    Site& site = sites_.emplace_back();
    site.id = place->second;
    site.module = key.module;
    site.op = key.op;
    site.slot = key.slot;
    site.ordinal = key.ordinal;
    site.name = std::move(name);
    site.row = &policy_.row(key.op, key.slot, site.name);
  }
  return place->second;
}

Site& State::site_at(SiteId id) {
  const std::lock_guard lock(mutex_);
  return sites_[id.value];
}

SiteId State::site_named(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto found = site_by_name_.find(name);
  if (found == site_by_name_.end()) {
    throw Error(ErrorCode::invalid_spec, fmt::format("session: no site '{}' (allowed: names as in the report)", name));
  }
  return found->second;
}

const std::string& State::site_name(SiteId site) { return site_at(site).name; }

State::Decision State::decide(const Site& site, const SavedTensor& tensor) {
  Decision decision{by_policy(site, tensor)};
  if (!adaptation_.is_on() || tensor.role != Role::activation) return decision;
  Choice& choice = decision.choice;
  decision.can_plan = can_plan(*site.row, choice);
  if (!decision.can_plan) return decision;
  const std::lock_guard lock(mutex_);
  if (site.planned) {
    choice.keep = site.planned->how;
    choice.spec = site.planned->spec;
    choice.reason = "as planned";
  }
  if (is_tried(site)) {
    choice.keep = Keep::encoded;
    choice.spec = trial_noise(choice.spec).spec;
  }
  return decision;
}

/// Sites that share memory are tried together.
bool State::is_tried(const Site& site) const {
  if (!trial_) return false;
  return std::ranges::any_of(
      trial_->sites, [&](SiteId id) { return id == site.id || (site.keeper != nullptr && id == site.keeper->id); });
}

Choice State::by_policy(const Site& site, const SavedTensor& tensor) const {
  if (tensor.role != Role::activation) return {.keep = Keep::as_is, .spec = Copy{}, .reason = tensor.role_reason};
  if (!options_.only.empty() && site.name != options_.only) {
    return {.keep = Keep::as_is, .spec = Copy{}, .reason = "another site alone is compressed"};
  }
  const std::int64_t elems = unique_elems(tensor.view.shape);
  if (elems < options_.min_elems) return {.keep = Keep::as_is, .spec = Copy{}, .reason = "small"};
  return policy_.choose(*site.row, tensor.view.dtype, tensor.view.shape, tensor.facts);
}

Kept State::keep(SiteId id, const SavedTensor& tensor, const Stream& stream, Memory& memory) {
  Site& site = site_at(id);
  const auto [choice, may_plan] = decide(site, tensor);
  Outcome outcome;
  outcome.reason = choice.reason;
  Kept kept;
  if (tensor.role == Role::unsupported) {
    outcome.before = outcome.after = tensor.bytes;
  } else if (tensor.role == Role::activation) {
    kept = keep_memory(site, tensor, choice, stream, memory, outcome);
  }
  record(site, tensor, outcome, kept, may_plan);
  kept.by_sample = kept.blob && kept.blob->contents().segments.total_bits != 0;
  if (may_plan && !kept.as_mask) kept.trial = trial_noise(kept.blob ? kept.blob->contents().spec : Copy{});
  kept.site = {shared_from_this(), &site.name};
  return kept;
}

/// Activations hold memory of their own: shared with an earlier save, kept as they are, encoded, or let go.
Kept State::keep_memory(Site& site, const SavedTensor& tensor, const Choice& choice, const Stream& stream,
                        Memory& memory, Outcome& outcome) {
  const std::size_t bytes = tensor_bytes(tensor);
  if (choice.keep == Keep::as_is && bytes < kWorthSharing) {
    outcome.before = outcome.after = bytes;
    return {};
  }
  ShareKeys keys = options_.only.empty() ? share_keys(tensor, stream) : ShareKeys();
  const Want want = want_of(choice);
  const Found found = shared.find(keys, want);
  if (choice.keep == Keep::shape_only) {
    outcome.kind = Outcome::Kind::shape_only;
    outcome.before = found.blob ? 0 : bytes;
    return {.how = options_.dry ? Keep::as_is : Keep::shape_only};
  }
  if (found.blob) {
    const Blob::Contents& have = found.blob->contents();
    outcome.kind = Outcome::Kind::shared;
    outcome.shared_with = have.site;
    return {.how = have.how,
            .as_mask = have.how == Keep::encoded && asks_for_plane(choice, *found.blob),
            .blob = found.blob};
  }
  outcome.after = bytes;
  outcome.before = found.weaker != nullptr ? 0 : bytes;  // the same memory counts once
  const Want have = to_store(site, want, found);
  if (have.how != want.how) outcome.reason = "as a later saver of the same memory asks";
  std::shared_ptr<Blob> blob;
  if (have.how == Keep::encoded) {
    outcome.kind = Outcome::Kind::encoded;
    outcome.spec = have.spec;
    const Segments segments = segments_for(site, tensor, have.spec);
    outcome.samples = segments.total_bits != 0 ? segments.count : 0;
    outcome.after = encoded_bytes(have.spec, tensor.view.dtype, tensor.view.shape, segments);
    if (!options_.dry) blob = encode_blob(site, tensor, have.spec, segments, stream, memory);
  }
  const Keep how = blob ? Keep::encoded : Keep::as_is;
  if (!blob) {
    Blob::Contents nothing;
    nothing.site = &site.name;
    blob = std::make_shared<Blob>(shared_from_this(), std::move(nothing));
  }
  blob->keys = std::move(keys);
  blob->want = want;
  blob->have = have;  // in dry mode what would be kept, so that the report counts as the real run would
  blob->site = &site;
  shared.insert(*blob);
  return {.how = how, .as_mask = how == Keep::encoded && asks_for_plane(choice, *blob), .blob = blob};
}

/// Memory that several sites save is kept once, as the most faithful of them asks. The first of them cannot know; so
/// the others teach it, for the next step.
Want State::to_store(const Site& site, const Want& want, const Found& found) {
  const std::lock_guard lock(mutex_);
  if (is_tried(site)) return site.has_plane ? with_plane({Keep::encoded, trial_noise(Copy{}).spec, true}) : want;
  if (found.weaker == nullptr) return site.asked && serves(*site.asked, want) ? *site.asked : want;
  const Want both = found.weaker_want.not_negative ? with_plane(want) : want;
  auto& asked = found.weaker->asked;
  if (serves(both, found.weaker_want) && (!asked || serves(both, *asked))) asked = both;
  return both;
}

/// What a user asked for is left as it is, and so are noise that is tried and what an operator encodes itself.
Segments State::segments_for(const Site& site, const SavedTensor& tensor, const CodecSpec& spec) {
  if (!by_sample_ || site.row->treatment == Treatment::ruled || tensor.encoder != nullptr) return {};
  if (has_trial_) {
    const std::lock_guard lock(mutex_);
    if (is_tried(site)) return {};
  }
  return sample_segments(spec, tensor, least_bits(*site.row));
}

SegmentSummary* State::next_summary(Site& site, const Stream& stream, Memory& memory) {
  const std::lock_guard lock(mutex_);
  return site.summaries.next(is_observed_, stream, memory);
}

std::shared_ptr<Blob> State::encode_blob(Site& site, const SavedTensor& tensor, const CodecSpec& spec,
                                         Segments segments, const Stream& stream, Memory& memory) {
  Blob::Contents contents{.how = Keep::encoded,
                          .spec = spec,
                          .dtype = tensor.view.dtype,
                          .elems = unique_elems(tensor.view.shape),
                          .seed = next_seed(site),
                          .segments = segments,
                          .stream = stream,
                          .bytes = {},
                          .site = &site.name};
  try {
    const std::size_t size = encoded_bytes(spec, contents.dtype, contents.elems, segments);
    contents.bytes = store::device_store().reserve(size, stream, memory);
    const bool needs_flag = workspace_bytes(spec, contents.dtype, contents.elems) > 0;
    const ByteSpan flag = needs_flag ? overflow.flag(site, stream, memory) : ByteSpan{};
    const ByteSpan dst(contents.bytes.data, size, stream.device());
    if (segments.total_bits != 0) {
      SegmentSummary* summary = next_summary(site, stream, memory);
      encode_samples({spec, segments, least_bits(*site.row), summary}, tensor, dst, contents.seed, stream, memory);
    } else if (tensor.encoder == nullptr || !tensor.encoder->encode(spec, dst, contents.seed, stream)) {
      encode(spec, tensor.view, dst, contents.seed, stream, Segments{}, flag);
    }
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}", site.name, error.what()));
  }
  if (stream.device().kind == DeviceKind::cpu && std::holds_alternative<Index>(spec)) overflow.check();
  live_bytes += contents.bytes.size;
  return std::make_shared<Blob>(shared_from_this(), std::move(contents));
}

void State::record(Site& site, const SavedTensor& tensor, const Outcome& outcome, const Kept& kept, bool can_plan) {
  const std::lock_guard lock(mutex_);
  if (site.step != step_) order_.push_back(&site);
  site.step = step_;
  ++site.saves;
  site.shape = tensor.view.shape;
  site.dtype = tensor.view.dtype;
  site.last = outcome;
  site.can_plan = can_plan;
  site.keeper = kept.blob ? kept.blob->site : nullptr;
  const auto* rotated = std::get_if<Rotated>(&outcome.spec);
  if (rotated != nullptr && rotated->mask_plane && !can_plan) site.has_plane = true;
}

namespace {

std::uint64_t spread(std::uint64_t x) {
  x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31U);
}

}  // namespace

/// Consecutive numbers, spread over all bits, so that sessions with neighbouring seeds share no signs. In a trial by
/// site, so that all but what is tried is the same again.
Seed State::next_seed(const Site& site) {
  constexpr std::uint64_t kStep = 0x9E3779B97F4A7C15ULL;
  const std::uint64_t start = options_.seed * 0xD1342543DE82EF95ULL;
  if (!has_trial_) return Seed(spread(start + (encoded_count_++ + 1) * kStep));
  const std::lock_guard lock(mutex_);
  const std::uint64_t seed = spread(trial_->seed * kStep + (is_tried(site) ? 1 : 0));
  return Seed(spread(start + seed + (site.id.value + 1) * kStep));
}

/// A site's row speaks for all that share what it keeps.
void State::add_variance(const Site& keeper, SiteReport& row) const {
  for (const Site* site : order_) {
    if (site->keeper == &keeper && site->sensitivity)
      row.sensitivity = row.sensitivity.value_or(0.0) + *site->sensitivity;
  }
  if (!row.sensitivity) return;
  const bool is_exact = keeper.last.kind != Outcome::Kind::encoded;
  const double error = row.sample_bits ? row.sample_bits->error : expected_error(keeper.last.spec);
  row.variance = is_exact ? 0.0 : *row.sensitivity * error;
}

Report State::report() {
  Report report;
  report.preset = policy_.preset();
  report.dry = options_.dry;
  report.live_bytes = live_bytes;
  report.index_overflow = overflow.raised();
  const std::lock_guard lock(mutex_);
  report.steps = step_;
  if (adaptation_.is_on()) report.plan = adaptation_.report();
  for (const Site* site : order_) {
    SiteReport row{.site = site->name,
                   .module = site->module,
                   .op = site->op,
                   .slot = site->slot,
                   .ordinal = site->ordinal,
                   .shape = site->shape,
                   .dtype = site->dtype,
                   .codec = codec_text(site->last),
                   .bytes_before = site->last.before,
                   .bytes_after = site->last.after,
                   .reason = std::string(site->last.reason),
                   .saves = site->saves};
    if (site->last.samples > 0) row.sample_bits = sample_bits(*site);
    add_variance(*site, row);
    if (site->last.shared_with != nullptr) row.reason = fmt::format("kept by {}", *site->last.shared_with);
    report.bytes_before += row.bytes_before;
    report.bytes_after += row.bytes_after;
    report.sites.push_back(std::move(row));
  }
  return report;
}

}  // namespace actzip::session
