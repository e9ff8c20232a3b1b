#include "actzip/session.hpp"

#include "session/state.hpp"

namespace actzip {

Session::Session(const SessionOptions& options) : state_(std::make_shared<session::State>(options)) {}

void Session::begin_step() { state_->begin_step(); }

SiteId Session::site(const SiteKey& key) { return state_->site(key); }

const std::string& Session::site_name(SiteId site) const { return state_->site_name(site); }

Kept Session::keep(SiteId site, const SavedTensor& tensor, const Stream& stream, Memory& memory) {
  return state_->keep(site, tensor, stream, memory);
}

Report Session::report() const { return state_->report(); }

std::size_t Session::live_bytes() const { return state_->live_bytes; }

}  // namespace actzip
