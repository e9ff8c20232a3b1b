// Decisions for tensors that are kept outside the session: by compiled graphs, which encode for themselves.
#include <cstddef>

#include "session/state.hpp"

namespace actzip::session {

namespace {

/// Returns the least faithful way of keeping a tensor that gives both savers what they need.
Want serving_both(const Want& a, const Want& b) {
  if (serves(a, b)) return a;
  if (serves(b, a)) return b;
  const Want both = with_plane(a.not_negative ? b : a);
  const bool is_after_relu = a.not_negative || b.not_negative;
  return is_after_relu && serves(both, a) && serves(both, b) ? both : Want{Keep::as_is, Copy{}};
}

bool asks_for_values(const Want& want) { return !want.not_negative; }

}  // namespace

/// Memory that several sites save is kept once, as in keep(); but here all of them are known at once.
Decision State::decide(const SavedTensor& tensor, std::span<const SavedFor> savers) {
  Decision best;
  Want have{Keep::shape_only, Copy{}};
  SavedTensor described = tensor;
  for (const SavedFor& saver : savers) {
    const Site& site = site_at(saver.site);
    described.facts = saver.facts;
    const SiteChoice choice = choose(site, described);  // the plan's choice, if there is a plan
    const Want& want = choice;
    const bool is_first = &saver == savers.data();
    const Want both = is_first ? want : serving_both(have, want);
    const bool is_new = is_first || both.how != have.how || (both.spec != have.spec && asks_for_values(want));
    have = both;
    best.keep = both.how;
    best.spec = both.spec;
    if (!is_new) continue;
    best.site = saver.site;
    best.reason = both.how == want.how ? choice.reason : "its readers ask for different things";
    best.segments = both.how == Keep::encoded ? segments_for(site, described, both.spec) : Segments{};
    best.cause = both.how == Keep::as_is ? choice.cause : Cause::none;
  }
  return best;
}

void State::note(SiteId id, const SavedTensor& tensor, const KeptElsewhere& kept) {
  has_stayed_ = true;
  Reserved noted{.site = &site_at(id), .choice = {}};
  Outcome& outcome = noted.outcome;
  outcome.kind = kept.kind;
  outcome.spec = kept.spec;
  outcome.before = tensor.bytes;
  outcome.after = kept.bytes;
  outcome.reason = kept.reason;
  outcome.cause = kept.cause;
  record(tensor, noted);
}

double State::note_made(SiteId id) { return site_at(id).kept_at = now(); }

void State::note_released(SiteId id, double kept_at) {
  Site& site = site_at(id);
  if (site.kept_at == kept_at) site.freed_at = now();
}

}  // namespace actzip::session
