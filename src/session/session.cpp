#include "actzip/session.hpp"

#include <utility>

#include "session/state.hpp"

namespace actzip {

Reservation::Reservation(std::unique_ptr<Inside> inside) : inside_(std::move(inside)) {}
Reservation::Reservation(Reservation&& other) noexcept = default;
Reservation& Reservation::operator=(Reservation&& other) noexcept = default;
Reservation::~Reservation() = default;

bool Reservation::wants_bytes() const { return inside_->reserved.wants_bytes(); }

const CodecSpec& Reservation::spec() const { return inside_->reserved.made->contents().spec; }

Seed Reservation::seed() const { return inside_->reserved.made->contents().seed; }

ByteSpan Reservation::bytes() const { return inside_->reserved.made->bytes(); }

const Stream& Reservation::stream() const { return inside_->stream; }

const SavedTensor& Reservation::tensor() const { return inside_->tensor; }

const std::string& Reservation::site() const { return inside_->reserved.site->name; }

Session::Session(const SessionOptions& options) : state_(std::make_shared<session::State>(options)) {}

void Session::begin_step() { state_->begin_step(); }

SiteId Session::site(const SiteKey& key) { return state_->site(key); }

SiteId Session::site_named(const std::string& name) const { return state_->site_named(name); }

const std::string& Session::site_name(SiteId site) const { return state_->site_name(site); }

Kept Session::keep(SiteId site, const SavedTensor& tensor, const Stream& stream, Memory& memory, const Kept* source) {
  return state_->keep(site, tensor, stream, memory, source);
}

Reservation Session::reserve(SiteId site, const SavedTensor& tensor, const Stream& stream, Memory& memory) {
  return state_->reserve(site, tensor, stream, memory);
}

Kept Session::keep(Reservation reserved, Written written) { return state_->keep(std::move(reserved), written); }

Decision Session::decide(const SavedTensor& tensor, std::span<const SavedFor> savers) {
  return state_->decide(tensor, savers);
}

void Session::note(SiteId site, const SavedTensor& tensor, const KeptElsewhere& kept) {
  state_->note(site, tensor, kept);
}

double Session::note_made(SiteId site) { return state_->note_made(site); }

void Session::note_released(SiteId site, double kept_at) { state_->note_released(site, kept_at); }

bool Session::is_guarded() const { return state_->is_guarded(); }

bool Session::wants_look(SiteId site) const { return state_->wants_look(site); }

std::int64_t Session::look_round() const { return state_->look_round(); }

Remedy Session::note_look(SiteId site, double noise) { return state_->note_look(site, noise); }

bool Session::is_settled(SiteId site) const { return state_->is_settled(site); }

std::shared_ptr<void> Session::hold_beside(SiteId site, std::size_t bytes) { return state_->hold_beside(site, bytes); }

bool Session::was_looked_at(SiteId site) const { return state_->was_looked_at(site); }

void Session::note_part(SiteId site, StepPart part) { state_->note_part(site, part); }

StepPart Session::part_of(SiteId site) const { return state_->part_of(site); }

bool Session::wants_observation() const { return state_->wants_observation(); }

void Session::note_observed() { state_->note_observed(); }

bool Session::wants_measurement() const { return state_->wants_measurement(); }

void Session::skip_observation() { state_->skip_observation(); }

bool Session::learn(const Observation& observation) { return state_->learn(observation); }

void Session::set_trial(std::optional<Trial> trial) { state_->set_trial(std::move(trial)); }

bool Session::is_trial() const { return state_->is_trial(); }

void Session::set_measured_variance(double variance) { state_->set_measured_variance(variance); }

bool Session::adapts() const { return state_->adapts(); }

std::int64_t Session::saves() const { return state_->saves(); }

bool Session::adds_much() const { return state_->adds_much(); }

std::string Session::take_notice() { return state_->take_notice(); }

std::vector<SiteBytes> Session::site_bytes() const { return state_->site_bytes(); }

std::pair<std::size_t, std::optional<std::size_t>> Session::held() const {
  const session::HeldMemory& held = *state_->held;
  const bool is_known = held.limit() != session::HeldMemory::kNoLimit;
  return {held.now(), is_known ? std::optional(held.limit()) : std::nullopt};
}

void Session::resume_step() { state_->resume_step(); }

void Session::note_counted(SiteId site) { state_->note_counted(site); }

void Session::set_runs_again(bool any, bool changes) { state_->set_runs_again(any, changes); }

Report Session::report() const { return state_->report(); }

std::size_t Session::live_bytes() const { return state_->live_bytes; }

std::string Session::save_state() const { return state_->save(); }

void Session::load_state(std::string_view text) { state_->load(text); }

}  // namespace actzip
